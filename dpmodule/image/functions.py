"""Reading, resizing and cropping single images, (H, W, C) arrays of red, green, blue."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base import ArgumentError, numeric_types
from ..ndarray import NDArray, array
from ..ndarray.op_functions import face
from ..ops.image.resize import pick_method

Crop = tuple[int, int, int, int]
"""Left edge, upper edge, width and height in pixels."""


def imdecode(buf: Any, *args: Any, **kwargs: Any) -> NDArray:
    """Decode an image file held in memory.

    Shape:
        returns: (H, W, 3), or (H, W, 1) for grey, uint8.

    Args:
        buf: the file as bytes, or as an array of uint8.
        *args: `flag` and `to_rgb`, by position.
        **kwargs: `flag`, 1 for color or 0 for grey; `to_rgb`, whether colors come as red, green, blue; `out`, an
            array to write to.

    Raises:
        ArgumentError: `buf` is neither bytes nor an array.
        FileFormatError: it holds no image, or a damaged one.
        MXNetError: Pillow is not installed.
    """
    if not isinstance(buf, NDArray):
        if not isinstance(buf, (bytes, bytearray, memoryview, np.ndarray)):
            raise ArgumentError(f"imdecode: buf is {type(buf).__name__}, expected bytes or an array of uint8")
        raw = np.frombuffer(buf, np.uint8) if not isinstance(buf, np.ndarray) else buf.reshape(-1)
        buf = array(raw, dtype="uint8")
    decoded: NDArray = face("_cvimdecode")(buf, *args, **kwargs)
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
        FileFormatError: it holds no image, or a damaged one.
    """
    read: NDArray = face("_cvimread")(os.fspath(filename), *args, **kwargs)
    return read


def imresize(src: NDArray, w: int, h: int, *args: Any, **kwargs: Any) -> NDArray:
    """Resize an image.

    Shape:
        src: (H, W, C), uint8 or floating.
        returns: (h, w, C), of the same type.

    Args:
        w: new width in pixels.
        h: new height in pixels.
        *args: `interp`, by position.
        **kwargs: `interp`: 0 nearest, 1 linear (the default), 2 cubic, 3 area, 4 Lanczos, 9 chosen by size, 10 at
            random; `out`, an array to write to.
    """
    if args:
        kwargs["interp"], args = args[0], args[1:]
    if "interp" in kwargs:
        kwargs["interp"] = interp_method(int(kwargs["interp"]), (*src.shape[:2], h, w))
    made: NDArray = face("_cvimresize")(src, *args, w=w, h=h, **kwargs)
    return made


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
    made: NDArray = face("_cvcopyMakeBorder")(src, top, bot, left, right, *args, **kwargs)
    return made


def interp_method(interp: int, sizes: Sequence[int] = ()) -> int:
    """Return the method, 0 to 4, that an interpolation stands for.

    Args:
        interp: 0 to 4, 9 for a choice by size, 10 for one at random.
        sizes: old height, old width, new height, new width; without them 9 is cubic.
    """
    if interp == 10:
        return random.randint(0, 4)
    if not sizes:
        return 2 if interp == 9 else pick_method(interp, (1, 1), (1, 1))
    old_height, old_width, height, width = sizes
    return pick_method(interp, (old_height, old_width), (height, width))


def scale_down(src_size: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
    """Shrink a crop, keeping its aspect, until it fits into an image.

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
    new_h, new_w = (size * h // w, size) if h > w else (size, size * w // h)
    return imresize(src, new_w, new_h, interp=interp_method(interp, (h, w, new_h, new_w)))


def fixed_crop(
    src: NDArray, x0: int, y0: int, w: int, h: int, size: tuple[int, int] | None = None, interp: int = 2
) -> NDArray:
    """Cut a part of an image and, if it has another size, resize it.

    Args:
        src: the image, (H, W, C).
        x0: left edge in pixels.
        y0: upper edge in pixels.
        w: width in pixels.
        h: height in pixels.
        size: (width, height) to resize to, or None.
        interp: as for `imresize`.
    """
    out: NDArray = src[y0 : y0 + h, x0 : x0 + w]
    if size is not None and (w, h) != tuple(size):
        method = interp_method(interp, (h, w, size[1], size[0]))
        out = imresize(out, size[0], size[1], interp=method)
    return out


def random_crop(src: NDArray, size: tuple[int, int], interp: int = 2) -> tuple[NDArray, Crop]:
    """Cut a part of an image at a random place; an image smaller than that is enlarged.

    Args:
        src: the image, (H, W, C).
        size: (width, height) in pixels.
        interp: as for `imresize`.

    Returns:
        The part, and its place: left edge, upper edge, width, height.
    """
    h, w, _ = src.shape
    new_w, new_h = scale_down((w, h), size)
    x0 = random.randint(0, w - new_w)
    y0 = random.randint(0, h - new_h)
    return fixed_crop(src, x0, y0, new_w, new_h, size, interp), (x0, y0, new_w, new_h)


def center_crop(src: NDArray, size: tuple[int, int], interp: int = 2) -> tuple[NDArray, Crop]:
    """Cut the middle of an image; an image smaller than that is enlarged.

    Args:
        src: the image, (H, W, C).
        size: (width, height) in pixels.
        interp: as for `imresize`.

    Returns:
        The part, and its place: left edge, upper edge, width, height.
    """
    h, w, _ = src.shape
    new_w, new_h = scale_down((w, h), size)
    x0, y0 = (w - new_w) // 2, (h - new_h) // 2
    return fixed_crop(src, x0, y0, new_w, new_h, size, interp), (x0, y0, new_w, new_h)


def color_normalize(src: NDArray, mean: Any, std: Any = None) -> NDArray:
    """Subtract a mean from an image and divide it by a deviation, in place.

    Args:
        src: the image, (H, W, C), floating.
        mean: what to subtract, or None.
        std: what to divide by, or None.
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
    """Cut a part of random area and aspect at a random place, and resize it.

    After ten parts that did not fit, the middle is taken.

    Args:
        src: the image, (H, W, C).
        size: (width, height) in pixels to resize to.
        area: smallest and largest area, as parts of the image's; or the smallest.
        interp: as for `imresize`.
        **kwargs: `min_area`, an old name of `area`.

    Returns:
        The part, and its place: left edge, upper edge, width, height.

    Raises:
        ArgumentError: an unknown keyword.
    """
    area = old_area("random_size_crop", area, kwargs)
    low, high = (area, 1.0) if isinstance(area, numeric_types) else area
    h, w, _ = src.shape
    for _ in range(10):
        target = random.uniform(low, high) * h * w
        aspect = np.exp(random.uniform(np.log(ratio[0]), np.log(ratio[1])))
        new_w, new_h = round(float(np.sqrt(target * aspect))), round(float(np.sqrt(target / aspect)))
        if new_w <= w and new_h <= h:
            x0 = random.randint(0, w - new_w)
            y0 = random.randint(0, h - new_h)
            return fixed_crop(src, x0, y0, new_w, new_h, size, interp), (x0, y0, new_w, new_h)
    return center_crop(src, size, interp)


def old_area(owner: str, area: Any, kwargs: dict[str, Any]) -> Any:
    """Return `area`, or what was given under its old name."""
    if "min_area" in kwargs:
        warnings.warn(
            f"{owner}: min_area is an old name, give area instead", DeprecationWarning, stacklevel=3
        )
        area = kwargs.pop("min_area")
    if kwargs:
        raise ArgumentError(f"{owner}: unexpected keywords {', '.join(kwargs)}")
    return area
