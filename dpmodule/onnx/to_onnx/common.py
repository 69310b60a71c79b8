"""What several builders write, in the form that the version of ONNX's operators wants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .call import Dims, OperatorCall

__all__ = [
    "in_type",
    "length_of",
    "move_axis",
    "positions",
    "reduce",
    "reshape",
    "shape_value",
    "squeeze",
    "unsqueeze",
]


def unsqueeze(c: OperatorCall, value: str, *axes: int) -> str:
    """Insert axes of length 1."""
    found: str = c.emit("Unsqueeze", value, c.ints(*axes))
    return found


def squeeze(c: OperatorCall, value: str, *axes: int) -> str:
    """Leave out axes of length 1."""
    found: str = c.emit("Squeeze", value, c.ints(*axes))
    return found


def reduce(c: OperatorCall, operator: str, value: str, axes: Sequence[int], keepdims: bool) -> str:
    """Reduce axes by an operator such as "ReduceMax", whose axes are an attribute before version 18."""
    if operator == "ReduceSum" or c.opset >= 18:
        found: str = c.emit(operator, value, c.ints(*axes), keepdims=int(keepdims))
    else:
        found = c.emit(operator, value, axes=list(axes), keepdims=int(keepdims))
    return found


def shape_value(c: OperatorCall, dims: Dims, sources: Sequence[tuple[str, Dims]] = ()) -> str:
    """Return a shape as an int64 value, read from other values where lengths are dynamic.

    Args:
        c: the call.
        dims: the shape.
        sources: values and their shapes, in which dynamic lengths are looked for first; default: the call's inputs.
    """
    if all(isinstance(dim, int) for dim in dims):
        return c.ints(*(dim for dim in dims if isinstance(dim, int)))
    known = sources or list(zip(c.inputs, c.shapes))
    parts = [c.ints(dim) if isinstance(dim, int) else _length(c, dim, known) for dim in dims]
    found: str = parts[0] if len(parts) == 1 else c.emit("Concat", *parts, axis=0)
    return found


def _length(c: OperatorCall, dim: str, sources: Sequence[tuple[str, Dims]]) -> str:
    for value, shape in sources:
        if dim in shape:
            found: str = c.emit("Gather", c.emit("Shape", value), c.ints(shape.index(dim)))
            return found
    return c.length_value(dim)


def in_type(c: OperatorCall, value: str, found: str, wanted: str) -> str:
    """Convert as our operators do: what has a fraction loses it, and what is too great for integers wraps."""
    if found == wanted:
        return value
    if "float" in found and wanted in ("bool", "int8", "uint8", "int16", "uint16", "int32"):
        value = c.cast(value, "int64")
    return c.cast(value, wanted)


def reshape(c: OperatorCall, value: str, dims: Dims, found: Dims | None = None) -> str:
    """Reshape a value: a shape with one dynamic length needs no other value.

    Args:
        c: the call.
        value: what to reshape.
        dims: the shape wanted.
        found: the value's own shape, if that may have equal dynamic lengths in the same places.
    """
    same = [found is not None and i < len(found) and dim == found[i] for i, dim in enumerate(dims)]
    open_ones = [i for i, dim in enumerate(dims) if isinstance(dim, str) and not same[i]]
    if len(open_ones) <= 1:
        numbers = [dim if isinstance(dim, int) else 0 if same[i] else -1 for i, dim in enumerate(dims)]
        shape = c.ints(*numbers)
    else:
        shape = shape_value(c, dims)
    result: str = c.emit("Reshape", value, shape)
    return result


def move_axis(c: OperatorCall, value: str, rank: int, source: int, target: int) -> str:
    """Move an axis of a value to another place."""
    source, target = source % rank, target % rank
    if source == target:
        return value
    order = [axis for axis in range(rank) if axis != source]
    order.insert(target, source)
    found: str = c.emit("Transpose", value, perm=order)
    return found


def length_of(c: OperatorCall, value: str, dims: Dims, axis: int) -> str:
    """Return the length of an axis of a value, as an int64 value without axes."""
    dim = dims[axis]
    if isinstance(dim, int):
        return c.const(dim, "int64")
    found: str = c.emit("Gather", c.emit("Shape", value), c.const(axis, "int64"))
    return found


def positions(c: OperatorCall, value: str, dims: Dims, axis: int) -> str:
    """Return the numbers 0, 1, ... along an axis of a value, as an int64 value of as many axes."""
    dim = dims[axis]
    if isinstance(dim, int):
        count = c.const(np.arange(dim), "int64")
    else:
        end = length_of(c, value, dims, axis)
        count = c.emit("Range", c.const(0, "int64"), end, c.const(1, "int64"))
    after = len(dims) - 1 - axis % len(dims)
    return unsqueeze(c, count, *range(1, after + 1)) if after else count
