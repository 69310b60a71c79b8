"""Chains against MXNet's recorded ones and against one Module of the joined symbol."""

import collections
import functools
import logging
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import NonFiniteError
from helpers import chain_cases as cases
from helpers.nets import blobs
from helpers.small_fits import CONTEXTS, SHAPES, TWO, batch, both_contexts, parameters, ready, same

GOLDENS = np.load(Path(__file__).parents[1] / "data" / "goldens" / "chain" / "chains.npz")
WIRED, LABELLED = {"auto_wiring": True}, {"auto_wiring": True, "take_labels": True}


DATA = mx.sym.Variable("data")


def low(data=DATA, width=5, name="low"):
    return mx.sym.Activation(mx.sym.FullyConnected(data, num_hidden=width, name=name), act_type="tanh")


def top(data=DATA):
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(data, num_hidden=4, name="top"), name="softmax")


def chain_of(*symbols, contexts=None):
    """Return a chain of modules, the last of which takes labels."""
    chain = mx.mod.SequentialModule()
    for symbol in symbols[:-1]:
        chain.add(mx.mod.Module(symbol, label_names=None, context=contexts), **WIRED)
    return chain.add(mx.mod.Module(symbols[-1], context=contexts), **LABELLED)


def two():
    return chain_of(low(), top())


@pytest.mark.parametrize("where", CONTEXTS)
@pytest.mark.parametrize("case", cases.CHAINS)
@pytest.mark.filterwarnings("ignore:the optimizer was made outside Module")
def test_chain_computes_what_mxnet_recorded(case, where):
    found, start = cases.train_chain(mx, case, CONTEXTS[where]), f"{case}/{where}/"
    wanted = {key[len(start) :]: GOLDENS[key] for key in GOLDENS.files if key.startswith(start)}
    same(found, wanted, 4e-6)


def parts():
    """Return a network in four pieces, and the same in one."""
    pieces = [low, lambda x: mx.sym.BatchNorm(x, fix_gamma=False, name="bn"), lambda x: low(x, 7, "mid"), top]
    return [piece(DATA) for piece in pieces], functools.reduce(lambda net, piece: piece(net), pieces, DATA)


def fill(desc, array):
    array[:] = cases.values(desc, array.shape) + (1.0 if desc.endswith("_var") else 0.0)


@both_contexts
def test_gradients_that_add_up_equal_those_of_the_joined_network(contexts):
    (pieces, joined), results = parts(), []
    for mod in (chain_of(*pieces, contexts=contexts), mx.mod.Module(joined, context=contexts)):
        ready(mod, init=fill, inputs_need_grad=True, grad_req="add", optimizer={"learning_rate": 1.0})
        for number in range(3):
            mod.forward(batch(seed=number), is_train=True)
            mod.backward()
        grads = mod.get_input_grads()[0].asnumpy()
        mod.update()
        results.append({"grads": grads, **parameters(mod)})
    same(*results, 1e-5)


def test_batches_of_another_size_bind_again():
    chain, Plain = ready(two()), collections.namedtuple("Plain", ["data", "label"])
    chain.forward(batch(5), is_train=False)
    assert chain.output_shapes == [("softmax_output", (5, 4))]
    chain.forward_backward(batch(11))
    assert chain.get_outputs()[0].shape == (11, 4)
    chain.forward(Plain([mx.nd.ones((3, 6))], None), is_train=False)
    assert chain.get_outputs()[0].shape == (3, 4)


def test_types_and_layouts_of_the_inputs_pass_auto_wiring():
    first = mx.mod.Module(mx.sym.Activation(mx.sym.Variable("x"), act_type="relu"), ["x"], None, context=TWO)
    chain = mx.mod.SequentialModule().add(first, **WIRED)
    ready(chain, shapes=[[mx.io.DataDesc("anything", (3, 8, 7), "float64", "TNC")]])
    chain.forward(mx.io.DataBatch([mx.nd.ones((3, 8, 7), dtype="float64")]))
    found = chain.get_outputs(merge_multi_context=False)[0]
    assert [(each.shape, each.dtype) for each in found] == [((3, 4, 7), np.float64)] * 2


def test_monitor_sees_every_module():
    chain = two()
    chain.bind(*SHAPES)
    monitor = mx.mon.Monitor(1, pattern=".*output")
    chain.install_monitor(monitor)
    chain.init_params()
    monitor.tic()
    chain.forward(batch(), is_train=True)
    assert {"low_output", "top_output", "softmax_output"} <= {name for _, name, _ in monitor.toc()}


def test_nonfinite_outputs_stop_fit_and_a_metric_without_takers_warns():
    data, label = blobs(8)
    data[0, 0] = np.nan
    with pytest.raises(NonFiniteError, match="softmax_output"):
        two().fit(mx.io.NDArrayIter(data, label, 8), num_epoch=1)
    chain = mx.mod.SequentialModule().add(mx.mod.Module(low(), label_names=None))
    ready(chain, shapes=SHAPES[:1]).forward(batch(), is_train=False)
    assert chain.label_shapes is None
    with pytest.warns(UserWarning, match="take_labels=True"):
        chain.update_metric(mx.metric.create("acc"), batch().label)


def test_stages_and_binding_twice(caplog):
    chain = ready(two(), optimizer={})
    with caplog.at_level(logging.WARNING):
        chain.bind([("data", (3, 6))], [("softmax_label", (3,))])
        chain.init_optimizer()
    assert (len(caplog.records), chain.data_shapes[0].shape) == (2, (8, 6))
    chain.bind([("data", (3, 6))], [("softmax_label", (3,))], force_rebind=True)
    assert chain.output_shapes == [("softmax_output", (3, 4))]
    assert (chain.binded, chain.params_initialized, chain.optimizer_initialized) == (True, True, True)
    chain.add(mx.mod.Module(low(name="more"), label_names=None))
    assert (chain.binded, chain.params_initialized, chain.optimizer_initialized) == (False, False, False)


class Halves(mx.mod.BaseModule):
    """A module as programs for MXNet write them: it sets the three booleans and knows nothing of `pad`."""

    data_names, output_names = ["data"], ["halves_output"]
    data_shapes = property(lambda self: self.shapes[0])
    label_shapes = property(lambda self: self.shapes[1])
    output_shapes = property(lambda self: [("halves_output", self.shapes[0][0][1])])

    def bind(self, data_shapes, label_shapes=None, for_training=True, inputs_need_grad=False, **options):
        self.shapes, self.inputs_need_grad, self.binded = (data_shapes, label_shapes), inputs_need_grad, True

    def init_params(self, *args, **kwargs):
        self.params_initialized = True

    def get_params(self):
        return {}, {}

    def init_optimizer(self, *args, **kwargs):
        self.optimizer_initialized = True

    def forward(self, data_batch, is_train=None):
        self.out = data_batch.data[0] * 0.5

    def get_outputs(self, merge_multi_context=True):
        return [self.out]

    def get_input_grads(self, merge_multi_context=True):
        return [self.out * 0]

    def update_metric(self, eval_metric, labels, pre_sliced=False):
        eval_metric.update(labels, self.get_outputs())

    def backward(self, *args, **kwargs):
        pass

    update = install_monitor = backward


def test_modules_written_for_mxnet_work():
    own, chain = Halves(), mx.mod.SequentialModule().add(mx.mod.Module(low(width=4), label_names=None))
    chain.add(own, take_labels=True)
    metric = mx.metric.create("acc")
    chain.fit(mx.io.NDArrayIter(*blobs(10), 8), eval_metric=metric, num_epoch=1)
    assert metric.num_inst == 16  # it counts padding
    assert (own.binded, own.params_initialized, own.optimizer_initialized) == (True, True, True)
    own.binded = False
    assert own.optimizer_initialized is False
