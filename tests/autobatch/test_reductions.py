"""Sums, means and extremes over dimensions and minibatches: against numpy, and where numbers are odd."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import dpmodule.autobatch as dy
from helpers.both_engines import distances
from helpers.walk import walks


@pytest.fixture(params=[(e, b) for e in ("python", "auto") for b in (False, True)], autouse=True)
def _engine(request):
    engine, autobatch = request.param
    dy.configure(engine=engine, autobatch=autobatch)
    yield
    dy.configure(engine="auto", autobatch=False, dtype="float32")


ARRAYS = [
    np.random.RandomState(seed).uniform(-1, 1, (2, 3, 1, 4, 5)) for seed in range(3)
]  # the last: minibatch
AXES = [axes for count in range(5) for axes in itertools.combinations(range(4), count)]


def every_node(function):
    """Return the values of a function of each array, in one go."""
    return dy.npvalues([function(dy.inputTensor(array, batched=True)) for array in ARRAYS])


@walks(itertools.product(AXES, [False, True]))
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


@walks(range(4))
def test_extremes(axis):
    greatest, least = every_node(lambda x: dy.max_dim(x, axis)), every_node(lambda x: dy.min_dim(x, axis))
    for array, high, low in zip(ARRAYS, greatest, least):
        np.testing.assert_array_equal(high, array.astype(np.float32).max(axis))
        np.testing.assert_array_equal(low, array.astype(np.float32).min(axis))


FUNCTIONS = {
    "sum": lambda x, axes, is_batch: dy.sum_dim(x, axes, is_batch),
    "mean": lambda x, axes, is_batch: dy.mean_dim(x, axes, is_batch),
    "mean of 7": lambda x, axes, is_batch: dy.mean_dim(x, axes, is_batch, 7),
    "deviation": lambda x, axes, is_batch: dy.std_dim(x, axes, is_batch),
    "moment": lambda x, axes, is_batch: dy.moment_dim(x, axes, 3, is_batch),
    "largest": lambda x, axes, is_batch: dy.max_dim(x, axes[0]),
    "least": lambda x, axes, is_batch: dy.min_dim(x, axes[0]),
    "logsumexp": lambda x, axes, is_batch: dy.logsumexp_dim(x, axes[0]),
    "length": lambda x, axes, is_batch: dy.l2_norm(x),
    "batches": lambda x, axes, is_batch: dy.mean_batches(x),
    "softmax": lambda x, axes, is_batch: dy.softmax(x, axes[0]),
}


@walks(itertools.product(range(8), FUNCTIONS))
def test_drawn_shapes(seed, name):
    """Examples of one shape with minibatches of several sizes, some of them inside of other operations."""
    draw = np.random.RandomState(seed)
    most = 2 if name in ("logsumexp", "softmax") else 4
    d = draw.randint(1, 6, draw.randint(1, most + 1)).tolist()
    axes = sorted(draw.choice(len(d), draw.randint(1, len(d) + 1), replace=False).tolist())
    is_batch = bool(draw.randint(2))
    arrays = [draw.uniform(-1, 1, (*d, batch)) for batch in draw.choice([1, 2, 5, 17], 4)]
    fused = draw.randint(2, size=4)

    def program():
        xs = [dy.inputTensor(array, batched=True) for array in arrays]
        ys = [FUNCTIONS[name](dy.tanh(x) if f else x, axes, is_batch) for x, f in zip(xs, fused)]
        dy.esum([dy.sum_batches(dy.squared_norm(y + 0.5)) for y in ys]).backward(full=True)
        return [*dy.npvalues(ys), *[x.gradient() for x in xs]]

    found = [program()]
    for dtype in ("float32", "float64"):
        dy.configure(engine="python", autobatch=False, dtype=dtype)
        dy.renew_cg()
        found.append(program())
    far, rounding = (distances(each, found[2]) for each in found[:2])
    assert (far <= 1e-5 + 4 * rounding).all(), f"{far}, {rounding}"


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_logarithms_of_sums_of_more_than_matrices(axis):
    """The reductions that are taken apart for the native engine end there, too."""
    with pytest.raises(dy.ShapeError, match="a vector or a matrix is needed"):
        dy.logsumexp_dim(dy.inputTensor(np.ones((2, 3, 4))), axis)


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


@walks([2, [2], [0, 0], [0, 5], -1, 40])
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


@walks(itertools.product(AXES[1:], [False, True]))
def test_deviations(axes, is_batch):
    gone = (*axes, 4) if is_batch else axes
    found = every_node(lambda x: dy.std_dim(x, [*axes], is_batch))
    others = every_node(lambda x: dy.std_dim(x, axes, is_batch, 7))
    for array, one, other in zip(ARRAYS, found, others):
        numbers = array.astype(np.float32).astype(np.float64)
        wanted = numbers.std(gone)
        of_seven = np.sqrt(((numbers - numbers.sum(gone, keepdims=True) / 7) ** 2).sum(gone) / 7)
        np.testing.assert_allclose(one, wanted.reshape(one.shape), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(other, of_seven.reshape(other.shape), rtol=1e-5, atol=1e-6)


def test_lengths():
    for array, found in zip(ARRAYS, every_node(dy.l2_norm)):
        np.testing.assert_allclose(found, [np.linalg.norm(array.reshape(-1, 5), axis=0)], rtol=1e-6)
    ones = dy.l2_norm(dy.inputTensor(np.array([[-2.0, 3.0, 0.0]]), batched=True))
    np.testing.assert_array_equal(ones.npvalue(), [[2.0, 3.0, 0.0]])
    dy.sum_batches(ones).backward(full=True)


@walks([dy.l2_norm, dy.std_elems, lambda x: dy.std_dim(x, 0, False), lambda x: dy.std_dim(x, 1, False)])
def test_roots_of_zero_have_no_gradient(function):
    zeros, others = gradients_of(function, np.zeros((2, 3)), np.array([[1.0, 2.0, 4.0], [3.0, -1.0, 5.0]]))
    np.testing.assert_array_equal(zeros, np.zeros((2, 3)))
    assert np.isfinite(others).all()
    assert others.any()


def test_gradients_of_lengths():
    numbers = np.array([[1.0, 2.0, 4.0], [3.0, -1.0, 5.0]])
    (length,) = gradients_of(dy.l2_norm, numbers)
    np.testing.assert_allclose(length, numbers / np.linalg.norm(numbers), rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, (0, 1)])
def test_gradients_of_deviations(axis):
    numbers = np.array([[1.0, 2.0, 4.0], [3.0, -1.0, 5.0]])
    (found,) = gradients_of(lambda x: dy.std_dim(x, axis, False), numbers)
    deviations, sizes = numbers - numbers.mean(axis, keepdims=True), numbers.std(axis, keepdims=True)
    count = numbers.size // sizes.size
    np.testing.assert_allclose(found, deviations / (count * sizes), rtol=1e-5, atol=1e-6)


@walks(itertools.product([(1,), (4,), (3, 4), (2, 3, 4)], [1, 2, 5], [False, True]))
def test_logarithms_of_sums_of_lists(shape, count, is_batched):
    draw = np.random.RandomState(0)
    arrays = draw.uniform(-3, 3, (3, count, *shape, 2) if is_batched else (3, count, *shape))
    weights = draw.uniform(-1, 1, shape)
    nodes = [[dy.inputTensor(x, batched=is_batched) for x in each] for each in arrays]
    found = [dy.logsumexp(each) for each in nodes]
    losses = [dy.sum_batches(dy.sum_elems(dy.cmult(x, dy.inputTensor(weights)))) for x in found]
    dy.esum(losses).backward(full=True)
    wanted = np.log(np.exp(arrays).sum(1))
    np.testing.assert_allclose(np.stack(dy.npvalues(found)), wanted, rtol=1e-5, atol=1e-6)
    spread = weights[..., None] if is_batched else weights
    for each, gold, array in zip(nodes, wanted, arrays):
        for x, numbers in zip(each, array):
            np.testing.assert_allclose(x.gradient(), spread * np.exp(numbers - gold), rtol=1e-4, atol=1e-6)


def test_lists_with_one_operand_several_times_and_others_without_gradient():
    W = dy.ParameterCollection().parameters_from_numpy(np.array([0.5, 1.5]))
    x, y = dy.inputTensor([1.0, -1.0]), dy.tanh(W)
    dy.sum_elems(dy.logsumexp([y, x, y, x])).backward()
    slope = np.tanh([0.5, 1.5])
    share = np.exp(slope) / (np.exp(slope) + np.exp([1.0, -1.0]))
    np.testing.assert_allclose(W.grad_as_array(), share * (1 - slope**2), rtol=1e-5)


def test_lists_of_extreme_numbers():
    columns = [[-np.inf] * 3, [np.inf, 0, 0], [1e30, 0, -1e30], [1000, 1000, 1000], [-np.inf, 2, 2]]
    found = dy.logsumexp([dy.inputTensor(x) for x in np.array(columns).T])
    np.testing.assert_allclose(
        found.npvalue(), [-np.inf, np.inf, 1e30, 1000 + np.log(3), 2 + np.log(2)], rtol=1e-6
    )
    with pytest.raises(dy.ShapeError):
        dy.logsumexp([dy.inputTensor([1.0]), dy.inputTensor([1.0, 2.0])])


@walks([[1, 2], [1, 1, 2], [2, 0, 2, 0, 2], [3, 3]])
def test_log_softmax_of_places_that_are_named_twice(places):
    """They have double weight in the sum, as in DyNet, and one place in the result, as its gradient knows."""
    scores, heads = np.array([[0.1, 0.5, -0.3, 0.9], [1.0, -2.0, 0.5, 0.0]]), np.array([1.0, -2.0, 3.0, 0.5])
    weights = np.bincount(places, minlength=4)
    chosen = np.flatnonzero(weights)
    for x in scores:
        given = dy.inputTensor(x)
        y = dy.log_softmax(given, places)
        picked = dy.concatenate([dy.pick(y, int(at)) for at in chosen])
        dy.dot_product(picked, dy.inputTensor(heads[chosen])).backward(full=True)
        total = (weights * np.exp(x)).sum()
        np.testing.assert_allclose(picked.npvalue(), (x - np.log(total))[chosen], rtol=1e-5, atol=1e-6)
        wanted = np.where(weights, heads, 0) - weights * np.exp(x) / total * heads[chosen].sum()
        np.testing.assert_allclose(given.gradient(), wanted, rtol=1e-5, atol=1e-6)
