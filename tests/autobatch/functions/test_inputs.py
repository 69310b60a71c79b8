"""Inputs and constants of whatever holds numbers; each a new one that can be set, whichever way it was made."""

import array
from itertools import product

import numpy as np
import pytest
import torch

import dpmodule.autobatch as dy
from dpmodule.autobatch.functions.inputs import InputExpression
from helpers.walk import walks

pytestmark = pytest.mark.usefixtures("engine")
GRID, WHOLE = np.arange(12.0).reshape(3, 4), np.random.RandomState(3).normal(size=(4, 6, 5))

VECTORS = [
    *([0.1, 2.0], (3, -4), [True, 2.0], [2**53 + 1, -(2**60) - 1], array.array("d", [0.1, 2.0])),
    *([np.float32(0.1), np.int64(2)], memoryview(b"ab"), GRID[0, ::2], torch.tensor([1.0, 2.0], requires_grad=True)),
    *[np.array([1, 0], dtype) for dtype in ("f8", "f4", "f2", ">f8", ">f4", "longdouble", "i8", ">i4", "u1", "?")],
]  # fmt: skip
ARRAYS = [
    *(2.5, GRID, GRID.astype("f4"), GRID.T, GRID[:, ::-2], GRID[::-1, ::-1].T, [[1.0, 2.0], [3.0, 4.0]]),
    *(WHOLE, WHOLE.T, WHOLE[:, ::2, 1::2], WHOLE[::-1, :, ::-1], WHOLE[:, :, :1], WHOLE.astype(">f8")),
    *(np.broadcast_to(WHOLE[0], (3, 6, 5)), np.arange(24.0).reshape(2, 3, 1, 4)),
]  # fmt: skip


def holds(expression, wanted, size=1):
    wanted = np.asarray(wanted).astype(np.float32)
    assert expression.dim() == ((wanted.shape[:-1] or (1,), size) if size > 1 else (wanted.shape, 1))
    np.testing.assert_array_equal(expression.npvalue().reshape(wanted.shape), wanted)
    np.testing.assert_array_equal((expression * 2.0).npvalue().reshape(wanted.shape), wanted * 2)


@walks(range(len(VECTORS)))
def test_vectors(place):
    given = VECTORS[place]
    wanted = given.detach().numpy() if torch.is_tensor(given) else np.array(given)
    for make in (dy.inputVector, dy.inputTensor):
        holds(make(given), wanted)
    x = dy.vecInput(len(wanted))
    x.set(given)
    holds(x, wanted)


@walks(range(len(ARRAYS)))
def test_arrays_of_any_layout(place):
    given = ARRAYS[place]
    wanted = np.atleast_1d(np.array(given))
    holds(dy.inputTensor(given), wanted)
    last = dy.inputTensor(given, batched=True)
    if wanted.ndim == 1:
        return
    assert last.dim() == dy.inputTensor(given, True).dim() == (wanted.shape[:-1], wanted.shape[-1])
    np.testing.assert_array_equal(last.npvalue().reshape(wanted.shape), wanted.astype("f4"))
    dy.sum_batches(dy.sum_elems(dy.tanh(last))).backward(full=True)
    slope = 1 - np.tanh(wanted.astype("f8")) ** 2
    np.testing.assert_allclose(last.gradient().reshape(wanted.shape), slope, atol=1e-5)
    listed = dy.inputTensor([np.asarray(part).T for part in wanted.T])
    np.testing.assert_array_equal(listed.npvalue().reshape(wanted.shape), wanted.astype("f4"))


@walks([0.1, 3, True, 2**53 + 1, -(2**60) - 1, 1e300, np.float64(0.1), np.float32(0.1), torch.tensor(2.0)])
def test_numbers(number):
    with np.errstate(over="ignore"):
        holds(dy.scalarInput(number), [float(number)])


def test_every_input_can_be_set():
    made = [dy.scalarInput(1.0), dy.scalarInput(True), dy.inputVector([True, 2.0]), dy.inputTensor(GRID.T)]
    for x in (*made, dy.vecInput(3), dy.vecInput((3,)), dy.matInput(2, 3)):
        y = x + x
        y.npvalue()
        wanted = np.full(x.dim()[0], 0.5)
        x.set(wanted)
        assert isinstance(x, InputExpression)
        np.testing.assert_array_equal(y.npvalue(), 2 * wanted)
    assert not isinstance(dy.zeros(3), InputExpression)


def test_numbers_by_columns():
    holds(dy.inputVector(GRID.T), GRID.T.ravel())
    holds(dy.inputMatrix([1, 2, 3, 4, 5, 6], (2, 3)), [[1, 3, 5], [2, 4, 6]])
    rows = [[0, 2, 4], [1, 3, 5]]
    for dim, size, wanted in (((2, 3), 1, rows), ((2,), 3, rows), (None, 1, [0, 1, 2, 3, 4, 5])):
        for numbers in (np.arange(6.0), [0, 1, 2, 3, 4, 5]):
            holds(dy.inputTensorTranspose(numbers, dim, size), wanted, size)


def test_sparse_inputs():
    x = dy.sparse_inputTensor(([0, 0], [0, 1], [0, 2], [0, 0]), [5.0, 6.0], (3, 3, 3, 3), batched=True)
    assert (x.dim(), x.npvalue()[0, 1, 2, 0], x.npvalue().sum()) == (((3, 3, 3), 3), 6, 11)
    x = dy.sparse_inputTensor(([0, 1], [1, 1]), np.array([2, 3]), (2, 2), defval=np.float32(1.0))
    np.testing.assert_array_equal(x.npvalue(), [[1, 2], [1, 3]])


@walks(product([3, (3,), [2, 3, 2], np.int64(3), (np.int64(2), 3), ()], [0.25, 2, np.float32(0.25)]))
def test_constants(dim, val):
    shape = tuple(np.atleast_1d(np.array(dim, int))) or (1,)
    holds(dy.constant(dim, val), np.full(shape, val))
    for made, wanted in ((dy.zeros, 0), (dy.zeroes, 0), (dy.ones, 1)):
        holds(made(dim), np.full(shape, wanted))
    assert dy.zeros(dim, 2).dim() == dy.zeros(dim, batch_size=2).dim() == (shape, 2)


@walks(product([dy.inputTensor, dy.inputVector, lambda x: dy.inputMatrix(x, (3,))], ["f8", "f4", list]))
def test_inputs_keep_the_values_of_the_call(make, kind):
    """One buffer serves for many inputs of a graph."""
    buffer = [1.0, 2.0, 4.0] if kind is list else np.array([1.0, 2.0, 4.0], kind)
    first, other = make(buffer), dy.vecInput(3)
    other.set(buffer)
    buffer[:] = [10.0, 20.0, 40.0]
    assert first.vec_value() == other.vec_value() == [1, 2, 4]
