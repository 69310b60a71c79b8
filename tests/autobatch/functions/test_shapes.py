"""Rows, columns and steps through vectors and matrices: both engines agree with numpy, gradients included."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import dpmodule.autobatch as dy
from helpers.both_engines import on_both
from helpers.walk import walks


@pytest.fixture(params=[(e, b) for e in ("python", "auto") for b in (False, True)])
def _engine(request):
    dy.configure(engine=request.param[0], autobatch=request.param[1])


@pytest.fixture(autouse=True)
def _back():
    yield
    dy.configure(engine="auto", autobatch=False, dtype="float32")


MATRIX, VECTOR = (5, 4), (7,)
SELECTIONS = {
    "rows": (MATRIX, lambda x: dy.select_rows(x, [3, 0, 3]), lambda x: x[[3, 0, 3]]),
    "one row": (MATRIX, lambda x: dy.select_rows(x, [4]), lambda x: x[[4]]),
    "columns": (MATRIX, lambda x: dy.select_cols(x, [1, 3, 1]), lambda x: x[:, [1, 3, 1]]),
    "one column": (MATRIX, lambda x: dy.select_cols(x, (2,)), lambda x: x[:, [2]]),
    "elements": (VECTOR, lambda x: dy.select_rows(x, [6, 6, 0]), lambda x: x[[6, 6, 0]]),
    "rows of one column": ((5, 1), lambda x: dy.select_rows(x, [1, 2]), lambda x: x[[1, 2]]),
    "steps": (VECTOR, lambda x: x[1:6:2], lambda x: x[1:6:2]),
    "steps of both": (MATRIX, lambda x: x[::2, 1::2], lambda x: x[::2, 1::2]),
    "steps of rows": (MATRIX, lambda x: x[::3], lambda x: x[::3]),
    "part": (MATRIX, lambda x: x[:, :3], lambda x: x[:, :3]),
    "strides": (MATRIX, lambda x: dy.strided_select(x, [2, 1], [1, 0], [5, 3]), lambda x: x[1:5:2, :3]),
    "of three dimensions": ((3, 4, 2), lambda x: x[::2, 1:3, ::2], lambda x: x[::2, 1:3, ::2]),
}


@pytest.mark.usefixtures("_engine")
@walks(SELECTIONS)
def test_values_and_gradients(name):
    shape, select, wanted = SELECTIONS[name]
    arrays = np.random.RandomState(0).uniform(-1, 1, (4, *shape)).astype(np.float32)
    xs = [dy.inputTensor(array) for array in arrays]
    found = [select(x) for x in xs]
    weights = np.arange(1.0, found[0].npvalue().size + 1).reshape(found[0].npvalue().shape)
    dy.esum([dy.sum_elems(dy.cmult(y, dy.inputTensor(weights))) for y in found]).backward(full=True)
    for x, y, array in zip(xs, found, arrays):
        np.testing.assert_array_equal(y.npvalue(), wanted(array))
        places = wanted(np.arange(array.size).reshape(shape))
        slopes = np.bincount(places.ravel(), weights.ravel(), array.size).reshape(shape)
        np.testing.assert_array_equal(x.gradient(), slopes)


def test_inside_of_programs():
    draw = np.random.RandomState(1)
    weights, tables = draw.uniform(-1, 1, (6, 5)), draw.uniform(-1, 1, (3, 5, 4))

    def program():
        W = dy.ParameterCollection().parameters_from_numpy(weights)
        xs = [dy.inputTensor(array) for array in tables]
        ys = [dy.tanh(W * x) for x in xs]
        parts = [dy.select_cols(dy.select_rows(y, [k, 5]), [3, 3, k]) for k, y in enumerate(ys)]
        parts += [dy.rectify(y)[::2, 1:] * 2 for y in ys] + [dy.select_rows(W, [1, 4])]
        dy.esum([dy.squared_norm(part) for part in parts]).backward(full=True)
        return [*dy.npvalues(parts), W.grad_as_array(), *[x.gradient() for x in xs]]

    on_both(program)


@pytest.mark.usefixtures("_engine")
def test_what_is_not_there():
    x, v = dy.inputTensor(np.ones(MATRIX)), dy.inputTensor(np.ones(VECTOR))
    for call in (
        lambda: dy.select_rows(x, [0, 5]),
        lambda: dy.select_cols(x, [4]),
        lambda: dy.select_rows(v, [7]),
        lambda: dy.strided_select(x, [0]),
        lambda: dy.strided_select(x, [1], [3], [3]),
        lambda: dy.strided_select(x, [1], [0], [6]),
    ):
        with pytest.raises(dy.BoundsError):
            call()
    with pytest.raises(dy.ShapeError):
        dy.select_cols(v, [0])


@pytest.mark.usefixtures("_engine")
@walks(
    [
        (*a, b)
        for a, b in product(
            [((6,), 0), ((3, 6), 1), ((3, 6), 0), ((2, 3, 6), 2), ((2, 6, 3), 1)], [False, True]
        )
    ]
)
def test_the_greatest_numbers_in_their_order(shape, axis, is_batched):
    draw = np.random.RandomState(0)
    arrays = draw.randint(0, 4, (3, *shape, 2) if is_batched else (3, *shape)).astype(np.float64)
    count = min(3, shape[axis])
    xs = [dy.inputTensor(array, batched=is_batched) for array in arrays]
    found = [dy.kmax_pooling(x, count, axis) for x in xs]
    dy.esum([dy.sum_batches(dy.sum_elems(dy.square(y + 1))) for y in found]).backward(full=True)
    for x, y, array in zip(xs, found, arrays):
        order = np.argsort(-array, axis, kind="stable").take(range(count), axis)  # the first of equals
        places = np.sort(order, axis)
        np.testing.assert_array_equal(y.npvalue(), np.take_along_axis(array, places, axis))
        slopes = np.zeros_like(array)
        np.put_along_axis(slopes, places, 2 * np.take_along_axis(array, places, axis) + 2, axis)
        np.testing.assert_array_equal(x.gradient(), slopes)


@pytest.mark.usefixtures("_engine")
def test_what_is_no_number_is_among_the_greatest():
    found = [dy.kmax_pooling(dy.inputTensor([1.0, np.inf, np.nan, 3.0, np.nan]), k, 0) for k in (2, 3)]
    np.testing.assert_array_equal(found[0].npvalue(), [np.nan, np.nan])
    np.testing.assert_array_equal(found[1].npvalue(), [np.inf, np.nan, np.nan])
    for count, axis in ((0, 0), (6, 0), (2, 1)):
        with pytest.raises(dy.ShapeError):
            dy.kmax_pooling(dy.inputTensor(np.ones(5)), count, axis)


@pytest.mark.usefixtures("_engine")
@walks(product([(6,), (6, 4), (6, 1), (6, 4, 2)], [1, 2, 6]))
def test_rows_that_are_added_to_each_other(shape, count):
    is_batched = len(shape) > 2
    arrays = np.random.RandomState(0).randint(-9, 9, (3, *shape)).astype(np.float64)
    xs = [dy.inputTensor(array, batched=is_batched) for array in arrays]
    found = [dy.fold_rows(x, count) for x in xs]
    dy.esum([dy.sum_batches(dy.squared_norm(y)) for y in found]).backward(full=True)
    for x, y, array in zip(xs, found, arrays):
        wanted = array.reshape(6 // count, count, *shape[1:]).sum(1)
        np.testing.assert_array_equal(y.npvalue(), wanted)
        np.testing.assert_array_equal(x.gradient(), 2 * wanted.repeat(count, 0))
    for wrong in (0, 4):
        with pytest.raises(dy.ShapeError):
            dy.fold_rows(xs[0], wrong)


@pytest.mark.parametrize("filters", [(3, 2), (3, 1, 4), (3, 2, 1), (3, 5, 2)])
@pytest.mark.parametrize("is_parameter", [False, True])
def test_filters_along_matrices(filters, is_parameter):
    draw = np.random.RandomState(2)
    weights = draw.uniform(-1, 1, filters)
    tables = [draw.uniform(-1, 1, (3, columns)) for columns in (5, 7, 5, 6)]
    directions = [draw.uniform(-1, 1, (padded(filters), 8)) for _ in tables]

    def program():
        m = dy.ParameterCollection()
        f = m.parameters_from_numpy(weights) if is_parameter else dy.inputTensor(weights)
        xs = [dy.inputTensor(table) for table in tables]
        ys = [dy.tanh(dy.filter1d_narrow(dy.tanh(x), f)) for x in xs]
        wholes = [dy.inputTensor(d[:, : y.dim()[0][1]]) for y, d in zip(ys, directions)]
        dy.esum([dy.sum_elems(dy.cmult(y, d)) for y, d in zip(ys, wholes)]).backward(full=True)
        return [*dy.npvalues(ys), f.gradient(), *[x.gradient() for x in xs]]

    alone, batched = on_both(program)
    for one, other in zip(alone[:4], batched[:4]):
        np.testing.assert_array_equal(one, other)
    wide = weights.reshape(3, filters[1], -1)
    for y, table in zip(alone, tables):
        columns = np.tanh(table)
        wanted = [
            np.einsum("dw,dwf->f", columns[:, t : t + filters[1]], wide)
            for t in range(y.shape[1] if y.ndim > 1 else 1)
        ]
        np.testing.assert_allclose(
            y.reshape(padded(filters), -1), np.tanh(np.stack(wanted, 1)), rtol=1e-4, atol=1e-6
        )


def padded(filters):
    return filters[2] if len(filters) > 2 else 1
