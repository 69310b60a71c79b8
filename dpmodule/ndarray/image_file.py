"""`nd.imdecode`: MXNet's old function that decodes an image."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..base import ArgumentError, ShapeError
from ..context import cpu
from .ndarray import NDArray


def imdecode(
    str_img: bytes,
    clip_rect: Sequence[int] = (0, 0, 0, 0),
    out: NDArray | None = None,
    index: int = 0,
    channels: int = 3,
    mean: NDArray | None = None,
) -> NDArray:
    """Decode an image file held in memory to (C, H, W); new code calls `mx.image.imdecode`.

    Args:
        str_img: the file's bytes.
        clip_rect: the region to return: left, upper, right and lower edge in pixels; all 0 for the whole image.
        out: array to write, (C, H, W) or (N, C, H, W).
        index: number of the image in an `out` with four axes.
        channels: 3 for color, red first, or 1 for grey.
        mean: an image to subtract, (C, H, W).

    Raises:
        ArgumentError: `channels` is invalid, or the region is outside the image.
        ShapeError: `out` or `mean` has another shape.
        FileFormatError: the bytes are not an image, or the image is damaged.

    Source: MXNet 1.9.1 `nd.imdecode`, which reads an image only up to its first zero byte.
    """
    from ..ops.image.codec import COLOR, GREY, decode  # few programs decode images

    if channels not in (1, 3):
        raise ArgumentError(f"imdecode: channels is {channels}, expected 3 for color or 1 for grey")
    pixels = decode(str_img, COLOR if channels == 3 else GREY).permute(2, 0, 1)
    x0, y0, x1, y1 = clip_rect
    if tuple(clip_rect) != (0, 0, 0, 0):
        if not (0 <= x0 < x1 <= pixels.shape[2] and 0 <= y0 < y1 <= pixels.shape[1]):
            raise ArgumentError(
                f"imdecode: clip_rect is {tuple(clip_rect)}, expected a part of an image of {pixels.shape[2]} x "
                f"{pixels.shape[1]} pixels"
            )
        pixels = pixels[:, y0:y1, x0:x1]
    values = pixels.float()
    if mean is not None:
        _check_shape("mean", mean.shape, values)
        values = values - mean.raw.to(values)
    if out is None:
        return NDArray(values.contiguous(), cpu())
    target = out.raw[index] if out.ndim == 4 else out.raw
    _check_shape("out", tuple(target.shape), values)
    target.copy_(values)
    return out


def _check_shape(name: str, shape: tuple[int, ...], values: torch.Tensor) -> None:
    """Check the shape of an image against the array it is written to."""
    if tuple(shape) != tuple(values.shape):
        raise ShapeError(f"imdecode: {name} has shape {tuple(shape)}, the image {tuple(values.shape)}")
