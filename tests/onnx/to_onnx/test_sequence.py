"""Sequences of different lengths in ONNX, with other numbers of steps and rows than at export."""

import itertools

import numpy as np

import dpmodule as mx
from helpers.onnx_runs import exported, our_outputs, runtime_outputs
from helpers.walk import walks

OPERATORS = ("SequenceMask", "SequenceLast", "SequenceReverse")


def values(axis, steps, rows, *rest):
    """Return data, (T, N, ...) or (N, T, ...), and lengths of which one is too large and one is 1."""
    rng = np.random.RandomState(0)
    shape = (steps, rows, *rest) if axis == 0 else (rows, steps, *rest)
    lengths = rng.randint(1, steps + 1, rows)
    lengths[0] = 1
    return {"x": rng.randn(*shape).astype("float32"), "lengths": lengths.astype("float32")}


@walks(list(itertools.product(OPERATORS, (0, 1), ((), (3,), (2, 2)), (False, True))))
def test_any_steps_and_rows(name, axis, rest, given):
    data, lengths = mx.sym.Variable("x"), [mx.sym.Variable("lengths")] if given else []
    symbol = getattr(mx.sym, name)(data, *lengths, use_sequence_length=given, axis=axis, name="op")
    dynamic = {"x": {axis: "steps", 1 - axis: "rows"}} | ({"lengths": {0: "rows"}} if given else {})
    arrays = {key: value for key, value in values(axis, 4, 3, *rest).items() if key == "x" or given}
    model = exported(symbol, arrays, dynamic=dynamic)
    more = {key: value for key, value in values(axis, 6, 5, *rest).items() if key in arrays}
    (ours,), (theirs,) = our_outputs(symbol, more), runtime_outputs(model, more)
    np.testing.assert_array_equal(theirs, ours)
