"""Rotating images."""

from __future__ import annotations

import math
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from ..base import ArgumentError, DTypeError, ShapeError
from ..ndarray import NDArray, array


def imrotate(src: NDArray, rotation_degrees: Any, zoom_in: bool = False, zoom_out: bool = False) -> NDArray:
    """Rotate images about their centers.

    Shape:
        src: (C, H, W), or (N, C, H, W), float32.
        rotation_degrees: a number, or (N,).
        returns: as `src`.

    Args:
        rotation_degrees: angles in degrees, one for all or one per image.
        zoom_in: whether images are enlarged until no corner is empty.
        zoom_out: whether images are shrunk until all of them is seen.

    Raises:
        ArgumentError: both zooms, or an array of angles for one image.
        DTypeError: `src` is not float32.
        ShapeError: `src` has other axes, or there are not as many angles as images.

    Source: MXNet 1.9.1 `imrotate`.
    """
    if zoom_in and zoom_out:
        raise ArgumentError("imrotate: zoom_in and zoom_out exclude each other")
    if src.dtype is not np.float32:
        raise DTypeError(f"imrotate: src is {np.dtype(src.dtype).name}, expected float32; cast it first")
    if src.ndim not in (3, 4):
        raise ShapeError(f"imrotate: src has shape {src.shape}, expected (C, H, W) or (N, C, H, W)")
    single = src.ndim == 3
    if single and not isinstance(rotation_degrees, Number):
        raise DTypeError(
            f"imrotate: rotation_degrees is {rotation_degrees!r}, expected one number for one image"
        )
    images = src.raw.unsqueeze(0) if single else src.raw
    degrees = _angles(rotation_degrees, len(images), images.device)
    rotated = _rotated(images, degrees * np.pi / 180, zoom_in, zoom_out)
    return NDArray(rotated[0] if single else rotated, src.context)


def _angles(degrees: Any, count: int, device: torch.device) -> torch.Tensor:
    if isinstance(degrees, Number):
        return torch.full((count,), float(degrees), device=device)  # type: ignore[arg-type]
    values = degrees.raw if isinstance(degrees, NDArray) else torch.as_tensor(degrees)
    if tuple(values.shape) != (count,):
        raise ShapeError(f"imrotate: rotation_degrees has shape {tuple(values.shape)}, expected ({count},)")
    return values.to(device, torch.float32)


def _rotated(images: torch.Tensor, angles: torch.Tensor, zoom_in: bool, zoom_out: bool) -> torch.Tensor:
    height, width = images.shape[2:]
    half_h, half_w = (height - 1) / 2, (width - 1) / 2
    down = (torch.arange(height, device=images.device) - half_h).view(1, -1, 1)
    across = (torch.arange(width, device=images.device) - half_w).view(1, 1, -1)
    cosine, sine = angles.cos().view(-1, 1, 1), angles.sin().view(-1, 1, 1)
    x = (across * cosine - down * sine) / (half_w or 1)
    y = (across * sine + down * cosine) / (half_h or 1)
    grid = torch.stack([x, y], 3)
    if zoom_in or zoom_out:
        grid = grid * _zoom(angles, height, width, zoom_out).view(-1, 1, 1, 1)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=True)


def _zoom(angles: torch.Tensor, height: int, width: int, out: bool) -> torch.Tensor:
    """Return the factor by which places are scaled, (N,)."""
    diagonal, corner = math.hypot(height, width), math.atan(height / width)
    turned = torch.stack([corner + angles.abs(), corner - angles.abs()])
    most_x = (diagonal * turned.cos()).abs().amax(0)
    most_y = (diagonal * turned.sin()).abs().amax(0)
    if out:
        return torch.maximum(most_x / width, most_y / height)
    return torch.minimum(width / most_x, height / most_y)


def random_rotate(
    src: NDArray, angle_limits: tuple[float, float], zoom_in: bool = False, zoom_out: bool = False
) -> NDArray:
    """Rotate images by random angles.

    Args:
        src: the images, as for `imrotate`.
        angle_limits: smallest and largest angle in degrees.
        zoom_in: as for `imrotate`.
        zoom_out: as for `imrotate`.
    """
    if src.ndim == 3:
        degrees: Any = float(np.random.uniform(*angle_limits))
    else:
        degrees = array(np.random.uniform(*angle_limits, size=src.shape[0]))
    return imrotate(src, degrees, zoom_in=zoom_in, zoom_out=zoom_out)
