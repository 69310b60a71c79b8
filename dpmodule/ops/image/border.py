"""Borders around images."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...base import ArgumentError

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
    rows = _places(height, top, bottom, kind).to(image.device)
    columns = _places(width, left, right, kind).to(image.device)
    return image.index_select(0, rows).index_select(1, columns)


def _places(size: int, before: int, after: int, kind: int) -> torch.Tensor:
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
