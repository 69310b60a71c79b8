"""Operators that cut, join and pad ragged rows, against lists."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import OpError, ShapeError
from helpers.ragged_values import LENGTHS, bound, check_gradients, f8, ragged

S, N = mx.sym, mx.nd
X, Y = S.Variable("x", stype="ragged"), S.Variable("y", stype="ragged")
OFFSET, LENGTH = [1, 0, 0, 2, 0], [2, 0, 1, 1, 0]
NUMBERS = N.ragged_array([[1, 2, 3], [], [4], [2, 2]], dtype="int64")


def rows(array):
    return [[np.asarray(each).tolist() for each in row] for row in array.tolist()]


def constant(numbers):
    return S.concat(*(S.full(shape=(1,), val=n) for n in numbers), dim=0)


@pytest.mark.parametrize("trailing", [(), (2,)])
def test_rows_of_several_values_one_after_the_other(trailing):
    x, y = ragged(LENGTHS, *trailing), ragged(LENGTHS[::-1], *trailing, seed=2)
    (out,) = check_gradients(S.sequence_concat(X, Y, X), {"x": x, "y": y})
    assert rows(out) == [a + b + a for a, b in zip(rows(x), rows(y))]


@pytest.mark.parametrize("trailing", [(), (2,)])
def test_a_part_of_each_row(trailing):
    x = ragged(LENGTHS, *trailing)
    (out,) = check_gradients(S.sequence_slice(X, constant(OFFSET), constant(LENGTH)), {"x": x})
    assert rows(out) == [row[a : a + n] for row, a, n in zip(rows(x), OFFSET, LENGTH)]


def test_windows():
    found = N.sequence_enumerate(NUMBERS, win_size=2, pad_value=9)
    assert rows(found) == [[[1, 2], [2, 3], [3, 9]], [], [[4, 9]], [[2, 2], [2, 9]]]
    assert found.dtype == np.int64


def test_numbers_are_dropped():
    assert rows(N.sequence_erase(NUMBERS, tokens=(2, 4))) == [[1, 3], [], [], []]


def test_other_numbers_of_features():
    x = ragged([2, 0, 3], 4)
    (out,) = check_gradients(S.sequence_reshape(X, new_dim=2), {"x": x})
    assert rows(out) == [np.reshape(row, (-1, 2)).tolist() for row in rows(x)]
    with pytest.raises(OpError, match="row 2 has 12 numbers, expected a multiple of new_dim, 8"):
        N.sequence_reshape(x, new_dim=8)


@pytest.mark.parametrize("trailing", [(), (2,)])
def test_padding_and_back(trailing):
    x = ragged(LENGTHS, *trailing)
    padded, lengths = S.sequence_pad(X, constant([7.5]), maxlen=5)
    (out, counts) = bound(S.Group([padded, lengths]), {"x": x}, grads=False).forward()
    assert (counts.asnumpy().tolist(), out.shape) == (LENGTHS, (5, 5, *trailing))
    for got, row in zip(out.asnumpy(), rows(x)):
        assert got[: len(row)].tolist() == row
        assert (got[len(row) :] == 7.5).all()
    check_gradients(padded, {"x": x})
    dense = f8(5, 4, *trailing)
    (back,) = check_gradients(S.sequence_unpad(S.Variable("d"), constant(LENGTHS)), {"d": dense})
    assert rows(back) == [row[:n].tolist() for row, n in zip(dense.asnumpy(), LENGTHS)]


X2 = ragged([2, 1])
WRONG = [
    (lambda: N.sequence_concat(X2, ragged([2])), ShapeError, "numbers of rows are 2, 1"),
    (lambda: N.sequence_concat(X2, N.ones((2,))), OpError, "sequence_concat takes ragged data"),
    (
        lambda: N.sequence_slice(X2, N.array([1, 1]), N.array([1, 1])),
        OpError,
        "row 1 has 1 elements, but offset 1",
    ),
    (
        lambda: N.sequence_slice(X2, N.array([1]), N.array([1])),
        ShapeError,
        "1 offsets and 1 lengths for 2 rows",
    ),
    (
        lambda: N.sequence_pad(X2, N.zeros((1,)), maxlen=1),
        ShapeError,
        "maxlen is 1, but a row has 2 elements",
    ),
    (
        lambda: N.sequence_unpad(N.ones((2, 3)), N.array([1, 4])),
        OpError,
        "lengths are from 1 to 4, expected 0 to 3",
    ),
    (lambda: N.sequence_unpad(N.ones((2, 3)), N.array([1])), ShapeError, "1 lengths for 2 rows"),
    (lambda: N.sequence_unpad(X2, N.array([1, 1])), OpError, "sequence_unpad takes dense data"),
]


@pytest.mark.parametrize("row", range(len(WRONG)))
def test_wrong_calls(row):
    call, error, text = WRONG[row]
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("trailing", [(), (2,)])
def test_rows_of_one_length_as_dense_rows(trailing):
    x = ragged([3, 3, 3], *trailing)
    shape = (*trailing, 3)
    (out,) = check_gradients(S._internal._sequence_rows(X, shape=shape), {"x": x})
    np.testing.assert_array_equal(out.asnumpy(), x.values.asnumpy().reshape(3, *shape))
    with pytest.raises(ShapeError, match="sequence 1 has 2 elements of shape .*, which do not fill a row"):
        N._internal._sequence_rows(ragged([3, 2], *trailing), shape=shape)
