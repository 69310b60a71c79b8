"""Optimizers with adaptive steps: order, rates of 0, 16-bit parameters, rows with one rate."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import optimizer


@pytest.mark.parametrize("name", ["ftrl", "ftml"])
def test_a_rate_of_zero_moves_nothing(name):
    """MXNet makes NaN of it, for instance in the first step of a warm-up from 0."""
    made = optimizer.create(name, learning_rate=0.0)
    update, weight = optimizer.get_updater(made), mx.nd.ones((2,))
    update(0, mx.nd.ones((2,)), weight)
    np.testing.assert_array_equal(weight.asnumpy(), 1.0)
    made.set_learning_rate(0.1)
    update(0, mx.nd.ones((2,)), weight)
    assert np.isfinite(weight.asnumpy()).all()
    assert (weight.asnumpy() < 1.0).all()


def test_adadelta_leaves_the_gradient_as_it_is():
    update = optimizer.get_updater(optimizer.create("adadelta", rescale_grad=0.5))
    grad, weight = mx.nd.array([0.4, -3]), mx.nd.ones((2,))
    update(0, grad, weight)
    np.testing.assert_array_equal(grad.asnumpy(), np.float32([0.4, -3]))
    assert (weight.asnumpy() != 1).all()


ADAPTIVE = "adam adamax nadam ftml rmsprop adagrad adadelta lamb ftrl"


@pytest.mark.parametrize("name", ADAPTIVE.split())
def test_16_bit_parameters_without_gradient_stay_finite(name):
    """1e-8 is 0 in float16, so that 0 / (0 + epsilon) must not be taken literally."""
    made = optimizer.create(name, learning_rate=0.1)
    for dtype, grad in (("float16", [0.0, 1.0, -1e-4]), ("float32", [0.0] * 3)):
        weight = mx.nd.ones((3,), dtype=dtype)
        state = made.create_state(0, weight)
        for _ in range(3):
            made.update(0, weight, mx.nd.array(grad, dtype=dtype), state)
        assert np.isfinite(weight.asnumpy()).all()
    assert name == "ftrl" or (weight.asnumpy() == 1).all()


def test_rows_share_a_rate():
    update = optimizer.get_updater(optimizer.contrib.GroupAdaGrad(learning_rate=0.5))
    weights = [mx.nd.ones((2, 2)), mx.nd.ones((3, 2))]
    grads = [mx.nd.array([[3, 4], [0, 1]]), mx.nd.zeros((3, 2))]
    update.update_all([0, 1], grads, weights)
    np.testing.assert_allclose(update.states[0].asnumpy(), [[12.5], [0.5]])
    scale = np.sqrt(np.array([[12.5], [0.5]]) + 1e-5)
    np.testing.assert_allclose(weights[0].asnumpy(), 1 - 0.5 * grads[0].asnumpy() / scale, rtol=1e-6)
    np.testing.assert_array_equal(weights[1].asnumpy(), 1.0)
