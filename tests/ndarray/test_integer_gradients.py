"""Gradients of integer arrays, which torch has none of."""

import numpy as np
import pytest

import dpmodule as mx

INTEGERS = ["int8", "uint8", "int32", "int64"]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_reading_a_part(dtype):
    x = mx.nd.array([[1, 2], [3, 4], [5, 6]], dtype=dtype)
    x.attach_grad()
    with mx.autograd.record():
        y = x[1]
    assert y.dtype == x.dtype
    y.backward()
    assert x.grad.dtype == x.dtype
    np.testing.assert_array_equal(x.grad.asnumpy(), [[0, 0], [1, 1], [0, 0]])


def test_a_chain_of_operators_stays_integer():
    x = mx.nd.array([7, 2, 9], dtype="int32")
    x.attach_grad()
    with mx.autograd.record():
        y = x * x
        z = (y + 1).sum()
    assert y.dtype == z.dtype == np.int32
    z.backward()
    np.testing.assert_array_equal(x.grad.asnumpy(), [14, 4, 18])


def test_gradients_are_cut_once_at_the_end():
    x = mx.nd.array([7], dtype="int32")
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.mean(mx.nd.stack(x, x, x)) * 2
    y.backward()  # three thirds of 2; MXNet cuts each third to 0
    assert x.grad.asnumpy().tolist() == [2]


def test_topk_with_head_gradient():
    x = mx.nd.arange(0, 6, dtype="int32")
    x.attach_grad()
    with mx.autograd.record():
        best = mx.nd.topk(x, k=2, ret_typ="value")
    best.backward(mx.nd.array([10, 20], dtype="int32"))
    np.testing.assert_array_equal(x.grad.asnumpy(), [0, 0, 0, 0, 20, 10])


def test_values_written_between_two_passes_count():
    x = mx.nd.array([2], dtype="int32")
    x.attach_grad(grad_req="add")
    for value in (3, 5):
        x[:] = value
        with mx.autograd.record():
            y = x * x
        assert y.asscalar() == value**2
        y.backward()
    assert x.grad.asscalar() == 16


def test_operators_without_a_real_counterpart_are_computed():
    x = mx.nd.array([1, 0], dtype="int32")
    x.attach_grad()
    with mx.autograd.record():
        chosen = mx.nd.where(x, x * 2, x * 3)
        index = mx.nd.one_hot(x, 2)
    np.testing.assert_array_equal(chosen.asnumpy(), [2, 0])
    np.testing.assert_array_equal(index.asnumpy(), [[0, 1], [1, 0]])
    chosen.backward()
    np.testing.assert_array_equal(x.grad.asnumpy(), [2, 3])
