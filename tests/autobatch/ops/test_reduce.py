"""Sums, means and extremes over dimensions and minibatches: against numpy; shares of places that are named twice."""

import itertools

import numpy as np
import pytest

import dpmodule.autobatch as dy
from helpers.walk import walks

pytestmark = pytest.mark.usefixtures("setting")
ARRAYS = np.random.RandomState(0).uniform(-1, 1, (3, 2, 3, 1, 4, 5))  # the last: minibatch
AXES = [axes for count in range(5) for axes in itertools.combinations(range(4), count)]


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
