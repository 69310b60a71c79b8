"""Sequences of different lengths in one array."""

from __future__ import annotations

from .call import OperatorCall
from .common import length_of, positions, unsqueeze

__all__ = ["sequence_last", "sequence_mask", "sequence_reverse"]


def _lengths(c: OperatorCall) -> str:
    """Return the lengths as int64."""
    return c.inputs[1] if c.dtypes[1] == "int64" else c.cast(c.inputs[1], "int64")


def sequence_mask(c: OperatorCall) -> str:
    """Where of steps before the ends."""
    if len(c.inputs) == 1:
        return c.inputs[0]
    x, shape = c.inputs[0], c.shapes[0]
    steps = positions(c, x, shape[:2], c.a.axis)
    inside = c.emit("Less", steps, unsqueeze(c, _lengths(c), c.a.axis))
    if len(shape) > 2:
        inside = unsqueeze(c, inside, *range(2, len(shape)))
    return c.emit("Where", inside, x, c.const(c.a.value))


def sequence_last(c: OperatorCall) -> str:
    """Gather of the last step, GatherND where sequences end at different ones."""
    x, rank = c.inputs[0], len(c.shapes[0])
    if len(c.inputs) == 1:
        return c.emit("Gather", x, c.const(-1, "int64"), axis=c.a.axis)
    one = c.const(1, "int64")
    ends = c.emit("Clip", _lengths(c), one, length_of(c, x, c.shapes[0], c.a.axis))
    if c.a.axis == 0:
        x = c.emit("Transpose", x, perm=[1, 0, *range(2, rank)])
    return c.emit("GatherND", x, unsqueeze(c, c.emit("Sub", ends, one), 1), batch_dims=1)


def sequence_reverse(c: OperatorCall) -> str:
    """ReverseSequence; Slice with a negative step where all sequences are as long as the data."""
    x, axis = c.inputs[0], c.a.axis
    if len(c.inputs) == 1:
        return c.emit("Slice", x, c.ints(-1), c.ints(-(2**31)), c.ints(axis), c.ints(-1))
    ends = c.emit("Clip", _lengths(c), c.const(0, "int64"), length_of(c, x, c.shapes[0], axis))
    return c.emit("ReverseSequence", x, ends, time_axis=axis, batch_axis=1 - axis)
