"""Builders of array operators: creation, shapes, concatenation, slicing, repetition, padding and indexing."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch

from ...ops.shapes import normal_axes, normal_axis
from ...ops.spec import Env
from .call import Dims, OperatorCall, Value
from .common import Builder, computed_in, elements, matrices, reshape, result, shape_value, term

FIRST, LAST = -(2**63), 2**63 - 1
"""Ends of a range beyond every axis."""


def amp_multicast(c: OperatorCall) -> list[Value]:
    """Cast arrays to the common type."""
    both = zip(c.inputs, c.dtypes, c.out_dtypes)
    return [x.cast(wanted) for x, output, wanted in both]


# axes


def transpose(c: OperatorCall) -> Value:
    """Transpose."""
    rank = len(c.shapes[0])
    order = [axis % rank for axis in c.a.axes] or list(range(rank))[::-1]
    return c.emit("Transpose", c.inputs[0], perm=order)


def swap_axis(c: OperatorCall) -> Value:
    """Transpose two axes."""
    order = list(range(len(c.shapes[0])))
    order[c.a.dim1], order[c.a.dim2] = order[c.a.dim2], order[c.a.dim1]
    return c.emit("Transpose", c.inputs[0], perm=order)


def squeeze_(c: OperatorCall) -> Value:
    """Squeeze, keeping at least one axis."""
    dims = c.shapes[0]
    axes = (
        [i for i, dim in enumerate(dims) if dim == 1]
        if c.a.axis is None
        else normal_axes(c.a.axis, len(dims))
    )
    if len(axes) == len(dims):
        return c.inputs[0].reshape(1)
    return c.inputs[0].squeeze(*axes) if axes else c.inputs[0]


def blocks(c: OperatorCall) -> Value:
    """DepthToSpace or SpaceToDepth."""
    x = term(c, 0, c.dtypes[0] if "float" in c.dtypes[0] else "float64")
    mode = "DCR" if c.type == "DepthToSpace" else None
    return result(x.then(c.type, blocksize=c.a.block_size, mode=mode))


# reshaping and repetition


def _expanded(c: OperatorCall, value: Value, found: Dims, wanted: Dims) -> Value:
    """Broadcast axes of length 1, without reading constant lengths."""
    if found == wanted:
        return value
    asked = tuple(1 if one == other else other for one, other in zip(found, wanted))
    return c.emit("Expand", value, shape_value(c, asked))


def repeat(c: OperatorCall) -> Value:
    """Repeat elements by expanding a new axis."""
    x, rank = c.inputs[0], len(c.shapes[0])
    if c.a.axis is None:
        x, axis, rank = x.reshape(-1), 0, 1
    else:
        axis = normal_axis(c.a.axis, rank)
    counts = [1] * (rank + 1)
    counts[axis + 1] = c.a.repeats
    spread = c.emit("Expand", x.unsqueeze(axis + 1), c.ints(*counts))
    return reshape(c, spread, c.out_shapes[0], c.shapes[0] if c.a.axis is not None else None)


def tile(c: OperatorCall) -> Value:
    """Tile."""
    x, rank, reps = c.inputs[0], len(c.shapes[0]), c.a.reps
    if len(reps) > rank:
        x = x.unsqueeze(*range(len(reps) - rank))
    return c.emit("Tile", x, c.ints(*(1,) * (rank - len(reps)), *reps))


# concatenation and slicing


def stack(c: OperatorCall) -> Value:
    """Concat along a new axis."""
    axis = normal_axis(c.a.axis, len(c.out_shapes[0]))
    return c.emit("Concat", *(x.unsqueeze(axis) for x in c.inputs), axis=axis)


def split(c: OperatorCall) -> list[Value]:
    """Split, or Slice if the last piece's length is dynamic."""
    axis = normal_axis(c.a.axis, len(c.shapes[0]))
    pieces = _split_pieces(c, axis)
    squeezes = c.a.squeeze_axis and len(c.shapes[0]) > 1
    return [piece.squeeze(axis) if squeezes else piece for piece in pieces]


def _split_pieces(c: OperatorCall, axis: int) -> Sequence[Value]:
    count, length = len(c.out_dtypes), c.shapes[0][axis]
    if count == 1 and not getattr(c.a, "indices", ()):
        return [c.inputs[0]]
    bounds = list(getattr(c.a, "indices", ()))
    if bounds and not getattr(c.a, "sections", 0):
        return [
            _slice_ranges(c, c.inputs[0], {axis: (begin, end, 1)})
            for begin, end in zip(bounds, [*bounds[1:], LAST])
        ]
    if isinstance(length, int):
        return c.emit("Split", c.inputs[0], c.ints(*[length // count] * count), axis=axis, outputs=count)  # type: ignore[no-any-return]
    sizes: dict[str, Any] = {"num_outputs": count} if c.opset >= 18 else {}
    return c.emit("Split", c.inputs[0], axis=axis, outputs=count, **sizes)  # type: ignore[no-any-return]


def _slice_ranges(c: OperatorCall, value: Value, ranges: dict[int, tuple[int, int, int]]) -> Value:
    """Slice ``(begin, end, step)`` along axes."""
    columns = list(zip(*ranges.values()))
    if not columns:
        return value
    begins, ends, steps = (c.ints(*column) for column in columns)
    return c.emit("Slice", value, begins, ends, c.ints(*ranges), steps)


def _ranges(a: Any) -> dict[int, tuple[int, int, int]]:
    """Return the ranges of begin, end and step, without those of whole axes."""
    steps = a.step if a.step not in ((), (None,)) else (None,) * len(a.begin)
    outputs = {}
    for axis, (begin, end, step) in enumerate(zip(a.begin, a.end, steps)):
        step = 1 if step is None else step
        first, last = (0, LAST) if step > 0 else (LAST, FIRST)
        one = (first if begin is None else begin, last if end is None else end, step)
        if one != (0, LAST, 1):
            outputs[axis] = one
    return outputs


def slice_axis(c: OperatorCall) -> Value:
    """Slice one axis."""
    axis = normal_axis(c.a.axis, len(c.shapes[0]))
    return _slice_ranges(c, c.inputs[0], {axis: (c.a.begin, LAST if c.a.end is None else c.a.end, 1)})


def slice_like(c: OperatorCall) -> Value:
    """Slice to the lengths of another array."""
    dims, other = c.shapes
    axes = [normal_axis(axis, len(dims)) for axis in c.a.axes or range(len(dims))]
    ends = {axis: other[normal_axis(given, len(other))] for axis, given in zip(axes, c.a.axes or axes)}
    ends = {axis: end for axis, end in ends.items() if end != dims[axis]}
    if not ends:
        return c.inputs[0]
    last = shape_value(c, tuple(ends.values()), [(c.inputs[1], other)])
    return c.emit("Slice", c.inputs[0], c.ints(*[0] * len(ends)), last, c.ints(*ends))


def reverse(c: OperatorCall) -> Value:
    """Slice with negative steps."""
    axes = normal_axes(c.a.axis, len(c.shapes[0]))
    return _slice_ranges(c, c.inputs[0], dict.fromkeys(axes, (LAST, FIRST, -1)))


def slice_assign(c: OperatorCall) -> Value:
    """ScatterElements into the flattened array, at the indices of the range."""
    dims = c.shapes[0]
    shape = shape_value(c, dims)
    count = c.emit("ReduceProd", shape, keepdims=0)
    numbers = c.emit("Range", c.const(0, "int64"), count, c.const(1, "int64"))
    indices = _slice_ranges(c, c.emit("Reshape", numbers, shape), _ranges(c.a))
    part = c.inputs[1:] or (c.emit("Expand", c.const(c.a.scalar), c.emit("Shape", indices)),)
    flat = [x.reshape(-1) for x in (c.inputs[0], indices, *part)]
    return reshape(c, c.emit("ScatterElements", *flat, axis=0), dims)


def pad(c: OperatorCall) -> Value:
    """Pad."""
    pairs = [c.a.pad_width[i : i + 2] for i in range(0, len(c.a.pad_width), 2)]
    x = c.inputs[0].cast(computed_in("Pad", c.opset, c.dtypes[0]))
    widths = c.ints(*(pair[0] for pair in pairs), *(pair[1] for pair in pairs))
    number = c.const(c.a.constant_value, x.dtype) if c.a.mode == "constant" else ""
    return result(c.emit("Pad", x, widths, number, mode=c.a.mode))


# creation


def constant(c: OperatorCall) -> list[Value]:
    """Write the operator's results as constants."""
    env = Env(torch.device("cpu"), None, False, tuple(map(c.numbers, c.out_shapes)))
    op: Any = c.node.op
    outputs = op.run(c.a, env)
    found = outputs if isinstance(outputs, tuple) else (outputs,)
    arrays = [(each.float() if each.dtype == torch.bfloat16 else each).numpy() for each in found]
    return [c.const(array, dtype) for array, dtype in zip(arrays, c.out_dtypes)]


def filled(c: OperatorCall) -> Value:
    """Fill a shape with a number."""
    number = {"_ones": 1, "_full": getattr(c.a, "value", 0)}.get(c.node.op.name if c.node.op else "", 0)
    return c.emit("Expand", c.const(number, c.out_dtypes[0]), shape_value(c, c.out_shapes[0]))


# indexing


def _integer_indices(c: OperatorCall, i: int) -> Value:
    """Return indices as integers."""
    return term(c, i, "int64")


def _limited_indices(c: OperatorCall, axis: int, mode: str) -> Value:
    """Return indices in the second input, limited to an axis of the first."""
    index = _integer_indices(c, 1)
    if mode == "raise":
        return index
    dim = c.shapes[0][axis]
    length = c.const(dim, "int64") if isinstance(dim, int) else c.length_value(dim)
    if mode == "wrap":
        return index.then("Mod", length)
    return index.then("Max", 0).then("Min", length - 1)


def take(c: OperatorCall) -> Value:
    """Gather."""
    axis = normal_axis(c.a.axis, len(c.shapes[0]))
    return c.emit("Gather", c.inputs[0], _limited_indices(c, axis, c.a.mode), axis=axis)


def pick(c: OperatorCall) -> Value:
    """GatherElements with one index for each position of the other axes."""
    rank = len(c.shapes[0])
    axis = normal_axis(getattr(c.a, "axis", 1), rank)
    index = _limited_indices(c, axis, getattr(c.a, "mode", "clip"))
    if len(c.shapes[1]) < rank:
        index = index.unsqueeze(axis)
    output = c.emit("GatherElements", c.inputs[0], index, axis=axis)
    return output if getattr(c.a, "keepdims", False) or rank == 1 else output.squeeze(axis)


def _equals_index(index: Value, count: int | str) -> Value:
    """Return booleans on a new last axis: True where its position equals the index."""
    c = index.c
    if isinstance(count, int):
        return index.unsqueeze(-1).equals(np.arange(count))
    end = c.emit("Squeeze", c.length_value(count))
    numbers = c.emit("Range", c.const(0, "int64"), end, c.const(1, "int64"))
    return index.unsqueeze(-1).equals(numbers)


def one_hot(c: OperatorCall) -> Value:
    """Compare class numbers with positions; classes out of range give no one."""
    dtype = computed_in("Where", c.opset, c.out_dtypes[0])
    on, off = (c.const(number, dtype) for number in (c.a.on_value, c.a.off_value))
    return result(_equals_index(_integer_indices(c, 0), c.a.depth).choose(on, off))


def scatter_elements(c: OperatorCall) -> Value:
    """ScatterElements of one element in each row."""
    indices, values = _integer_indices(c, 2).unsqueeze(1), term(c, 1, c.dtypes[0]).unsqueeze(1)
    return c.emit("ScatterElements", c.inputs[0], indices, values, axis=1)


def where(c: OperatorCall) -> Value:
    """Where; a condition of one axis selects rows."""
    condition = term(c, 0, "bool")
    more = len(c.shapes[1]) - len(c.shapes[0])
    condition = condition.unsqueeze(*range(1, 1 + more))
    dtype = computed_in("Where", c.opset, c.dtypes[1])
    return result(condition.choose(term(c, 1, dtype), term(c, 2, dtype)))


def _index_rows(c: OperatorCall, i: int) -> Value:
    """Return indices with the number for each axis on the last axis."""
    return _integer_indices(c, i).transpose(*range(1, len(c.shapes[i])), 0)


def gather_nd(c: OperatorCall) -> Value:
    """GatherND."""
    output: Value = c.emit("GatherND", c.inputs[0], _index_rows(c, 1))
    single = len(c.shapes[1]) == 1 and c.shapes[1][0] == len(c.shapes[0])
    return output.unsqueeze(0) if single else output


def scatter_nd(c: OperatorCall) -> Value:
    """ScatterND into zeros, or into an array."""
    whole, part = (c.inputs[0], c.inputs[1]) if len(c.inputs) == 3 else (_zeros(c), c.inputs[0])
    return c.emit("ScatterND", whole, _index_rows(c, len(c.inputs) - 1), part)


def _zeros(c: OperatorCall) -> Value:
    return c.emit("Expand", c.const(0), shape_value(c, c.out_shapes[0]))


def scatter_add_nd(c: OperatorCall) -> Value:
    """ScatterND with addition into zeros or an array; before opset 16 a product with 0/1 rows."""
    update_input, index = len(c.inputs) - 2, len(c.inputs) - 1
    if c.opset >= 16:
        dtype = (
            "float32" if c.dtypes[0] in ("float16", "bfloat16") else c.dtypes[0]
        )  # the runtime has no addition for half precision
        whole = (c.inputs[0] if update_input else _zeros(c)).cast(dtype)
        return result(
            whole.then("ScatterND", _index_rows(c, index), term(c, update_input, dtype), reduction="add")
        )
    shape = c.numbers(c.out_shapes[0])
    axes = c.length(0, index)
    steps = [prod(shape[i + 1 : axes]) for i in range(axes)]
    indices = (_index_rows(c, index) * np.array(steps)).reduce("ReduceSum", -1)
    flat = indices.reshape(-1)
    dtype = computed_in("MatMul", c.opset, c.dtypes[0])
    rest = prod(shape[axes:])
    data = c.inputs[update_input].reshape(-1, rest).cast(dtype)
    total = _equals_index(flat, prod(shape[:axes])).cast(dtype).transpose(1, 0).then("MatMul", data)
    added = reshape(c, result(total), shape)
    return c.inputs[0] + added if update_input else added


def diag(c: OperatorCall) -> Value:
    """Extract a diagonal, or build a diagonal matrix."""
    dims, k = c.shapes[0], c.a.k
    if len(dims) == 1:
        return matrices(c, np.diag(np.arange(1, c.length(0) + 1), k))
    rank = len(dims)
    rows, columns = normal_axis(c.a.axis1, rank), normal_axis(c.a.axis2, rank)
    rest = [i for i in range(rank) if i not in (rows, columns)]
    x = c.inputs[0].transpose(*rest, rows, columns)
    numbers = np.arange(c.length(rows) * c.length(columns)).reshape(c.length(rows), c.length(columns))
    return elements(x, (*(dims[i] for i in rest), *numbers.shape), np.diagonal(numbers, k))


def ravel_multi_index(c: OperatorCall) -> Value:
    """Convert indices along several axes to flat indices."""
    shape = c.a.shape
    steps = np.array([prod(shape[i + 1 :]) for i in range(len(shape))])[:, None]
    return result((_integer_indices(c, 0) * steps).reduce("ReduceSum", 0))


def unravel_index(c: OperatorCall) -> Value:
    """Convert flat indices to indices along several axes."""
    rest, output = _integer_indices(c, 0), []
    for side in reversed(c.a.shape[1:]):
        output.append(rest.then("Mod", side, fmod=1).unsqueeze(0))
        rest = rest / side
    return result(rest.unsqueeze(0).concat(output[::-1], 0))


def retain(c: OperatorCall) -> Value:
    """Keep rows by index, and multiply the others by 0."""
    rank = len(c.shapes[0])
    index = _integer_indices(c, 1).reshape(-1)
    dtype = computed_in("Mul", c.opset, c.dtypes[0])
    ones = c.emit("Expand", c.const(1, dtype), c.emit("Shape", index))
    zeros = c.emit("Expand", c.const(0, dtype), c.length_value(c.shapes[0][0]))
    kept = c.emit("ScatterElements", zeros, index, ones, axis=0)
    return result(term(c, 0, dtype) * kept.unsqueeze(*range(1, rank)))


def histogram(c: OperatorCall) -> tuple[Value, Value]:
    """Count values between edges: those that reach an edge minus those that reach the next."""
    dtype = computed_in("Less", c.opset, c.dtypes[0])
    count = c.a.bin_cnt
    if count is None:
        edges = term(c, 1, c.dtypes[0])
        count = c.length(0, 1) - 1
    else:
        low, high = c.a.range
        steps = np.arange(count + 1)
        even = (steps * high + (count - steps) * low) / count
        edges = c.const(even)
    values = c.inputs[0].reshape(-1, 1).cast(dtype)
    output = edges.cast(dtype)
    reached = values.then("GreaterOrEqual", output.slice(0, 0, count))
    beyond = values.then("Greater", output.slice(0, count, count + 1))
    above = reached.concat([beyond], 1).cast("int64").reduce("ReduceSum", 0)
    return above.slice(0, 0, count) - above.slice(0, 1, count + 1), edges


TABLE: dict[str, Builder] = {
    "converted": lambda c: c.inputs[0].cast(c.out_dtypes[0]),
    "unsqueeze": lambda c: c.inputs[0].unsqueeze(c.a.axis),
    # Reshape to lengths computed here; a dynamic one is left to ONNX
    "reshape": lambda c: reshape(c, c.inputs[0], c.out_shapes[0], c.shapes[0]),
    "reshape_like": lambda c: reshape(c, c.inputs[0], c.out_shapes[0], c.shapes[0]),
    "broadcast_to": lambda c: _expanded(c, c.inputs[0], c.shapes[0], c.out_shapes[0]),
    "broadcast_like": lambda c: _expanded(c, c.inputs[0], c.shapes[0], c.out_shapes[0]),
    "slice": lambda c: _slice_ranges(c, c.inputs[0], _ranges(c.a)),
    "onehot_like": lambda c: result(_equals_index(_integer_indices(c, 0), c.shapes[1][1])),
}
