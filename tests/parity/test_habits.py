"""MXNet habits that are not obvious, each seen on MXNet 1.9.1; what files hold byte by byte is in test_formats.py."""

import json
import pickle

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import MXNetError

S, nd = mx.sym, mx.nd
X = S.Variable("x")
TWO = [mx.cpu(0), mx.cpu(1)]


def mlp():
    return S.SoftmaxOutput(S.FullyConnected(S.Variable("data"), num_hidden=3, name="fc"), name="softmax")


def bound_module(contexts=None, **options):
    module = mx.mod.Module(mlp(), context=contexts or mx.cpu())
    module.bind([("data", (4, 5))], [("softmax_label", (4,))], **options)
    module.init_params(mx.init.Xavier())
    return module


def batch(rows=4):
    return mx.io.DataBatch([nd.ones((rows, 5))], [nd.zeros((rows,))])


def gradient(net, req="write", heads=None, **values):
    """Return the gradient of x after a step in training; its array begins with ones."""
    values = {name: nd.array(value) for name, value in values.items()}
    bound = net.bind(mx.cpu(), values, {"x": nd.ones(values["x"].shape)}, req)
    bound.forward(is_train=True)
    bound.backward(heads)
    return bound.grad_dict["x"].asnumpy()


# splitting a batch, merging outputs


def test_two_contexts_are_joined_or_listed():
    module, seen = bound_module(TWO), []
    module.forward(batch(), is_train=True)
    assert module.get_outputs()[0].shape == (4, 3)
    parts = module.get_outputs(merge_multi_context=False)
    assert [[p.shape for p in each] for each in parts] == [[(2, 3), (2, 3)]]
    metric = mx.metric.CustomMetric(lambda label, pred: seen.append(pred.shape) or 0.0)
    module.update_metric(metric, batch().label)  # metrics see each context
    assert seen == [(2, 3), (2, 3)]
    for i, array in enumerate(module._exec_group.param_arrays[0]):  # parameters are means over contexts
        array[:] = 2 + 2 * i
    module._params_dirty = True
    assert set(module.get_params()[0]["fc_weight"].asnumpy().ravel()) == {3.0}


# gradients


def test_null_leaves_the_array_alone():
    assert gradient(X * 2, "null", nd.ones(3), x=[1, 2, 3]).tolist() == [1, 1, 1]
    assert set(bound_module(for_training=False)._exec_group.grad_req.values()) == {"null"}


def test_missing_head_gradient_is_an_error_but_for_losses():
    with pytest.raises(MXNetError):
        gradient(X * 2, x=[[1.0, 2.0, 3.0]])
    assert gradient(S.make_loss(X), x=[[1.0, 2.0, 3.0]]).tolist() == [[1, 1, 1]]


def test_batchnorm_writes_gamma_and_moves_its_statistics_in_backward():
    bound = S.BatchNorm(X, name="bn").simple_bind(mx.cpu(), x=(4, 2))
    bound.arg_dict["bn_gamma"][:] = 5
    bound.forward(is_train=True, x=nd.arange(8).reshape((4, 2)))
    assert bound.arg_dict["bn_gamma"].asnumpy().tolist() == [1, 1]
    assert bound.aux_dict["bn_moving_mean"].asnumpy().tolist() == [0, 0]
    bound.backward(nd.ones((4, 2)))
    np.testing.assert_allclose(bound.aux_dict["bn_moving_mean"].asnumpy(), [0.3, 0.4], rtol=1e-6)
    np.testing.assert_allclose(bound.aux_dict["bn_moving_var"].asnumpy(), [0.5, 0.5], rtol=1e-6)
    assert bound.grad_dict["bn_gamma"].asnumpy().tolist() == [0, 0]


# sharing


# optimizers


# initializers


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


# records


# iterators


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


def test_todays_numpy():
    sizes = (np.int64(4), np.int64(7))
    assert "np.int64" not in S.zeros(shape=sizes).tojson()
    assert nd.zeros(sizes).shape == (4, 7)
    assert bool(np.all(nd.ones(3) == 1))
    assert np.asarray(nd.ones(3)).tolist() == [1, 1, 1]
    assert pickle.loads(pickle.dumps(nd.array([1, 2]))).asnumpy().tolist() == [1, 2]


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
