"""Counting values in bins."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule.base import ArgumentError, OpError, ShapeError
from helpers.op_case import call

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
