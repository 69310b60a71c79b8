"""Images that are cut, enlarged or read at other places."""

from __future__ import annotations

import numpy as np

from .call import Dims, OperatorCall
from .common import reshape, shape_value, unsqueeze
from .floats import in_floats

__all__ = [
    "bilinear_resize",
    "bilinear_sampler",
    "crop",
    "grid_generator",
    "grid_sample",
    "roi_align",
    "roi_pooling",
    "spatial_transformer",
    "upsampling",
]


def crop(c: OperatorCall) -> str:
    """Slice of height and width."""
    x, part = c.inputs[0], c.out_shapes[0][2:]
    if c.a.center_crop:
        room = [have - n for have, n in zip(c.numbers(c.shapes[0][2:]), c.numbers(part))]
        offset = [r // 2 for r in room]
    else:
        offset = list(c.a.offset)
    if all(isinstance(n, int) for n in part):
        ends = c.ints(*(o + n for o, n in zip(offset, c.numbers(part))))
    else:
        ends = c.emit("Add", shape_value(c, part, [(c.inputs[-1], c.shapes[-1])]), c.ints(*offset))
    return c.emit("Slice", x, c.ints(*offset), ends, c.ints(2, 3))


@in_floats()
def upsampling(c: OperatorCall) -> str:
    """ConvTranspose with the given weight, or Resize to the nearest pixel."""
    if c.a.sample_type == "bilinear":
        return _enlarged_by_weight(c)
    images = [_repeated(c, i) for i in range(len(c.inputs))]
    if len(images) == 1:
        return images[0]
    return c.emit("Concat", *images, axis=1) if c.a.multi_input_mode == "concat" else c.emit("Sum", *images)


def _enlarged_by_weight(c: OperatorCall) -> str:
    scale = c.a.scale
    size = 2 * scale - scale % 2
    found = c.emit(
        "ConvTranspose",
        *c.inputs,
        kernel_shape=[size, size],
        strides=[scale, scale],
        pads=[scale // 2] * 4,
        group=c.length(1),
    )
    return found


def _repeated(c: OperatorCall, i: int) -> str:
    """Return an input whose pixels are repeated until it is as large as the output."""
    factor = c.a.scale if i == 0 else c.length(2) * c.a.scale // c.length(2, i)
    if factor == 1:
        return c.inputs[i]
    found = c.emit(
        "Resize",
        c.inputs[i],
        "",
        c.const([1.0, 1.0, factor, factor], "float32"),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    return found


@in_floats()
def bilinear_resize(c: OperatorCall) -> str:
    """Resize; an axis of one output pixel shows the first of the data."""
    x, part = c.inputs[0], c.out_shapes[0][2:]
    single = [axis for axis, n in enumerate(part, 2) if n == 1]
    if single:
        zeros, ones = [0] * len(single), [1] * len(single)
        x = c.emit("Slice", x, c.ints(*zeros), c.ints(*ones), c.ints(*single))
    size = shape_value(c, c.out_shapes[0], list(zip(c.inputs, c.shapes)))
    mode = "align_corners" if c.a.align_corners else "half_pixel"
    return c.emit("Resize", x, "", "", size, mode="linear", coordinate_transformation_mode=mode)


def _sampled(c: OperatorCall, x: str, grid: str) -> str:
    """Read images at the places of a grid (N, 2, h, w)."""
    return _sampled_at(c, x, c.emit("Transpose", grid, perm=[0, 2, 3, 1]), "bilinear", "zeros", True)


def _sampled_at(c: OperatorCall, x: str, places: str, mode: str, padding: str, align_corners: bool) -> str:
    """Read images at places (N, h, w, 2)."""
    if c.opset < 16:
        c.refuse(f"ONNX reads images at the places of a grid from opset 16 on, and {c.opset} is wanted")
    if c.opset >= 20:
        mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    return c.emit("GridSample", x, places, mode=mode, padding_mode=padding, align_corners=int(align_corners))


@in_floats(half=False)
def grid_sample(c: OperatorCall) -> str:
    """GridSample."""
    x, places = c.inputs
    return _sampled_at(c, x, places, c.a.mode, c.a.padding_mode, c.a.align_corners)


@in_floats(half=False)
def bilinear_sampler(c: OperatorCall) -> str:
    """GridSample, which has the two coordinates on the last axis."""
    return _sampled(c, *c.inputs)


def _affine_grid(c: OperatorCall, theta: str) -> str:
    """Return the places that affine maps (N, 6) give to the points of a grid."""
    height, width = c.a.target_shape
    x, y = np.meshgrid(np.linspace(-1, 1, width), np.linspace(-1, 1, height))
    if width == 1:
        x = np.full_like(x, -1)
    if height == 1:
        y = np.full_like(y, -1)
    points = np.stack([x.ravel(), y.ravel(), np.ones(height * width)])
    maps = c.emit("Reshape", theta, c.ints(-1, 2, 3))
    found = c.emit("Reshape", c.emit("MatMul", maps, c.const(points)), c.ints(-1, 2, height, width))
    return found


@in_floats(half=False)
def grid_generator(c: OperatorCall) -> str:
    """A product with the points of a grid, or the pixels' own places added to a flow."""
    if c.a.transform_type == "affine":
        return _affine_grid(c, c.inputs[0])
    height, width = c.numbers(c.shapes[0][2:])
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    halves = [(n - 1) / 2 or np.inf for n in (width, height)]
    moved = c.emit("Add", c.inputs[0], c.const(np.stack([x, y])))
    scaled = c.emit("Div", moved, c.const(np.array(halves).reshape(2, 1, 1)))
    return c.emit("Sub", scaled, c.const(1.0))


@in_floats(half=False)
def spatial_transformer(c: OperatorCall) -> str:
    """GridSample at the points of an affine grid."""
    return _sampled(c, c.inputs[0], _affine_grid(c, c.inputs[1]))


@in_floats(half=False)
def roi_pooling(c: OperatorCall) -> str:
    """MaxRoiPool."""
    return c.emit("MaxRoiPool", *c.inputs, pooled_shape=c.a.pooled_size, spatial_scale=c.a.spatial_scale)


@in_floats(half=False)
def roi_align(c: OperatorCall) -> str:
    """RoiAlign, whose regions have their image apart; those of image -1 give zeros."""
    if c.a.aligned and c.opset < 16:
        c.refuse(f"ONNX aligns regions by half a pixel from opset 16 on, and {c.opset} is wanted")
    high, wide = c.a.pooled_size
    columns = c.ints(1)
    image = c.emit("Gather", c.inputs[1], c.const(0, "int64"), axis=1)
    found = c.emit(
        "RoiAlign",
        c.inputs[0],
        c.emit("Slice", c.inputs[1], columns, c.ints(5), columns),
        c.emit("Max", c.cast(image, "int64"), c.const(0, "int64")),
        output_height=high,
        output_width=wide,
        sampling_ratio=max(c.a.sample_ratio, 0),
        spatial_scale=c.a.spatial_scale,
        coordinate_transformation_mode=_alignment(c),
    )
    if c.a.position_sensitive:
        found = _own_channels(c, found, c.out_shapes[0])
    outside = c.emit("Less", unsqueeze(c, image, 1, 2, 3), c.const(0.0))
    return c.emit("Where", outside, c.const(0.0), found)


def _alignment(c: OperatorCall) -> str | None:
    if c.opset < 16:
        return None
    return "half_pixel" if c.a.aligned else "output_half_pixel"


def _own_channels(c: OperatorCall, pooled: str, shape: Dims) -> str:
    """Return of what all bins read (R, C * bins, high, wide) what each bin reads of its own channels."""
    high, wide = c.a.pooled_size
    bins = high * wide
    pairs = c.emit("Reshape", pooled, c.ints(0, -1, bins, bins))
    own = c.emit("ReduceSum", c.emit("Mul", pairs, c.const(np.eye(bins))), c.ints(2), keepdims=0)
    return reshape(c, own, shape, shape[:1])
