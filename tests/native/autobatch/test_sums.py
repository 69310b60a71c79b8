"""Rounding in the native engine: sums of many terms, and values that do not depend on what else is in a batch."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import dpmodule.autobatch as dy
from dpmodule import native
from helpers.walk import walks

pytestmark = pytest.mark.skipif(native.core is None, reason="no native extension")
MANY, NODES = 500_000, 120_000
TENTH = float(np.float32(0.1))


@pytest.fixture(params=[False, True], autouse=True, ids=["off", "on"])
def _autobatch(request):
    dy.configure(autobatch=request.param, dtype="float32", engine="auto")
    yield
    dy.configure(autobatch=False)


def close(found, wanted):
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=1e-5)


def test_numbers_of_one_array():
    x, xs = dy.inputTensor(np.full(MANY, 0.1)), dy.inputTensor(np.full((2, MANY // 2), 0.1), batched=True)
    for found, wanted in (
        *[(dy.sum_elems(x), MANY * TENTH), (dy.dot_product(x, x), MANY * TENTH**2)],
        *[(dy.squared_norm(x), MANY * TENTH**2), (dy.hinge(x, 3, 0.2), (MANY - 1) * float(np.float32(0.2)))],
        *[(dy.pickneglogsoftmax(x, 7), np.log(MANY)), (dy.log_softmax(x), -np.log(MANY))],
        (dy.sum_batches(xs), MANY / 2 * TENTH),
        (dy.sum_elems(dy.inputTensor(np.full((MANY // 2, 2), 0.1), batched=True)), MANY / 2 * TENTH),
    ):
        close(found.npvalue(), np.full(found.npvalue().shape, wanted))


@pytest.mark.parametrize("width", [1, 2, 70])
def test_values_of_many_nodes(width):
    xs = [dy.inputTensor(np.linspace(0.1, 0.2, width)) for _ in range(10)]
    close(dy.esum(xs * (NODES // 10)).npvalue(), NODES * np.linspace(0.1, 0.2, width).astype(np.float32))


def of_reductions(m, p, x):
    kinds = (lambda: dy.sum_dim(p, [0]) * 3.0, lambda: dy.max_dim(p), lambda: dy.hinge(p, 1))
    wanted = NODES / 3 * TENTH * np.array([3.0 + 1 + 1, 3.0 - 1])
    return [make() * TENTH for make in kinds for _ in range(NODES // 3)], [(p, wanted)]


def of_a_value(m, p, x):
    """What is behind it receives the whole gradient."""
    both, half = p * 2.0, NODES / 2
    losses = [
        dy.cmult(part(), x)
        for part in (lambda: dy.pick(both, 1), lambda: both[0:1])
        for _ in range(NODES // 2)
    ]
    return losses, [(both, np.full(2, half * TENTH)), (p, np.full(2, NODES * TENTH)), (x, half * (0.5 + 1.0))]


def of_one_wide_product(m, p, x):
    wide = dy.inputTensor(np.full((MANY, 2), 0.1))
    return [dy.sum_elems(dy.cmult(wide, x))], [(x, [2 * MANY * TENTH])]


def of_maps(m, p, x):
    table = m.lookup_parameters_from_numpy(np.array([[0.1, 0.2], [0.3, 0.4]]))
    W, b = m.parameters_from_numpy(np.ones((1, 2))), m.parameters_from_numpy(np.ones(1))
    loss = dy.esum([dy.affine_transform([b, W, table[k % 2]]) for k in range(NODES)]) * TENTH
    wanted = [(W, NODES * TENTH * np.array([[0.2, 0.3]])), (b, [NODES * TENTH])]
    return [loss], [*wanted, (table, np.full((2, 2), NODES / 2 * TENTH))]


@walks([of_reductions, of_a_value, of_one_wide_product, of_maps])
def test_gradients_of_many_nodes(make):
    m = dy.ParameterCollection()
    losses, wanted = make(m, m.parameters_from_numpy(np.array([0.5, 0.25])), dy.inputTensor([TENTH]))
    dy.esum(losses).backward(full=True)
    for each, gradient in wanted:
        close(each.grad_as_array() if hasattr(each, "grad_as_array") else each.gradient(), gradient)


@walks(product([2, 3, 30], [(1, 1), (3, 5), (17, 16), (130, 65), (800, 9)]))
def test_a_row_alone_has_the_value_it_has_among_others(rows, sizes):
    (inner, outer), draw, m = sizes, np.random.RandomState(0), dy.ParameterCollection()
    W, b = (m.parameters_from_numpy(draw.normal(size=shape)) for shape in ((outer, inner), outer))
    arrays = draw.normal(size=(rows, inner))

    def run(arrays):
        dy.renew_cg()
        xs = [dy.inputTensor(array) for array in arrays]
        losses = [dy.sum_elems(dy.tanh(dy.affine_transform([b, W, x]))) for x in xs]
        dy.esum(losses).backward(full=True)
        return [np.concatenate([each.npvalue(), x.gradient()]) for each, x in zip(losses, xs)]

    for array, found in zip(arrays, run(arrays)):
        np.testing.assert_array_equal(run([array])[0], found)
