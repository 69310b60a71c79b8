"""Copies and writing by position."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, OpError, ShapeError


def test_copyto_fills_an_array_given_as_out():
    out = mx.nd.zeros((2,))
    assert mx.nd._internal._copyto(mx.nd.array([1, 2]), out=out) is out
    assert out.asnumpy().tolist() == [1, 2]


def test_set_value_fills_its_array():
    out = mx.nd.zeros((2,))
    mx.nd._internal._set_value(3, out=out)
    assert out.asnumpy().tolist() == [3, 3]
    with pytest.raises(ArgumentError, match="out"):
        mx.nd._internal._set_value(3)


def test_multicast_goes_to_the_widest_or_narrowest_float():
    half, single, whole = mx.nd.ones((2,), dtype="float16"), mx.nd.ones((2,)), mx.nd.ones((1,), dtype="int32")
    wide = mx.nd.amp_multicast(half, single, whole, num_outputs=3)
    assert [x.dtype for x in wide] == [np.float32, np.float32, np.int32]
    narrow = mx.nd.amp_multicast(half, single, whole, num_outputs=3, cast_narrow=True)
    assert [x.dtype for x in narrow] == [np.float16, np.float16, np.int32]


def test_multicast_in_a_graph():
    a, b = mx.sym.var("a", dtype="float16"), mx.sym.var("b", dtype="float32")
    symbol = mx.sym.amp_multicast(a, b, num_outputs=2, name="cast")
    assert symbol.list_outputs() == ["cast_output0", "cast_output1"]
    assert symbol.infer_type()[1] == [np.float32, np.float32]
    assert symbol.infer_shape(a=(2,), b=(3, 4))[1] == [(2,), (3, 4)]


def test_zeros_by_the_number_of_the_type():
    assert mx.nd._internal._zeros_without_dtype(shape=(2,), dtype=4).dtype == np.int32
    assert mx.nd._internal._zeros_without_dtype(shape=(2,)).dtype == np.float32
    with pytest.raises(OpError, match="shape is None"):
        mx.nd._internal._zeros_without_dtype()


def test_one_position_per_row_is_needed():
    with pytest.raises(ShapeError, match="positions"):
        mx.nd.fill_element_0index(mx.nd.zeros((2, 3)), mx.nd.ones((3,)), mx.nd.ones((3,)))


def test_recurrent_parameters_are_found_from_the_total():
    parts = [mx.sym.var(f"p{i}") for i in range(2)]
    symbol = mx.sym._internal._rnn_param_concat(*parts, dim=0)
    assert symbol.infer_shape(p0=(3,), p1=(4,))[1] == [(7,)]
