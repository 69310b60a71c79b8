"""Functions of every element against torch in float64, also where they are steep, flat, infinite or not defined."""

from __future__ import annotations

import numpy as np
import torch

import dpmodule.autobatch as dy
from helpers.walk import walks

INF, NAN = float("inf"), float("nan")
WIDE = [-90.0, -20.5, -3.3, -1.0, -0.25, -1e-4, 0.0, 1e-4, 0.3, 1.0, 2.5, 19.0, 90.0]
UNIT = [-1.0, -0.999, -0.4, -1e-5, 0.0, 1e-5, 0.5, 0.999, 1.0]
functional = torch.nn.functional
FUNCTIONS = {
    "sin": (dy.sin, torch.sin, WIDE),
    "cos": (dy.cos, torch.cos, WIDE),
    "tan": (dy.tan, torch.tan, WIDE),
    "asin": (dy.asin, torch.asin, UNIT),
    "acos": (dy.acos, torch.acos, UNIT),
    "atan": (dy.atan, torch.atan, WIDE),
    "sinh": (dy.sinh, torch.sinh, WIDE[1:-1]),
    "cosh": (dy.cosh, torch.cosh, WIDE[1:-1]),
    "asinh": (dy.asinh, torch.asinh, WIDE),
    "acosh": (dy.acosh, torch.acosh, [1.0, 1.001, 3.0, 1e4]),
    "atanh": (dy.atanh, torch.atanh, UNIT[1:-1]),
    "erf": (dy.erf, torch.erf, WIDE),
    "log_sigmoid": (dy.log_sigmoid, functional.logsigmoid, [*WIDE, 1e30, -1e30]),
    "lgamma": (dy.lgamma, torch.lgamma, [-3.7, -2.5, -0.01, 1e-3, 0.5, 1.0, 1.4616, 2.0, 7.3, 30.0, 1e4]),
    "selu": (dy.selu, torch.selu, WIDE),
    "silu": (lambda x: dy.silu(x, 1.5), lambda x: x * torch.sigmoid(1.5 * x), WIDE),
    "power": (lambda x: x**1.5, lambda x: x**1.5, [0.0, 1e-3, 1.0, 7.0]),
    "inverse power": (lambda x: x**-2, lambda x: x**-2, [-3.0, 0.1, 1.0, 7.0]),
    "power of a negative number": (lambda x: x**5, lambda x: x**5, [-3.0, -0.5, 0.0, 2.0]),
    "zeroth power": (lambda x: x**0, lambda x: x**0, [-3.0, 0.0, 2.0]),
    "number_power": (lambda x: 2.5**x, lambda x: 2.5**x, [-10.0, -1.0, 0.0, 0.5, 10.0]),
    "number_divided": (lambda x: 3 / x, lambda x: 3 / x, [-3.0, 0.1, 2.0]),
    "poisson_loss": (
        lambda x: dy.concatenate([dy.poisson_loss(x[i], 3) for i in range(4)]),
        lambda x: torch.exp(x) - 3 * x + np.log(6.0),
        [-2.0, 0.0, 1.1, 4.0],
    ),
    "third moment": (lambda x: dy.moment_elems(x, 3), lambda x: (x**3).mean()[None], [-1.0, 0.0, 2.0]),
}
PAIRS = {
    "pow": (
        lambda x, y: dy.concatenate([dy.pow(x[i], y[i]) for i in range(5)]),
        torch.pow,
        [0.5, 2.0, 1.0, 3.0, 0.1],
        [0.5, -1.0, 3.3, 0.0, 2.0],
    ),
    "huber_distance": (
        lambda x, y: dy.huber_distance(x, y, 0.7),
        lambda x, y: functional.huber_loss(x, y, reduction="sum", delta=0.7)[None],
        [0.0, 0.5, 3.0, -2.0],
        [0.0, 0.1, 1.0, 1.0],
    ),
    "l1_distance": (
        dy.l1_distance,
        lambda x, y: (x - y).abs().sum()[None],
        [0.0, 0.5, -2.0],
        [0.0, 0.1, 1.0],
    ),
    "binary_log_loss": (
        dy.binary_log_loss,
        lambda x, y: functional.binary_cross_entropy(x, y, reduction="sum")[None],
        [0.3, 0.9, 1e-6, 0.5, 0.2],
        [0.2, 1.0, 0.5, 0.0, 0.7],
    ),
    "pairwise_rank_loss": (
        lambda x, y: dy.pairwise_rank_loss(dy.transpose(x), dy.transpose(y), 0.5),
        lambda x, y: torch.relu(0.5 - x + y)[None],
        [0.0, 3.0, 1.0],
        [1.0, 1.0, 0.6],
    ),
}


def close(found, wanted):
    scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-3)
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-7 * scale)


@walks(FUNCTIONS)
def test_of_one_operand(name, setting):
    ours, theirs, numbers = FUNCTIONS[name]
    rows = [np.array(numbers, np.float32), np.array(numbers[::-1], np.float32)]
    xs = [dy.inputTensor(row) for row in rows]
    ys = [ours(x) for x in xs]
    dy.esum([dy.sum_elems(y) for y in ys]).backward(full=True)
    for x, y, row in zip(xs, ys, rows):
        wanted = torch.tensor(row, dtype=torch.float64, requires_grad=True)
        result = theirs(wanted)
        result.sum().backward()
        close(y.npvalue(), result.detach().numpy())
        close(x.gradient(), wanted.grad.numpy())


@walks(PAIRS)
def test_of_two_operands(name, setting):
    ours, theirs, *numbers = PAIRS[name]
    pairs = [[np.array(each[k:] + each[:k], np.float32) for each in numbers] for k in range(2)]
    xs = [[dy.inputTensor(array) for array in pair] for pair in pairs]
    ys = [ours(*pair) for pair in xs]
    dy.esum([dy.sum_elems(y) for y in ys]).backward(full=True)
    for x, y, pair in zip(xs, ys, pairs):
        wanted = [torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in pair]
        result = theirs(*wanted)
        result.sum().backward()
        close(y.npvalue(), result.detach().numpy())
        for each, tensor in zip(x, wanted):
            if tensor.grad is not None and not (name == "binary_log_loss" and each is x[1]):
                close(each.gradient(), tensor.grad.numpy())


@walks([n for n in FUNCTIONS if n not in ("poisson_loss", "zeroth power")])
def test_nan_stays_nan(name, setting):
    x = dy.inputTensor([NAN, 1.5, NAN] if "moment" not in name else [NAN])
    found = FUNCTIONS[name][0](x).npvalue()
    assert np.isnan(found[[0, -1]]).all()


def test_the_gradient_of_targets(setting):
    x, y = dy.inputVector([0.3, 0.9]), dy.inputVector([0.2, 1.0])
    dy.binary_log_loss(x, y).backward(full=True)
    np.testing.assert_allclose(y.gradient(), np.log1p(-np.array([0.3, 0.9])) - np.log([0.3, 0.9]), rtol=1e-5)


def test_sure_predictions_cost_nothing(setting):
    assert dy.binary_log_loss(dy.inputVector([0.0, 1.0]), dy.inputVector([0.0, 1.0])).value() == 0.0
    assert dy.binary_log_loss(dy.inputVector([0.0]), dy.inputVector([1.0])).value() == INF


def test_rounding(setting):
    x = dy.inputVector([-2.5, -1.2, -0.5, 0.0, 0.5, 1.5, 2.7])
    found = [f(x, "zero_gradient").npvalue() for f in (dy.round, dy.ceil, dy.floor)]
    np.testing.assert_array_equal(found[0], [-3, -1, -1, 0, 1, 2, 3])
    np.testing.assert_array_equal(found[1], [-2, -1, 0, 0, 1, 2, 3])
    np.testing.assert_array_equal(found[2], [-3, -2, -1, 0, 0, 1, 2])


def test_gradients_that_are_stopped_and_scaled(setting):
    x = dy.inputVector([1.0, 2.0])
    dy.esum(
        [
            dy.sum_elems(dy.square(dy.nobackprop(dy.tanh(x)))),
            dy.sum_elems(dy.scale_gradient(x, 3.0)),
            dy.sum_elems(dy.flip_gradient(dy.square(x))),
            dy.sum_elems(dy.scale_gradient(x, 0.0)),
            dy.sum_elems(dy.ceil(x * 5, "straight_through_gradient")),
            dy.sum_elems(dy.floor(x * 7, "zero_gradient")),
        ]
    ).backward(full=True)
    np.testing.assert_allclose(x.gradient(), [3 - 2 + 5, 3 - 4 + 5], rtol=1e-6)


def test_counts_are_no_part_of_the_signature(engine):
    """Examples with different counts share a batch, as those with different labels do."""
    xs = [dy.scalarInput(0.1 * k) for k in range(20)]
    losses = [dy.poisson_loss(x, k) for k, x in enumerate(xs)]
    dy.forward(losses)
    row = next(row for row in dy.explain().rows if "poisson_loss" in row.operation)
    assert (row.nodes, row.batches) == (20, 1)
    wanted = [np.exp(0.1 * k) - k * 0.1 * k + torch.lgamma(torch.tensor(k + 1.0)).item() for k in range(20)]
    np.testing.assert_allclose([each.value() for each in losses], wanted, rtol=1e-5)


def test_sparsemax_of_ties_and_nan(setting):
    found = [
        dy.sparsemax(dy.inputVector(v)).npvalue() for v in ([2.0, 2.0, 2.0, -9.0], [5.0, 0.0], [1.0, NAN])
    ]
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
    draw = np.random.RandomState(0)
    array = draw.normal(size=(3, 4, 2))
    wanted = {0: np.zeros((4, 2)), 1: np.zeros((3, 2))}
    labels = {0: [2, 0, 1, 1], 1: [3, 0, 2]}
    for k in range(2):
        for axis in (0, 1):
            for place, label in enumerate(labels[axis]):
                scores = np.take(array[:, :, k], place, 1 - axis)
                over = np.maximum(0, scores - scores[label] + 0.3)
                wanted[axis][place, k] = over.sum() - 0.3
    for axis in (0, 1):
        x = dy.inputTensor(array, batched=True)
        np.testing.assert_allclose(
            dy.hinge_dim(x, labels[axis], axis, 0.3).npvalue(), wanted[axis], rtol=1e-4, atol=1e-6
        )
        x = dy.inputTensor(array[:, :, 1])
        np.testing.assert_allclose(
            dy.hinge_dim(x, labels[axis], axis, 0.3).npvalue(), wanted[axis][:, 1], rtol=1e-4, atol=1e-6
        )
        x = dy.inputTensor(array, batched=True)
        each = dy.hinge_dim(x, [*labels[axis], *labels[axis]], axis, 0.3)
        np.testing.assert_allclose(each.npvalue(), wanted[axis], rtol=1e-4, atol=1e-6)


def test_the_place_of_the_greatest_number(setting):
    for array, wanted in (
        ([1.0, 3.0, 3.0, -2.0], [0, 1, 0, 0]),
        ([-5.0, -4.0], [0, 1]),
        ([1.0, NAN, 9.0, NAN], [0, 1, 0, 0]),
        ([[1.0, 5.0], [2.0, 5.0], [0.0, 6.0]], [[0, 0], [1, 0], [0, 1]]),
    ):
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
    xs = [dy.inputVector(np.log(weights)) for _ in range(3)]
    limits = [dy.inputVector(bounds) for _ in range(3)]
    for y in [dy.constrained_softmax(x, limit) for x, limit in zip(xs, limits)]:
        np.testing.assert_allclose(y.npvalue(), wanted, rtol=1e-5)
