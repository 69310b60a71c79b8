"""MXNet habits that are not obvious, each seen on MXNet 1.9.1."""

import json

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import MXNetError

S, nd = mx.sym, mx.nd
X = S.Variable("x")


def test_null_leaves_the_array_alone():
    grad = nd.ones(3)
    bound = (X * 2).bind(mx.cpu(), [nd.array([1, 2, 3])], [grad], "null")
    bound.forward(is_train=True)
    bound.backward(nd.ones(3))
    assert grad.asnumpy().tolist() == [1, 1, 1]
    module = mx.mod.Module(X * 2, ["x"], None)
    module.bind([("x", (4,))], for_training=False)
    assert set(module._exec_group.grad_req.values()) == {"null"}


def test_automatic_variables_inherit_attributes_and_free_keywords_need_underscores():
    with mx.AttrScope(lr_mult="2"):
        net = S.FullyConnected(X, num_hidden=2, name="fc")
    attrs = net.attr_dict()["fc_weight"]
    assert attrs["__lr_mult__"] == attrs["lr_mult"] == "2"
    with pytest.raises(ValueError, match="odd"):
        S.Variable("x", odd="1")
    assert S.Variable("x", __odd__="1").attr("__odd__") == "1"


def test_the_oldest_dialect_is_read():
    attr = {"lr_mult": "2", "gamma_lr_mult": "3"}
    data = {"op": "null", "param": {}, "name": "data", "inputs": [], "backward_source_id": -1}
    norm = {"op": "BatchNorm", "param": {"eps": "0.001"}, "name": "bn", "inputs": [[0, 0]], "attr": attr}
    old = {"nodes": [data, {**norm, "backward_source_id": -1}], "arg_nodes": [0], "heads": [[1, 0]]}
    net = S.load_json(json.dumps(old))
    assert net.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
    assert net.attr_dict()["bn"]["__lr_mult__"] == "2"


def test_types_of_arrays_and_answers():
    assert nd.array(np.arange(3)).dtype == nd.array(np.ones(2)).dtype == np.float32
    assert nd.array(nd.ones(2, dtype="int32")).dtype == np.int32
    assert (nd.array([1, 2], dtype="int32") == 1).dtype == np.int32
    assert (nd.array([7], dtype="int32") / 2).asnumpy().tolist() == [3]
    for op in (nd.argmax, nd.argmin, nd.argsort):
        assert op(nd.array([3, 1, 2]), axis=0).dtype == np.float32
    assert nd.ones((2, 3)).sum().shape == nd.ones(3)[0].shape == (1,)  # nothing has no axes
    with pytest.raises(ValueError, match="truth|ambiguous|element"):
        bool(nd.ones(2))
    with pytest.raises(MXNetError):  # symbols do not broadcast but arrays do
        (X + S.Variable("y")).infer_shape(x=(2, 3), y=(1, 3))
    assert (nd.ones((2, 3)) + nd.ones((1, 3))).shape == (2, 3)


KINDS = {ValueError: "ArgumentError OpError ShapeError FileFormatError", RuntimeError: "MXNetError"}
KINDS |= {IndexError: "BoundsError", TypeError: "DTypeError", AssertionError: "StateError"}
KINDS |= {OSError: "FileError", ImportError: "MissingPackageError", ArithmeticError: "NonFiniteError"}


@pytest.mark.parametrize("kind", KINDS)
def test_errors_keep_their_builtin_types(kind):
    for name in KINDS[kind].split():
        assert issubclass(getattr(mx.base, name), kind)
        assert issubclass(getattr(mx.base, name), MXNetError)
