"""Masks, last steps and reversal of sequences of different lengths, against NumPy loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule import ops
from dpmodule.base import OpError, ShapeError
from dpmodule.ops.shapes import infer_type
from helpers.op_case import OpCase, check_gradient, check_value, run, shapes

NAMES = ("SequenceMask", "SequenceLast", "SequenceReverse")


def expected(name, data, lengths, axis, value=0.0):
    """Work on one sequence after the other, time first."""
    rows = np.moveaxis(data, 1 - axis, 0)
    found = []
    for row, length in zip(rows, lengths, strict=True):
        count = min(int(length), len(row))
        one = row.copy()
        if name == "SequenceMask":
            one[count:] = value
        elif name == "SequenceReverse":
            one[:count] = row[:count][::-1]
        else:
            one = row[max(count, 1) - 1]
        found.append(one)
    stacked = np.stack(found)
    return stacked if name == "SequenceLast" else np.moveaxis(stacked, 0, 1 - axis)


@st.composite
def sequences(draw):
    axis = draw(st.integers(0, 1))
    steps, rows = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    rest = draw(st.lists(st.integers(1, 3), max_size=2))
    lengths = draw(st.lists(st.integers(1, steps + 2), min_size=rows, max_size=rows))
    shape = (steps, rows, *rest) if axis == 0 else (rows, steps, *rest)
    return axis, np.random.RandomState(steps).uniform(-1, 1, shape), np.array(lengths, "float64")


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=200, deadline=None, derandomize=True)
@given(sequences())
def test_value(name, drawn):
    axis, data, lengths = drawn
    attrs = {"axis": axis, "use_sequence_length": True}
    if name == "SequenceMask":
        attrs["value"] = 2.5
    want = expected(name, data, lengths, axis, 2.5)
    check_value(OpCase(name, (data, lengths), attrs, lambda *_: want))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("axis", [0, 1])
def test_without_lengths_all_are_as_long_as_the_data(name, axis):
    data = np.random.RandomState(1).uniform(-1, 1, (4, 3, 2))
    want = expected(name, data, [data.shape[axis]] * data.shape[1 - axis], axis)
    check_value(OpCase(name, (data,), {"axis": axis}, lambda *_: want))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("axis", [0, 1])
def test_gradient(name, axis):
    data = np.random.RandomState(2).uniform(-1, 1, (3, 3, 2))
    lengths = np.array([1.0, 3.0, 2.0])
    check_gradient(OpCase(name, (data, lengths), {"axis": axis, "use_sequence_length": True}), inputs=(0,))


def test_length_zero_masks_everything():
    found = run("SequenceMask", np.ones((3, 2)), np.array([0, 2]), use_sequence_length=True, value=7.0)
    np.testing.assert_array_equal(found, [[7, 1], [7, 1], [7, 7]])


def test_masked_nan_leaves_no_trace_in_the_gradient():
    data = mx.sym.Variable("data")
    net = mx.sym.SequenceMask(data, mx.sym.Variable("n"), use_sequence_length=True)
    args = {"data": mx.nd.array([[1.0], [np.nan]]), "n": mx.nd.array([1])}
    grad = mx.nd.zeros((2, 1))
    executor = net.bind(mx.cpu(), args, args_grad={"data": grad}, grad_req={"data": "write", "n": "null"})
    np.testing.assert_array_equal(executor.forward(is_train=True)[0].asnumpy(), [[1], [0]])
    executor.backward([mx.nd.ones((2, 1))])
    np.testing.assert_array_equal(grad.asnumpy(), [[1], [0]])


def test_gradient_of_lengths_is_zero():
    net = mx.sym.SequenceLast(mx.sym.Variable("data"), mx.sym.Variable("n"), use_sequence_length=True)
    executor = net.simple_bind(mx.cpu(), data=(3, 2, 1))
    executor.arg_dict["n"][:] = mx.nd.array([1, 2])
    executor.grad_dict["n"][:] = 5
    executor.forward(is_train=True)
    executor.backward([mx.nd.ones((2, 1))])
    np.testing.assert_array_equal(executor.grad_dict["n"].asnumpy(), [0, 0])


class TestShapes:
    @pytest.mark.parametrize("name", ["SequenceMask", "SequenceReverse"])
    def test_both_ways(self, name):
        assert shapes(name, [(4, 0, 2), (3,)], use_sequence_length=True) == ([(4, 3, 2), (3,)], [(4, 3, 2)])
        assert shapes(name, [None, None], [(5, 3)], use_sequence_length=True)[0] == [(5, 3), (3,)]
        assert shapes(name, [(0, 4), (3,)], use_sequence_length=True, axis=1)[0] == [(3, 4), (3,)]

    def test_last(self):
        assert shapes("SequenceLast", [(4, 3, 2), None], use_sequence_length=True) == (
            [(4, 3, 2), (3,)],
            [(3, 2)],
        )
        assert shapes("SequenceLast", [None], [(3, 2)]) == ([(0, 3, 2)], [(3, 2)])
        assert shapes("SequenceLast", [None], [(3, 2)], axis=1) == ([(3, 0, 2)], [(3, 2)])

    @pytest.mark.parametrize("name", NAMES)
    def test_contradictions(self, name):
        with pytest.raises(ShapeError, match=r"sequence_length has shape \(4,\), expected \(3,\) from data"):
            shapes(name, [(5, 3, 2), (4,)], use_sequence_length=True)
        with pytest.raises(ShapeError, match=r"data has shape \(5,\), expected at least 2 axes"):
            shapes(name, [(5,)])


@pytest.mark.parametrize("name", NAMES)
def test_imperative_calls_check_shapes(name):
    function = getattr(mx.nd, name)
    with pytest.raises(ShapeError, match="at least 2 axes"):
        function(mx.nd.ones((3,)))
    with pytest.raises(ShapeError, match=r"sequence_length has shape \(1,\), expected \(2,\)"):
        function(mx.nd.ones((3, 2)), mx.nd.ones((1,)), use_sequence_length=True)


@pytest.mark.parametrize("name", NAMES)
def test_types_of_lengths_are_free(name):
    op = ops.get(name)
    a = op.parse({"use_sequence_length": True})
    assert infer_type(op, a, ["float16", "int32"], [None]) == (["float16", "int32"], ["float16"])
    assert infer_type(op, a, ["float16", None], [None])[0] == ["float16", "float16"]


@pytest.mark.parametrize("name", NAMES)
def test_unknown_axis(name):
    with pytest.raises(OpError, match="axis is '2', expected an integer from 0 to 1"):
        getattr(mx.sym, name)(mx.sym.Variable("data"), axis=2)


def test_lengths_exist_only_when_they_are_used():
    data = mx.sym.Variable("data")
    assert mx.sym.SequenceMask(data, name="m").list_arguments() == ["data"]
    with_lengths = mx.sym.SequenceMask(data, use_sequence_length=True, name="m")
    assert with_lengths.list_arguments() == ["data", "m_sequence_length"]
