"""MXNet habits that are not obvious, each seen on MXNet 1.9.1; what files hold byte by byte is in test_formats.py."""

import json

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import MXNetError

S, nd = mx.sym, mx.nd
X = S.Variable("x")


def gradient(net, req="write", heads=None, **values):
    """Return the gradient of x after a step in training; its array begins with ones."""
    values = {name: nd.array(value) for name, value in values.items()}
    bound = net.bind(mx.cpu(), values, {"x": nd.ones(values["x"].shape)}, req)
    bound.forward(is_train=True)
    bound.backward(heads)
    return bound.grad_dict["x"].asnumpy()


def test_null_leaves_the_array_alone():
    assert gradient(X * 2, "null", nd.ones(3), x=[1, 2, 3]).tolist() == [1, 1, 1]
    module = mx.mod.Module(X * 2, ["x"], None)
    module.bind([("x", (4,))], for_training=False)
    assert set(module._exec_group.grad_req.values()) == {"null"}


def test_missing_head_gradient_is_an_error_but_for_losses():
    with pytest.raises(MXNetError):
        gradient(X * 2, x=[[1.0, 2.0, 3.0]])
    assert gradient(S.make_loss(X), x=[[1.0, 2.0, 3.0]]).tolist() == [[1, 1, 1]]


# symbols


def test_automatic_variables_inherit_attributes_and_free_keywords_need_underscores():
    with mx.AttrScope(lr_mult="2"):
        net = S.FullyConnected(X, num_hidden=2, name="fc")
    attrs = net.attr_dict()["fc_weight"]
    assert attrs["__lr_mult__"] == attrs["lr_mult"] == "2"
    with pytest.raises(ValueError, match="odd"):
        S.Variable("x", odd="1")
    assert S.Variable("x", __odd__="1").attr("__odd__") == "1"


def test_arithmetic_has_mxnets_operators_and_names():
    a, b = S.Variable("a"), S.Variable("b")
    with mx.name.NameManager():
        made = [a + b, a + 1, 1 - a, 1 / a, 2**a, -a, a == 1, a > b, a % b, a**b]
        ops = [json.loads(m.tojson())["nodes"][-1]["op"] for m in made]
    scalars = [f"_{name}_scalar" for name in ("plus", "rminus", "rdiv", "rpower", "mul", "equal")]
    assert ops == ["elemwise_add", *scalars, "_greater", "_mod", "_power"]
    assert made[0].name == "_plus0"
    with pytest.raises(MXNetError):  # symbols do not broadcast but arrays do
        (a + b).infer_shape(a=(2, 3), b=(1, 3))
    assert (nd.ones((2, 3)) + nd.ones((1, 3))).shape == (2, 3)
    assert (a + b).infer_shape(a=(2,))[0] == [(2,), (2,)]
    with pytest.warns(UserWarning, match="shape|infer"):
        assert S.FullyConnected(X, num_hidden=2).infer_shape() == (None, None, None)


def test_the_oldest_dialect_is_read():
    attr = {"lr_mult": "2", "gamma_lr_mult": "3"}
    data = {"op": "null", "param": {}, "name": "data", "inputs": [], "backward_source_id": -1}
    norm = {"op": "BatchNorm", "param": {"eps": "0.001"}, "name": "bn", "inputs": [[0, 0]], "attr": attr}
    old = {"nodes": [data, {**norm, "backward_source_id": -1}], "arg_nodes": [0], "heads": [[1, 0]]}
    net = S.load_json(json.dumps(old))
    assert net.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
    assert net.attr_dict()["bn"]["__lr_mult__"] == "2"


# arrays


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


def test_slices_and_reshapes_are_views_and_lists_copy():
    a = nd.zeros((4, 3))
    a[1:3][:] = 1
    a.reshape((12,))[0:1] = 5
    a[[0, 1]][:] = 9
    assert a.asnumpy().ravel().tolist() == [5, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0]
    assert nd.zeros((10, 5, 4)).reshape((-1, 0), reverse=True).shape == (50, 4)


# recurrent networks, metrics


KINDS = {
    "MXNetError": RuntimeError,
    "ArgumentError": ValueError,
    "OpError": ValueError,
    "BoundsError": IndexError,
    "ShapeError": ValueError,
    "DTypeError": TypeError,
    "StateError": AssertionError,
    "FileError": OSError,
    "FileFormatError": ValueError,
    "MissingPackageError": ImportError,
    "NonFiniteError": ArithmeticError,
}


@pytest.mark.parametrize("name", KINDS)
def test_errors_keep_their_builtin_types(name):
    assert issubclass(getattr(mx.base, name), KINDS[name])
    assert issubclass(getattr(mx.base, name), MXNetError)
