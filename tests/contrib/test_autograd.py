"""Automatic differentiation as before MXNet 1.0: flags, sections, gradients with respect to chosen arguments."""

import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError
from dpmodule.contrib import autograd as old

nd = mx.nd


def flags():
    return mx.autograd.is_recording(), mx.autograd.is_training()


def test_flags_and_sections():
    assert old.set_is_training(True) is False
    assert flags() == (True, True)
    with old.test_section():
        assert flags() == (False, False)
        with old.train_section():
            assert flags() == (True, True)
    assert old.set_is_training(False) is True
    assert flags() == (False, False)


def test_gradients_go_to_the_marked_arrays():
    x, grad = nd.array([1, 2]), nd.zeros(2)
    old.mark_variables([x], [grad])
    with old.train_section():
        outputs = [x * x, x * 3]
    old.compute_gradient(outputs)
    assert grad.asnumpy().tolist() == [5, 7]


def product(a, b):
    return a * b


@pytest.mark.parametrize(
    ("argnum", "wanted"), [(None, [[3, 4], [1, 2]]), (1, [[1, 2]]), ([1, 0], [[1, 2], [3, 4]])]
)
def test_gradients_and_results_of_a_function(argnum, wanted):
    given = nd.array([1, 2]), nd.array([3, 4])
    gradients, result = old.grad_and_loss(product, argnum)(*given)
    assert result.asnumpy().tolist() == [3, 8]
    for found in (gradients, old.grad(product, argnum)(*given)):
        assert [each.asnumpy().tolist() for each in found] == wanted
    assert old.grad(product).__name__ == "product"
    several, _ = old.grad_and_loss(lambda a: (a * 2, a * 3))(given[0])
    assert several[0].asnumpy().tolist() == [5, 5]
    with pytest.raises(ArgumentError, match="an argument is int, expected NDArray"):
        old.grad(product)(given[0], 3)
