"""`Executor.reshape`, by the rules of MXNet 1.9.1."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, MXNetError, ShapeError

S = mx.sym


def bound():
    net = S.SoftmaxOutput(S.FullyConnected(S.Variable("data"), num_hidden=3, name="fc"), name="softmax")
    return net.simple_bind(mx.cpu(), data=(4, 5))


def test_downwards_views_the_same_memory():
    executor = bound()
    small = executor.reshape(data=(2, 5), softmax_label=(2,))
    assert small.outputs[0].shape == (2, 3)
    assert small.arg_dict["fc_weight"] is executor.arg_dict["fc_weight"]
    assert small.grad_dict["fc_weight"] is executor.grad_dict["fc_weight"]
    small.arg_dict["data"][:] = 7
    assert executor.arg_dict["data"].asnumpy()[:, 0].tolist() == [7, 7, 0, 0]
    small.grad_dict["data"][:] = 3
    assert executor.grad_dict["data"].asnumpy()[:, 0].tolist() == [3, 3, 0, 0]


def test_both_run_and_share_parameters():
    executor = bound()
    small = executor.reshape(data=(2, 5), softmax_label=(2,))
    executor.arg_dict["fc_weight"][:] = mx.nd.array(np.arange(15).reshape(3, 5))
    small.forward(is_train=True, data=np.ones((2, 5)))
    small.backward()
    view = small.grad_dict["data"].asnumpy()
    assert np.array_equal(executor.grad_dict["data"].asnumpy()[:2], view)
    executor.forward(is_train=True, data=np.ones((4, 5)))
    np.testing.assert_allclose(executor.outputs[0].asnumpy()[:2], small.outputs[0].asnumpy(), rtol=1e-6)


def test_the_same_shape_keeps_every_array():
    executor = bound()
    again = executor.reshape(data=(4, 5))
    assert all(a is b for a, b in zip(again.arg_arrays, executor.arg_arrays, strict=True))
    assert all(a is b for a, b in zip(again.grad_arrays, executor.grad_arrays, strict=True))


@pytest.mark.parametrize(
    ("shapes", "options", "said"),
    [
        ({"data": (2, 5)}, {}, "shape of softmax_label changes from .4,. to .2,. although it was not given"),
        ({"data": (4, 3)}, {}, "fc_weight changes"),
        ({"data": (8, 5), "softmax_label": (8,)}, {}, "data would grow.*allow_up_sizing=True"),
        ({"data": (8, 5)}, {"allow_up_sizing": True}, "partial_shaping=True"),
        ({"data": (2, 8)}, {"partial_shaping": True}, "fc_weight would grow"),
        ({"zz": (2,)}, {}, "zz is not an argument; arguments: data, fc_weight"),
    ],
)
def test_changes_that_were_not_allowed(shapes, options, said):
    with pytest.raises(ArgumentError, match=said):
        bound().reshape(**options, **shapes)


def test_allowed_changes():
    executor = bound()
    partial = executor.reshape(partial_shaping=True, data=(4, 3))
    assert partial.arg_dict["fc_weight"].shape == (3, 3)
    grown = executor.reshape(allow_up_sizing=True, data=(8, 5), softmax_label=(8,))
    grown.arg_dict["data"][:] = 1
    assert executor.arg_dict["data"].asnumpy().max() == 0
    assert grown.arg_dict["fc_weight"] is executor.arg_dict["fc_weight"]
    both = executor.reshape(partial_shaping=True, allow_up_sizing=True, data=(2, 8))
    assert both.arg_dict["fc_weight"].shape == (3, 8)


def test_contradictions_are_shape_errors():
    with pytest.raises(ShapeError, match="softmax"):
        bound().reshape(softmax_label=(2,))
    with pytest.raises(MXNetError):
        bound().reshape(data=(2, 5, 5), fc_weight=(3, 7))


def test_states_change_size_too():
    net = S.BatchNorm(S.Variable("x"), name="bn")
    executor = net.simple_bind(mx.cpu(), x=(2, 4))
    small = executor.reshape(partial_shaping=True, x=(2, 3))
    assert [a.shape for a in small.aux_arrays] == [(3,), (3,)]
    small.aux_arrays[0][:] = 5
    assert executor.aux_arrays[0].asnumpy().tolist() == [5, 5, 5, 0]


def test_requirements_are_kept():
    net = S.FullyConnected(S.Variable("x"), num_hidden=2, name="fc")
    executor = net.simple_bind(mx.cpu(), grad_req={"fc_weight": "add"}, x=(4, 3))
    small = executor.reshape(x=(2, 3))
    small.forward(is_train=True, x=np.ones((2, 3)))
    for _ in range(2):
        small.backward(mx.nd.ones((2, 2)))
    assert executor.grad_dict["fc_weight"].asnumpy().tolist() == [[4, 4, 4], [4, 4, 4]]
    assert small.grad_dict["x"] is None


def test_an_executor_that_has_not_run_shows_what_a_smaller_one_computed():
    # in MXNet both have the same memory for outputs
    net = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=4, name="fc")
    first = net.simple_bind(mx.cpu(), x=(5, 4), grad_req="null")
    for array in first.arg_arrays:
        array[:] = 1
    smaller = first.reshape(x=(3, 4))
    smaller.forward()
    np.testing.assert_array_equal(first.outputs[0].asnumpy()[:3], np.full((3, 4), 5.0))
    first.forward()
    first.arg_dict["fc_bias"][:] = 0
    smaller.forward()
    np.testing.assert_array_equal(first.outputs[0].asnumpy(), np.full((5, 4), 5.0))  # has run: keeps its own
