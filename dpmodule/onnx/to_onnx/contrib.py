"""Builders of other operators of the contrib namespace."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from .call import OperatorCall, Value
from .common import in_floats, length_of, positions, reshape, result, windows

F4 = "float32"


def _all_true(c: OperatorCall, truth: Value) -> Value:
    """Return 1 if all elements are true, else 0, as float32 of shape (1,)."""
    flat = truth.cast(F4).reshape(-1)
    return flat.reduce("ReduceMin", 0, keepdims=True)


def all_finite(c: OperatorCall) -> Value:
    """Minimum of elementwise finiteness."""
    least = [
        _all_true(c, abs(x.cast(_comparison_type(dtype))) < c.const(np.inf, _comparison_type(dtype)))
        for x, dtype in zip(c.inputs, c.dtypes)
    ]
    return least[0] if len(least) == 1 else c.emit("Min", *least)


def _comparison_type(dtype: str) -> str:
    """Return the type in which to compare elements."""
    return "float64" if dtype in ("float64", "int64", "uint64", "int32", "uint32") else F4


def allclose(c: OperatorCall) -> Value:
    """Minimum of elementwise closeness."""
    a, wide = c.a, _comparison_type(c.dtypes[0])
    one, other = (x.cast(wide) for x, dtype in zip(c.inputs, c.dtypes))
    apart = abs(one - other)
    allowed = abs(other) * a.rtol + a.atol
    finite = apart < np.inf
    close = finite & (apart <= allowed)
    close = close | one.equals(other)
    if a.equal_nan:
        close = close | c.emit("IsNaN", one) & c.emit("IsNaN", other)
    return _all_true(c, close).cast("uint8").reshape()


def index_array(c: OperatorCall) -> Value:
    """Concatenate the positions along each axis."""
    x, shape = c.inputs[0], c.shapes[0]
    axes = range(len(shape)) if c.a.axes is None else c.a.axes
    size = c.emit("Shape", x)
    grids = [c.emit("Expand", positions(c, x, shape, axis % len(shape)), size) for axis in axes]
    return c.emit("Concat", *(grid.unsqueeze(len(shape)) for grid in grids), axis=-1)


def arange_like(c: OperatorCall) -> Value:
    """Range in double precision, like the operator."""
    a, x, shape = c.a, c.inputs[0], c.shapes[0]
    count = c.emit("Size", x) if a.axis is None else length_of(c, x, shape, a.axis % len(shape))
    order = c.emit("Range", c.const(0, "int64"), count, c.const(1, "int64"))
    turns = (order / c.const(a.repeat, "int64")).cast("float64")
    steps = turns * c.const(a.step, "float64")
    output = (steps + c.const(a.start, "float64")).cast(c.out_dtypes[0])
    return output if a.axis is not None else c.emit("Reshape", output, c.emit("Shape", x))


def quadratic(c: OperatorCall) -> Value:
    """Horner's rule."""
    x, dtype = c.inputs[0], c.dtypes[0]
    wide = dtype if "float" in dtype else "float64"
    x = x.cast(wide)
    slope: Value = x * c.a.a + c.a.b
    return result(slope * x + c.a.c)


def index_copy(c: OperatorCall) -> Value:
    """ScatterND."""
    old, index, new = c.inputs
    return c.emit("ScatterND", old, index.cast("int64").unsqueeze(1), new)


def boolean_mask(c: OperatorCall) -> Value:
    """Compress."""
    return c.emit("Compress", c.inputs[0], c.inputs[1].cast("bool"), axis=0)


def getnnz(c: OperatorCall) -> Value:
    """Sum of elements that are not 0."""
    x = c.inputs[0].cast("bool").cast("int64")
    if c.a.axis is None:
        return x.reshape(-1).reduce("ReduceSum", 0, keepdims=True)
    return x.reduce("ReduceSum", c.a.axis % 2)


def edge_id(c: OperatorCall) -> Value:
    """GatherND; -1 for missing edges."""
    data, *ends = c.inputs
    pairs = [x.cast("int64").unsqueeze(1) for x, dtype in zip(ends, c.dtypes[1:])]
    output = c.emit("GatherND", data, c.emit("Concat", *pairs, axis=1))
    stored = output.cast("bool")
    return stored.choose(output, -1)


def count_sketch(c: OperatorCall) -> Value:
    """Product with the matrix of column targets and signs."""
    data, hashes, signs = (x.cast(F4) for x, dtype in zip(c.inputs, c.dtypes))
    indices = hashes.cast("int64").reshape(-1)
    chosen = c.emit("OneHot", indices, c.const(c.a.out_dim, "int64"), c.const([0.0, 1.0], F4))
    matrix = chosen * signs.reshape(-1, 1)
    return c.emit("MatMul", data, matrix).cast(c.out_dtypes[0])


def fft(c: OperatorCall) -> Value:
    """DFT; before opset 17 a product with a matrix."""
    x, size = c.inputs[0].cast(F4), c.length(-1)
    if c.opset >= 17:
        output = _dft(c, x.reshape(-1, size, 1), inverse=0)
    else:
        output = c.emit("MatMul", x, c.const(_dft_matrix(size), F4))
    return reshape(c, output, c.out_shapes[0]).cast(c.out_dtypes[0])


def ifft(c: OperatorCall) -> Value:
    """Inverse DFT without its division by the length."""
    x, size = c.inputs[0].cast(F4), c.length(-1) // 2
    if c.opset >= 17:
        output = _dft(c, x.reshape(-1, size, 2), inverse=1)
        whole = output * size
        output = whole.gather(0, 2)
    else:
        output = c.emit("MatMul", x, c.const(_dft_matrix(size).T, F4))
    return reshape(c, output, c.out_shapes[0]).cast(c.out_dtypes[0])


def _dft(c: OperatorCall, signal: Value, inverse: int) -> Value:
    """Transform axis 1 of (rows, length, 1 or 2)."""
    if c.opset >= 20:
        output: Value = c.emit("DFT", signal, "", c.const(1, "int64"), inverse=inverse)
    else:
        output = c.emit("DFT", signal, axis=1, inverse=inverse)
    return output


def _dft_matrix(size: int) -> np.ndarray:
    """Return the matrix (size, 2 * size) of the transform, with alternating real and imaginary parts."""
    turns = np.outer(np.arange(size), np.arange(size)) % size * (2 * np.pi / size)
    return np.stack([np.cos(turns), -np.sin(turns)], -1).reshape(size, 2 * size)


@in_floats(half=False)
def deformable_convolution(c: OperatorCall) -> Value:
    """DeformConv for zero padding; otherwise, and before opset 19, gather pixels."""
    masked = c.node.op is not None and "Modulated" in c.node.op.name
    if masked and c.opset >= 19:
        return _deform_conv(c)
    a, own = c.a, 3 if masked else 2
    data, offset, *mask = c.inputs[:own]
    channels, height, width = (c.length(i) for i in (1, 2, 3))
    groups, taps = a.num_deformable_group, a.kernel[0] * a.kernel[1]
    indices = [c.length(i, 1) for i in (2, 3)]
    points = taps * indices[0] * indices[1]
    both = offset.reshape(-1, taps, 2, indices[0] * indices[1])
    axes = []
    for axis, size in enumerate((height, width)):
        moved = both.gather(axis, 2)
        at = moved + c.const(_grid(c, indices, axis))
        axes.append(
            (_neighbours_zero_padded if masked else _neighbours_clipped)(c, at.reshape(-1, points), size)
        )
    depth = channels // groups
    table = data.reshape(-1, depth, height * width)
    table = c.emit("Transpose", table, perm=[0, 2, 1])
    share = [mask[0].reshape(-1, points)] if mask else []
    columns = _bilinear(c, table, axes, share, width)
    columns = columns.reshape(-1, groups, taps, indices[0] * indices[1], depth)
    columns = c.emit("Transpose", columns, perm=[0, 1, 4, 2, 3])
    return _product(c, columns, c.inputs[own:], channels * taps, indices)


def _deform_conv(c: OperatorCall) -> Value:
    data, offset, mask, weight, *bias = c.inputs
    inputs: list[Value | str] = [data, weight, offset, bias[0] if bias else "", mask]
    options = {**windows(c), "group": c.a.num_group, "offset_group": c.a.num_deformable_group}
    output: Value = c.emit("DeformConv", *inputs, **options)
    return output


def _grid(c: OperatorCall, places: Sequence[int], axis: int) -> np.ndarray:
    """Return the positions of points along an axis before their offsets, (taps, positions)."""
    kernel, stride, dilate, pad = (each[axis] for each in windows(c).values())
    along = np.add.outer(
        np.arange(kernel) * dilate, np.arange(places[axis]) * stride - pad
    )  # (kernel, places)
    full = along[:, None, :, None] if axis == 0 else along[None, :, None, :]
    return np.broadcast_to(full, (*c.a.kernel, *places)).reshape(prod(c.a.kernel), -1)


Corners = list[tuple[Value, Value]]


def _neighbours_clipped(c: OperatorCall, at: Value, size: int) -> Corners:
    """Return both pixels around points, and their weights; the last pixel extends to the border."""
    zero, last = c.const(0.0), c.const(size - 1.0)
    inside = (at >= zero) & (at < c.const(float(size)))
    low = c.emit("Clip", c.emit("Floor", at), zero, last)
    part = (inside & ~(low >= last)).choose(at - low, zero)
    keep = inside.cast(c.dtypes[0])
    return [(low, (1.0 - part) * keep), (c.emit("Min", low + 1.0, last), part * keep)]


def _neighbours_zero_padded(c: OperatorCall, at: Value, size: int) -> Corners:
    """Return both pixels around points, and their weights, with zeros around the image."""
    zero, last = c.const(0.0), c.const(size - 1.0)
    low = c.emit("Floor", at)
    part = at - low
    outputs = []
    for pixel, weight in ((low, 1.0 - part), (low + 1.0, part)):
        inside = (pixel >= zero) & (pixel <= last)
        outputs.append((c.emit("Clip", pixel, zero, last), inside.choose(weight, zero)))
    return outputs


def _bilinear(
    c: OperatorCall, table: Value, axes: Sequence[Corners], share: Sequence[Value], width: int
) -> Value:
    """Return the sums of four pixels at each point, (N * groups, points, depth)."""
    parts = []
    for row, down in axes[0]:
        for column, across in axes[1]:
            position = row * c.const(float(width)) + column
            pixels = c.emit("GatherND", table, position.cast("int64").unsqueeze(2), batch_dims=1)
            weight = prod(share, start=down * across)
            parts.append(pixels * weight.unsqueeze(2))
    return c.emit("Sum", *parts)


def _product(
    c: OperatorCall, columns: Value, params: Sequence[Value], length: int, places: Sequence[int]
) -> Value:
    """Multiply columns, (N, groups, depth, taps, positions), by the weight."""
    a, (weight, *bias) = c.a, params
    parts = a.num_group
    flat = columns.reshape(-1, parts, length // parts, places[0] * places[1])
    filters = weight.reshape(parts, a.num_filter // parts, length // parts)
    output: Value = c.emit("MatMul", filters, flat).reshape(-1, a.num_filter, *places)
    return output + bias[0].unsqueeze(1, 2) if bias else output
