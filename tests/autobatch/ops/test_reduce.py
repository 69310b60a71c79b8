"""Sums, means and extremes over dimensions and minibatches: against numpy, and where numbers are odd."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import dpmodule.autobatch as dy
from helpers.walk import walks

pytestmark = pytest.mark.usefixtures("setting")
INF, NAN = np.inf, np.nan
ARRAYS = np.random.RandomState(0).uniform(-1, 1, (3, 2, 3, 1, 4, 5))  # the last: minibatch
AXES = [axes for count in range(5) for axes in itertools.combinations(range(4), count)]
NUMBERS = np.array([[1.0, 2.0, 4.0], [3.0, -1.0, 5.0]])


def close(function, theirs):
    """Compare a function of each of the arrays, in one graph."""
    made = [function(dy.inputTensor(each, batched=True)) for each in ARRAYS]
    for array, found in zip(ARRAYS, dy.npvalues(made)):
        np.testing.assert_allclose(found, np.reshape(theirs(array), found.shape), rtol=1e-5, atol=1e-6)


def of_seven(x, gone):
    return np.sqrt(((x - x.sum(gone, keepdims=True) / 7) ** 2).sum(gone) / 7)


@walks(itertools.product(AXES, [False, True]))
def test_sums_means_and_deviations(axes, is_batch):
    gone = (*axes, 4) if is_batch else axes
    close(lambda x: dy.sum_dim(x, [*axes], is_batch), lambda x: x.sum(gone))
    close(lambda x: dy.mean_dim(x, [*axes], is_batch), lambda x: x.mean(gone))
    close(lambda x: dy.mean_dim(x, axes, is_batch, 7), lambda x: x.sum(gone) / 7)
    if axes:
        close(lambda x: dy.std_dim(x, [*axes], is_batch), lambda x: x.std(gone))
        close(lambda x: dy.std_dim(x, axes, is_batch, 7), lambda x: of_seven(x, gone))


def gradients_of(function, *arrays):
    xs = [dy.inputTensor(array) for array in arrays]
    dy.esum([dy.sum_elems(function(x)) for x in xs]).backward(full=True)
    return [x.gradient() for x in xs]


@walks([dy.max_dim, dy.min_dim])
def test_the_first_of_several_extremes_has_the_gradient(function):
    matrix = np.ones((3, 2))
    first, second = gradients_of(function, matrix, 2 * matrix)
    np.testing.assert_array_equal(first, [[1, 1], [0, 0], [0, 0]])
    np.testing.assert_array_equal(second, first)
    (row,) = gradients_of(lambda x: function(x, 1), matrix)
    np.testing.assert_array_equal(row, [[1, 0], [1, 0], [1, 0]])


@walks(itertools.product([dy.max_dim, dy.min_dim], range(3)))
def test_nan_is_the_extreme(function, place):
    vector = np.array([1.0, 2.0, 3.0])
    vector[place] = NAN
    assert np.isnan(function(dy.inputTensor(vector)).value())
    assert np.isnan(function(dy.inputTensor(np.stack([vector, vector], 1))).npvalue()).all()
    assert np.isnan(function(dy.inputTensor(np.stack([vector] * 40)), 1).npvalue()).all()


def test_logarithms_of_sums_of_extreme_numbers():
    columns = np.array([[-INF] * 3, [INF, 0, 0], [1e30, 0, -1e30], [1000] * 3, [-1000] * 3, [-INF, 2, 2]])
    wanted = [-INF, INF, 1e30, 1000 + np.log(3), -1000 + np.log(3), 2 + np.log(2)]
    for found in (
        dy.logsumexp_dim(dy.inputTensor(columns.T), 0),
        dy.logsumexp_dim(dy.inputTensor(columns), 1),
        dy.logsumexp([dy.inputTensor(x) for x in columns.T]),
    ):
        np.testing.assert_allclose(found.npvalue(), wanted, rtol=1e-6)


@walks([dy.l2_norm, dy.std_elems, lambda x: dy.std_dim(x, 0, False), lambda x: dy.std_dim(x, 1, False)])
def test_roots_of_zero_have_no_gradient(function):
    zeros, others = gradients_of(function, np.zeros((2, 3)), NUMBERS)
    np.testing.assert_array_equal(zeros, np.zeros((2, 3)))
    assert np.isfinite(others).all()
    assert others.any()


@walks([[1, 2], [1, 1, 2], [2, 0, 2, 0, 2], [3, 3]])
def test_log_softmax_of_places_that_are_named_twice(places):
    """They have double weight in the sum, as in DyNet, and one place in the result, as its gradient knows."""
    scores, heads = np.array([[0.1, 0.5, -0.3, 0.9], [1.0, -2.0, 0.5, 0.0]]), np.array([1.0, -2.0, 3.0, 0.5])
    weights = np.bincount(places, minlength=4)
    chosen = np.flatnonzero(weights)
    for x in scores:
        given = dy.inputTensor(x)
        picked = dy.select_rows(dy.log_softmax(given, places), chosen.tolist())
        dy.dot_product(picked, dy.inputTensor(heads[chosen])).backward(full=True)
        total = (weights * np.exp(x)).sum()
        np.testing.assert_allclose(picked.npvalue(), (x - np.log(total))[chosen], rtol=1e-5, atol=1e-6)
        wanted = np.where(weights, heads, 0) - weights * np.exp(x) / total * heads[chosen].sum()
        np.testing.assert_allclose(given.gradient(), wanted, rtol=1e-5, atol=1e-6)
