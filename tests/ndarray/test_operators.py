"""Arithmetic and comparison against NumPy, over types and mixtures of arrays and numbers."""

import operator
from itertools import product

import numpy as np
import pytest

import dpmodule as mx
from helpers.walk import walks

nd = mx.nd
FLOATS = ["float16", "float32", "float64"]
INTEGERS = ["uint8", "int8", "int32", "int64"]
ARITHMETIC = [operator.add, operator.sub, operator.mul]
COMPARISON = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


def values(dtype, shape=(2, 3), seed=0):
    numbers = np.random.RandomState(seed).randint(1, 9, shape).astype(dtype)
    return numbers + np.asarray(0.5, dtype) if dtype in FLOATS else numbers


def mine(array):
    return nd.array(array, dtype=array.dtype)


def same(got, want, dtype):
    assert got.dtype is np.dtype(dtype).type
    want = np.asarray(want).astype(dtype)
    assert got.shape == want.shape
    rtol = {"float16": 2e-3}.get(dtype, 1e-6) if dtype in FLOATS else 0
    np.testing.assert_allclose(got.asnumpy(), want, rtol=rtol)


@walks(product([*ARITHMETIC, *COMPARISON], FLOATS + INTEGERS))
def test_arithmetic_and_comparison_keep_the_type(function, dtype):
    left, right = values(dtype), values(dtype, (3,), 1)
    same(function(mine(left), mine(right)), function(left, right), dtype)
    same(function(mine(right), mine(left)), function(right, left), dtype)
    for number in (2, 3, True, left.ravel()[0].item()):
        fixed = np.asarray(number, dtype)
        same(function(mine(left), number), function(left, fixed), dtype)
        same(function(number, mine(left)), function(fixed, left), dtype)


def test_integers_stay_integers():
    # recorded from MXNet 1.9.1
    array = nd.array([1, 2, 3], dtype="int32")
    for got, want in (
        *((array / 2, [0, 1, 1]), (2 / array, [2, 1, 0]), (array * 2.5, [2, 4, 6])),
        *((array + 0.5, [1, 2, 3]), (2.5 - array, [1, 0, -1]), (array**2, [1, 4, 9])),
        *((2**array, [2, 4, 8]), (array % 2, [1, 0, 1]), (7 % array, [0, 1, 1]), (-array, [-1, -2, -3])),
        (abs(-array), [1, 2, 3]),
    ):
        same(got, want, "int32")
    same(nd.array([0, 1, 2], dtype="uint8") - 2, [254, 255, 0], "uint8")


def test_numpy_operands_take_the_type_of_the_array():
    array = nd.array([1, 2, 3])
    for other in (np.array([1, 2, 3]), np.array([1.5, 2, 3], "float16"), np.array(2.0)):
        assert isinstance(other + array, mx.nd.NDArray)
        same(other + array, other.astype("float32") + array.asnumpy(), "float32")
        same(array - other, array.asnumpy() - other.astype("float32"), "float32")
        same(array > other, array.asnumpy() > other.astype("float32"), "float32")
    for number in (np.float32(2), np.float64(2), np.int64(2)):
        same(number * array, [2, 4, 6], "float32")
        same(array / number, [0.5, 1, 1.5], "float32")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("name", ["iadd", "isub", "imul", "itruediv", "imod"])
def test_in_place_writes_into_the_same_memory(name, dtype):
    function, plain = getattr(operator, name), getattr(operator, name[1:])
    for other in (2, nd.array([[1, 2, 3], [2, 1, 2]], dtype=dtype), nd.array([1, 2, 3], dtype=dtype)):
        array = nd.array([[3, 4, 5], [6, 7, 8]], dtype=dtype)
        want, view, memory = plain(array, other), array[1], array.tensor.data_ptr()
        result = function(array, other)
        assert result is array
        assert array.tensor.data_ptr() == memory
        np.testing.assert_allclose(array.asnumpy(), want.asnumpy(), rtol=1e-6)
        np.testing.assert_array_equal(view.asnumpy(), array.asnumpy()[1])


@pytest.mark.parametrize("stype", ["default", "csr", "row_sparse"])
def test_a_power_in_place_makes_another_array(stype):
    """As in MXNet, which has no in-place power."""
    array = before = nd.array([[3, 0], [1, 2]]).tostype(stype)
    array **= 2
    np.testing.assert_array_equal(array.asnumpy(), [[9, 0], [1, 4]])
    np.testing.assert_array_equal(before.asnumpy(), [[3, 0], [1, 2]])


def test_the_mean_of_booleans_is_true_unless_all_are_false():
    array = nd.array([[1, 0], [0, 0]], dtype="bool")
    assert array.mean(axis=1).asnumpy().tolist() == [True, False]


def test_nothing_equals_none():
    array = nd.ones((2,))
    assert (array == None) is False  # noqa: E711
    assert (array != None) is True  # noqa: E711


FUNCTIONS = """
add subtract multiply divide true_divide modulo=mod power maximum minimum equal not_equal greater greater_equal
lesser=less lesser_equal=less_equal logical_and logical_or logical_xor
"""


@pytest.mark.parametrize("name", FUNCTIONS.split())
def test_functions(name):
    ours, _, theirs = name.partition("=")
    function, numpys = getattr(nd, ours), getattr(np, theirs or ours)
    left, right = np.array([[1, 2, 3], [4, 0.5, 2]], "float32"), np.array([2, 2, 0.5], "float32")
    same(function(mine(left), mine(right)), numpys(left, right), "float32")
    same(function(mine(left), 2), numpys(left, np.float32(2)), "float32")
    same(function(2, mine(left)), numpys(np.float32(2), left), "float32")
    same(function(right, mine(left)), numpys(right, left), "float32")
    assert function(2, 3) == numpys(2.0, 3.0)
