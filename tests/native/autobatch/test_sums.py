"""Rounding in the native engine: sums of many terms, and values that do not depend on what else is in a batch."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import dpmodule.autobatch as dy
from dpmodule import native
from helpers.walk import walks

pytestmark = pytest.mark.skipif(native.core is None, reason="no native extension")
MANY = 500_000
TENTH = float(np.float32(0.1))


@pytest.fixture(params=[False, True], autouse=True, ids=["off", "on"])
def _autobatch(request):
    dy.configure(autobatch=request.param, dtype="float32", engine="auto")
    yield
    dy.configure(autobatch=False)


def close(found, wanted):
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=1e-5)


def test_numbers_of_one_array():
    x = dy.inputTensor(np.full(MANY, 0.1))
    dy.esum([dy.sum_elems(x), dy.dot_product(x, x), dy.squared_norm(x)]).forward()
    close(dy.sum_elems(x).value(), MANY * TENTH)
    close(dy.dot_product(x, x).value(), MANY * TENTH**2)
    close(dy.squared_norm(x).value(), MANY * TENTH**2)
    close(dy.pickneglogsoftmax(x, 7).value(), np.log(MANY))
    close(dy.log_softmax(x).npvalue(), -np.log(MANY))


@pytest.mark.parametrize("axis", [0, 1])
def test_along_one_dimension(axis):
    matrix = np.full((MANY // 2, 2), TENTH)
    x = dy.inputTensor(matrix if axis == 0 else matrix.T)
    for found, wanted in (
        (dy.sum_dim(x, [axis]), MANY / 2 * TENTH),
        (dy.mean_dim(x, [axis], False), TENTH),
        (dy.sum_dim(x, [0, 1]), MANY * TENTH),
        (dy.mean_elems(x), TENTH),
        (dy.logsumexp_dim(x, axis), np.log(MANY / 2) + TENTH),
    ):
        close(found.npvalue(), np.full(found.dim()[0], wanted))
    close(dy.hinge(dy.inputTensor(np.full(MANY, 0.1)), 3, 0.2).value(), (MANY - 1) * float(np.float32(0.2)))


def test_minibatches():
    x = dy.inputTensor(np.full((2, MANY // 2), 0.1), batched=True)
    close(dy.sum_batches(x).npvalue(), np.full(2, MANY / 2 * TENTH))
    close(dy.mean_batches(x).npvalue(), np.full(2, TENTH))
    y = dy.inputTensor(np.full((MANY // 2, 2), 0.1), batched=True)
    close(dy.sum_elems(y).npvalue(), np.full((1, 2), MANY / 2 * TENTH))


def test_a_vector_that_many_nodes_reduce():
    m = dy.ParameterCollection()
    p = m.parameters_from_numpy(np.array([0.5, 0.25]))
    losses = [dy.sum_dim(p, [0]) * (3 * TENTH) for _ in range(MANY // 4)]
    losses += [dy.max_dim(p) * TENTH for _ in range(MANY // 4)]
    losses += [dy.hinge(p, 1) * TENTH for _ in range(MANY // 4)]
    losses += [dy.dropout(p, 0.0)[0] * TENTH for _ in range(MANY // 4)]
    dy.esum(losses).backward()
    close(p.grad_as_array(), MANY / 4 * TENTH * np.array([6.0, 2.0]))


@pytest.mark.parametrize("width", [1, 2, 70])
def test_values_of_many_nodes(width):
    xs = [dy.inputTensor(np.linspace(0.1, 0.2, width)) for _ in range(10)]
    close(dy.esum(xs * (MANY // 10)).npvalue(), MANY * np.linspace(0.1, 0.2, width).astype(np.float32))


def test_a_parameter_that_many_nodes_use():
    m = dy.ParameterCollection()
    p = m.parameters_from_numpy(np.array([0.5, 0.25]))
    x = dy.inputTensor([TENTH, 2 * TENTH])
    dy.esum([dy.dot_product(p, x) for _ in range(MANY)]).backward()
    close(p.grad_as_array(), [MANY * TENTH, 2 * MANY * TENTH])


def test_a_value_that_many_nodes_use():
    """What is behind it receives the whole gradient."""
    m = dy.ParameterCollection()
    p = m.parameters_from_numpy(np.array([0.5, 0.25]))
    both = p * 2.0
    x = dy.inputTensor([TENTH])
    losses = [dy.cmult(dy.pick(both, 1), x) for _ in range(MANY // 2)]
    losses += [dy.cmult(both[0:1], x) for _ in range(MANY // 2)]
    dy.esum(losses).backward(full=True)
    close(both.gradient(), np.full(2, MANY / 2 * TENTH))
    close(p.grad_as_array(), np.full(2, MANY * TENTH))
    close(x.gradient(), MANY / 2 * (0.5 + 1.0))


def test_rows_that_are_looked_up_often():
    m = dy.ParameterCollection()
    table = m.lookup_parameters_from_numpy(np.ones((3, 1)))
    x = dy.inputTensor([TENTH])
    dy.esum([dy.cmult(table[k % 2], x) for k in range(MANY)]).backward()
    close(table.grad_as_array().ravel(), [MANY / 2 * TENTH, MANY / 2 * TENTH, 0])


@pytest.mark.parametrize("looked_up", [False, True])
def test_weights_and_biases(looked_up):
    m = dy.ParameterCollection()
    table = m.lookup_parameters_from_numpy(np.array([[0.1, 0.2], [0.3, 0.4]]))
    W, b = m.parameters_from_numpy(np.ones((1, 2))), m.parameters_from_numpy(np.ones(1))
    xs = [dy.inputTensor([0.1, 0.2]), dy.inputTensor([0.3, 0.4])]
    rows = [table[k % 2] for k in range(MANY)] if looked_up else xs * (MANY // 2)
    (dy.esum([dy.affine_transform([b, W, x]) for x in rows]) * TENTH).backward(full=True)
    close(W.grad_as_array().ravel(), MANY * TENTH * np.array([0.2, 0.3]))
    close(b.grad_as_array(), [MANY * TENTH])
    if looked_up:
        close(table.grad_as_array(), np.full((2, 2), MANY / 2 * TENTH))
    else:
        close(xs[1].gradient(), np.full(2, MANY / 2 * TENTH))


def test_memories_that_many_steps_begin_with():
    count = 2000
    m = dy.ParameterCollection()
    builder = dy.VanillaLSTMBuilder(1, 1, 1, m)
    for p in m.parameters_list():
        p.set_value(np.zeros(p.shape()))
    c, h, x = (dy.inputTensor([number]) for number in (0.3, 0.2, 0.1))
    outputs = [builder.initial_state([c, h]).add_input(x).s()[0] for _ in range(count)]
    (dy.esum(outputs) * TENTH).backward(full=True)
    close(c.gradient(), count * TENTH / (1 + np.exp(-1.0)))


@walks(
    [(a, *b) for a, b in product([2, 3, 4, 30], [(1, 1), (3, 5), (17, 16), (50, 200), (130, 65), (800, 9)])]
)
def test_a_row_alone_has_the_value_it_has_among_others(rows, inner, outer):
    draw = np.random.RandomState(0)
    m = dy.ParameterCollection()
    W, b = (
        m.parameters_from_numpy(draw.normal(size=(outer, inner))),
        m.parameters_from_numpy(draw.normal(size=outer)),
    )
    arrays = draw.normal(size=(rows, inner))

    def run(arrays):
        dy.renew_cg()
        xs = [dy.inputTensor(array) for array in arrays]
        losses = [dy.sum_elems(dy.tanh(dy.affine_transform([b, W, x]))) for x in xs]
        dy.esum(losses).backward(full=True)
        return [np.concatenate([each.npvalue(), x.gradient()]) for each, x in zip(losses, xs)]

    for array, found in zip(arrays, run(arrays)):
        np.testing.assert_array_equal(run([array])[0], found)


def test_the_order_of_two_products_does_not_depend_on_batching():
    """Inside the recurrence the other product is there first, while batched."""
    draw = np.random.RandomState(0)
    m = dy.ParameterCollection()
    W, V = (m.parameters_from_numpy(draw.normal(size=(20, 20))) for _ in range(2))
    b = m.parameters_from_numpy(draw.normal(size=20))
    arrays = draw.normal(size=(12, 20))

    def run(autobatch):
        dy.renew_cg(autobatching=autobatch)
        h = dy.inputTensor(np.zeros(20))
        for array in arrays:
            h = dy.tanh(dy.affine_transform([b, W, h, V, dy.inputTensor(array)]))
        return h.npvalue()

    np.testing.assert_array_equal(run(False), run(True))
