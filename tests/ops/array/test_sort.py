"""Sorting, the greatest few, running sums."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule.base import ArgumentError, OpError, ShapeError
from helpers.op_case import OpCase, call, check_gradient, check_value, gradients, run, shapes


@st.composite
def sortable(draw):
    dims = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    size = int(np.prod(dims))
    values = draw(st.lists(st.integers(-3, 3), min_size=size, max_size=size))
    axis = draw(st.none() | st.integers(-len(dims), len(dims) - 1))
    return np.array(values, "f4").reshape(dims), axis, draw(st.booleans())


def ordered(x, axis, ascending):
    """Positions in order, ties as they stand."""
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    return x, np.argsort(x if ascending else -x, axis, kind="stable"), axis


@settings(max_examples=250, deadline=None, derandomize=True)
@given(sortable(), st.data())
def test_sorting_is_stable_along_any_axis(case, draw):
    array, axis, ascending = case
    flat, places, along = ordered(array, axis, ascending)
    values = np.take_along_axis(flat, places, along)
    attrs = {"axis": axis, "is_ascend": ascending}
    check_value(OpCase("sort", (array,), attrs, lambda x: values))
    check_value(OpCase("argsort", (array,), {**attrs, "dtype": "int32"}, lambda x: places.astype("i4")))
    k = draw.draw(st.integers(0, flat.shape[along]))
    first = (slice(None),) * (along % flat.ndim) + (slice(k or None),)
    both = values[first], places[first].astype("f4")
    check_value(OpCase("topk", (array,), {**attrs, "k": k, "ret_typ": "both"}, lambda x: both))
    check_value(OpCase("topk", (array,), {**attrs, "k": k, "ret_typ": "value"}, lambda x: both[0]))
    check_value(OpCase("topk", (array,), {**attrs, "k": k}, lambda x: both[1]))
    mask = np.zeros_like(flat)
    np.put_along_axis(mask, places[first], 1, along)
    check_value(
        OpCase("topk", (array,), {**attrs, "k": k, "ret_typ": "mask"}, lambda x: mask.reshape(x.shape))
    )


def test_ties_are_as_in_mxnet():
    x = np.array([3, 1, 3, 2, 1], "f4")
    np.testing.assert_array_equal(run("argsort", x), [1, 4, 3, 0, 2])
    np.testing.assert_array_equal(run("argsort", x, is_ascend=False), [0, 2, 3, 1, 4])
    np.testing.assert_array_equal(run("topk", x, k=2), [0, 2])


def test_gradients_go_to_the_places_the_values_came_from():
    x = np.array([[3.0, 1, 2], [4, 6, 5]])
    np.testing.assert_array_equal(gradients("topk", x, k=2, ret_typ="value")[0], [[1, 0, 1], [0, 1, 1]])
    check_gradient(OpCase("sort", (x,), {"axis": 1, "is_ascend": False}))
    check_gradient(OpCase("sort", (x,), {"axis": None}))
    assert not gradients("argsort", x)[0].any()


def test_topk_refuses_more_than_there_are():
    with pytest.raises(ShapeError, match="at most 5"):
        shapes("topk", [(5,)], k=9)
    with pytest.raises(OpError, match="at most 5"):
        run("topk", np.zeros(5), k=9)
    assert shapes("topk", [(0, 4)], k=2)[1] == [(0, 2)]
    assert shapes("sort", [(0, 4)], axis=None)[1] == [None]


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_cumsum_keeps_every_partial_sum(axis):
    x = np.arange(6.0).reshape(2, 3)
    check_value(OpCase("cumsum", (x,), {"axis": axis}, lambda x: np.cumsum(x, axis)))
    check_gradient(OpCase("cumsum", (x,), {"axis": axis}))
    bytes_ = np.array([100, 100], "i1")
    np.testing.assert_array_equal(run("cumsum", bytes_), np.array([100, -56], "i1"))
    np.testing.assert_array_equal(run("cumsum", bytes_, dtype="int32"), [100, 200])


def test_cumsum_counts_booleans_in_64_bits():
    found = run("cumsum", np.array([[True, True], [False, True]]), axis=1)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, [[1, 2], [0, 1]])
    symbol = mx.sym.cumsum(mx.sym.Variable("x", dtype="bool"))
    assert symbol.infer_type()[1] == [np.int64]
    assert symbol.eval(x=mx.nd.array([1, 1], dtype="bool"))[0].dtype == np.int64


HALVES = st.integers(-8, 8).map(lambda n: n / 2)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(HALVES, min_size=1, max_size=20), st.integers(1, 6), HALVES, st.integers(1, 8))
def test_counts_are_those_of_numpy(values, bins, low, width):
    data = np.array(values)
    ends = (low, low + float(width))
    found = call("_histogram", mx.nd.array(data, dtype="f8").tensor, bin_cnt=bins, range=ends)
    counts, edges = np.histogram(data, bins, ends)
    assert found[0].tolist() == counts.tolist()
    np.testing.assert_allclose(found[1].numpy(), edges)


def test_edges_as_an_array():
    data, edges = mx.nd.array([1, 2, 3, 4, 5, 9]), mx.nd.array([0, 2, 3, 5])
    counts, same = mx.nd.histogram(data, bins=edges)
    assert counts.asnumpy().tolist() == [1, 1, 3]
    assert counts.dtype == np.int64
    assert same.asnumpy().tolist() == [0, 2, 3, 5]


def test_integers_have_integer_edges():
    counts, edges = mx.nd.histogram(mx.nd.array([1, 2, 3, 4], dtype="int32"), bins=3, range=(0, 3.5))
    assert counts.asnumpy().tolist() == [0, 1, 2]
    assert edges.asnumpy().tolist() == [0, 1, 2, 3]


def test_without_range_the_values_tell_it():
    counts, edges = mx.nd.histogram(mx.nd.array([1, 2, 3, 4]), bins=3)
    assert counts.asnumpy().tolist() == [1, 1, 2]
    assert edges.asnumpy().tolist() == [1, 2, 3, 4]


def test_as_a_symbol():
    data, edges = mx.sym.var("data"), mx.sym.var("edges")
    symbol = mx.sym.histogram(data, bins=edges)
    assert symbol.list_arguments() == ["data", "edges"]
    assert symbol.infer_shape(data=(5,), edges=(4,))[1] == [(3,), (4,)]
    assert mx.sym.histogram(data, bins=3, range=(0, 1)).list_arguments() == ["data"]


def test_what_is_refused():
    with pytest.raises(ArgumentError, match="range is None"):
        mx.sym.histogram(mx.sym.var("data"), bins=3)
    with pytest.raises(OpError, match="ascending"):
        mx.nd.histogram(mx.nd.ones((2,)), bins=3, range=(1, 0))
    with pytest.raises(ShapeError, match="bins"):
        mx.nd.histogram(mx.nd.ones((2,)), bins=mx.nd.ones((1,)))
