"""Affine maps of 8-bit images, to OpenCV's numbers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch

from .resize import CUBIC, LANCZOS, NEAREST, cubic_taps, lanczos_taps

_COORDINATE_ONE = 1 << 10
"""One pixel, in the fixed-point coordinates."""

_STEPS = 32
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
    half = _COORDINATE_ONE // 2 if interp == NEAREST else _COORDINATE_ONE // _STEPS // 2
    x, y = _sources(_inverse(np.asarray(matrix, np.float64)), width, height, half)
    color = int(np.clip(np.rint(fill), 0, 255))
    if interp == NEAREST:
        return _pixels(image, x >> 10, y >> 10, color).to(torch.uint8)
    x, y = x >> 5, y >> 5
    taps = _tap_table(interp)
    count = taps.shape[0]
    before = count // 2 - 1
    across, down = taps[:, x & (_STEPS - 1)], taps[:, y & (_STEPS - 1)]
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


def _sources(m: Array, width: int, height: int, half: int) -> tuple[torch.Tensor, torch.Tensor]:
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
    part = (np.arange(_STEPS) / _STEPS).astype(np.float32)
    if interp == CUBIC:
        return torch.from_numpy(cubic_taps(part))
    if interp == LANCZOS:
        return torch.from_numpy(lanczos_taps(part))
    return torch.from_numpy(np.stack([1 - part, part]))
