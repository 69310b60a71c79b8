"""Positions as one number and back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule.base import OpError, ShapeError
from helpers.op_case import run, shapes


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 2**15), min_size=1, max_size=4), st.data())
def test_there_and_back(sides, data):
    sides = tuple(sides)
    flat = np.array(data.draw(st.lists(st.integers(0, int(np.prod(sides)) - 1), min_size=1, max_size=5)))
    places = run("_unravel_index", flat, shape=sides)
    np.testing.assert_array_equal(places, np.stack(np.unravel_index(flat, sides)))
    np.testing.assert_array_equal(run("_ravel_multi_index", places, shape=sides), flat)


def test_positions_beyond_32_bits_are_exact():
    sides = (2**20,) * 3
    flat = np.array([2**59 + 12345, 2**60 - 1])
    places = run("_unravel_index", flat, shape=sides)
    np.testing.assert_array_equal(places, [[2**19, 2**20 - 1], [0, 2**20 - 1], [12345, 2**20 - 1]])
    np.testing.assert_array_equal(run("_ravel_multi_index", places, shape=sides), flat)


def test_the_first_side_may_be_unknown():
    data = mx.nd.array([5, 100], dtype="int64")
    found = mx.nd.unravel_index(data, shape=(-1, 4))
    assert found.asnumpy().tolist() == [[1, 25], [1, 0]]
    assert mx.nd.ravel_multi_index(found, shape=(-1, 4)).asnumpy().tolist() == [5, 100]


def test_several_axes_of_positions():
    flat = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(
        run("_unravel_index", flat, shape=(3, 2)), np.stack(np.unravel_index(flat, (3, 2)))
    )


def test_shapes_go_both_ways():
    assert shapes("_ravel_multi_index", [None], [(7,)], shape=(3, 2))[0] == [(2, 7)]
    assert shapes("_unravel_index", [None], [(2, 7)], shape=(3, 2))[0] == [(7,)]


def test_what_is_refused():
    with pytest.raises(OpError, match="shape is None"):
        mx.nd.ravel_multi_index(mx.nd.ones((2, 3)))
    with pytest.raises(ShapeError, match="expected"):
        mx.nd.ravel_multi_index(mx.nd.ones((2, 3)), shape=(1, 2, 3))
