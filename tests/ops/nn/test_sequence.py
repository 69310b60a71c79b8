"""Masks, last steps and reversal of sequences of different lengths, against NumPy loops."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodule as mx
from helpers.arrays import f8, randn
from helpers.op_case import OpCase, check_gradient, check_value, rules_test, types, values_test
from helpers.walk import walks

NAMES = ("SequenceMask", "SequenceLast", "SequenceReverse")
LENGTHS = {"use_sequence_length": True}


def expected(name, data, lengths, axis, value=0.0):
    """Work on one sequence after the other, time first."""
    found = []
    for row, length in zip(np.moveaxis(data, 1 - axis, 0), lengths, strict=True):
        count, one = min(int(length), len(row)), row.copy()
        if name == "SequenceMask":
            one[count:] = value
        elif name == "SequenceReverse":
            one[:count] = row[:count][::-1]
        else:
            one = row[max(count, 1) - 1]
        found.append(one)
    return np.stack(found) if name == "SequenceLast" else np.moveaxis(np.stack(found), 0, 1 - axis)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(0, 1), st.integers(1, 6), st.lists(st.integers(1, 3), max_size=2), st.data())
def test_value(name, axis, steps, rest, draw):
    lengths = draw.draw(st.lists(st.integers(1, steps + 2), min_size=1, max_size=5))
    data = randn(*((steps, len(lengths)) if axis == 0 else (len(lengths), steps)), *rest)
    attrs = {"axis": axis, **LENGTHS, **({"value": 2.5} if name == "SequenceMask" else {})}
    want = expected(name, data, lengths, axis, 2.5)
    check_value(OpCase(name, (data, f8(lengths)), attrs, lambda *_: want))


@walks(product(NAMES, [0, 1]))
def test_gradients_and_without_lengths_all_are_as_long_as_the_data(name, axis):
    data = randn(4, 3, 2)
    want = expected(name, data, [data.shape[axis]] * data.shape[1 - axis], axis)
    check_value(OpCase(name, (data,), {"axis": axis}, lambda *_: want))
    check_gradient(OpCase(name, (randn(3, 3, 2), f8([1, 3, 2])), {"axis": axis, **LENGTHS}), inputs=(0,))


test_length_zero_masks_everything = values_test(
    [("SequenceMask", (np.ones((3, 2)), f8([0, 2])), {**LENGTHS, "value": 7.0}, f8([[7, 1], [7, 1], [7, 7]]))]
)
BOTH_WAYS = [
    (name, *row)
    for name in ("SequenceMask", "SequenceReverse")
    for row in [
        ([(4, 0, 2), (3,)], LENGTHS, [(4, 3, 2), (3,)], [(4, 3, 2)]),
        ([None, None], LENGTHS, [(5, 3), (3,)], None, [(5, 3)]),
        ([(0, 4), (3,)], {**LENGTHS, "axis": 1}, [(3, 4), (3,)], None),
    ]
]
test_shapes = rules_test(
    [
        *BOTH_WAYS,
        ("SequenceLast", [(4, 3, 2), None], LENGTHS, [(4, 3, 2), (3,)], [(3, 2)]),
        ("SequenceLast", [None], {}, [(0, 3, 2)], [(3, 2)], [(3, 2)]),
        ("SequenceLast", [None], {"axis": 1}, [(3, 0, 2)], [(3, 2)], [(3, 2)]),
    ]
)
test_types = rules_test(
    [
        (name, ["float16", given], LENGTHS, ["float16", wanted], ["float16"])
        for name, (given, wanted) in product(NAMES, [("int32", "int32"), (None, "float16")])
    ],
    types,
)


def test_masked_nan_leaves_no_trace_in_the_gradient():
    net = mx.sym.SequenceMask(mx.sym.Variable("data"), mx.sym.Variable("n"), use_sequence_length=True)
    args = {"data": mx.nd.array([[1.0], [np.nan]]), "n": mx.nd.array([1])}
    executor = net.bind(mx.cpu(), args, {key: mx.nd.full(value.shape, 5) for key, value in args.items()})
    assert executor.forward(is_train=True)[0].asnumpy().tolist() == [[1], [0]]
    executor.backward([mx.nd.ones((2, 1))])
    assert executor.grad_dict["data"].asnumpy().tolist() == [[1], [0]]
    assert executor.grad_dict["n"].asnumpy().tolist() == [0]


def test_lengths_exist_only_when_they_are_used():
    data = mx.sym.Variable("data")
    assert mx.sym.SequenceMask(data, name="m").list_arguments() == ["data"]
    with_lengths = mx.sym.SequenceMask(data, use_sequence_length=True, name="m")
    assert with_lengths.list_arguments() == ["data", "m_sequence_length"]
