"""Image files in memory to pixels and back, through Pillow."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ... import native
from ...base import ArgumentError, FileFormatError, MXNetError
from ...files import likely_kind
from .color import to_grey

UNCHANGED, GREY, COLOR = -1, 0, 1
"""What to decode to, numbered as in OpenCV: as stored, one channel, three channels."""

# formats that hold pixels; none that runs a program, as PostScript does
_FORMATS = ("JPEG", "PNG", "BMP", "TIFF", "PPM", "WEBP", "GIF", "JPEG2000")
_PNG_GREY = (9797, 19234, 3737)
"""Weights of red, green and blue where a PNG is read as grey, as fractions of 2^15."""


def _pillow(name: str) -> Any:
    """Import a module of Pillow, which is optional."""
    try:
        return importlib.import_module(f"PIL.{name}")
    except ImportError as error:
        raise MXNetError(
            "images are decoded and encoded by Pillow, which is not installed; "
            "install it with: pip install 'dpmodule[image]'"
        ) from error


def decode(
    data: Any, flag: int = COLOR, to_rgb: bool = True, name: str = "image", lend: bool = False
) -> torch.Tensor:
    """Decode an image file held in memory.

    Shape:
        returns: (H, W, C), uint8; C is 3 for color, 1 for grey, and 1, 3 or 4 as stored for flag -1.

    Args:
        data: the file's bytes.
        flag: 1 for color, 0 for grey, -1 for the channels that are stored.
        to_rgb: whether color comes as red, green, blue, rather than blue, green, red.
        lend: whether pixels may stay in Pillow's memory, where those of color lie four bytes apart.
    """
    raw = bytes(data)
    image_module = _pillow("Image")
    try:
        with image_module.open(io.BytesIO(raw), formats=_FORMATS) as image:
            pixels = _pixels(image, flag, _lent if lend else np.array)
    except (
        image_module.DecompressionBombError,
        OSError,
        SyntaxError,
        ValueError,
        IndexError,
        EOFError,
    ) as error:
        raise FileFormatError(
            f"{name} of {len(raw)} bytes cannot be decoded: {_cause(raw, error)}"
        ) from error
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    elif not to_rgb:
        pixels = pixels[:, :, [2, 1, 0, 3][: pixels.shape[2]]]
    return torch.from_numpy(pixels if lend else np.ascontiguousarray(pixels))


class _Loan:
    """Memory of Pillow as an array.

    Args:
        width: pixels in a row.
    """

    def __init__(self, address: int, height: int, width: int, owner: Any) -> None:
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "data": (address, False),
            "shape": (height, width, 3),
            "strides": (4 * width, 4, 1),
        }
        self.owner = owner


def _lent(image: Any) -> np.ndarray[Any, Any]:
    """Return an image's pixels where they lie, if Pillow lends them (since 11.2), else a copy."""
    width, height = image.size
    if native.core is not None and image.mode == "RGB" and hasattr(image, "__arrow_c_array__"):
        image.load()
        try:
            _, capsule = image.__arrow_c_array__()
            address, count = native.core.arrow_items(capsule)
        except ValueError:  # a large image lies in several blocks
            return np.array(image)
        if count == 4 * height * width:
            return np.asarray(_Loan(address, height, width, capsule))
    return np.array(image)


def _cause(raw: bytes, error: Exception) -> str:
    """Say what the bytes are instead, where that can be told."""
    if kind := likely_kind(raw[:64]):
        return kind
    if "cannot identify" in str(error):
        return f"they begin with {raw[:8]!r}, which no known image format does"
    return str(error)


def _pixels(image: Any, flag: int, array: Callable[[Any], np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Return (H, W) or (H, W, C) uint8; `array` makes an array of an image of Pillow."""
    if flag == GREY and image.format == "JPEG":
        image.draft("L", image.size)  # the brightness as it is stored
    mode = _target_mode(image.mode, flag)
    if image.mode.startswith("I;16") or image.mode == "I":
        wide = np.asarray(image)
        narrow = (wide >> 8).clip(0, 255).astype(np.uint8)
        image = _pillow("Image").fromarray(narrow)
    if image.mode == "CMYK" and mode != "RGBA":
        color = _from_cmyk(np.asarray(image).astype(np.int32))
        return color if mode == "RGB" else _grey(color, png=False)
    if mode == "L" and image.mode in ("RGBA", "RGB", "P", "PA"):
        return _grey(np.array(image.convert("RGB")), image.format == "PNG")
    if image.mode != mode:
        image = image.convert(mode)
    return array(image)


def _from_cmyk(inks: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    light = 255 - inks[:, :, 3:]
    color: np.ndarray[Any, Any] = (light - (inks[:, :, :3] * light >> 8)).astype(np.uint8)
    return color


def _grey(pixels: np.ndarray[Any, Any], png: bool) -> np.ndarray[Any, Any]:
    if not png:
        return to_grey(torch.from_numpy(pixels))[:, :, 0].numpy()
    total = pixels.astype(np.uint32) @ np.array(_PNG_GREY, np.uint32)
    return (total >> 15).astype(np.uint8)


def _target_mode(mode: str, flag: int) -> str:
    if flag == GREY:
        return "L"
    if flag != UNCHANGED:
        return "RGB"
    if mode in ("RGBA", "LA", "PA", "RGBa"):
        return "RGBA"
    return "L" if mode in ("1", "L", "I", "F") or mode.startswith("I;16") else "RGB"


def encode(pixels: Any, extension: str = ".jpg", quality: int = 95) -> bytes:
    """Encode pixels as an image file.

    Shape:
        pixels: (H, W), (H, W, 1), (H, W, 3) or (H, W, 4), uint8; blue, green, red as OpenCV keeps them.

    Args:
        quality: 1 to 100 for JPEG, compression 0 to 9 for PNG.
    """
    array = np.asarray(pixels)
    if (
        array.dtype != np.uint8
        or array.ndim not in (2, 3)
        or array.ndim == 3
        and array.shape[2] not in (1, 3, 4)
    ):
        raise ArgumentError(
            f"encode: pixels are {array.dtype} of shape {array.shape}, expected uint8 of (height, width) "
            "with 1, 3 or 4 channels"
        )
    if array.ndim == 3:
        array = array[:, :, 0] if array.shape[2] == 1 else array[:, :, [2, 1, 0, 3][: array.shape[2]]]
    formats = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".bmp": "BMP", ".tif": "TIFF", ".tiff": "TIFF"}
    kind = formats.get(extension.lower())
    if kind is None:
        raise ArgumentError(f"encode: extension is {extension!r}, expected one of {', '.join(formats)}")
    options: dict[str, Any] = {}
    if kind == "JPEG":
        options = {"quality": _within(quality, 1, 100, extension)}
        if array.ndim == 3:
            array = array[:, :, :3]
    elif kind == "PNG":
        # MXNet's default quality, 95, is one for JPEG; OpenCV takes it for the strongest compression
        options = {"compress_level": min(_within(quality, 0, 100, extension), 9)}
    target = io.BytesIO()
    _pillow("Image").fromarray(np.ascontiguousarray(array)).save(target, kind, **options)
    return target.getvalue()


def _within(quality: int, low: int, high: int, extension: str) -> int:
    if not low <= quality <= high:
        raise ArgumentError(f"encode: quality is {quality} for {extension}, expected {low} to {high}")
    return int(quality)
