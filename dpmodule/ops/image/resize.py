"""Resizing of images, with OpenCV's results."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from ...base import ArgumentError, DTypeError

Array = np.ndarray[Any, Any]

NEAREST, LINEAR, CUBIC, AREA, LANCZOS = range(5)
"""Interpolation methods, numbered as in OpenCV."""

_AUTO, _RANDOM = 9, 10
_ONE = 2048
"""One in the fixed-point weights of 8-bit images."""


def pick_method(interp: int, old: tuple[int, int], new: tuple[int, int], draw: int = LINEAR) -> int:
    """Return the interpolation method for `interp`.

    Args:
        interp: 0 to 4 are methods; 9 is cubic for enlarging, area for shrinking, linear otherwise; 10 is `draw`.
        old: (height, width) before.
        new: (height, width) after.
        draw: the random method for 10.
    """
    if interp == _AUTO:
        if new[0] > old[0] and new[1] > old[1]:
            return CUBIC
        return AREA if new[0] < old[0] and new[1] < old[1] else LINEAR
    if interp == _RANDOM:
        return draw
    if not NEAREST <= interp <= LANCZOS:
        raise ArgumentError(
            f"interpolation method {interp}, expected 0 nearest, 1 linear, 2 cubic, 3 area, 4 Lanczos, 9 auto "
            "or 10 random"
        )
    return interp


def short_edge_size(height: int, width: int, size: int) -> tuple[int, int]:
    """Return (height, width) with a shorter edge of `size` pixels and the same aspect ratio."""
    return (height * size // width, size) if height > width else (size, width * size // height)


def resize(image: torch.Tensor, width: int, height: int, interp: int = LINEAR) -> torch.Tensor:
    """Resize one image.

    Shape:
        image: (H, W, C), uint8 or floating.
        returns: (height, width, C), of the same type.

    Args:
        width: new width in pixels.
        height: new height in pixels.
        interp: 0 nearest, 1 linear, 2 cubic, 3 area, 4 Lanczos over 8 pixels.
    """
    if image.dim() != 3 or 0 in image.shape:
        raise ArgumentError(
            f"resize: image has shape {tuple(image.shape)}, expected (height, width, channels)"
        )
    if width < 1 or height < 1:
        raise ArgumentError(f"resize: new size is {width} x {height}, expected at least 1 x 1")
    if image.dtype is not torch.uint8 and not image.dtype.is_floating_point:
        raise DTypeError(f"resize: image is {image.dtype}, expected uint8 or floating; cast it first")
    old = (image.shape[0], image.shape[1])
    method = pick_method(interp, old, (height, width))
    if old == (height, width):
        return image.clone()
    if method == NEAREST:
        return _nearest(image, height, width)
    if method == LINEAR and old == (2 * height, 2 * width):
        method = AREA
    if method == AREA and height <= old[0] and width <= old[1]:
        return _area(image, height, width)
    return _taps(image, height, width, method)


def _nearest(image: torch.Tensor, height: int, width: int) -> torch.Tensor:
    def rows(old: int, new: int) -> torch.Tensor:
        indices = np.floor(np.arange(new) * (1.0 / (new / old))).astype(np.int64)
        return torch.from_numpy(np.minimum(indices, old - 1)).to(image.device)

    return image.index_select(0, rows(image.shape[0], height)).index_select(1, rows(image.shape[1], width))


@lru_cache(maxsize=256)
def taps_of(old: int, new: int, method: int, across: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the source pixels of each new pixel, (taps, new), and their weights of the same shape.

    `across` is True for columns: there OpenCV uses an edge pixel directly; in rows it interpolates it with itself,
    which rounds twice.
    """
    scale = np.float64(1.0) / (np.float64(new) / old)
    positions = np.arange(new)
    if method == AREA:  # enlarging: like linear, but with aligned pixel edges
        first = np.floor(positions * scale)
        offset = ((positions + 1) - (first + 1) * (np.float64(new) / old)).astype(np.float32)
        offset = np.where(offset <= 0, 0, offset - np.floor(offset)).astype(np.float32)
    else:
        exact = ((positions + 0.5) * scale - 0.5).astype(np.float32)
        first = np.floor(exact)
        offset = (exact - first).astype(np.float32)
    taps = {CUBIC: cubic_taps, LANCZOS: lanczos_taps}.get(method, _linear)(offset)
    if across and method in (LINEAR, AREA):
        outside = (first < 0) | (first >= old - 1)
        taps[0][outside], taps[1][outside] = 1, 0
    begin = first.astype(np.int64) - (len(taps) // 2 - 1)
    pixels = np.clip(begin + np.arange(len(taps))[:, None], 0, old - 1)
    return torch.from_numpy(pixels), torch.from_numpy(taps)


def _linear(offset: Array) -> Array:
    return np.stack([1 - offset, offset]).astype(np.float32)


def cubic_taps(part: Array) -> Array:
    """Return the cubic weights of 4 neighbors, (4, N), at offsets `part` from the second, (N,) float32."""
    a = np.float32(-0.75)
    x, y = part + 1, 1 - part
    taps = np.stack(
        [
            ((a * x - 5 * a) * x + 8 * a) * x - 4 * a,
            ((a + 2) * part - (a + 3)) * part * part + 1,
            ((a + 2) * y - (a + 3)) * y * y + 1,
            np.zeros_like(part),
        ]
    ).astype(np.float32)
    taps[3] = 1 - taps[0] - taps[1] - taps[2]
    return taps


def lanczos_taps(part: Array) -> Array:
    """Return the Lanczos weights of 8 neighbors, (8, N), at offsets `part` from the fourth, (N,) float32."""
    offsets = part.astype(np.float64) + 3 - np.arange(8)[:, None]
    near = np.abs(offsets) < 1e-6
    angle = np.where(near, 1.0, offsets) * (math.pi / 4)
    taps = np.where(near, 1.0, np.sin(4 * angle) * np.sin(angle) / (angle * angle))
    exact = part < np.finfo(np.float32).eps
    taps = np.where(exact, np.arange(8)[:, None] == 3, taps / taps.sum(0))
    weights: Array = taps.astype(np.float32)
    return weights


def _taps(image: torch.Tensor, height: int, width: int, method: int) -> torch.Tensor:
    """Interpolate between a fixed number of neighbors along each axis, columns first."""
    columns, across = taps_of(image.shape[1], width, method, across=True)
    rows, down = taps_of(image.shape[0], height, method, across=False)
    fixed = image.dtype is torch.uint8
    if fixed:
        image, across, down = image.to(torch.int32), integer_taps(across), integer_taps(down)
    device = image.device
    across, down = (w.to(device, image.dtype) for w in (across, down))
    mixed = _weighted_sum(
        [image.index_select(1, c.to(device)) for c in columns], [w.view(1, -1, 1) for w in across]
    )
    parts = [mixed.index_select(0, r.to(device)) for r in rows]
    weights = [w.view(-1, 1, 1) for w in down]
    return _to_8_bits(parts, weights, method) if fixed else _weighted_sum(parts, weights)


def _weighted_sum(parts: list[torch.Tensor], weights: list[torch.Tensor]) -> torch.Tensor:
    total = parts[0] * weights[0]
    for part, weight in zip(parts[1:], weights[1:], strict=True):
        total += part * weight
    return total


def integer_taps(weights: torch.Tensor) -> torch.Tensor:
    """Return weights as integer multiples of 1 / 2048, for 8-bit images."""
    return (weights * _ONE).round().to(torch.int32)


def _to_8_bits(parts: list[torch.Tensor], weights: list[torch.Tensor], method: int) -> torch.Tensor:
    """Interpolate rows of 22-bit numbers and round to 8 bits, as OpenCV does for each method."""
    if method in (LINEAR, AREA):
        first, second = ((w * (p >> 4)) >> 16 for p, w in zip(parts, weights, strict=True))
        return ((first + second + 2) >> 2).clamp_(0, 255).to(torch.uint8)
    total = (_weighted_sum(parts, weights) + (1 << 21)) >> 22
    if method == CUBIC:
        _vector_cubic(total, parts, weights)
    return total.clamp_(0, 255).to(torch.uint8)


def _vector_cubic(total: torch.Tensor, parts: list[torch.Tensor], weights: list[torch.Tensor]) -> None:
    """Overwrite the values that OpenCV computes in vectors of eight, in float32, rounding halves to even."""
    scaled = [w.float() / (_ONE * _ONE) for w in weights]
    mixed = parts[3].float() * scaled[3]
    for k in (2, 1, 0):
        mixed = parts[k].float() * scaled[k] + mixed
    length = total.shape[1] * total.shape[2] // 8 * 8
    total.view(total.shape[0], -1)[:, :length] = mixed.round().int().view(total.shape[0], -1)[:, :length]


def _area(image: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Average the pixels that each new pixel covers."""
    down, across = image.shape[0] // height, image.shape[1] // width
    channels = image.shape[2]
    if (height * down, width * across) == tuple(image.shape[:2]):
        blocks = image.reshape(height, down, width, across, channels)
        if image.dtype is torch.uint8 and (down, across) == (2, 2):
            return ((blocks.int().sum((1, 3)) + 2) >> 2).to(torch.uint8)
        kind = torch.int32 if image.dtype is torch.uint8 else image.dtype
        total = blocks.to(kind).sum((1, 3)).to(torch.float64 if kind is torch.float64 else torch.float32)
        return _to_type(total * (1.0 / (down * across)), image.dtype)
    values = image.to(torch.float64 if image.dtype is torch.float64 else torch.float32)
    return _to_type(_average_axis(_average_axis(values, 1, width), 0, height), image.dtype)


def _average_axis(values: torch.Tensor, axis: int, new: int) -> torch.Tensor:
    pixels, weights = _coverage(values.shape[axis], new)
    parts = [values.index_select(axis, p) for p in pixels.to(values.device)]
    shape = (-1, 1, 1) if axis == 0 else (1, -1, 1)
    return _weighted_sum(parts, [w.view(shape) for w in weights.to(values)])


def _to_type(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return values.round().clamp_(0, 255).to(dtype) if dtype is torch.uint8 else values.to(dtype)


@lru_cache(maxsize=64)
def _coverage(old: int, new: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the old pixels that each new pixel covers, (taps, new) ascending, and the covered fractions."""
    scale = old / new
    begin = np.arange(new) * scale
    end = begin + scale
    cell = np.minimum(scale, old - begin)
    pixels = np.floor(begin).astype(np.int64) + np.arange(math.ceil(scale) + 1)[:, None]
    covered = np.minimum(end, pixels + 1) - np.maximum(begin, pixels)
    covered[(covered < 1e-3) | (pixels >= old)] = 0  # ignore slivers caused by rounding
    return torch.from_numpy(np.minimum(pixels, old - 1)), torch.from_numpy(
        (covered / cell).astype(np.float32)
    )
