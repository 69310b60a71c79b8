"""Wrong calls of `mx.contrib`: mixed precision and SVRG."""

import dpmodule as mx
from dpmodule.base import ArgumentError, DTypeError, StateError
from dpmodule.contrib import amp
from dpmodule.contrib.svrg_optimization.svrg_module import SVRGModule
from dpmodule.contrib.svrg_optimization.svrg_optimizer import _SVRGOptimizer
from helpers import chain_cases
from helpers.nets import mlp

BATCH = mx.io.DataBatch([mx.nd.ones((8, 2))], [mx.nd.ones((8,))])


def svrg(optimizer=True, update_freq=2):
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1, name="fc")
    net = mx.sym.LinearRegressionOutput(net, mx.sym.Variable("label"), name="out")
    mod = SVRGModule(net, ["data"], ["label"], update_freq=update_freq)
    mod.bind([("data", (8, 2))], [("label", (8,))])
    mod.init_params()
    if optimizer:
        mod.init_optimizer()
    return mod


def data(rows=16):
    x, y = chain_cases.svrg_data()
    return mx.io.NDArrayIter(x[:rows], y[:rows], 8, label_name="label")


def empty():
    train = data()
    list(train)
    train.reset = lambda: None
    return train


def backward():
    mod = svrg()
    mod.forward(BATCH, is_train=False)
    mod.backward()


FIRST = r"call update_full_grads\(train_data\) first"
ROWS = [
    (lambda: amp.convert_symbol(mlp(), "int8"), ArgumentError, "target_dtype is 'int8'"),
    (lambda: amp.convert_symbol(mlp(), excluded_sym_names=["zz"]), ArgumentError, "sym_names has zz"),
    (lambda: amp.convert_symbol(mlp(), fp32_ops=["NoOp"]), ArgumentError, "'NoOp', which is not an operator"),
    (lambda: amp.convert_bucketing_module(mlp()), ArgumentError, "no parameters yet"),
    (lambda: amp.init("int8"), ArgumentError, "target_dtype is 'int8'"),
    (lambda: amp.init(fp32_ops=["nothing"]), ArgumentError, "fp32_ops has 'nothing', which is not an"),
    (lambda: amp.init_trainer(mx.optimizer.SGD()), ArgumentError, "SGD is not a trainer; make a Module"),
    (lambda: svrg(update_freq=None), DTypeError, "update_freq is None, expected a number of epochs from 1"),
    (lambda: svrg(update_freq=0), ArgumentError, "update_freq is 0, expected"),
    (lambda: svrg().forward(BATCH, is_train=True), StateError, FIRST),
    (lambda: svrg().forward_backward(BATCH), StateError, FIRST),
    (backward, StateError, FIRST),
    (lambda: svrg(False).update_full_grads(data()), StateError, r"call init_optimizer\(\) first"),
    (lambda: svrg().update_full_grads(empty()), ArgumentError, "train_data has no batch"),
    (
        lambda: _SVRGOptimizer("sgd", param_idx2name={0: "weight"}).create_state(7, mx.nd.ones((1,))),
        ArgumentError,
        "no parameter has the number 7; param_idx2name has 0",
    ),
]
