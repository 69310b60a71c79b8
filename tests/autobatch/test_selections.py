"""Rows, columns and steps through vectors and matrices: both engines agree with numpy, gradients included."""

from __future__ import annotations

import numpy as np
import pytest

import dpmodule.autobatch as dy
from helpers.both_engines import on_both


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
@pytest.mark.parametrize("name", SELECTIONS)
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
