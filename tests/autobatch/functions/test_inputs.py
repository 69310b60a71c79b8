"""Inputs and constants of whatever holds numbers; each a new one that can be set, whichever way it was made."""

from __future__ import annotations

import array
import fractions
from itertools import product

import numpy as np
import pytest

import dpmodule.autobatch as dy
from dpmodule.autobatch.functions.inputs import InputExpression
from dpmodule.base import DTypeError
from helpers.walk import walks


@pytest.fixture(params=["python", "auto"], autouse=True)
def _engine(request):
    dy.configure(engine=request.param, autobatch=True)
    yield
    dy.configure(engine="auto", autobatch=False)


GRID = np.arange(12.0).reshape(3, 4)
VECTORS = {
    "floats": [0.1, 2.0],
    "integers": (3, -4),
    "mixed": [1, 2.5],
    "truths": [True, 2.0],
    "large": [2**53 + 1, -(2**60) - 1],
    "numpy numbers": [np.float64(0.1), np.float64(2.0)],
    "small numpy numbers": [np.float32(0.1), np.int64(2)],
    "doubles": np.array([0.1, 2.0]),
    "singles": np.array([0.1, 2.0], np.float32),
    "whole": np.array([1, 2]),
    "halves": np.array([0.5, 2.0], np.float16),
    "turned bytes": np.array([0.1, 2.0], ">f8"),
    "every second": GRID[0, ::2],
    "a column": GRID[:, 1],
    "a buffer": array.array("d", [0.1, 2.0]),
    "bytes": memoryview(b"ab"),
}
TENSORS = {
    **VECTORS,
    "a number": 2.5,
    "a matrix": GRID,
    "a small matrix": GRID.astype(np.float32),
    "a turned matrix": GRID.T,
    "rows of lists": [[1.0, 2.0], [3.0, 4.0]],
    "more dimensions": np.arange(24.0).reshape(2, 3, 1, 4),
}


def holds(expression, wanted):
    wanted = np.asarray(wanted, np.float32)
    assert expression.dim() == (wanted.shape, 1)
    np.testing.assert_array_equal(expression.npvalue(), wanted)
    np.testing.assert_array_equal((expression * 2.0).npvalue(), wanted * 2)


@walks(VECTORS)
def test_vectors(name):
    holds(dy.inputVector(VECTORS[name]), np.array(VECTORS[name]))


def test_a_matrix_as_a_vector():
    holds(dy.inputVector(GRID), GRID.ravel())
    holds(dy.inputVector(GRID.T), GRID.T.ravel())


@walks(TENSORS)
def test_tensors(name):
    holds(dy.inputTensor(TENSORS[name]), np.atleast_1d(np.array(TENSORS[name])))


def test_operations_on_four_and_more_dimensions():
    """Of these DyNet takes the inputs only."""
    for shape in ((2, 3, 1, 2), (2, 1, 3, 2, 2)):
        array = np.arange(float(np.prod(shape))).reshape(shape)
        x, last = dy.inputTensor(array), len(shape) - 1
        for found, want in (
            (dy.sum_dim(x, [last]), array.sum(last)),
            (dy.max_dim(x, last), array.max(last)),
            (dy.pick(x, 1, last), array[..., 1]),
            (dy.concatenate([x, x], last), np.concatenate([array, array], last)),
        ):
            np.testing.assert_allclose(found.npvalue(), want)


@walks([0.1, 3, True, 2**53 + 1, -(2**60) - 1, 1e300, np.float64(0.1), np.float32(0.1)])
def test_numbers(number):
    with np.errstate(over="ignore"):
        holds(dy.scalarInput(number), [number])


@walks(
    product([3, (3,), [3], (2, 3), [2, 3, 2], np.int64(3), (np.int64(2), 3), ()], [0.25, 2, np.float32(0.25)])
)
def test_constants(dim, val):
    shape = tuple(np.atleast_1d(np.array(dim, int))) or (1,)
    holds(dy.constant(dim, val), np.full(shape, val))
    holds(dy.zeros(dim), np.zeros(shape))
    holds(dy.zeroes(dim), np.zeros(shape))
    holds(dy.ones(dim), np.ones(shape))
    assert dy.zeros(dim, 2).dim() == dy.zeros(dim, batch_size=2).dim() == (shape, 2)


def test_every_input_can_be_set():
    made = [
        dy.scalarInput(1.0),
        dy.scalarInput(True),
        dy.inputVector([1.0, 2.0]),
        dy.inputVector([True, 2.0]),
    ]
    made += [
        dy.inputTensor(GRID),
        dy.inputTensor(GRID.T),
        dy.vecInput(3),
        dy.vecInput((3,)),
        dy.matInput(2, 3),
    ]
    for x in made:
        y = x + x
        y.npvalue()
        wanted = np.full(x.dim()[0], 0.5)
        x.set(wanted)
        assert isinstance(x, InputExpression)
        assert isinstance(x, dy.Expression)
        np.testing.assert_array_equal(y.npvalue(), 2 * wanted)
    assert not isinstance(dy.zeros(3), InputExpression)


def test_an_input_is_a_copy():
    for numbers in (np.ones(3), np.ones(3, np.float32), [1.0, 1.0, 1.0]):
        x = dy.inputTensor(numbers)
        numbers[0] = 7.0
        assert x.vec_value() == [1.0, 1.0, 1.0]


def test_inputs_are_told_from_what_is_none():
    for call in (
        lambda: dy.inputVector([1.0, fractions.Fraction(1, 2)]),
        lambda: dy.inputTensor(np.array(["a"])),
        lambda: dy.inputTensor(np.array([1j])),
        lambda: dy.scalarInput("a"),
    ):
        with pytest.raises(dy.ForeignValueError):
            call()
    for call in (
        lambda: dy.inputVector([]),
        lambda: dy.inputTensor(np.ones((2, 0))),
        lambda: dy.matInput(2, 0),
    ):
        with pytest.raises(dy.ShapeError):
            call()


WHOLE = np.random.RandomState(3).normal(size=(4, 6, 5))
LAYOUTS = {
    "as it is": WHOLE,
    "float32": WHOLE.astype(np.float32),
    "transposed": WHOLE.T,
    "Fortran": np.asfortranarray(WHOLE),
    "every second": WHOLE[:, ::2, 1::2],
    "backwards": WHOLE[::-1, :, ::-1],
    "one row again and again": np.broadcast_to(WHOLE[0], (3, 6, 5)),
    "flat": WHOLE[0, 0],
    "one element": WHOLE[:, :, :1],
    "integers": np.arange(24).reshape(2, 3, 4),
    "in the other order of bytes": WHOLE.astype(">f8"),
}


@walks(LAYOUTS)
def test_arrays_lie_anyhow(name):
    given = LAYOUTS[name]
    dy.renew_cg()
    plain, last = dy.inputTensor(given), dy.inputTensor(given, batched=True)
    again = dy.inputTensor(given, True)
    assert plain.dim() == (given.shape, 1)
    assert last.dim() == again.dim() == (given.shape[:-1] or (1,), given.shape[-1])
    wanted = given.reshape(1, -1) if given.ndim == 1 else given
    np.testing.assert_array_equal(plain.npvalue(), given.astype(np.float32))
    for each in (last, again):
        np.testing.assert_array_equal(each.npvalue().reshape(wanted.shape), wanted.astype(np.float32))
    (dy.sum_batches(dy.sum_elems(dy.tanh(last)))).backward(full=True)
    np.testing.assert_allclose(
        last.gradient().reshape(wanted.shape), 1 - np.tanh(wanted.astype(np.float64)) ** 2, atol=1e-5
    )


def test_values_are_arrays_of_their_own():
    dy.renew_cg()
    x = dy.inputTensor(WHOLE, batched=True)
    y = dy.tanh(x)
    found = y.npvalue()
    assert found.flags.c_contiguous
    assert found.dtype == np.float64
    before = found.copy()
    found[:] = 7.0
    np.testing.assert_array_equal(y.npvalue(), before)


def test_a_parameter_that_changes_its_type_between_graphs():
    p = dy.ParameterCollection().parameters_from_numpy(np.ones(3))
    for _ in range(2):
        dy.renew_cg()
        assert dy.sum_elems(p).value() == 3.0
    p.tensor.data = p.tensor.data.double()
    dy.renew_cg()
    with pytest.raises(DTypeError, match="float64"):
        dy.sum_elems(p)
