"""Arrays: made from attributes alone, under other shapes, joined, cut, repeated, padded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...ops.shapes import normal_axes, normal_axis
from ...ops.spec import Env
from .call import Dims, OperatorCall
from .common import Term, computed_in, reshape, result, shape_value, squeeze, term, unsqueeze

FIRST, LAST = -(2**63), 2**63 - 1
"""Ends of a range that are beyond every axis."""


def converted(c: OperatorCall) -> str:
    """Cast."""
    return c.inputs[0] if c.dtypes[0] == c.out_dtypes[0] else c.cast(c.inputs[0], c.out_dtypes[0])


def amp_multicast(c: OperatorCall) -> list[str]:
    """Cast of each array that has not the common type."""
    both = zip(c.inputs, c.dtypes, c.out_dtypes)
    return [x if found == wanted else c.cast(x, wanted) for x, found, wanted in both]


# axes


def transpose(c: OperatorCall) -> str:
    """Transpose."""
    rank = len(c.shapes[0])
    order = [axis % rank for axis in c.a.axes] or list(range(rank))[::-1]
    return c.emit("Transpose", c.inputs[0], perm=order)


def swap_axis(c: OperatorCall) -> str:
    """Transpose of two axes."""
    order = list(range(len(c.shapes[0])))
    order[c.a.dim1], order[c.a.dim2] = order[c.a.dim2], order[c.a.dim1]
    return c.emit("Transpose", c.inputs[0], perm=order)


def unsqueeze_(c: OperatorCall) -> str:
    """Unsqueeze."""
    return unsqueeze(c, c.inputs[0], c.a.axis)


def squeeze_(c: OperatorCall) -> str:
    """Squeeze; at least one axis is left."""
    dims = c.shapes[0]
    axes = (
        [i for i, dim in enumerate(dims) if dim == 1]
        if c.a.axis is None
        else normal_axes(c.a.axis, len(dims))
    )
    if len(axes) == len(dims):
        return c.emit("Reshape", c.inputs[0], c.ints(1))
    return squeeze(c, c.inputs[0], *axes) if axes else c.inputs[0]


def blocks(c: OperatorCall) -> str:
    """DepthToSpace or SpaceToDepth."""
    x = term(c, 0, c.dtypes[0] if "float" in c.dtypes[0] else "float64")
    mode = "DCR" if c.type == "DepthToSpace" else None
    return result(x.then(c.type, blocksize=c.a.block_size, mode=mode))


# the same elements under another shape


def reshape_(c: OperatorCall) -> str:
    """Reshape, to lengths that are worked out beforehand; one that is dynamic is left to ONNX."""
    return reshape(c, c.inputs[0], c.out_shapes[0], c.shapes[0])


def reshape_like(c: OperatorCall) -> str:
    """Reshape to lengths of another array."""
    return reshape(c, c.inputs[0], c.out_shapes[0], c.shapes[0])


def _expanded(c: OperatorCall, value: str, found: Dims, wanted: Dims) -> str:
    """Repeat axes of length 1; lengths that stay are not asked for."""
    if found == wanted:
        return value
    asked = tuple(1 if one == other else other for one, other in zip(found, wanted))
    return c.emit("Expand", value, shape_value(c, asked))


def broadcast_to(c: OperatorCall) -> str:
    """Expand."""
    return _expanded(c, c.inputs[0], c.shapes[0], c.out_shapes[0])


def broadcast_like(c: OperatorCall) -> str:
    """Expand to lengths of another array."""
    return _expanded(c, c.inputs[0], c.shapes[0], c.out_shapes[0])


def repeat(c: OperatorCall) -> str:
    """Each element several times, by an axis of its own that is expanded."""
    x, rank = c.inputs[0], len(c.shapes[0])
    if c.a.axis is None:
        x, axis, rank = c.emit("Reshape", x, c.ints(-1)), 0, 1
    else:
        axis = normal_axis(c.a.axis, rank)
    counts = [1] * (rank + 1)
    counts[axis + 1] = c.a.repeats
    spread = c.emit("Expand", unsqueeze(c, x, axis + 1), c.ints(*counts))
    return reshape(c, spread, c.out_shapes[0], c.shapes[0] if c.a.axis is not None else None)


def tile(c: OperatorCall) -> str:
    """Tile."""
    x, rank, reps = c.inputs[0], len(c.shapes[0]), c.a.reps
    if len(reps) > rank:
        x = unsqueeze(c, x, *range(len(reps) - rank))
    return c.emit("Tile", x, c.ints(*(1,) * (rank - len(reps)), *reps))


# joined and cut


def stack(c: OperatorCall) -> str:
    """Concat along a new axis."""
    axis = normal_axis(c.a.axis, len(c.out_shapes[0]))
    return c.emit("Concat", *(unsqueeze(c, x, axis) for x in c.inputs), axis=axis)


def split(c: OperatorCall) -> list[str]:
    """Split, or Slice where the last piece's length is dynamic."""
    axis = normal_axis(c.a.axis, len(c.shapes[0]))
    pieces = _pieces(c, axis)
    squeezes = c.a.squeeze_axis and len(c.shapes[0]) > 1
    return [squeeze(c, piece, axis) if squeezes else piece for piece in pieces]


def _pieces(c: OperatorCall, axis: int) -> Sequence[str]:
    count, length = len(c.out_dtypes), c.shapes[0][axis]
    if count == 1 and not getattr(c.a, "indices", ()):
        return [c.inputs[0]]
    bounds = list(getattr(c.a, "indices", ()))
    if bounds and not getattr(c.a, "sections", 0):
        return [
            _cut(c, c.inputs[0], {axis: (begin, end, 1)}) for begin, end in zip(bounds, [*bounds[1:], LAST])
        ]
    if isinstance(length, int):
        return c.emit("Split", c.inputs[0], c.ints(*[length // count] * count), axis=axis, outputs=count)  # type: ignore[no-any-return]
    told: dict[str, Any] = {"num_outputs": count} if c.opset >= 18 else {}
    return c.emit("Split", c.inputs[0], axis=axis, outputs=count, **told)  # type: ignore[no-any-return]


def _cut(c: OperatorCall, value: str, ranges: dict[int, tuple[int, int, int]]) -> str:
    """Cut out ``(begin, end, step)`` along axes."""
    columns = list(zip(*ranges.values()))
    if not columns:
        return value
    begins, ends, steps = (c.ints(*each) for each in columns)
    return c.emit("Slice", value, begins, ends, c.ints(*ranges), steps)


def _ranges(a: Any) -> dict[int, tuple[int, int, int]]:
    """Return the ranges that begin, end and step name, those of whole axes left out."""
    steps = a.step if a.step not in ((), (None,)) else (None,) * len(a.begin)
    found = {}
    for axis, (begin, end, step) in enumerate(zip(a.begin, a.end, steps)):
        step = 1 if step is None else step
        first, last = (0, LAST) if step > 0 else (LAST, FIRST)
        one = (first if begin is None else begin, last if end is None else end, step)
        if one != (0, LAST, 1):
            found[axis] = one
    return found


def slice_(c: OperatorCall) -> str:
    """Slice of the leading axes."""
    return _cut(c, c.inputs[0], _ranges(c.a))


def slice_axis(c: OperatorCall) -> str:
    """Slice of one axis."""
    axis = normal_axis(c.a.axis, len(c.shapes[0]))
    return _cut(c, c.inputs[0], {axis: (c.a.begin, LAST if c.a.end is None else c.a.end, 1)})


def slice_like(c: OperatorCall) -> str:
    """Slice to lengths of another array."""
    dims, other = c.shapes
    axes = [normal_axis(axis, len(dims)) for axis in c.a.axes or range(len(dims))]
    ends = {axis: other[normal_axis(given, len(other))] for axis, given in zip(axes, c.a.axes or axes)}
    ends = {axis: end for axis, end in ends.items() if end != dims[axis]}
    if not ends:
        return c.inputs[0]
    last = shape_value(c, tuple(ends.values()), [(c.inputs[1], other)])
    return c.emit("Slice", c.inputs[0], c.ints(*[0] * len(ends)), last, c.ints(*ends))


def reverse(c: OperatorCall) -> str:
    """Slice backwards."""
    axes = normal_axes(c.a.axis, len(c.shapes[0]))
    return _cut(c, c.inputs[0], dict.fromkeys(axes, (LAST, FIRST, -1)))


def slice_assign(c: OperatorCall) -> str:
    """ScatterElements into all elements as one axis, at the numbers that the range of all numbers has."""
    dims = c.shapes[0]
    shape = shape_value(c, dims)
    count = c.emit("ReduceProd", shape, keepdims=0)
    numbers = c.emit("Range", c.const(0, "int64"), count, c.const(1, "int64"))
    places = _cut(c, c.emit("Reshape", numbers, shape), _ranges(c.a))
    part = c.inputs[1:] or (c.emit("Expand", c.const(c.a.scalar), c.emit("Shape", places)),)
    flat = [c.emit("Reshape", x, c.ints(-1)) for x in (c.inputs[0], places, *part)]
    return reshape(c, c.emit("ScatterElements", *flat, axis=0), dims)


def pad(c: OperatorCall) -> str:
    """Pad."""
    pairs = [c.a.pad_width[i : i + 2] for i in range(0, len(c.a.pad_width), 2)]
    x = Term(c, c.inputs[0], c.dtypes[0]).cast(computed_in("Pad", c.opset, c.dtypes[0]))
    widths = c.ints(*(pair[0] for pair in pairs), *(pair[1] for pair in pairs))
    number = c.const(c.a.constant_value, x.dtype) if c.a.mode == "constant" else ""
    return result(Term(c, c.emit("Pad", x.value, widths, number, mode=c.a.mode), x.dtype))


# made from attributes alone


def constant(c: OperatorCall) -> str:
    """The array that the operator itself makes."""
    env = Env(torch.device("cpu"), None, False, (c.numbers(c.out_shapes[0]),))
    op: Any = c.node.op
    made = op.run(c.a, env)
    array = (made.float() if made.dtype == torch.bfloat16 else made).numpy()
    return c.const(array, c.out_dtypes[0])


def filled(c: OperatorCall) -> str:
    """One number of any shape."""
    number = {"_ones": 1, "_full": getattr(c.a, "value", 0)}.get(c.node.op.name if c.node.op else "", 0)
    return c.emit("Expand", c.const(number, c.out_dtypes[0]), shape_value(c, c.out_shapes[0]))
