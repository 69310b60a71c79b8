"""Functions of every element against torch in float64, also where they are steep, flat, infinite or not defined."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dpmodule.autobatch as dy
from dpmodule.autobatch.expression import uses_native
from helpers.both_engines import on_both
from helpers.walk import walks

INF, NAN = float("inf"), float("nan")
WIDE = [-90.0, -20.5, -3.3, -1.0, -0.25, -1e-4, 0.0, 1e-4, 0.3, 1.0, 2.5, 19.0, 90.0]
UNIT = [-1.0, -0.999, -0.4, -1e-5, 0.0, 1e-5, 0.5, 0.999, 1.0]
functional = torch.nn.functional


def elements(function, count):
    """Return a function of numbers as one of every element of vectors."""
    return lambda *xs: dy.concatenate([function(*[x[i] for x in xs]) for i in range(count)])


def rank_loss(x, y):
    return dy.pairwise_rank_loss(dy.transpose(x), dy.transpose(y), 0.5)


def cross_entropy(x, y):
    return -(y * x.log() + (1 - y) * (1 - x).log()).sum()


FUNCTIONS = {
    **{
        name: (getattr(dy, name), getattr(torch, name), numbers)
        for numbers, names in (
            (WIDE, "sin cos tan atan asinh erf tanh"),
            (UNIT, "asin acos"),
            (UNIT[1:-1], "atanh"),
            (WIDE[1:-1], "sinh cosh"),
        )
        for name in names.split()
    },
    "acosh": (dy.acosh, torch.acosh, [1.0, 1.001, 3.0, 1e4]),
    "logistic": (dy.logistic, torch.sigmoid, WIDE),
    "log_sigmoid": (dy.log_sigmoid, functional.logsigmoid, [*WIDE, 1e30, -1e30]),
    "lgamma": (dy.lgamma, torch.lgamma, [-3.7, -2.5, -0.01, 1e-3, 0.5, 1.0, 1.4616, 2.0, 7.3, 30.0, 1e4]),
    "selu": (dy.selu, torch.selu, WIDE),
    "silu": (lambda x: dy.silu(x, 1.5), lambda x: x * torch.sigmoid(1.5 * x), WIDE),
    "power": (lambda x: x**1.5, lambda x: x**1.5, [0.0, 1e-3, 1.0, 7.0]),
    "square": (lambda x: x**2, lambda x: x**2, [0.5, -2.0, 3.0]),
    "inverse power": (lambda x: x**-2, lambda x: x**-2, [-3.0, 0.1, 1.0, 7.0]),
    "power of a negative number": (lambda x: x**5, lambda x: x**5, [-3.0, -0.5, 0.0, 2.0]),
    "number_power": (lambda x: 2.5**x, lambda x: 2.5**x, [-10.0, -1.0, 0.0, 0.5, 10.0]),
    "number_divided": (lambda x: 3 / x, lambda x: 3 / x, [-3.0, 0.1, 2.0]),
    "third moment": (lambda x: dy.moment_elems(x, 3), lambda x: (x**3).mean(), [-1.0, 0.0, 2.0]),
}
MORE = {
    "zeroth power": (lambda x: x**0, lambda x: x**0, [-3.0, 0.0, 2.0]),
    "poisson_loss": (
        elements(lambda x: dy.poisson_loss(x, 3), 4),
        lambda x: torch.exp(x) - 3 * x + np.log(6.0),
        [-2.0, 0.0, 1.1, 4.0],
    ),
    "pow": (elements(dy.pow, 5), torch.pow, [0.5, 2.0, 1.0, 3.0, 0.1], [0.5, -1.0, 3.3, 0.0, 2.0]),
    "huber_distance": (
        lambda x, y: dy.huber_distance(x, y, 0.7),
        lambda x, y: functional.huber_loss(x, y, reduction="sum", delta=0.7),
        *([0.0, 0.5, 3.0, -2.0], [0.0, 0.1, 1.0, 1.0]),
    ),
    "l1_distance": (dy.l1_distance, lambda x, y: (x - y).abs().sum(), [0.0, 0.5, -2.0], [0.0, 0.1, 1.0]),
    "binary_log_loss": (
        dy.binary_log_loss,
        cross_entropy,
        [0.3, 0.9, 1e-6, 0.5, 0.2],
        [0.2, 1.0, 0.5, 0.0, 0.7],
    ),
    "pairwise_rank_loss": (rank_loss, lambda x, y: torch.relu(0.5 - x + y), [0.0, 3.0, 1.0], [1.0, 1.0, 0.6]),
}


def close(found, wanted):
    scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-3)
    np.testing.assert_allclose(found, wanted.reshape(found.shape), rtol=2e-5, atol=2e-7 * scale)


@walks([*FUNCTIONS, *MORE])
def test_values_and_gradients(name, setting):
    ours, theirs, *numbers = (FUNCTIONS | MORE)[name]
    rows = [[np.array(each[k:] + each[:k], np.float32) for each in numbers] for k in range(2)]
    xs = [[dy.inputTensor(array) for array in row] for row in rows]
    ys = [ours(*row) for row in xs]
    dy.esum([dy.sum_elems(y) for y in ys]).backward(full=True)
    for x, y, row in zip(xs, ys, rows):
        wanted = [torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in row]
        result = theirs(*wanted)
        result.sum().backward()
        close(y.npvalue(), result.detach().numpy())
        for each, tensor in zip(x, wanted):
            close(each.gradient(), tensor.grad.numpy())


@walks(FUNCTIONS)
def test_nan_stays_nan(name, setting):
    x = dy.inputTensor([NAN, 1.5, NAN] if "moment" not in name else [NAN])
    assert np.isnan(FUNCTIONS[name][0](x).npvalue()[[0, -1]]).all()


def test_sure_predictions_cost_nothing(setting):
    assert dy.binary_log_loss(dy.inputVector([0.0, 1.0]), dy.inputVector([0.0, 1.0])).value() == 0.0
    assert dy.binary_log_loss(dy.inputVector([0.0]), dy.inputVector([1.0])).value() == INF


def test_rounding(setting):
    x = dy.inputVector([-2.5, -1.2, -0.5, 0.0, 0.5, 1.5, 2.7])
    found = [f(x, "zero_gradient").npvalue() for f in (dy.round, dy.ceil, dy.floor)]
    np.testing.assert_array_equal(found[0], [-3, -1, -1, 0, 1, 2, 3])
    np.testing.assert_array_equal(found[1], [-2, -1, 0, 0, 1, 2, 3])
    np.testing.assert_array_equal(found[2], [-3, -2, -1, 0, 0, 1, 2])


def test_examples_with_different_counts_share_a_batch(engine):
    xs = [dy.scalarInput(0.1 * k) for k in range(20)]
    dy.forward([dy.poisson_loss(x, k) for k, x in enumerate(xs)])
    row = next(row for row in dy.explain().rows if "poisson_loss" in row.operation)
    assert (row.nodes, row.batches) == (20, 1)


def test_sparsemax_of_ties_and_nan(setting):
    vectors = ([2.0, 2.0, 2.0, -9.0], [5.0, 0.0], [1.0, NAN])
    found = [dy.sparsemax(dy.inputVector(v)).npvalue() for v in vectors]
    np.testing.assert_allclose(found[0], [1 / 3, 1 / 3, 1 / 3, 0], rtol=1e-6)
    np.testing.assert_array_equal(found[1], [1.0, 0.0])
    assert np.isnan(found[2]).all()


@walks([1, 2, 3, 7])
def test_the_first_of_equal_maxima_has_the_gradient(count, setting):
    xs = [dy.inputVector([1.0, float(k)]) for k in range(count)]
    dy.sum_elems(dy.emax(xs)).backward(full=True)
    for k, x in enumerate(xs):
        np.testing.assert_array_equal(x.gradient(), [k == 0, k == count - 1])


def test_margins_along_rows_and_columns(setting):
    array = np.random.RandomState(0).normal(size=(3, 4, 2))
    for axis, labels in ((0, [2, 0, 1, 1]), (1, [3, 0, 2])):
        right = np.stack([np.take(array, label, axis).take(k, 0) for k, label in enumerate(labels)])
        wanted = np.maximum(0, array - np.expand_dims(right, axis) + 0.3).sum(axis) - 0.3
        x = dy.inputTensor(array, batched=True)
        for found in (dy.hinge_dim(x, labels, axis, 0.3), dy.hinge_dim(x, [*labels, *labels], axis, 0.3)):
            np.testing.assert_allclose(found.npvalue(), wanted, rtol=1e-4, atol=1e-6)
        found = dy.hinge_dim(dy.inputTensor(array[:, :, 1]), labels, axis, 0.3)
        np.testing.assert_allclose(found.npvalue(), wanted[:, 1], rtol=1e-4, atol=1e-6)


def test_hinge_with_margins_and_odd_numbers(setting):
    assert np.isnan(dy.hinge(dy.inputTensor([0.5, 0.25, NAN, -3.0]), 0).value())
    x, y = dy.inputTensor([0.5, 0.25, -3.0]), dy.inputTensor([[0.5], [0.25], [-3.0]])
    losses = [dy.hinge(x, 0), dy.hinge(x, 0, 0.125), dy.hinge(y, 2), dy.hinge(x, 1, m=4.0)]
    dy.esum(losses).backward(full=True)
    assert [loss.value() for loss in losses] == [0.75, 0.0, 8.75, 5.0]
    np.testing.assert_array_equal(x.gradient(), [0.0, -1.0, 1.0])
    np.testing.assert_array_equal(y.gradient(), [[1.0], [1.0], [-2.0]])


@walks(
    [
        ([1.0, 3.0, 3.0, -2.0], [0, 1, 0, 0]),
        ([-5.0, -4.0], [0, 1]),
        ([1.0, NAN, 9.0, NAN], [0, 1, 0, 0]),
        ([[1.0, 5.0], [2.0, 5.0], [0.0, 6.0]], [[0, 0], [1, 0], [0, 1]]),
    ]
)
def test_the_place_of_the_greatest_number(array, wanted, setting):
    for mode, slope in (("zero_gradient", 0.0), ("straight_through_gradient", 1.0)):
        x = dy.inputTensor(array)
        y = dy.argmax(x, mode)
        dy.sum_elems(y).backward(full=True)
        np.testing.assert_array_equal(y.npvalue(), wanted)
        np.testing.assert_array_equal(x.gradient(), np.full_like(array, slope))


@walks([[0.9] * 4, [0.2, 0.3, 0.9, 0.9], [0.3, 0.3, 0.2, 0.25], [0.4, 0.3, 0.2, 0.1]])
def test_probabilities_below_bounds(bounds, setting):
    """Those that reach their bound leave the rest to the others, by their weights."""
    weights = np.exp([2.0, 1.0, 0.0, -1.0])
    free = np.ones(4, bool)
    for _ in range(4):
        wanted = np.where(free, weights * (1 - np.sum(bounds, where=~free)) / weights[free].sum(), bounds)
        if not (over := free & (wanted > np.array(bounds) + 1e-12)).any() or (free == over).all():
            break
        free &= ~over
    for _ in range(3):
        y = dy.constrained_softmax(dy.inputVector(np.log(weights)), dy.inputVector(bounds))
        np.testing.assert_allclose(y.npvalue(), wanted, rtol=1e-5)


OPERATIONS = [lambda x, y: x + y, lambda x, y: x - y, dy.cmult, lambda x, y: x / y]


def drawn_pair(draw, is_division):
    """Return shapes that go together; the last size is that of the minibatch."""
    full, batch = draw.choice([1, 2, 3, 4, 7], draw.randint(1, 5)), int(draw.choice([1, 2, 5]))
    pair = []
    for side in range(2):
        d = np.where(draw.randint(3, size=len(full)) == 0, 1, full)
        if is_division and not side:  # the right one must not be larger
            d = full
        while len(d) > 1 and d[-1] == 1 and draw.randint(2):
            d = d[:-1]
        pair.append((*d.tolist(), batch if draw.randint(2) else 1))
    return pair


@walks(range(240))
def test_operands_of_different_shapes(seed):
    """Both operands anew in each example, or one of them for all examples; alone and inside of others."""
    draw = np.random.RandomState(seed)
    operation, fused = OPERATIONS[seed % 4], draw.randint(2)
    shapes = [drawn_pair(draw, seed % 4 == 3) for _ in range(3)]
    shared = set(draw.choice(3, 2).tolist())
    numbers = [[draw.uniform(0.5, 2.0, shape) for shape in pair] for pair in (*shapes, *shapes)]

    def program():
        operands, found = [], []
        for number, pair in enumerate(numbers):
            xs = [dy.inputTensor(array, batched=True) for array in pair]
            if number - 3 in shared:
                xs[1] = operands[2 * (number - 3) + 1]
            operands += xs
            y = operation(*[dy.tanh(x) if fused else x for x in xs])
            found.append(dy.sqrt(y * 0.5 + 3) if fused else y)
        dy.esum([dy.sum_batches(dy.squared_norm(y)) for y in found]).backward(full=True)
        return [*dy.npvalues(found), *[x.gradient() for x in operands]]

    wanted, alone, batched = on_both(program)
    for (x, y), one, other in zip(numbers[:3], alone, batched):
        np.testing.assert_array_equal(one, other)
        if not fused:
            rank = max(x.ndim, y.ndim)
            x, y = (
                each.reshape(*each.shape[:-1], *[1] * (rank - each.ndim), each.shape[-1]) for each in (x, y)
            )
            right = (x + y, x - y, x * y, x / y)[seed % 4]
            np.testing.assert_allclose(one.reshape(-1), right.reshape(-1), rtol=1e-5, atol=1e-6)
    dy.configure(engine="auto", autobatch=False, dtype="float32")


def test_gradients_of_what_is_repeated_are_exact(setting):
    many, tenth = 300_000, float(np.float32(0.1))
    number, pair = dy.scalarInput(0.5), dy.inputTensor([[0.5, 0.25]])
    wide, high = dy.inputTensor(np.full(many, 0.1)), dy.inputTensor(np.full((many, 2), 0.1))
    (dy.sum_elems(dy.cmult(wide, number)) + dy.sum_elems(dy.cmult(high, pair))).backward(full=True)
    np.testing.assert_allclose(number.gradient(), many * tenth, rtol=1e-6)
    np.testing.assert_allclose(pair.gradient(), np.full((1, 2), many * tenth), rtol=1e-6)


def test_gradients_of_what_many_nodes_read(setting):
    many, third = 6_000, float(np.float32(1 / 3))
    number, vector = dy.scalarInput(0.5), dy.inputTensor([third, third])
    dy.esum([dy.sum_elems(dy.cmult(vector, number)) for _ in range(many)]).backward(full=True)
    # the Python engine adds one node's gradient after the other in float32: every sum is rounded once
    rtol = 1e-6 if setting[0] == "auto" and uses_native() else many * np.finfo(np.float32).eps / 2
    np.testing.assert_allclose(number.gradient(), 2 * many * third, rtol=rtol)


NUMBERS = [np.float32(2), np.float64(2), np.int64(2), np.array(2.0), torch.tensor(2.0)]


@pytest.mark.parametrize("two", NUMBERS, ids=lambda two: type(two).__name__)
def test_operators_on_numbers_of_numpy_and_torch(engine, two):
    x = dy.inputVector([1.0, 2.0, 3.0])
    for found, wanted in (
        *[(two * x, [2, 4, 6]), (x * two, [2, 4, 6]), (two + x, [3, 4, 5]), (two - x, [1, 0, -1])],
        *[(x - two, [-1, 0, 1]), (two / x, [2, 1, 2 / 3]), (x / two, [0.5, 1, 1.5])],
        *[(x**two, [1, 4, 9]), (two**x, [2, 4, 8]), (dy.elu(-x, two), 2 * np.expm1([-1, -2, -3]))],
    ):
        np.testing.assert_allclose(found.npvalue(), wanted, rtol=1e-6)
