"""Decoding and encoding of image files in memory, with Pillow."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ... import native
from ..._files import likely_kind, regular_file
from ...base import (
    ArgumentError,
    DTypeError,
    FileError,
    FileFormatError,
    MXNetError,
    OpError,
    Shape,
    ShapeError,
)
from ..attrs import boolean, integer, real, reals, string
from ..registry import op
from ..shapes import from_data
from ..spec import NEVER, Attr, Env, Onnx, Shapes, Types, arg
from .color import to_grey
from .geometry import make_border
from .resize import pick_method, resize

UNCHANGED, GREY, COLOR = -1, 0, 1
"""Decoding modes, numbered as in OpenCV: as stored, one channel, three channels."""

# raster formats only; PostScript, for example, would run a program
_FORMATS = ("JPEG", "PNG", "BMP", "TIFF", "PPM", "WEBP", "GIF", "JPEG2000")
_PNG_GREY = (9797, 19234, 3737)
"""Weights of red, green and blue for reading a PNG as grey, as fractions of 2^15."""


def _pillow(name: str) -> Any:
    """Import a module of Pillow, an optional dependency."""
    try:
        return importlib.import_module(f"PIL.{name}")
    except ImportError as error:
        raise MXNetError(
            "decoding and encoding images needs Pillow, which is not installed; "
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
        flag: 1 for color, 0 for grey, -1 for the stored channels.
        to_rgb: return color as red, green, blue instead of blue, green, red.
        lend: allow the result to share Pillow's memory, where color pixels are four bytes apart.
    """
    raw = bytes(data)
    image_module = _pillow("Image")
    try:
        with image_module.open(io.BytesIO(raw), formats=_FORMATS) as image:
            pixels = _pixels(image, flag, _pillow_memory if lend else np.array)
    except (
        image_module.DecompressionBombError,
        OSError,
        SyntaxError,
        ValueError,
        IndexError,
        EOFError,
    ) as error:
        raise FileFormatError(
            f"{name} of {len(raw)} bytes cannot be decoded: {_decode_error_cause(raw, error)}"
        ) from error
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    elif not to_rgb:
        pixels = pixels[:, :, [2, 1, 0, 3][: pixels.shape[2]]]
    return torch.from_numpy(pixels if lend else np.ascontiguousarray(pixels))


class _PillowArray:
    """Array interface of Pillow's memory.

    Args:
        width: number of pixels in a row.
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


def _pillow_memory(image: Any) -> np.ndarray[Any, Any]:
    """Return an image's pixels as a view of Pillow's memory if possible (since 11.2), else a copy."""
    width, height = image.size
    if native.core is not None and image.mode == "RGB" and hasattr(image, "__arrow_c_array__"):
        image.load()
        try:
            _, capsule = image.__arrow_c_array__()
            address, count = native.core.arrow_items(capsule)
        except ValueError:  # a large image is stored in several blocks
            return np.array(image)
        if count == 4 * height * width:
            return np.asarray(_PillowArray(address, height, width, capsule))
    return np.array(image)


def _decode_error_cause(raw: bytes, error: Exception) -> str:
    """Return a description of bytes that cannot be decoded, with their actual format if recognized."""
    if actual := likely_kind(raw[:64]):
        return actual
    if "cannot identify" in str(error):
        return f"they begin with {raw[:8]!r}, which no known image format does"
    return str(error)


def _pixels(image: Any, flag: int, array: Callable[[Any], np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Return (H, W) or (H, W, C) uint8; `array` converts a Pillow image to an array."""
    if flag == GREY and image.format == "JPEG":
        image.draft("L", image.size)  # the stored brightness
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
        pixels: (H, W), (H, W, 1), (H, W, 3) or (H, W, 4), uint8; blue, green, red as in OpenCV.

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
    format_name = formats.get(extension.lower())
    if format_name is None:
        raise ArgumentError(f"encode: extension is {extension!r}, expected one of {', '.join(formats)}")
    options: dict[str, Any] = {}
    if format_name == "JPEG":
        options = {"quality": _check_quality(quality, 1, 100, extension)}
        if array.ndim == 3:
            array = array[:, :, :3]
    elif format_name == "PNG":
        # MXNet's default quality, 95, is meant for JPEG; OpenCV treats it as the strongest compression
        options = {"compress_level": min(_check_quality(quality, 0, 100, extension), 9)}
    target = io.BytesIO()
    _pillow("Image").fromarray(np.ascontiguousarray(array)).save(target, format_name, **options)
    return target.getvalue()


def _check_quality(quality: int, low: int, high: int, extension: str) -> int:
    if not low <= quality <= high:
        raise ArgumentError(f"encode: quality is {quality} for {extension}, expected {low} to {high}")
    return int(quality)


_FLAG = {
    "flag": Attr(integer(low=0), "1 for three color channels, 0 for grey", 1),
    "to_rgb": Attr(boolean, "return red, green, blue instead of blue, green, red", True),
}


def _unknown_shape(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    return ins, outs  # the size is stored in the file


def _bytes_type(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    return ["uint8"] * len(ins), ["uint8"]


@op(
    "_cvimdecode",
    [arg("buf")],
    _FLAG,
    infer=_unknown_shape,
    infer_type=_bytes_type,
    batch=NEVER,
    onnx=Onnx(missing="decodes a file"),
)
def cvimdecode(a: Any, env: Env, buf: torch.Tensor) -> torch.Tensor:
    """Decode an image file held in memory.

    Shape:
        buf: (bytes,), uint8.
        returns: (H, W, 3), or (H, W, 1) for grey, uint8.

    Source: MXNet 1.9.1 `_cvimdecode`, with Pillow instead of OpenCV.
    """
    if buf.dtype is not torch.uint8:
        raise DTypeError(f"_cvimdecode: buf is {buf.dtype}, expected uint8: the bytes of an image file")
    return decode(buf.cpu().contiguous().numpy().tobytes(), a.flag, a.to_rgb).to(buf.device)


@op(
    "_cvimread",
    (),
    {"filename": Attr(string, "path of the image file"), **_FLAG},
    infer=_unknown_shape,
    infer_type=_bytes_type,
    onnx=Onnx(missing="reads a file"),
)
def cvimread(a: Any, env: Env) -> torch.Tensor:
    """Read and decode an image file.

    Shape:
        returns: (H, W, 3), or (H, W, 1) for grey, uint8.

    Source: MXNet 1.9.1 `_cvimread`, with Pillow instead of OpenCV.
    """
    try:
        with open(a.filename, "rb", opener=regular_file) as file:
            data = file.read()
    except OSError as error:
        raise FileError(error.errno, f"imread: {error.strerror}", a.filename) from error
    return decode(data, a.flag, a.to_rgb, a.filename).to(env.device)


def _hwc(name: str, shape: Shape) -> tuple[int, int, int]:
    if shape is None or len(shape) != 3:
        raise ShapeError(f"{name}: src has shape {shape}, expected (height, width, channels)")
    return shape[0], shape[1], shape[2]


@op(
    "_cvimresize",
    [arg("src")],
    {
        "w": Attr(integer(low=1), "new width in pixels"),
        "h": Attr(integer(low=1), "new height in pixels"),
        "interp": Attr(integer(), "0 nearest, 1 linear, 2 cubic, 3 area, 4 Lanczos", 1),
    },
    infer=from_data(lambda a, src: (a.h, a.w, _hwc("_cvimresize", src)[2])),
    batch=NEVER,
    onnx=Onnx(builder="image_resize"),
)
def cvimresize(a: Any, env: Env, src: torch.Tensor) -> torch.Tensor:
    """Resize one image.

    Shape:
        src: (H, W, C), uint8, float32 or float64.
        returns: (h, w, C), of the same type.

    Source: MXNet 1.9.1 `_cvimresize`, with OpenCV's results.
    """
    height, width, _ = _hwc("_cvimresize", tuple(src.shape))
    if src.dtype is torch.float16:
        raise DTypeError("_cvimresize: src is float16, expected uint8, float32 or float64; cast it first")
    return resize(src, a.w, a.h, pick_method(a.interp, (height, width), (a.h, a.w)))


def _bordered_shape(a: Any, src: tuple[int, ...]) -> tuple[int, ...]:
    height, width, channels = _hwc("_cvcopyMakeBorder", src)
    return height and a.top + height + a.bot, width and a.left + width + a.right, channels


@op(
    "_cvcopyMakeBorder",
    [arg("src")],
    {
        "top": Attr(integer(low=0), "rows above"),
        "bot": Attr(integer(low=0), "rows below"),
        "left": Attr(integer(low=0), "columns on the left"),
        "right": Attr(integer(low=0), "columns on the right"),
        "type": Attr(integer(), "0 constant, 1 replicate, 2 reflect, 3 wrap, 4 reflect without the edge", 0),
        "value": Attr(real, "constant for all channels, if `values` is empty", 0.0),
        "values": Attr(reals, "constant for each channel", ()),
    },
    infer=from_data(_bordered_shape),
    batch=NEVER,
    onnx=Onnx("Gather", builder="image_border"),
)
def cvcopy_make_border(a: Any, env: Env, src: torch.Tensor) -> torch.Tensor:
    """Pad an image with a border.

    Shape:
        src: (H, W, C).
        returns: (top + H + bot, left + W + right, C).

    Source: MXNet 1.9.1 `_cvcopyMakeBorder`.
    """
    channels = _hwc("_cvcopyMakeBorder", tuple(src.shape))[2]
    if len(a.values) > 4:
        raise OpError(f"_cvcopyMakeBorder: values has {len(a.values)} numbers, expected at most 4")
    values = a.values or (a.value,) * channels
    return make_border(src, a.top, a.bot, a.left, a.right, a.type, values)
