"""Gradients of integer arrays, which torch has none of."""

import numpy as np

import dpmodule as mx


def test_gradients_are_cut_once_at_the_end():
    x = mx.nd.array([7], dtype="int32")
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.mean(mx.nd.stack(x, x, x)) * 2
    y.backward()  # three thirds of 2; MXNet cuts each third to 0
    assert x.grad.asnumpy().tolist() == [2]


def test_operators_without_a_real_counterpart_are_computed():
    x = mx.nd.array([1, 0], dtype="int32")
    x.attach_grad()
    with mx.autograd.record():
        chosen, index = mx.nd.where(x, x * 2, x * 3), mx.nd.one_hot(x, 2)
    np.testing.assert_array_equal(chosen.asnumpy(), [2, 0])
    np.testing.assert_array_equal(index.asnumpy(), [[0, 1], [1, 0]])
    chosen.backward()
    np.testing.assert_array_equal(x.grad.asnumpy(), [2, 3])
