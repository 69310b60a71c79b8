"""Builders of image operators: preprocessing, resizing, sampling and regions."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch

from ...ops.image.color import PCA
from ...ops.image.geometry import make_border, new_size
from ...ops.image.resize import AREA, LINEAR, NEAREST, integer_taps, pick_method, resize, taps_of
from .call import Dims, OperatorCall, Value
from .common import Builder, in_floats, reshape, shape_value

F4 = "float32"


def image_to_tensor(c: OperatorCall) -> Value:
    """Transpose to channels first and scale to 0..1."""
    rank = len(c.shapes[0])
    order = [*range(rank - 3), rank - 1, rank - 3, rank - 2]
    return c.emit("Transpose", c.inputs[0], perm=order).cast(F4) / 255.0


def image_normalize(c: OperatorCall) -> Value:
    """Subtract the mean and divide by the deviation."""
    channels = c.length(-3)
    mean, std = (
        c.const(np.reshape(values if len(values) == 1 else values[:channels], (-1, 1, 1)), F4)
        for values in (c.a.mean, c.a.std)
    )
    dtype = c.dtypes[0]
    x = c.inputs[0].cast(F4)
    output = (x - mean) / std
    return output.cast(dtype)


def image_crop(c: OperatorCall) -> Value:
    """Slice."""
    a = c.a
    return c.emit(
        "Slice", c.inputs[0], c.ints(a.y, a.x), c.ints(a.y + a.height, a.x + a.width), c.ints(-3, -2)
    )


def image_flip(c: OperatorCall) -> Value:
    """Slice with a negative step."""
    axis = 1 if c.node.op is not None and c.node.op.name.endswith("left_right") else 0
    return c.emit("Slice", c.inputs[0], c.ints(-1), c.ints(-(2**31)), c.ints(axis), c.ints(-1))


def image_adjust_lighting(c: OperatorCall) -> Value:
    """Add a colour."""
    x, dtype = c.inputs[0], c.dtypes[0]
    if c.length(2) == 1:
        return x
    added = np.array(PCA, "f4") @ np.array(c.a.alpha, "f4")
    output = (x.cast(F4)) + c.const(added, F4)
    if dtype == "uint8":
        output = c.emit("Clip", output, c.const(0.0, F4), c.const(255.0, F4))
    return output.cast(dtype)


def image_border(c: OperatorCall) -> Value:
    """Gather pixels; the constant is an additional last one."""
    a, (height, width, channels) = c.a, c.numbers(c.shapes[0])
    indices = torch.arange(height * width, dtype=torch.float64).view(height, width, 1)
    index = make_border(indices, a.top, a.bot, a.left, a.right, a.type, (height * width,))
    # one pixel below a row of the constant
    border = make_border(torch.zeros((1, 1, channels)), 1, 0, 0, 0, 0, a.values or (a.value,) * channels)
    pixels = c.inputs[0].reshape(-1, channels)
    if bool((index == height * width).any()):
        pixels = c.emit("Concat", pixels, c.const(border[0].numpy()), axis=0)
    return c.emit("Gather", pixels, c.const(index[:, :, 0].numpy(), "int64"), axis=0)


def image_resize(c: OperatorCall) -> Value:
    """Gather the nearest pixels, or multiply by a matrix for each axis."""
    a, dtype = c.a, c.dtypes[0]
    old = (c.length(-3), c.length(-2))
    new = (a.h, a.w) if hasattr(a, "h") else new_size(a, *old)
    if old == new:
        return c.inputs[0]
    method = pick_method(a.interp, old, new)
    if method == LINEAR and old == (2 * new[0], 2 * new[1]):
        method = AREA
    if method == NEAREST:
        rows, columns = (_nearest(*sizes) for sizes in zip(old, new))
        down = c.emit("Gather", c.inputs[0], c.const(rows, "int64"), axis=len(c.shapes[0]) - 3)
        return c.emit("Gather", down, c.const(columns, "int64"), axis=len(c.shapes[0]) - 2)
    if dtype == "uint8" and method != LINEAR:
        c.refuse("it rounds 8-bit pixels as OpenCV does; use interp 0 or 1, or cast to float32 before")
    if dtype == "uint8":
        return _interpolate_integers(c, old, new)
    if method == AREA and (new[0] > old[0] or new[1] > old[1]):
        c.refuse(
            "area interpolation (interp 3) of one growing axis is linear for both, aligned at edges; use interp 1 or 2"
        )
    return _interpolate(c, old, new, method)


def _interpolate(c: OperatorCall, old: tuple[int, int], new: tuple[int, int], method: int) -> Value:
    """Multiply the columns, then the rows, by matrices of weights."""
    wide = "float64" if c.dtypes[0] == "float64" else F4
    x = c.inputs[0].cast(wide)
    # (..., H, W, C): the columns are the rows of W x C matrices
    across = c.emit("MatMul", c.const(_matrix(old[1], new[1], method, 1), wide), x)
    rank = len(c.shapes[0])
    order = [*range(rank - 3), rank - 2, rank - 3, rank - 1]
    down = c.emit(
        "MatMul", c.const(_matrix(old[0], new[0], method, 0), wide), c.emit("Transpose", across, perm=order)
    )
    output: Value = c.emit("Transpose", down, perm=order)
    return output.cast(c.dtypes[0])


def _interpolate_integers(c: OperatorCall, old: tuple[int, int], new: tuple[int, int]) -> Value:
    """Interpolate two neighbours along each axis in integers, columns first."""
    rank, dtype = len(c.shapes[0]), "int32"
    x = c.inputs[0].cast(dtype)
    columns, across = taps_of(old[1], new[1], LINEAR, True)
    rows, down = taps_of(old[0], new[0], LINEAR, False)
    parts = []
    for pixels, weights in zip(columns, integer_taps(across)):
        term = c.emit("Gather", x, c.const(pixels.numpy(), "int64"), axis=rank - 2)
        parts.append(term * c.const(weights.numpy()[:, None], dtype))
    mixed = c.emit("Add", *parts) / 16
    parts = []
    for pixels, weights in zip(rows, integer_taps(down)):
        term = c.emit("Gather", mixed, c.const(pixels.numpy(), "int64"), axis=rank - 3)
        product = term * c.const(weights.numpy()[:, None, None], dtype)
        parts.append(product / (1 << 16))
    total = c.emit("Add", *parts) + 2
    output = c.emit("Clip", total / 4, c.const(0, dtype), c.const(255, dtype))
    return output.cast("uint8")


@cache
def _nearest(old: int, new: int) -> np.ndarray[Any, Any]:
    """Return the source index of each new pixel of an axis."""
    line = torch.arange(old, dtype=torch.float64).view(1, old, 1)
    return resize(line, new, 1, NEAREST).view(-1).numpy()


def _matrix(old: int, new: int, method: int, axis: int) -> np.ndarray[Any, Any]:
    """Return the weights (new, old) of one axis, by resizing unit pixels in separate channels."""
    alone = torch.eye(old, dtype=torch.float64)
    if axis:
        return resize(alone.view(1, old, old), new, 1, method)[0].numpy()
    return resize(alone.view(old, 1, old), 1, new, method)[:, 0].numpy()


# cropping, upsampling and sampling


def crop(c: OperatorCall) -> Value:
    """Slice height and width."""
    x, size = c.inputs[0], c.out_shapes[0][2:]
    if c.a.center_crop:
        room = [have - n for have, n in zip(c.numbers(c.shapes[0][2:]), c.numbers(size))]
        offset = [r // 2 for r in room]
    else:
        offset = list(c.a.offset)
    if all(isinstance(n, int) for n in size):
        ends = c.ints(*(o + n for o, n in zip(offset, c.numbers(size))))
    else:
        ends = shape_value(c, size, [(c.inputs[-1], c.shapes[-1])]) + c.ints(*offset)
    return c.emit("Slice", x, c.ints(*offset), ends, c.ints(2, 3))


@in_floats()
def upsampling(c: OperatorCall) -> Value:
    """ConvTranspose with the given weight, or Resize to the nearest pixel."""
    if c.a.sample_type == "bilinear":
        return _enlarged_by_weight(c)
    images = [_repeat_pixels(c, i) for i in range(len(c.inputs))]
    if len(images) == 1:
        return images[0]
    return c.emit("Concat", *images, axis=1) if c.a.multi_input_mode == "concat" else c.emit("Sum", *images)


def _enlarged_by_weight(c: OperatorCall) -> Value:
    scale = c.a.scale
    size = 2 * scale - scale % 2
    return c.emit(
        "ConvTranspose",
        *c.inputs,
        kernel_shape=[size, size],
        strides=[scale, scale],
        pads=[scale // 2] * 4,
        group=c.length(1),
    )


def _repeat_pixels(c: OperatorCall, i: int) -> Value:
    """Repeat an input's pixels to the output's size."""
    factor = c.a.scale if i == 0 else c.length(2) * c.a.scale // c.length(2, i)
    if factor == 1:
        return c.inputs[i]
    return c.emit(
        "Resize",
        c.inputs[i],
        "",
        c.const([1.0, 1.0, factor, factor], "float32"),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


@in_floats()
def bilinear_resize(c: OperatorCall) -> Value:
    """Resize; an output axis of one pixel takes the first pixel."""
    x, part = c.inputs[0], c.out_shapes[0][2:]
    single = [axis for axis, n in enumerate(part, 2) if n == 1]
    if single:
        zeros, ones = [0] * len(single), [1] * len(single)
        x = c.emit("Slice", x, c.ints(*zeros), c.ints(*ones), c.ints(*single))
    size = shape_value(c, c.out_shapes[0], list(zip(c.inputs, c.shapes)))
    mode = "align_corners" if c.a.align_corners else "half_pixel"
    return c.emit("Resize", x, "", "", size, mode="linear", coordinate_transformation_mode=mode)


def _sample(c: OperatorCall, x: Value, grid: Value) -> Value:
    """Sample images at the positions of a grid (N, 2, h, w)."""
    return _sample_at(c, x, c.emit("Transpose", grid, perm=[0, 2, 3, 1]), "bilinear", "zeros", True)


def _sample_at(
    c: OperatorCall, x: Value, places: Value, mode: str, padding: str, align_corners: bool
) -> Value:
    """Sample images at positions (N, h, w, 2)."""
    if c.opset < 16:
        c.refuse(
            f"ONNX samples images at the positions of a grid from opset 16 on; the requested opset is {c.opset}"
        )
    if c.opset >= 20:
        mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    return c.emit("GridSample", x, places, mode=mode, padding_mode=padding, align_corners=int(align_corners))


@in_floats(half=False)
def grid_sample(c: OperatorCall) -> Value:
    """GridSample."""
    x, indices = c.inputs
    return _sample_at(c, x, indices, c.a.mode, c.a.padding_mode, c.a.align_corners)


def _affine_grid(c: OperatorCall, theta: Value) -> Value:
    """Return the positions of grid points under affine maps (N, 6)."""
    height, width = c.a.target_shape
    x, y = np.meshgrid(np.linspace(-1, 1, width), np.linspace(-1, 1, height))
    if width == 1:
        x = np.full_like(x, -1)
    if height == 1:
        y = np.full_like(y, -1)
    points = np.stack([x.ravel(), y.ravel(), np.ones(height * width)])
    maps = theta.reshape(-1, 2, 3)
    return c.emit("MatMul", maps, c.const(points)).reshape(-1, 2, height, width)


@in_floats(half=False)
def grid_generator(c: OperatorCall) -> Value:
    """Transform the points of a grid, or add pixel positions to a flow."""
    if c.a.transform_type == "affine":
        return _affine_grid(c, c.inputs[0])
    height, width = c.numbers(c.shapes[0][2:])
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    halves = [(n - 1) / 2 or np.inf for n in (width, height)]
    moved = c.inputs[0] + c.const(np.stack([x, y]))
    scaled = moved / c.const(np.array(halves).reshape(2, 1, 1))
    return scaled - 1.0


@in_floats(half=False)
def spatial_transformer(c: OperatorCall) -> Value:
    """GridSample at the points of an affine grid."""
    return _sample(c, c.inputs[0], _affine_grid(c, c.inputs[1]))


@in_floats(half=False)
def roi_pooling(c: OperatorCall) -> Value:
    """MaxRoiPool."""
    return c.emit("MaxRoiPool", *c.inputs, pooled_shape=c.a.pooled_size, spatial_scale=c.a.spatial_scale)


@in_floats(half=False)
def roi_align(c: OperatorCall) -> Value:
    """RoiAlign, with separate image indices; regions of image -1 give zeros."""
    if c.a.aligned and c.opset < 16:
        c.refuse(f"ONNX aligns regions by half a pixel from opset 16 on; the requested opset is {c.opset}")
    high, wide = c.a.pooled_size
    columns = c.ints(1)
    image = c.emit("Gather", c.inputs[1], c.const(0, "int64"), axis=1)
    output = c.emit(
        "RoiAlign",
        c.inputs[0],
        c.emit("Slice", c.inputs[1], columns, c.ints(5), columns),
        c.emit("Max", image.cast("int64"), c.const(0, "int64")),
        output_height=high,
        output_width=wide,
        sampling_ratio=max(c.a.sample_ratio, 0),
        spatial_scale=c.a.spatial_scale,
        coordinate_transformation_mode=_alignment(c),
    )
    if c.a.position_sensitive:
        output = _select_channels(c, output, c.out_shapes[0])
    outside = image.unsqueeze(1, 2, 3) < 0.0
    return outside.choose(0.0, output)


def _alignment(c: OperatorCall) -> str | None:
    if c.opset < 16:
        return None
    return "half_pixel" if c.a.aligned else "output_half_pixel"


def _select_channels(c: OperatorCall, pooled: Value, shape: Dims) -> Value:
    """Select the channels of each bin from the values (R, C * bins, high, wide) of all bins."""
    high, wide = c.a.pooled_size
    bins = high * wide
    pairs = pooled.reshape(0, -1, bins, bins)
    own = c.emit("ReduceSum", pairs * c.const(np.eye(bins)), c.ints(2), keepdims=0)
    return reshape(c, own, shape, shape[:1])


TABLE: dict[str, Builder] = {
    # GridSample, with the two coordinates on the last axis
    "bilinear_sampler": in_floats(half=False)(lambda c: _sample(c, *c.inputs)),
}
