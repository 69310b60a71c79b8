"""Geometric image operators: padding, affine maps, crop, resize and flips, and conversion to tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from ...base import ArgumentError, OpError, Shape, ShapeError
from ..attrs import boolean, integer, ints, reals
from ..registry import op
from ..shapes import forward, typed, unify
from ..spec import NEVER, Attr, Env, Onnx, Shapes, arg
from .declare import augment, check_channels, check_rank, straight_through, uniform
from .resize import CUBIC, LANCZOS, NEAREST, cubic_taps, lanczos_taps, resize, short_edge_size

CONSTANT, REPLICATE, REFLECT, WRAP, REFLECT_101 = range(5)
"""Border types, numbered as in OpenCV."""

_ISOLATED = 16
"""OpenCV flag that may be added to a border type; it has no effect on a whole image."""


def make_border(
    image: torch.Tensor,
    top: int,
    bottom: int,
    left: int,
    right: int,
    kind: int = CONSTANT,
    values: Sequence[float] = (0.0,),
) -> torch.Tensor:
    """Pad an image with a border.

    Shape:
        image: (H, W, C).
        returns: (top + H + bottom, left + W + right, C).

    Args:
        kind: 0 constant, 1 replicate ``aa|abcd|dd``, 2 reflect ``ba|abcd|dc``, 3 wrap ``cd|abcd|ab``, 4 reflect
            without the edge ``cb|abcd|cb``.
        values: the constant for each channel; remaining channels get 0.
    """
    if min(top, bottom, left, right) < 0:
        raise ArgumentError(f"margins are {top}, {bottom}, {left}, {right}, expected numbers of at least 0")
    kind = kind & ~_ISOLATED if kind >= 0 else kind
    if not CONSTANT <= kind <= REFLECT_101:
        raise ArgumentError(f"border type is {kind}, expected 0 to 4, optionally plus 16")
    height, width, channels = image.shape
    if kind == CONSTANT:
        color = torch.zeros(channels, dtype=torch.float64)
        constants = torch.tensor(tuple(values)[:channels], dtype=torch.float64)
        color[: len(constants)] = constants
        if not image.dtype.is_floating_point:
            info = torch.iinfo(image.dtype)
            color = color.round().clamp(info.min, info.max)
        out = image.new_empty((top + height + bottom, left + width + right, channels))
        out[:] = color.to(image.device, image.dtype)
        out[top : top + height, left : left + width] = image
        return out
    rows = _border_index(height, top, bottom, kind).to(image.device)
    columns = _border_index(width, left, right, kind).to(image.device)
    return image.index_select(0, rows).index_select(1, columns)


def _border_index(size: int, before: int, after: int, kind: int) -> torch.Tensor:
    """Return the source pixel of each position along a padded axis."""
    at = torch.arange(-before, size + after)
    if kind == REPLICATE or size == 1:
        return at.clamp(0, size - 1)
    if kind == WRAP:
        return at % size
    if kind == REFLECT:
        at = at % (2 * size)
        return torch.where(at < size, at, 2 * size - 1 - at)
    at = at % (2 * size - 2)
    return torch.where(at < size, at, 2 * size - 2 - at)


_COORDINATE_ONE = 1 << 10
"""One pixel in fixed-point coordinates."""

_SUBPIXELS = 32
"""Number of subpixel positions."""

_WEIGHT_ONE = 1 << 15
"""One in fixed-point weights."""

Array = np.ndarray[Any, Any]


def warp_affine(
    image: torch.Tensor, matrix: Array, width: int, height: int, interp: int, fill: float
) -> torch.Tensor:
    """Transform an image by ``(x, y) -> matrix @ (x, y, 1)``.

    Shape:
        image: (H, W, C), uint8.
        matrix: (2, 3).
        returns: (height, width, C), uint8.

    Args:
        width: width of the result in pixels.
        height: height of the result in pixels.
        interp: 0 nearest, 1 or 3 linear, 2 cubic, 4 Lanczos over 8 pixels.
        fill: value of pixels outside of `image`.
    Source: OpenCV 3.4 `cv::warpAffine`: 10-bit coordinates, 32 subpixel positions, 15-bit weights.
    """
    half = _COORDINATE_ONE // 2 if interp == NEAREST else _COORDINATE_ONE // _SUBPIXELS // 2
    x, y = _source_coordinates(_inverse(np.asarray(matrix, np.float64)), width, height, half)
    color = int(np.clip(np.rint(fill), 0, 255))
    if interp == NEAREST:
        return _gather_pixels(image, x >> 10, y >> 10, color).to(torch.uint8)
    x, y = x >> 5, y >> 5
    taps = _tap_table(interp)
    count = taps.shape[0]
    before = count // 2 - 1
    across, down = taps[:, x & (_SUBPIXELS - 1)], taps[:, y & (_SUBPIXELS - 1)]
    total = torch.full((height, width, image.shape[2]), 1 << 14, dtype=torch.int32)
    for i in range(count):
        for j in range(count):
            weight = (down[i] * across[j] * _WEIGHT_ONE).round().int().unsqueeze(2)
            total += weight * _gather_pixels(image, (x >> 5) + (j - before), (y >> 5) + (i - before), color)
    return (total >> 15).clamp_(0, 255).to(torch.uint8)


def _inverse(m: Array) -> Array:
    determinant = m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]
    scale = 1.0 / determinant if determinant else 0.0
    linear = np.array([[m[1, 1], -m[0, 1]], [-m[1, 0], m[0, 0]]]) * scale
    return np.column_stack([linear, -linear @ m[:, 2]])


def _source_coordinates(m: Array, width: int, height: int, half: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the fixed-point source coordinates x and y of each new pixel, (height, width) each."""
    columns, rows = np.arange(width), np.arange(height)

    def coordinate(row: Array) -> torch.Tensor:
        along = np.rint(row[0] * columns * _COORDINATE_ONE).astype(np.int64)
        down = np.rint((row[1] * rows + row[2]) * _COORDINATE_ONE).astype(np.int64) + half
        return torch.from_numpy(along + down[:, None])

    return coordinate(m[0]), coordinate(m[1])


def _gather_pixels(image: torch.Tensor, x: torch.Tensor, y: torch.Tensor, color: int) -> torch.Tensor:
    height, width, channels = image.shape
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    at = y.clamp(0, height - 1) * width + x.clamp(0, width - 1)
    pixels = image.reshape(-1, channels).index_select(0, at.reshape(-1)).view(*x.shape, channels).int()
    return pixels.masked_fill_(~inside.unsqueeze(2), color)


@lru_cache(maxsize=8)
def _tap_table(interp: int) -> torch.Tensor:
    """Return the neighbors' weights for each subpixel position, (taps, 32)."""
    fraction = (np.arange(_SUBPIXELS) / _SUBPIXELS).astype(np.float32)
    if interp == CUBIC:
        return torch.from_numpy(cubic_taps(fraction))
    if interp == LANCZOS:
        return torch.from_numpy(lanczos_taps(fraction))
    return torch.from_numpy(np.stack([1 - fraction, fraction]))


Tensor = torch.Tensor


def _to_tensor_shape(a: Any, data: tuple[int, ...]) -> tuple[int, ...]:
    check_rank("_image_to_tensor", data)
    return (*data[:-3], data[-1], *data[-3:-1])


@op(
    "_image_to_tensor",
    [arg("data")],
    infer=forward(_to_tensor_shape),
    infer_type=typed(lambda a: "float32"),
    batch=NEVER,
)
def to_tensor(a: Any, env: Env, data: Tensor) -> Tensor:
    """Convert an image with values from 0 to 255 to channels with values from 0 to 1.

    Shape:
        data: (H, W, C) or (N, H, W, C).
        returns: (C, H, W) or (N, C, H, W), float32.

    Source: MXNet 1.9.1 `_image_to_tensor`, whose gradient is the head gradient in its memory order.
    """
    return straight_through(lambda x: x.movedim(-1, -3).float().div(255.0).contiguous(), data)


def _normalize_shape(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    shape = unify(ins[0], outs[0], "data and output")
    if shape is not None and len(shape) not in (3, 4):
        raise ShapeError(
            f"_image_normalize: data has shape {shape}, expected (channels, height, width), or a batch"
        )
    if shape is not None:
        check_channels("_image_normalize", shape, shape[-3])
    return [shape], [shape]


def _per_channel(name: str, values: Sequence[float], data: Tensor) -> Tensor:
    """Return one number per channel, broadcastable to (C, H, W)."""
    channels = data.shape[-3]
    if len(values) not in (1, channels, 4):
        raise OpError(f"_image_normalize: {name} has {len(values)} numbers, expected 1 or {channels}")
    chosen = values if len(values) == 1 else values[:channels]
    return torch.tensor(chosen, dtype=torch.float32, device=data.device).view(-1, 1, 1)


@op(
    "_image_normalize",
    [arg("data")],
    {
        "mean": Attr(reals, "mean of each channel, or one for all", (0.0, 0.0, 0.0, 0.0)),
        "std": Attr(reals, "standard deviation of each channel, or one for all", (1.0, 1.0, 1.0, 1.0)),
    },
    infer=_normalize_shape,
)
def normalize(a: Any, env: Env, data: Tensor) -> Tensor:
    """Subtract a mean from each channel and divide by its standard deviation.

    Shape:
        data: (C, H, W) or (N, C, H, W) with 1 or 3 channels, as `to_tensor` returns it.
        returns: the same shape and type.

    Raises:
        OpError: `mean` or `std` does not match the number of channels.

    Source: MXNet 1.9.1 `_image_normalize`, which rejects its own default of four numbers; here it means 0 and 1.
    """
    _normalize_shape(a, [tuple(data.shape)], [None])
    mean, std = _per_channel("mean", a.mean, data), _per_channel("std", a.std, data)
    return ((data - mean) / std).to(data.dtype)


def _crop_shape(a: Any, data: tuple[int, ...]) -> tuple[int, ...]:
    check_rank("_image_crop", data)
    check_channels("_image_crop", data, data[-1])
    height, width = data[-3:-1]
    if a.x + a.width > width or a.y + a.height > height:
        raise ShapeError(
            f"_image_crop: {a.width} x {a.height} pixels from ({a.x}, {a.y}) exceed "
            f"the {width} x {height} pixels of data"
        )
    return (*data[:-3], a.height, a.width, data[-1])


@op(
    "_image_crop",
    [arg("data")],
    {
        "x": Attr(integer(low=0), "left edge"),
        "y": Attr(integer(low=0), "top edge"),
        "width": Attr(integer(low=1), "width in pixels"),
        "height": Attr(integer(low=1), "height in pixels"),
    },
    infer=forward(_crop_shape),
    view=True,
)
def crop(a: Any, env: Env, data: Tensor) -> Tensor:
    """Crop a rectangle from images.

    Shape:
        data: (H, W, C) or (N, H, W, C) with 1 or 3 channels.
        returns: (height, width, C) or (N, height, width, C).

    Raises:
        ShapeError: the rectangle exceeds the image.

    Source: MXNet 1.9.1 `_image_crop`.
    """
    _crop_shape(a, tuple(data.shape))
    return data.narrow(-3, a.y, a.height).narrow(-2, a.x, a.width)


def new_size(a: Any, height: int, width: int) -> tuple[int, int]:
    """Return (height, width) after resizing."""
    if len(a.size) not in (1, 2) or min(a.size) < 1:
        raise OpError(f"_image_resize: size is {a.size}, expected one positive number or (width, height)")
    if len(a.size) == 2:
        return a.size[1], a.size[0]
    (side,) = a.size
    return short_edge_size(height, width, side) if a.keep_ratio else (side, side)


def _resize_shape(a: Any, data: tuple[int, ...]) -> tuple[int, ...]:
    check_rank("_image_resize", data)
    return (*data[:-3], *new_size(a, data[-3], data[-2]), data[-1])


@op(
    "_image_resize",
    [arg("data")],
    {
        "size": Attr(ints, "(width, height), or one number for both", ()),
        "keep_ratio": Attr(boolean, "resize the shorter side to `size`, keeping the aspect ratio", False),
        "interp": Attr(integer(low=0), "0 nearest, 1 linear, 2 cubic, 3 area, 4 Lanczos", 1),
    },
    infer=forward(_resize_shape),
    batch=NEVER,
)
def image_resize(a: Any, env: Env, data: Tensor) -> Tensor:
    """Resize images.

    Shape:
        data: (H, W, C) or (N, H, W, C), uint8 or floating.
        returns: (height, width, C) or (N, height, width, C), of the same type.

    Raises:
        OpError: `size` does not have one or two numbers.

    Source: MXNet 1.9.1 `_image_resize` on CPU, which is OpenCV's `resize`.
    """
    height, width = new_size(a, data.shape[-3], data.shape[-2])
    if data.dim() == 3:
        return resize(data, width, height, a.interp)
    return torch.stack([resize(one, width, height, a.interp) for one in data])


@augment("_image_flip_left_right", onnx=Onnx("Slice", builder="image_flip"))
def flip_left_right(a: Any, env: Env, data: Tensor) -> Tensor:
    """Mirror an image horizontally.

    Shape:
        data: (H, W, C) with 1 or 3 channels.
        returns: the same.

    Source: MXNet 1.9.1 `_image_flip_left_right`.
    """
    return straight_through(lambda x: x.flip(1), data)


@augment("_image_flip_top_bottom", onnx=Onnx("Slice", builder="image_flip"))
def flip_top_bottom(a: Any, env: Env, data: Tensor) -> Tensor:
    """Mirror an image vertically.

    Shape:
        data: (H, W, C) with 1 or 3 channels.
        returns: the same.

    Source: MXNet 1.9.1 `_image_flip_top_bottom`.
    """
    return straight_through(lambda x: x.flip(0), data)


def _maybe_flip(env: Env, data: Tensor, axis: int) -> Tensor:
    keep = uniform(env, 0.0, 1.0) < 0.5
    return straight_through(lambda x: torch.where(keep, x, x.flip(axis)), data)


@augment("_image_random_flip_left_right", random=True)
def random_flip_left_right(a: Any, env: Env, data: Tensor) -> Tensor:
    """Mirror an image horizontally with probability 1/2.

    Shape:
        data: (H, W, C) with 1 or 3 channels.
        returns: the same.

    Source: MXNet 1.9.1 `_image_random_flip_left_right`, with different random numbers.
    """
    return _maybe_flip(env, data, 1)


@augment("_image_random_flip_top_bottom", random=True)
def random_flip_top_bottom(a: Any, env: Env, data: Tensor) -> Tensor:
    """Mirror an image vertically with probability 1/2.

    Shape:
        data: (H, W, C) with 1 or 3 channels.
        returns: the same.

    Source: MXNet 1.9.1 `_image_random_flip_top_bottom`, with different random numbers.
    """
    return _maybe_flip(env, data, 0)
