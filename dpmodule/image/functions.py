"""Functions that read, resize, crop and rotate images, (H, W, C) arrays of red, green, blue."""

from __future__ import annotations

import math
import os
import random
import warnings
from collections.abc import Sequence
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from ..base import ArgumentError, DTypeError, ShapeError, numeric_types
from ..ndarray import NDArray, array
from ..ndarray.op_functions import op_function
from ..ops.image.resize import pick_method, short_edge_size

Crop = tuple[int, int, int, int]
"""Left edge, upper edge, width and height in pixels."""


def imdecode(buf: Any, *args: Any, **kwargs: Any) -> NDArray:
    """Decode an image file held in memory.

    Shape:
        returns: (H, W, 3), or (H, W, 1) for grey, uint8.

    Args:
        buf: the file as bytes, or as an array of uint8.
        *args: `flag` and `to_rgb`, by position.
        **kwargs: `flag`, 1 for color or 0 for grey; `to_rgb`, True for red, green, blue; `out`, an array to write
            to.

    Raises:
        ArgumentError: `buf` is neither bytes nor an array.
        FileFormatError: the data is damaged or not an image.
        MXNetError: Pillow is not installed.
    """
    if not isinstance(buf, NDArray):
        if not isinstance(buf, (bytes, bytearray, memoryview, np.ndarray)):
            raise ArgumentError(f"imdecode: buf is {type(buf).__name__}, expected bytes or an array of uint8")
        raw = np.frombuffer(buf, np.uint8) if not isinstance(buf, np.ndarray) else buf.reshape(-1)
        buf = array(raw, dtype="uint8")
    decoded: NDArray = op_function("_cvimdecode")(buf, *args, **kwargs)
    return decoded


def imread(filename: str | os.PathLike[str], *args: Any, **kwargs: Any) -> NDArray:
    """Read and decode an image file.

    Shape:
        returns: (H, W, 3), or (H, W, 1) for grey, uint8.

    Args:
        filename: path of the file.
        *args: `flag` and `to_rgb`, by position.
        **kwargs: as for `imdecode`.

    Raises:
        FileError: the file cannot be read.
        FileFormatError: the data is damaged or not an image.
    """
    read: NDArray = op_function("_cvimread")(os.fspath(filename), *args, **kwargs)
    return read


def imresize(src: NDArray, w: int, h: int, *args: Any, **kwargs: Any) -> NDArray:
    """Resize an image.

    Shape:
        src: (H, W, C), uint8 or floating point.
        returns: (h, w, C), of the same type.

    Args:
        w: new width in pixels.
        h: new height in pixels.
        *args: `interp`, by position.
        **kwargs: `interp`: 0 nearest, 1 linear (the default), 2 cubic, 3 area, 4 Lanczos, 9 chosen by size, 10
            random; `out`, an array to write to.
    """
    if args:
        kwargs["interp"], args = args[0], args[1:]
    if "interp" in kwargs:
        kwargs["interp"] = interp_method(int(kwargs["interp"]), (*src.shape[:2], h, w))
    resized: NDArray = op_function("_cvimresize")(src, *args, w=w, h=h, **kwargs)
    return resized


def copyMakeBorder(
    src: NDArray, top: int, bot: int, left: int, right: int, *args: Any, **kwargs: Any
) -> NDArray:
    """Surround an image with a border.

    Shape:
        src: (H, W, C).
        returns: (top + H + bot, left + W + right, C).

    Args:
        *args: `type` and `value`, by position.
        **kwargs: `type`: 0 constant, 1 replicate, 2 reflect, 3 wrap, 4 reflect without the edge; `values`, the
            constant per channel, or `value` for all; `out`, an array to write to.
    """
    bordered: NDArray = op_function("_cvcopyMakeBorder")(src, top, bot, left, right, *args, **kwargs)
    return bordered


def interp_method(interp: int, sizes: Sequence[int] = ()) -> int:
    """Return the method, 0 to 4, of an interpolation.

    Args:
        interp: 0 to 4, 9 to choose by size, 10 to choose at random.
        sizes: old height, old width, new height, new width; without them 9 is cubic.
    """
    if interp == 10:
        return random.randint(0, 4)
    if not sizes:
        return 2 if interp == 9 else pick_method(interp, (1, 1), (1, 1))
    old_height, old_width, height, width = sizes
    return pick_method(interp, (old_height, old_width), (height, width))


def scale_down(src_size: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
    """Return the size of a crop shrunk to fit into an image, with the same aspect ratio.

    Args:
        src_size: width and height of the image.
        size: width and height of the crop.

    Example:
        >>> mx.image.scale_down((640, 480), (720, 120))
        (640, 106)
    """
    w, h = float(size[0]), float(size[1])
    sw, sh = src_size
    if sh < h:
        w, h = w * sh / h, float(sh)
    if sw < w:
        w, h = float(sw), h * sw / w
    return int(w), int(h)


def resize_short(src: NDArray, size: int, interp: int = 2) -> NDArray:
    """Resize an image so that its shorter edge has `size` pixels.

    Args:
        src: the image, (H, W, C).
        size: length of the shorter edge in pixels.
        interp: as for `imresize`.
    """
    h, w, _ = src.shape
    new_h, new_w = short_edge_size(h, w, size)
    return imresize(src, new_w, new_h, interp=interp_method(interp, (h, w, new_h, new_w)))


def fixed_crop(
    src: NDArray, x0: int, y0: int, w: int, h: int, size: tuple[int, int] | None = None, interp: int = 2
) -> NDArray:
    """Crop an image, and resize the crop if `size` differs.

    Args:
        src: the image, (H, W, C).
        x0: left edge in pixels.
        y0: upper edge in pixels.
        w: width in pixels.
        h: height in pixels.
        size: (width, height) to resize to; may be None.
        interp: as for `imresize`.
    """
    out: NDArray = src[y0 : y0 + h, x0 : x0 + w]
    if size is not None and (w, h) != tuple(size):
        method = interp_method(interp, (h, w, size[1], size[0]))
        out = imresize(out, size[0], size[1], interp=method)
    return out


def random_crop(src: NDArray, size: tuple[int, int], interp: int = 2) -> tuple[NDArray, Crop]:
    """Crop an image at a random position; a smaller image is enlarged.

    Args:
        src: the image, (H, W, C).
        size: (width, height) in pixels.
        interp: as for `imresize`.

    Returns:
        The crop, and its left edge, upper edge, width and height.
    """
    h, w, _ = src.shape
    new_w, new_h = scale_down((w, h), size)
    return _cut(src, (*_random_corner(w - new_w, h - new_h), new_w, new_h), size, interp)


def _random_corner(across: int, down: int) -> tuple[int, int]:
    x0 = random.randint(0, across)
    return x0, random.randint(0, down)


def _cut(src: NDArray, crop: Crop, size: tuple[int, int], interp: int) -> tuple[NDArray, Crop]:
    return fixed_crop(src, *crop, size, interp), crop


def center_crop(src: NDArray, size: tuple[int, int], interp: int = 2) -> tuple[NDArray, Crop]:
    """Crop the center of an image; a smaller image is enlarged.

    Args:
        src: the image, (H, W, C).
        size: (width, height) in pixels.
        interp: as for `imresize`.

    Returns:
        The crop, and its left edge, upper edge, width and height.
    """
    h, w, _ = src.shape
    new_w, new_h = scale_down((w, h), size)
    return _cut(src, ((w - new_w) // 2, (h - new_h) // 2, new_w, new_h), size, interp)


def color_normalize(src: NDArray, mean: Any, std: Any = None) -> NDArray:
    """Subtract a mean from an image and divide it by a standard deviation, in place.

    Args:
        src: the image, (H, W, C), floating point.
        mean: value to subtract; may be None.
        std: value to divide by; may be None.
    """
    if mean is not None:
        src -= mean
    if std is not None:
        src /= std
    return src


def random_size_crop(
    src: NDArray,
    size: tuple[int, int],
    area: float | tuple[float, float],
    ratio: tuple[float, float],
    interp: int = 2,
    **kwargs: Any,
) -> tuple[NDArray, Crop]:
    """Crop a random area with a random aspect ratio, and resize it.

    After ten failed attempts the center is cropped.

    Args:
        src: the image, (H, W, C).
        size: (width, height) in pixels to resize to.
        area: smallest and largest area as fractions of the image; or only the smallest.
        interp: as for `imresize`.
        **kwargs: `min_area`, an old name of `area`.

    Returns:
        The crop, and its left edge, upper edge, width and height.

    Raises:
        ArgumentError: a keyword is unknown.
    """
    area = old_area("random_size_crop", area, kwargs)
    low, high = (area, 1.0) if isinstance(area, numeric_types) else area
    h, w, _ = src.shape
    for _ in range(10):
        target = random.uniform(low, high) * h * w
        aspect = np.exp(random.uniform(np.log(ratio[0]), np.log(ratio[1])))
        new_w, new_h = round(float(np.sqrt(target * aspect))), round(float(np.sqrt(target / aspect)))
        if new_w <= w and new_h <= h:
            return _cut(src, (*_random_corner(w - new_w, h - new_h), new_w, new_h), size, interp)
    return center_crop(src, size, interp)


def old_area(owner: str, area: Any, kwargs: dict[str, Any]) -> Any:
    """Return `area`, or the value of its old name."""
    if "min_area" in kwargs:
        warnings.warn(f"{owner}: min_area is an old name, use area instead", DeprecationWarning, stacklevel=3)
        area = kwargs.pop("min_area")
    if kwargs:
        raise ArgumentError(f"{owner}: unexpected keywords {', '.join(kwargs)}")
    return area


def imrotate(src: NDArray, rotation_degrees: Any, zoom_in: bool = False, zoom_out: bool = False) -> NDArray:
    """Rotate images about their centers.

    Shape:
        src: (C, H, W), or (N, C, H, W), float32.
        rotation_degrees: a number, or (N,).
        returns: as `src`.

    Args:
        rotation_degrees: angles in degrees, one for all or one per image.
        zoom_in: if True, images are enlarged until no corner is empty.
        zoom_out: if True, images are shrunk until they are completely visible.

    Raises:
        ArgumentError: both zooms are True.
        DTypeError: `src` is not float32, or one image has an array of angles.
        ShapeError: `src` has other axes, or the numbers of angles and images differ.

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
    """Return the factors that scale coordinates, (N,)."""
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
