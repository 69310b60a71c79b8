"""Masks, last steps and reversal of sequences beyond the recorded calls: odd lengths, NaN, shapes, types."""

from itertools import product

import numpy as np

import dpmodule as mx
from helpers.arrays import count, f8
from helpers.op_case import rules_test, types, values_test

NAMES = ("SequenceMask", "SequenceLast", "SequenceReverse")
LENGTHS = {"use_sequence_length": True}
test_values = values_test(
    ("SequenceMask", (np.ones((3, 2)), f8([0, 2])), {**LENGTHS, "value": 7.0}, f8([[7, 1], [7, 1], [7, 7]])),
    ("SequenceReverse", (count(2, 3), f8([2, 3])), {**LENGTHS, "axis": 1}, f8([[1, 0, 2], [5, 4, 3]])),
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
    *BOTH_WAYS,
    ("SequenceLast", [(4, 3, 2), None], LENGTHS, [(4, 3, 2), (3,)], [(3, 2)]),
    ("SequenceLast", [None], {}, [(0, 3, 2)], [(3, 2)], [(3, 2)]),
    ("SequenceLast", [None], {"axis": 1}, [(3, 0, 2)], [(3, 2)], [(3, 2)]),
)
test_types = rules_test(
    *[
        (name, ["float16", given], LENGTHS, ["float16", wanted], ["float16"])
        for name, (given, wanted) in product(NAMES, [("int32", "int32"), (None, "float16")])
    ],
    rule=types,
)


def test_masked_nan_leaves_no_trace_in_the_gradient():
    net = mx.sym.SequenceMask(mx.sym.Variable("data"), mx.sym.Variable("n"), use_sequence_length=True)
    args = {"data": mx.nd.array([[1.0], [np.nan]]), "n": mx.nd.array([1])}
    executor = net.bind(mx.cpu(), args, {key: mx.nd.full(value.shape, 5) for key, value in args.items()})
    assert executor.forward(is_train=True)[0].asnumpy().tolist() == [[1], [0]]
    executor.backward([mx.nd.ones((2, 1))])
    assert executor.grad_dict["data"].asnumpy().tolist() == [[1], [0]]
    assert executor.grad_dict["n"].asnumpy().tolist() == [0]
