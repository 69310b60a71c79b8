"""Wrong calls of executors, and of what makes them."""

import numpy as np
import torch

import dpmodule as mx
from dpmodule import base
from dpmodule.base import ArgumentError, DTypeError, NodeError, ShapeError, StateError
from dpmodule.executor import from_pool, grad_reqs
from helpers.nets import mlp

S = mx.sym
X, DATA = S.Variable("x"), S.Variable("data")
ONE, TWO = mx.nd.ones((1,)), mx.nd.ones((2,))
DENSE = S.FullyConnected(DATA, num_hidden=3, name="fc")
NORM = S.BatchNorm(DENSE, name="bn")


def bound(net=X * 2, **shapes):
    return net.simple_bind(mx.cpu(), **(shapes or {"x": (2,)}))


def heads(given, net=None):
    """Go backward with head gradients from outputs a and b of shape (1,)."""
    net = S.Group([S.identity(X * 2, name=name) for name in "ab"]) if net is None else net
    executor = bound(net, x=(1,))
    executor.forward(is_train=True)
    executor.backward(given)


def reshape(options=None, **shapes):
    bound(S.SoftmaxOutput(DENSE, name="softmax"), data=(4, 5)).reshape(**(options or {}), **shapes)


def copy_params(*args):
    bound(NORM, data=(2, 3)).copy_params_from(*args)


def to_torch(net=DENSE, args=None, states=None, **options):
    args = args if isinstance(args, list) else {k: mx.nd.ones(v) for k, v in (args or {}).items()}
    net.to_torch(args, {k: mx.nd.ones(v) for k, v in (states or {}).items()}, **options)


def named(*names):
    net = sum((S.Variable(name) for name in names), DATA)
    to_torch(net, dict.fromkeys(names, (1,)))


def share_sparse():
    weight = mx.nd.array([[0, 0], [1, 2], [0, 0]]).tostype("row_sparse")
    S.FullyConnected(DATA, num_hidden=3, no_bias=True, name="fc").to_torch({"fc_weight": weight}, share=True)


def not_for_torch():
    ragged = S.sequence_pool(S.Variable("words", stype="ragged"), pool_type="mean", name="pooled")
    update = S.sgd_mom_update(*(S.Variable(n) for n in ("weight", "grad", "mom")), lr=0.1, name="step")
    to_torch(S.Group([ragged, update]), {}, {"mom": (1,)})


def placed(**groups):
    with mx.AttrScope(ctx_group="front"):
        net = S.FullyConnected(DATA, num_hidden=8, name="fc1")
    net.simple_bind(mx.cpu(), group2ctx=groups, data=(5, 6))


def placed_module(groups):
    with mx.AttrScope(ctx_group="front"):
        net = mlp()
    mod = mx.mod.Module(net, context=[mx.cpu(0), mx.cpu(1)], group2ctxs=groups)
    mod.bind([("data", (4, 6))], [("softmax_label", (4,))])


def other_type():
    pool = {}
    for dtype in ("float32", "int32"):
        from_pool(pool, "data", (2,), mx.cpu(), dtype)


def measured_under_a_profiler():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        bound().memory(measure=True)


def taken(net, **values):
    executor = bound(net, **{name: np.shape(value) for name, value in values.items()})
    executor.forward(**values)


PICK = S.take(S.Variable("w"), S.Variable("i"), mode="raise", name="pick")
NAMES = ["data", "weight"]
BATCHED = {"data": (8, 5), "softmax_label": (8,)}
LOST = S.broadcast_add(S.Reshape(DATA, shape=(-1, 4)), S.zeros((0, 4)))

ROWS = [
    # forward and backward
    (lambda: bound().forward(zz=TWO), base.SignatureError, "forward: 'zz' is not an argument; arguments: x"),
    (lambda: bound().forward(x=mx.nd.ones(3)), ShapeError, r"x has shape \(3,\), expected \(2,\)"),
    (lambda: bound().forward(x=["a", "b"]), DTypeError, "expected numbers"),
    (lambda: heads(3), ArgumentError, "out_grads is int"),
    (lambda: heads([ONE]), ArgumentError, "'b_output' is not a loss, so its gradient must be given"),
    (lambda: heads([ONE, np.ones(1)]), ArgumentError, "b_output is ndarray"),
    (lambda: heads([ONE, TWO]), ShapeError, r"b_output has shape \(2,\), expected \(1,\)"),
    (lambda: heads({"c_output": ONE}), ArgumentError, "c_output is not an output"),
    (lambda: heads(None, S.MakeLoss(X) + X), ArgumentError, "is not a loss"),
    (lambda: bound(S.Group([X, X])).output_dict, ArgumentError, "two outputs have the same name"),
    (
        lambda: taken(PICK, w=np.ones((3, 2)), i=[7]),
        NodeError,
        r"take 'pick' made at .*executor.py:\d+.*inputs w \(3, 2\), i \(1,\)",
    ),
    (measured_under_a_profiler, StateError, "while no profiler runs"),
    (lambda: mx.mod.Module(mlp()).explain(), StateError, "explain"),
    # reshape and copies
    (lambda: reshape(data=(2, 5)), ArgumentError, r"softmax_label changes from \(4,\) to \(2,\) although"),
    (lambda: reshape(**BATCHED), ArgumentError, "data would grow.*allow_up_sizing=True"),
    (lambda: reshape(zz=(2,)), ArgumentError, "zz is not an argument; arguments: data, fc_weight"),
    (lambda: reshape(softmax_label=(2,)), ShapeError, "softmax"),
    (lambda: reshape(data=(2, 5, 5), fc_weight=(3, 7)), ShapeError, "fc"),
    (lambda: copy_params({"zz": ONE}), ArgumentError, "'zz' is not an argument of this graph: data, fc_weig"),
    (lambda: copy_params({}, {"zz": ONE}), ArgumentError, "'zz' is not an auxiliary state"),
    (lambda: copy_params({"fc_bias": TWO}), ShapeError, r"fc_bias has shape \(2,\), expected \(3,\)"),
    (other_type, DTypeError, "data: the shared array is float32, this executor needs int32"),
    # options
    (lambda: grad_reqs(NAMES, "often"), ArgumentError, "data is 'often', expected one of write, add, null"),
    (lambda: grad_reqs(NAMES, ["write"]), ArgumentError, "1 entries for 2 arguments: data, weight"),
    (lambda: grad_reqs(NAMES, ["write", 1]), ArgumentError, "grad_req of weight is 1"),
    (lambda: grad_reqs(NAMES, None), ArgumentError, "grad_req is None"),
    (lambda: mx.mod.Module(mlp(), compile=["inductor"]), ArgumentError, "compile is .*name of a backend"),
    (lambda: mx.mod.Module(mlp(), mirror="all"), ArgumentError, "'all', expected None, True, False, or"),
    (lambda: mx.mod.Module(mlp(), mirror=-1), ArgumentError, "mirror is -1"),
    (lambda: mx.engine.set_bulk_size(-1), ArgumentError, "size is -1"),
    (lambda: bound(stype_dict={"x": "coo"}, x=(3, 4)), ArgumentError, "stype_dict: x is 'coo'"),
    (lambda: placed(back=mx.cpu(1)), ArgumentError, "'fc1_weight'.* group 'front', but group2ctx"),
    (lambda: placed(front="cpu"), ArgumentError, "expected a dict of Contexts"),
    (lambda: placed(front=mx.gpu(77)), base.DeviceError, r"gpu\(77\)"),
    (lambda: placed_module([{}]), ArgumentError, "group2ctxs"),
    (lambda: placed_module({"front": [mx.cpu(0)] * 3}), ArgumentError, "group2ctxs"),
    # torch modules
    (
        lambda: to_torch(NORM, {"bn_gamma": (3,), "bn_beta": (3,)}),
        ArgumentError,
        "arg_params has no fc_weight, fc_bias.*aux_params has no bn_moving_mean, bn_moving_var",
    ),
    (lambda: to_torch(args=[1]), ArgumentError, "arg_params is list, expected a dict"),
    (lambda: to_torch(args={"arg:fc_weight": (3, 2)}), ArgumentError, "have the prefixes.*load_checkpoint"),
    (
        lambda: to_torch(args={"fc_weight": (3, 2), "fc_bias": (4,)}),
        ShapeError,
        r"fc.*bias.*\(4,\), exp.*\(3,\)",
    ),
    (
        lambda: named("type", "a.b", "a", "c..d", "training"),
        ArgumentError,
        "'type' of 'type'.*'a' is a variable, so 'a.b'.*'c..d' has an empty part.*'training' of",
    ),
    (share_sparse, ArgumentError, "row_sparse, which cannot be shared"),
    (not_for_torch, base.OpError, "'words'.*stored as ragged.*'step'"),
    (lambda: to_torch(LOST), ArgumentError, "_zeros.*give shapes=.*data"),
]
