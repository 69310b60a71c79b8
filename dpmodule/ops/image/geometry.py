"""Where pixels are: images to tensors and their normalization, crop, resize and flips."""

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
"""Kinds of border, numbered as in OpenCV."""

_ISOLATED = 16
"""OpenCV's flag on top of a kind; it changes nothing for a whole image."""


def make_border(
    image: torch.Tensor,
    top: int,
    bottom: int,
    left: int,
    right: int,
    kind: int = CONSTANT,
    values: Sequence[float] = (0.0,),
) -> torch.Tensor:
    """Surround an image with a border.

    Shape:
        image: (H, W, C).
        returns: (top + H + bottom, left + W + right, C).

    Args:
        kind: 0 constant, 1 replicate ``aa|abcd|dd``, 2 reflect ``ba|abcd|dc``, 3 wrap ``cd|abcd|ab``, 4 reflect
            without the edge ``cb|abcd|cb``.
        values: the constant, one number per channel; channels beyond them get 0.
    """
    if min(top, bottom, left, right) < 0:
        raise ArgumentError(f"margins are {top}, {bottom}, {left}, {right}, expected none below 0")
    kind = kind & ~_ISOLATED if kind >= 0 else kind
    if not CONSTANT <= kind <= REFLECT_101:
        raise ArgumentError(f"border type is {kind}, expected 0 to 4, with or without 16")
    height, width, channels = image.shape
    if kind == CONSTANT:
        color = torch.zeros(channels, dtype=torch.float64)
        given = torch.tensor(tuple(values)[:channels], dtype=torch.float64)
        color[: len(given)] = given
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
    """Return the pixel that each place along an axis repeats."""
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
"""One pixel, in the fixed-point coordinates."""

_SUBPIXELS = 32
"""Places between two pixels that are told apart."""

_WEIGHT_ONE = 1 << 15
"""One, in the fixed-point weights."""

Array = np.ndarray[Any, Any]


def warp_affine(
    image: torch.Tensor, matrix: Array, width: int, height: int, interp: int, fill: float
) -> torch.Tensor:
    """Map an image by ``(x, y) -> matrix @ (x, y, 1)``.

    Shape:
        image: (H, W, C), uint8.
        matrix: (2, 3).
        returns: (height, width, C), uint8.

    Args:
        width: width of the result in pixels.
        height: height of the result in pixels.
        interp: 0 nearest, 1 or 3 linear, 2 cubic, 4 Lanczos over 8 pixels.
        fill: what stands where `image` does not reach.
    Source: OpenCV 3.4 `cv::warpAffine`: coordinates of 10 bits, 32 places between pixels, weights of 15 bits.
    """
    half = _COORDINATE_ONE // 2 if interp == NEAREST else _COORDINATE_ONE // _SUBPIXELS // 2
    x, y = _source_coordinates(_inverse(np.asarray(matrix, np.float64)), width, height, half)
    color = int(np.clip(np.rint(fill), 0, 255))
    if interp == NEAREST:
        return _pixels(image, x >> 10, y >> 10, color).to(torch.uint8)
    x, y = x >> 5, y >> 5
    taps = _tap_table(interp)
    count = taps.shape[0]
    before = count // 2 - 1
    across, down = taps[:, x & (_SUBPIXELS - 1)], taps[:, y & (_SUBPIXELS - 1)]
    total = torch.full((height, width, image.shape[2]), 1 << 14, dtype=torch.int32)
    for i in range(count):
        for j in range(count):
            weight = (down[i] * across[j] * _WEIGHT_ONE).round().int().unsqueeze(2)
            total += weight * _pixels(image, (x >> 5) + (j - before), (y >> 5) + (i - before), color)
    return (total >> 15).clamp_(0, 255).to(torch.uint8)


def _inverse(m: Array) -> Array:
    determinant = m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]
    scale = 1.0 / determinant if determinant else 0.0
    linear = np.array([[m[1, 1], -m[0, 1]], [-m[1, 0], m[0, 0]]]) * scale
    return np.column_stack([linear, -linear @ m[:, 2]])


def _source_coordinates(m: Array, width: int, height: int, half: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the place that each new pixel comes from, in fixed point, two of (height, width)."""
    columns, rows = np.arange(width), np.arange(height)

    def place(row: Array) -> torch.Tensor:
        along = np.rint(row[0] * columns * _COORDINATE_ONE).astype(np.int64)
        down = np.rint((row[1] * rows + row[2]) * _COORDINATE_ONE).astype(np.int64) + half
        return torch.from_numpy(along + down[:, None])

    return place(m[0]), place(m[1])


def _pixels(image: torch.Tensor, x: torch.Tensor, y: torch.Tensor, color: int) -> torch.Tensor:
    height, width, channels = image.shape
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    at = y.clamp(0, height - 1) * width + x.clamp(0, width - 1)
    found = image.reshape(-1, channels).index_select(0, at.reshape(-1)).view(*x.shape, channels).int()
    return found.masked_fill_(~inside.unsqueeze(2), color)


@lru_cache(maxsize=8)
def _tap_table(interp: int) -> torch.Tensor:
    """Return the weights of neighbours for each place between two pixels, (taps, 32)."""
    part = (np.arange(_SUBPIXELS) / _SUBPIXELS).astype(np.float32)
    if interp == CUBIC:
        return torch.from_numpy(cubic_taps(part))
    if interp == LANCZOS:
        return torch.from_numpy(lanczos_taps(part))
    return torch.from_numpy(np.stack([1 - part, part]))


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
    """Turn an image of 0 to 255 into channels of 0 to 1.

    Shape:
        data: (H, W, C) or (N, H, W, C).
        returns: (C, H, W) or (N, C, H, W), float32.

    Source: MXNet 1.9.1 `_image_to_tensor`, whose gradient is the head gradient as it lies in memory.
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
    """Return one number for each channel, to broadcast over (C, H, W)."""
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
        OpError: `mean` or `std` fits not the number of channels.

    Source: MXNet 1.9.1 `_image_normalize`, which refuses its own default of four numbers; here they are 0 and 1.
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
            f"_image_crop: {a.width} x {a.height} pixels from ({a.x}, {a.y}) reach beyond "
            f"the {width} x {height} of data"
        )
    return (*data[:-3], a.height, a.width, data[-1])


@op(
    "_image_crop",
    [arg("data")],
    {
        "x": Attr(integer(low=0), "left end"),
        "y": Attr(integer(low=0), "top end"),
        "width": Attr(integer(low=1), "width in pixels"),
        "height": Attr(integer(low=1), "height in pixels"),
    },
    infer=forward(_crop_shape),
    view=True,
)
def crop(a: Any, env: Env, data: Tensor) -> Tensor:
    """Cut a rectangle out of images.

    Shape:
        data: (H, W, C) or (N, H, W, C) with 1 or 3 channels.
        returns: (height, width, C) or (N, height, width, C).

    Raises:
        ShapeError: the rectangle reaches beyond the image.

    Source: MXNet 1.9.1 `_image_crop`.
    """
    _crop_shape(a, tuple(data.shape))
    return data.narrow(-3, a.y, a.height).narrow(-2, a.x, a.width)


def new_size(a: Any, height: int, width: int) -> tuple[int, int]:
    """Return (height, width) after resizing."""
    if len(a.size) not in (1, 2) or min(a.size) < 1:
        raise OpError(f"_image_resize: size is {a.size}, expected one number or (width, height), from 1")
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
        "keep_ratio": Attr(boolean, "bring the shorter side to the one number of `size`", False),
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
        OpError: `size` is neither one number nor two.

    Source: MXNet 1.9.1 `_image_resize` on CPU, which is OpenCV's `resize`.
    """
    height, width = new_size(a, data.shape[-3], data.shape[-2])
    if data.dim() == 3:
        return resize(data, width, height, a.interp)
    return torch.stack([resize(one, width, height, a.interp) for one in data])


@augment("_image_flip_left_right", onnx=Onnx("Slice", builder="image_flip"))
def flip_left_right(a: Any, env: Env, data: Tensor) -> Tensor:
    """Mirror an image: its left side becomes its right one.

    Shape:
        data: (H, W, C) with 1 or 3 channels.
        returns: the same.

    Source: MXNet 1.9.1 `_image_flip_left_right`.
    """
    return straight_through(lambda x: x.flip(1), data)


@augment("_image_flip_top_bottom", onnx=Onnx("Slice", builder="image_flip"))
def flip_top_bottom(a: Any, env: Env, data: Tensor) -> Tensor:
    """Turn an image upside down.

    Shape:
        data: (H, W, C) with 1 or 3 channels.
        returns: the same.

    Source: MXNet 1.9.1 `_image_flip_top_bottom`.
    """
    return straight_through(lambda x: x.flip(0), data)


def _maybe_flip(env: Env, data: Tensor, axis: int) -> Tensor:
    keeps = uniform(env, 0.0, 1.0) < 0.5
    return straight_through(lambda x: torch.where(keeps, x, x.flip(axis)), data)


@augment("_image_random_flip_left_right", random=True)
def random_flip_left_right(a: Any, env: Env, data: Tensor) -> Tensor:
    """Mirror an image in every other case, at random.

    Shape:
        data: (H, W, C) with 1 or 3 channels.
        returns: the same.

    Source: MXNet 1.9.1 `_image_random_flip_left_right`, with random numbers of our own.
    """
    return _maybe_flip(env, data, 1)


@augment("_image_random_flip_top_bottom", random=True)
def random_flip_top_bottom(a: Any, env: Env, data: Tensor) -> Tensor:
    """Turn an image upside down in every other case, at random.

    Shape:
        data: (H, W, C) with 1 or 3 channels.
        returns: the same.

    Source: MXNet 1.9.1 `_image_random_flip_top_bottom`, with random numbers of our own.
    """
    return _maybe_flip(env, data, 0)
