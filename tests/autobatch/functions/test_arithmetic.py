"""Functions of every element against torch in float64, also where they are steep, flat, infinite or not defined."""

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


def cross_entropy(x, y):
    return -(y * x.log() + (1 - y) * (1 - x).log()).sum()


SAME = [
    *[(WIDE, "sin cos tan atan asinh erf tanh square"), (UNIT, "asin acos"), (UNIT[1:-1], "atanh")],
    *[(WIDE[1:-1], "sinh cosh"), ([0.1, 0.5, 1.0, 2.0, 1e3], "sqrt log"), ([-9.0, -0.5, 0.3], "exp abs")],
]
FUNCTIONS = {
    **{n: (getattr(dy, n), getattr(torch, n), numbers) for numbers, names in SAME for n in names.split()},
    **{"cube": (dy.cube, lambda x: x**3, WIDE), "rectify": (dy.rectify, torch.relu, [-3.0, -0.1, 0.2, 5.0])},
    "elu": (lambda x: dy.elu(x, 0.7), lambda x: functional.elu(x, 0.7), [-20.0, -3.0, -1e-3, 0.5, 9.0]),
    "softsign": (dy.softsign, functional.softsign, WIDE),
    "acosh": (dy.acosh, torch.acosh, [1.0, 1.001, 3.0, 1e4]),
    "logistic": (dy.logistic, torch.sigmoid, WIDE),
    "log_sigmoid": (dy.log_sigmoid, functional.logsigmoid, [*WIDE, 1e30, -1e30]),
    "lgamma": (dy.lgamma, torch.lgamma, [-3.7, -2.5, -0.01, 1e-3, 0.5, 1.0, 1.4616, 2.0, 7.3, 30.0, 1e4]),
    "selu": (dy.selu, torch.selu, WIDE),
    "silu": (lambda x: dy.silu(x, 1.5), lambda x: x * torch.sigmoid(1.5 * x), WIDE),
    "power": (lambda x: x**1.5, lambda x: x**1.5, [0.0, 1e-3, 1.0, 7.0]),
    "inverse power": (lambda x: x**-2, lambda x: x**-2, [-3.0, 0.1, 1.0, 7.0]),
    "power of a negative number": (lambda x: x**5, lambda x: x**5, [-3.0, -0.5, 0.0, 2.0]),
    "number_power": (lambda x: 2.5**x, lambda x: 2.5**x, [-10.0, -1.0, 0.0, 0.5, 10.0]),
    "number_divided": (lambda x: 3 / x, lambda x: 3 / x, [-3.0, 0.1, 2.0]),
    "third moment": (lambda x: dy.moment_elems(x, 3), lambda x: (x**3).mean(), [-1.0, 0.0, 2.0]),
}
MORE = {
    "zeroth power": (lambda x: x**0, lambda x: x**0, [-3.0, 0.0, 2.0]),
    "binary_log_loss": (dy.binary_log_loss, cross_entropy, [0.3, 0.9, 1e-6, 0.5], [0.2, 1.0, 0.5, 0.0]),
}


def close(found, wanted):
    scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-3)
    np.testing.assert_allclose(found, wanted.reshape(found.shape), rtol=2e-5, atol=2e-7 * scale)


@walks([*FUNCTIONS, *MORE])
def test_values_and_gradients(name, setting):
    ours, theirs, *numbers = (FUNCTIONS | MORE)[name]
    arrays = [np.array(each, np.float32) for each in numbers]
    rows = [arrays, [np.roll(each, 1) for each in arrays], [np.resize(each, 33) for each in arrays]]
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


def rounded(name):
    return lambda x: getattr(dy, name)(x, "zero_gradient")


def weighted(x):
    return dy.cmult(dy.kmax_pooling(x, 4, 0), dy.inputVector([1.0, 2.0, 3.0, 4.0]))


HALVES, PLACES = [-2.5, -1.2, -0.5, 0.0, 0.5, 1.5, 2.7], [2.0, 1.0, 0.0, -1.0]
ONES, ZEROS = np.ones((3, 2)), np.zeros((2, 3))
SUMS = [[-INF] * 3, [INF, 0, 0], [1e30, 0, -1e30], [1000] * 3, [-1000] * 3, [-INF, 2, 2]]
LOGS = [-INF, INF, 1e30, 1000 + np.log(3), -1000 + np.log(3), 2 + np.log(2)]
IMAGE, CORNERS = np.ones((2, 4, 1)), [[[1.0], [0.0]] * 2, [[0.0]] * 4]
SHARE = 0.5 / (1 + np.e)
ODD = [  # a function, its operands, what it gives, and gradients of the sum of that
    (rounded("round"), [HALVES], [-3, -1, -1, 0, 1, 2, 3], [0] * 7),
    (rounded("ceil"), [HALVES], [-2, -1, 0, 0, 1, 2, 3]),
    (rounded("floor"), [HALVES], [-3, -2, -1, 0, 0, 1, 2]),
    (rounded("argmax"), [[1.0, 3.0, 3.0, -2.0]], [0, 1, 0, 0]),
    (rounded("argmax"), [[1.0, NAN, 9.0, NAN]], [0, 1, 0, 0]),
    (rounded("argmax"), [[[1.0, 5.0], [2.0, 5.0], [0.0, 6.0]]], [[0, 0], [1, 0], [0, 1]]),
    (dy.sparsemax, [[2.0, 2.0, 2.0, -9.0]], [1 / 3, 1 / 3, 1 / 3, 0]),
    *[(dy.sparsemax, [[5.0, 0.0]], [1, 0]), (dy.sparsemax, [[1.0, NAN]], [NAN, NAN])],
    (lambda *xs: dy.emax([*xs]), [[1.0, float(k)] for k in range(3)], [1, 2], [1, 0], [0, 0], [0, 1]),
    (lambda *xs: dy.emax([*xs]), [[1.0, float(k)] for k in range(7)], [1, 6], [1, 0], *[[0, 0]] * 5, [0, 1]),
    # probabilities that reach their bound leave the rest to the others, by their weights
    (dy.constrained_softmax, [PLACES, [0.2, 0.3, 0.9, 0.9]], [0.2, 0.3, SHARE * np.e, SHARE]),
    (dy.constrained_softmax, [PLACES, [0.3, 0.3, 0.2, 0.25]], [0.3, 0.3, 0.2, 0.2]),
    *[(dy.binary_log_loss, [[0.0, 1.0]] * 2, [0]), (dy.binary_log_loss, [[0.0], [1.0]], [INF])],
    *[(f, [ONES], [1, 1], [[1, 1], [0, 0], [0, 0]]) for f in (dy.max_dim, dy.min_dim)],
    *[(lambda x, f=f: f(x, 1), [ONES], [1] * 3, [[1, 0]] * 3) for f in (dy.max_dim, dy.min_dim)],
    *[(f, [np.roll([NAN, 1.0, 2.0], k)], [NAN]) for f in (dy.max_dim, dy.min_dim) for k in range(3)],
    *[(lambda x, f=f: f(x, 1), [[[1.0, NAN]] * 40], [NAN] * 40) for f in (dy.max_dim, dy.min_dim)],
    *[(lambda x: dy.logsumexp_dim(x, 1), [SUMS], LOGS), (dy.logsumexp_dim, [np.transpose(SUMS)], LOGS)],
    (lambda *xs: dy.logsumexp([*xs]), np.transpose(SUMS), LOGS),
    *[(f, [ZEROS], [0], ZEROS) for f in (dy.l2_norm, dy.std_elems)],
    *[(lambda x, d=d: dy.std_dim(x, d, False), [ZEROS], [0] * (3 - d), ZEROS) for d in (0, 1)],
    (lambda x: dy.log_softmax(x, [0, 2]), [[[0.0], [1.0], [0.0]]], [[-np.log(2)], [-INF], [-np.log(2)]]),
    (weighted, [[1.0, 3.0, 2.0, 3.0, 3.0, 1.0]], [3, 4, 9, 12], [0, 1, 2, 3, 4, 0]),
    *[(lambda x, k=k: dy.kmax_pooling(x, k, 0), [[1, INF, NAN, 3, NAN]], [INF] * (k - 2) + [NAN] * 2) for k in (2, 3)],
    (lambda x: dy.maxpooling2d(x, (2, 2), (2, 2)), [IMAGE], np.ones((1, 2, 1)), CORNERS),
    (lambda x: dy.maxpooling2d(x, (2, 2), (2**40, 1)), [IMAGE * [[[NAN]], [[1]]]], np.full((1, 3, 1), NAN)),
]  # fmt: skip


@walks(range(len(ODD)))
def test_odd_numbers(place, setting):
    function, operands, wanted, *slopes = ODD[place]
    xs = [dy.inputTensor(np.array(each, np.float64)) for each in operands]
    y = function(*xs)
    np.testing.assert_allclose(y.npvalue(), wanted, rtol=1e-5)
    if slopes:
        dy.sum_elems(y).backward(full=True)
        for x, slope in zip(xs, slopes, strict=True):
            np.testing.assert_array_equal(x.gradient(), slope)


def test_gradients_of_what_many_nodes_read(setting):
    many, third = 6_000, float(np.float32(1 / 3))
    number, vector = dy.scalarInput(0.5), dy.inputTensor([third, third])
    dy.esum([dy.sum_elems(dy.cmult(vector, number)) for _ in range(many)]).backward(full=True)
    # the Python engine adds one node's gradient after the other in float32: every sum is rounded once
    rtol = 1e-6 if setting[0] == "auto" and uses_native() else many * np.finfo(np.float32).eps / 2
    np.testing.assert_allclose(number.gradient(), 2 * many * third, rtol=rtol)


def test_margins_along_rows_and_columns(setting):
    array = np.random.RandomState(0).normal(size=(3, 4, 2))
    for axis, labels in ((0, [2, 0, 1, 1]), (1, [3, 0, 2])):
        right = np.stack([np.take(array, label, axis).take(k, 0) for k, label in enumerate(labels)])
        wanted = np.maximum(0, array - np.expand_dims(right, axis) + 0.3).sum(axis) - 0.3
        for places in (labels, labels * 2):
            found = dy.hinge_dim(dy.inputTensor(array, batched=True), places, axis, 0.3)
            np.testing.assert_allclose(found.npvalue(), wanted, rtol=1e-4, atol=1e-6)


OPERATIONS = [
    *[(lambda x, y: x + y, np.add), (lambda x, y: x - y, np.subtract)],
    *[(dy.cmult, np.multiply), (dy.cdiv, np.divide)],
]


@walks(range(160))
def test_operands_of_different_shapes(seed):
    draw, pair = np.random.RandomState(seed), []
    full, batch = draw.choice([1, 2, 3, 4, 7], draw.randint(1, 5)), int(draw.choice([1, 2, 5]))
    operation, theirs = OPERATIONS[seed % 4]
    for side in range(2):  # the right one of a division must not be larger
        d = np.where((draw.randint(3, size=len(full)) == 0) & (seed % 4 < 3 or side), 1, full)
        pair.append(draw.uniform(0.5, 2.0, (*d, batch if draw.randint(2) else 1)))

    def program():
        xs = [dy.inputTensor(array, batched=True) for array in pair * 2]
        found = [operation(*xs[:2]), operation(*xs[2:]), dy.sqrt(operation(dy.tanh(xs[0]), xs[3]) * 0.5 + 3)]
        dy.esum([dy.sum_batches(dy.squared_norm(y)) for y in found]).backward(full=True)
        return [*dy.npvalues(found), *[x.gradient() for x in xs]]

    _, alone, batched = on_both(program)
    np.testing.assert_array_equal(alone[0], batched[0])
    np.testing.assert_allclose(alone[0].reshape(-1), theirs(*pair).reshape(-1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [np.float32, np.int64, np.array, torch.tensor])
def test_operators_on_numbers_of_numpy_and_torch(engine, kind):
    x, two = dy.inputVector([1.0, 2.0, 3.0]), kind(2)
    for found, wanted in (
        *[(two * x, [2, 4, 6]), (x * two, [2, 4, 6]), (two + x, [3, 4, 5]), (two - x, [1, 0, -1])],
        *[(x - two, [-1, 0, 1]), (two / x, [2, 1, 2 / 3]), (x / two, [0.5, 1, 1.5])],
        *[(x**two, [1, 4, 9]), (two**x, [2, 4, 8]), (dy.elu(-x, two), 2 * np.expm1([-1, -2, -3]))],
    ):
        np.testing.assert_allclose(found.npvalue(), wanted, rtol=1e-6)
