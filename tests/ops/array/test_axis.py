"""Order, insertion and removal of axes; blocks of pixels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmodule.base import OpError, ShapeError
from helpers.op_case import OpCase, check_gradient, check_value, run, shapes


def data(*shape):
    return np.arange(int(np.prod(shape)), dtype="f8").reshape(shape)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.data())
def test_transpose_in_both_directions(dims, draw):
    order = tuple(draw.draw(st.permutations(range(len(dims)))))
    for attrs, axes in (({"axes": order}, order), ({}, None)):
        case = OpCase("transpose", (data(*dims),), attrs, lambda x, axes=axes: x.transpose(axes))
        check_value(case)
        out = data(*dims).transpose(axes).shape
        assert shapes("transpose", [None], [out], **attrs)[0] == [tuple(dims)]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_swap_and_expand_in_both_directions(dims, draw):
    rank = len(dims)
    one, other = draw.draw(st.integers(-rank, rank - 1)), draw.draw(st.integers(-rank, rank - 1))
    check_value(
        OpCase("SwapAxis", (data(*dims),), {"dim1": one, "dim2": other}, lambda x: np.swapaxes(x, one, other))
    )
    swapped = np.swapaxes(data(*dims), one, other).shape
    assert shapes("SwapAxis", [None], [swapped], dim1=one, dim2=other)[0] == [tuple(dims)]
    axis = draw.draw(st.integers(-rank - 1, rank))
    check_value(OpCase("expand_dims", (data(*dims),), {"axis": axis}, lambda x: np.expand_dims(x, axis)))
    expanded = np.expand_dims(data(*dims), axis).shape
    assert shapes("expand_dims", [None], [expanded], axis=axis)[0] == [tuple(dims)]


@pytest.mark.parametrize("axes", [(0, 0, 1), (0, 1), (0, 1, 3)])
def test_transpose_refuses_what_is_no_order(axes):
    with pytest.raises(ShapeError, match="axes"):
        shapes("transpose", [(2, 3, 4)], axes=axes)
    with pytest.raises(OpError, match="axes"):
        run("transpose", data(2, 3, 4), axes=axes)


def test_transpose_counts_axes_from_the_end_too():
    check_value(OpCase("transpose", (data(2, 3, 4),), {"axes": (-1, 0, -2)}, lambda x: x.transpose(2, 0, 1)))


@pytest.mark.parametrize(
    ("dims", "axis", "expected"),
    [
        ((1, 2, 1), None, (2,)),
        ((1, 2, 1), 0, (2, 1)),
        ((1, 2, 1), -1, (1, 2)),
        ((1, 2, 1), (0, 2), (2,)),
        ((1, 2, 1), (), (1, 2, 1)),
        ((1, 1), None, (1,)),
        ((1, 1), (0, 1), (1,)),
    ],
)
def test_squeeze_is_as_in_mxnet(dims, axis, expected):
    check_value(OpCase("squeeze", (data(*dims),), {"axis": axis}, lambda x: x.reshape(expected)))


@pytest.mark.parametrize("axis", [1, 3, (0, 0)])
def test_squeeze_refuses_other_axes(axis):
    with pytest.raises(OpError, match="axis"):
        run("squeeze", data(1, 2, 1), axis=axis)
    with pytest.raises(ShapeError, match="squeeze"):
        shapes("squeeze", [(1, 2, 1)], axis=axis)


def test_squeeze_carries_what_is_known():
    assert shapes("squeeze", [(0, 1, 4)], axis=1)[1] == [(0, 4)]
    assert shapes("squeeze", [(0, 1, 4)])[1] == [None]


def test_channels_become_blocks_and_back():
    x = data(2, 8, 3, 2)

    def spread(x):
        n, c, h, w = x.shape
        out = np.zeros((n, c // 4, 2 * h, 2 * w))
        for i in range(2):
            for j in range(2):
                first = (2 * i + j) * (c // 4)
                out[:, :, i::2, j::2] = x[:, first : first + c // 4]
        return out

    check_value(OpCase("depth_to_space", (x,), {"block_size": 2}, spread))
    check_value(OpCase("space_to_depth", (spread(x),), {"block_size": 2}, lambda y: x))
    check_gradient(OpCase("depth_to_space", (data(1, 4, 1, 2),), {"block_size": 2}), tol=1e-4)
    check_gradient(OpCase("space_to_depth", (data(1, 1, 2, 4),), {"block_size": 2}), tol=1e-4)
    assert shapes("depth_to_space", [(0, 8, 3, 2)], block_size=2)[1] == [(0, 2, 6, 4)]
    with pytest.raises(ShapeError, match="multiple"):
        shapes("depth_to_space", [(2, 6, 3, 2)], block_size=2)
    with pytest.raises(OpError, match="multiples of 2"):
        run("space_to_depth", data(1, 1, 3, 4), block_size=2)


@pytest.mark.parametrize(
    ("name", "attrs"),
    [("transpose", {"axes": (2, 0, 1)}), ("SwapAxis", {"dim1": 0, "dim2": 2}), ("expand_dims", {"axis": 1})]
    + [("squeeze", {"axis": 1})],
)
def test_gradients_go_back_to_their_places(name, attrs):
    check_gradient(OpCase(name, (np.random.RandomState(0).randn(2, 1, 3),), attrs))
