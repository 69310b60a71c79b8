"""Sums, means and extremes over dimensions and minibatches: against numpy, and where numbers are odd."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import dpmodule.autobatch as dy


@pytest.fixture(params=[(e, b) for e in ("python", "auto") for b in (False, True)], autouse=True)
def _engine(request):
    engine, autobatch = request.param
    dy.configure(engine=engine, autobatch=autobatch)
    yield
    dy.configure(engine="auto", autobatch=False)


ARRAYS = [
    np.random.RandomState(seed).uniform(-1, 1, (2, 3, 1, 4, 5)) for seed in range(3)
]  # the last: minibatch
AXES = [axes for count in range(5) for axes in itertools.combinations(range(4), count)]


def every_node(function):
    """Return the values of a function of each array, in one go."""
    return dy.npvalues([function(dy.inputTensor(array, batched=True)) for array in ARRAYS])


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("is_batch", [False, True])
def test_sums_and_means(axes, is_batch):
    gone = (*axes, 4) if is_batch else axes
    count = np.prod([ARRAYS[0].shape[axis] for axis in gone])
    sums, means, others = (
        every_node(lambda x: dy.sum_dim(x, [*axes], is_batch)),
        every_node(lambda x: dy.mean_dim(x, [*axes], is_batch)),
        every_node(lambda x: dy.mean_dim(x, axes, is_batch, 7)),
    )
    for array, total, mean, other in zip(ARRAYS, sums, means, others):
        wanted = array.astype(np.float32).astype(np.float64).sum(gone)
        wanted = wanted if len(axes) < 4 else np.atleast_1d(wanted).reshape(1, *wanted.shape)
        for found, divisor in ((total, 1), (mean, count), (other, 7)):
            np.testing.assert_allclose(found, wanted / divisor, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", range(4))
def test_extremes(axis):
    greatest, least = every_node(lambda x: dy.max_dim(x, axis)), every_node(lambda x: dy.min_dim(x, axis))
    for array, high, low in zip(ARRAYS, greatest, least):
        np.testing.assert_array_equal(high, array.astype(np.float32).max(axis))
        np.testing.assert_array_equal(low, array.astype(np.float32).min(axis))


def gradients_of(function, *arrays):
    xs = [dy.inputTensor(array) for array in arrays]
    dy.esum([dy.sum_elems(function(x)) for x in xs]).backward(full=True)
    return [x.gradient() for x in xs]


@pytest.mark.parametrize("function", [dy.max_dim, dy.min_dim])
def test_the_first_of_several_extremes_has_the_gradient(function):
    matrix = np.ones((3, 2))
    first, second = gradients_of(function, matrix, 2 * matrix)
    np.testing.assert_array_equal(first, [[1, 1], [0, 0], [0, 0]])
    np.testing.assert_array_equal(second, first)
    (row,) = gradients_of(lambda x: function(x, 1), matrix)
    np.testing.assert_array_equal(row, [[1, 0], [1, 0], [1, 0]])


@pytest.mark.parametrize("place", range(3))
def test_what_is_no_number_is_the_extreme(place):
    vector = np.array([1.0, 2.0, 3.0])
    vector[place] = np.nan
    for function in (dy.max_dim, dy.min_dim):
        assert np.isnan(function(dy.inputTensor(vector)).value())
        assert np.isnan(function(dy.inputTensor(np.stack([vector, vector], 1))).npvalue()).all()
        assert np.isnan(function(dy.inputTensor(np.stack([vector] * 40)), 1).npvalue()).all()


@pytest.mark.parametrize("axis", [0, 1])
def test_logarithms_of_sums_of_extreme_numbers(axis):
    columns = [[-np.inf] * 3, [np.inf, 0, 0], [1e30, 0, -1e30], [1000, 1000, 1000], [-1000, -1000, -1000]]
    matrix = np.array(columns, np.float64)
    found = dy.logsumexp_dim(dy.inputTensor(matrix.T if axis == 0 else matrix), axis).npvalue()
    np.testing.assert_allclose(found, [-np.inf, np.inf, 1e30, 1000 + np.log(3), -1000 + np.log(3)], rtol=1e-6)


@pytest.mark.parametrize("d", [2, [2], [0, 0], [0, 5], -1, 40])
def test_dimensions_that_are_not_there(d):
    x = dy.inputTensor(np.ones((2, 3)))
    for function in (dy.sum_dim, lambda x, d: dy.mean_dim(x, d, False)):
        with pytest.raises(dy.ShapeError):
            function(x, d)
    for function in (dy.max_dim, dy.min_dim, dy.logsumexp_dim):
        with pytest.raises((dy.ShapeError, TypeError)):
            function(x, d)


def test_hinge_with_margins_and_odd_numbers():
    scores = np.array([0.5, 0.25, np.nan, -3.0])
    assert np.isnan(dy.hinge(dy.inputTensor(scores), 0).value())
    x, y = dy.inputTensor([0.5, 0.25, -3.0]), dy.inputTensor([[0.5], [0.25], [-3.0]])
    losses = [dy.hinge(x, 0), dy.hinge(x, 0, 0.125), dy.hinge(y, 2), dy.hinge(x, 1, m=4.0)]
    dy.esum(losses).backward(full=True)
    assert [loss.value() for loss in losses] == [0.75, 0.0, 8.75, 5.0]
    np.testing.assert_array_equal(x.gradient(), [0.0, -1.0, 1.0])
    np.testing.assert_array_equal(y.gradient(), [[1.0], [1.0], [-2.0]])
    for label, error in ((3, dy.BoundsError), (-1, dy.NegativeIndexError)):
        with pytest.raises(error):
            dy.hinge(x, label)
