"""Operators of the contrib namespace that belong to no other subject."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ops.nn.rules import per_axis
from .call import OperatorCall
from .common import in_floats, length_of, positions, reduce, reshape, unsqueeze

F4 = "float32"


def _as(c: OperatorCall, value: str, found: str, wanted: str) -> str:
    return value if found == wanted else c.cast(value, wanted)


def _all(c: OperatorCall, truth: str) -> str:
    """Say whether everything is true: 1 or 0 in float32, (1,)."""
    flat = c.emit("Reshape", c.cast(truth, F4), c.ints(-1))
    return reduce(c, "ReduceMin", flat, [0], keepdims=True)


def all_finite(c: OperatorCall) -> str:
    """Least of what says that elements are finite."""
    least = [
        _all(c, c.emit("Less", c.emit("Abs", _as(c, x, dtype, _wide(dtype))), c.const(np.inf, _wide(dtype))))
        for x, dtype in zip(c.inputs, c.dtypes)
    ]
    return least[0] if len(least) == 1 else c.emit("Min", *least)


def _wide(dtype: str) -> str:
    """Return the type in which elements are compared."""
    return "float64" if dtype in ("float64", "int64", "uint64", "int32", "uint32") else F4


def allclose(c: OperatorCall) -> str:
    """Least of what says that elements are close."""
    a, wide = c.a, _wide(c.dtypes[0])
    one, other = (_as(c, x, dtype, wide) for x, dtype in zip(c.inputs, c.dtypes))
    apart = c.emit("Abs", c.emit("Sub", one, other))
    allowed = c.emit("Add", c.emit("Mul", c.emit("Abs", other), c.const(a.rtol, wide)), c.const(a.atol, wide))
    finite = c.emit("Less", apart, c.const(np.inf, wide))
    close = c.emit("And", finite, c.emit("LessOrEqual", apart, allowed))
    close = c.emit("Or", close, c.emit("Equal", one, other))
    if a.equal_nan:
        close = c.emit("Or", close, c.emit("And", c.emit("IsNaN", one), c.emit("IsNaN", other)))
    return c.emit("Reshape", c.cast(_all(c, close), "uint8"), c.const([], "int64"))


def index_array(c: OperatorCall) -> str:
    """The positions along each axis, side by side."""
    x, shape = c.inputs[0], c.shapes[0]
    axes = range(len(shape)) if c.a.axes is None else c.a.axes
    size = c.emit("Shape", x)
    grids = [c.emit("Expand", positions(c, x, shape, axis % len(shape)), size) for axis in axes]
    return c.emit("Concat", *(unsqueeze(c, grid, len(shape)) for grid in grids), axis=-1)


def arange_like(c: OperatorCall) -> str:
    """Range, in double precision as ours is computed."""
    a, x, shape = c.a, c.inputs[0], c.shapes[0]
    count = c.emit("Size", x) if a.axis is None else length_of(c, x, shape, a.axis % len(shape))
    order = c.emit("Range", c.const(0, "int64"), count, c.const(1, "int64"))
    turns = c.cast(c.emit("Div", order, c.const(a.repeat, "int64")), "float64")
    steps = c.emit("Mul", turns, c.const(a.step, "float64"))
    found = _as(c, c.emit("Add", steps, c.const(a.start, "float64")), "float64", c.out_dtypes[0])
    return found if a.axis is not None else c.emit("Reshape", found, c.emit("Shape", x))


def quadratic(c: OperatorCall) -> str:
    """Horner's rule."""
    x, kind = c.inputs[0], c.dtypes[0]
    wide = kind if "float" in kind else "float64"
    x = _as(c, x, kind, wide)
    slope = c.emit("Add", c.emit("Mul", x, c.const(c.a.a, wide)), c.const(c.a.b, wide))
    return _as(c, c.emit("Add", c.emit("Mul", slope, x), c.const(c.a.c, wide)), wide, c.out_dtypes[0])


def index_copy(c: OperatorCall) -> str:
    """ScatterND."""
    old, index, new = c.inputs
    return c.emit("ScatterND", old, unsqueeze(c, _as(c, index, c.dtypes[1], "int64"), 1), new)


def boolean_mask(c: OperatorCall) -> str:
    """Compress."""
    return c.emit("Compress", c.inputs[0], c.cast(c.inputs[1], "bool"), axis=0)


def getnnz(c: OperatorCall) -> str:
    """Sum of what is not 0."""
    x = c.cast(c.cast(c.inputs[0], "bool"), "int64")
    if c.a.axis is None:
        return reduce(c, "ReduceSum", c.emit("Reshape", x, c.ints(-1)), [0], keepdims=True)
    return reduce(c, "ReduceSum", x, [c.a.axis % 2], keepdims=False)


def edge_id(c: OperatorCall) -> str:
    """GatherND, -1 where nothing is stored."""
    data, *ends = c.inputs
    pairs = [unsqueeze(c, _as(c, x, dtype, "int64"), 1) for x, dtype in zip(ends, c.dtypes[1:])]
    found = c.emit("GatherND", data, c.emit("Concat", *pairs, axis=1))
    stored = c.cast(found, "bool")
    return c.emit("Where", stored, found, c.const(-1))


def count_sketch(c: OperatorCall) -> str:
    """Product with the matrix that says where each column goes, and with which sign."""
    data, hashes, signs = (_as(c, x, dtype, F4) for x, dtype in zip(c.inputs, c.dtypes))
    places = c.emit("Reshape", c.cast(hashes, "int64"), c.ints(-1))
    chosen = c.emit("OneHot", places, c.const(c.a.out_dim, "int64"), c.const([0.0, 1.0], F4))
    matrix = c.emit("Mul", chosen, c.emit("Reshape", signs, c.ints(-1, 1)))
    return _as(c, c.emit("MatMul", data, matrix), F4, c.out_dtypes[0])


def fft(c: OperatorCall) -> str:
    """DFT; before version 17, which has it, the product with a matrix."""
    x, size = _as(c, c.inputs[0], c.dtypes[0], F4), c.length(-1)
    if c.opset >= 17:
        found = _dft(c, c.emit("Reshape", x, c.ints(-1, size, 1)), inverse=0)
    else:
        found = c.emit("MatMul", x, c.const(_waves(size), F4))
    return _as(c, reshape(c, found, c.out_shapes[0]), F4, c.out_dtypes[0])


def ifft(c: OperatorCall) -> str:
    """DFT, times the length, by which its inverse is divided."""
    x, size = _as(c, c.inputs[0], c.dtypes[0], F4), c.length(-1) // 2
    if c.opset >= 17:
        found = _dft(c, c.emit("Reshape", x, c.ints(-1, size, 2)), inverse=1)
        whole = c.emit("Mul", found, c.const(size, F4))
        found = c.emit("Gather", whole, c.const(0, "int64"), axis=2)
    else:
        found = c.emit("MatMul", x, c.const(_waves(size).T, F4))
    return _as(c, reshape(c, found, c.out_shapes[0]), F4, c.out_dtypes[0])


def _dft(c: OperatorCall, signal: str, inverse: int) -> str:
    """Transform axis 1 of (rows, length, 1 or 2)."""
    if c.opset >= 20:
        found: str = c.emit("DFT", signal, "", c.const(1, "int64"), inverse=inverse)
    else:
        found = c.emit("DFT", signal, axis=1, inverse=inverse)
    return found


def _waves(size: int) -> np.ndarray:
    """Return the matrix (size, 2 * size) by which a row becomes its transform, real and imaginary parts in turn."""
    turns = np.outer(np.arange(size), np.arange(size)) % size * (2 * np.pi / size)
    return np.stack([np.cos(turns), -np.sin(turns)], -1).reshape(size, 2 * size)


@in_floats(half=False)
def deformable_convolution(c: OperatorCall) -> str:
    """DeformConv where zeros surround the image, as it wants; otherwise, and before version 19, by gathering pixels."""
    masked = c.node.op is not None and "Modulated" in c.node.op.name
    if masked and c.opset >= 19:
        return _deform_conv(c)
    a, own = c.a, 3 if masked else 2
    data, offset, *mask = c.inputs[:own]
    channels, height, width = (c.length(i) for i in (1, 2, 3))
    groups, taps = a.num_deformable_group, a.kernel[0] * a.kernel[1]
    places = [c.length(i, 1) for i in (2, 3)]
    points = taps * places[0] * places[1]
    both = c.emit("Reshape", offset, c.ints(-1, taps, 2, places[0] * places[1]))
    axes = []
    for axis, size in enumerate((height, width)):
        moved = c.emit("Gather", both, c.const(axis, "int64"), axis=2)
        at = c.emit("Add", moved, c.const(_grid(a, places, axis)))
        axes.append((_outer if masked else _inner)(c, c.emit("Reshape", at, c.ints(-1, points)), size))
    depth = channels // groups
    table = c.emit("Reshape", data, c.ints(-1, depth, height * width))
    table = c.emit("Transpose", table, perm=[0, 2, 1])
    share = [c.emit("Reshape", mask[0], c.ints(-1, points))] if mask else []
    columns = _sampled(c, table, axes, share, width)
    columns = c.emit("Reshape", columns, c.ints(-1, groups, taps, places[0] * places[1], depth))
    columns = c.emit("Transpose", columns, perm=[0, 1, 4, 2, 3])
    return _product(c, columns, c.inputs[own:], channels * taps, places)


def _deform_conv(c: OperatorCall) -> str:
    a = c.a
    stride, dilate, pad = _windows(a)
    data, offset, mask, weight, *bias = c.inputs
    return c.emit(
        "DeformConv",
        data,
        weight,
        offset,
        *(bias or [""]),
        mask,
        kernel_shape=list(a.kernel),
        strides=stride,
        dilations=dilate,
        pads=pad * 2,
        group=a.num_group,
        offset_group=a.num_deformable_group,
    )


def _windows(a: Any) -> tuple[list[int], list[int], list[int]]:
    return (
        list(per_axis(a.stride, 2, 1, "stride")),
        list(per_axis(a.dilate, 2, 1, "dilate")),
        list(per_axis(a.pad, 2, 0, "pad")),
    )


def _grid(a: Any, places: Sequence[int], axis: int) -> np.ndarray:
    """Return where points lie along an axis before they are moved, (taps, positions)."""
    stride, dilate, pad = (each[axis] for each in _windows(a))
    tap = np.arange(a.kernel[axis]) * dilate
    at = np.arange(places[axis]) * stride - pad
    along = np.add.outer(tap, at)  # (kernel, places) of this axis
    full = along[:, None, :, None] if axis == 0 else along[None, :, None, :]
    return np.broadcast_to(full, (*a.kernel, *places)).reshape(a.kernel[0] * a.kernel[1], -1)


Corners = list[tuple[str, str]]


def _inner(c: OperatorCall, at: str, size: int) -> Corners:
    """Return both pixels around points, and their weights; from the last pixel to the border it is taken whole."""
    zero, last = c.const(0.0), c.const(size - 1.0)
    inside = c.emit("And", c.emit("GreaterOrEqual", at, zero), c.emit("Less", at, c.const(float(size))))
    low = c.emit("Clip", c.emit("Floor", at), zero, last)
    edge = c.emit("GreaterOrEqual", low, last)
    mixed = c.emit("And", inside, c.emit("Not", edge))
    part = c.emit("Where", mixed, c.emit("Sub", at, low), zero)
    keep = c.cast(inside, c.dtypes[0])
    high = c.emit("Min", c.emit("Add", low, c.const(1.0)), last)
    whole = c.emit("Sub", c.const(1.0), part)
    return [(low, c.emit("Mul", whole, keep)), (high, c.emit("Mul", part, keep))]


def _outer(c: OperatorCall, at: str, size: int) -> Corners:
    """Return both pixels around points, and their weights; zeros surround the image."""
    zero, last = c.const(0.0), c.const(size - 1.0)
    low = c.emit("Floor", at)
    part = c.emit("Sub", at, low)
    found = []
    for pixel, weight in (
        (low, c.emit("Sub", c.const(1.0), part)),
        (c.emit("Add", low, c.const(1.0)), part),
    ):
        inside = c.emit("And", c.emit("GreaterOrEqual", pixel, zero), c.emit("LessOrEqual", pixel, last))
        found.append((c.emit("Clip", pixel, zero, last), c.emit("Where", inside, weight, zero)))
    return found


def _sampled(c: OperatorCall, table: str, axes: Sequence[Corners], share: Sequence[str], width: int) -> str:
    """Return the sums of four pixels at each point, (N * groups, points, depth)."""
    parts = []
    for row, down in axes[0]:
        for column, across in axes[1]:
            place = c.emit("Add", c.emit("Mul", row, c.const(float(width))), column)
            pixels = c.emit("GatherND", table, unsqueeze(c, c.cast(place, "int64"), 2), batch_dims=1)
            weight = c.emit("Mul", down, across)
            for each in share:
                weight = c.emit("Mul", weight, each)
            parts.append(c.emit("Mul", pixels, unsqueeze(c, weight, 2)))
    return c.emit("Sum", *parts)


def _product(c: OperatorCall, columns: str, params: Sequence[str], length: int, places: Sequence[int]) -> str:
    """Multiply columns, (N, groups, depth, taps, positions), by the weight."""
    a, (weight, *bias) = c.a, params
    parts = a.num_group
    flat = c.emit("Reshape", columns, c.ints(-1, parts, length // parts, places[0] * places[1]))
    filters = c.emit("Reshape", weight, c.ints(parts, a.num_filter // parts, length // parts))
    found: str = c.emit("Reshape", c.emit("MatMul", filters, flat), c.ints(-1, a.num_filter, *places))
    return c.emit("Add", found, unsqueeze(c, bias[0], 1, 2)) if bias else found
