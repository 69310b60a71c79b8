"""Signum, SGLD and DCASGD: what the formulas of the other tests do not show."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import optimizer


def after(made, weight, grad):
    array = mx.nd.array(weight)
    made.update(0, array, mx.nd.array(grad), made.create_state(0, array))
    return array.asnumpy()


def test_noise_has_the_deviation_of_the_formula_and_repeats():
    made = optimizer.create("sgld", learning_rate=0.04, wd=0.1, rescale_grad=0.5, clip_gradient=0.3)
    rng = np.random.RandomState(0)
    weight, grad = rng.randn(200, 300), rng.randn(200, 300)
    mx.random.seed(3)
    found = after(made, weight, grad)
    noise = found - (weight - 0.02 * (np.clip(0.5 * grad, -0.3, 0.3) + 0.1 * weight))
    assert abs(noise.mean()) < 5e-3
    assert noise.std() == pytest.approx(0.2, rel=0.02)
    mx.random.seed(3)
    np.testing.assert_array_equal(after(made, weight, grad), found)
    mx.random.seed(3)
    again = mx.nd.random.normal(0, 0.2, shape=(200, 300)).asnumpy()
    np.testing.assert_allclose(noise, again, rtol=0, atol=1e-6)


def test_delay_is_compensated_from_the_second_update_on():
    """The previous parameter is a copy: the first update sees no delay."""
    for momentum, wanted in ((0.0, [0.5, 0.5]), (0.5, [0.5, 0.25])):
        made = optimizer.create("dcasgd", learning_rate=0.5, lamda=2.0, momentum=momentum)
        weight = mx.nd.array([1.0])
        state = made.create_state(0, weight)
        for expected in wanted:
            made.update(0, weight, mx.nd.array([1.0]), state)
            assert weight.asscalar() == pytest.approx(expected)
