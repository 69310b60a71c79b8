"""The image operators behind `mx.image`: `_cvimdecode`, `_cvimread`, `_cvimresize`, `_cvcopyMakeBorder`."""

from __future__ import annotations

from typing import Any

import torch

from ...base import DTypeError, FileError, OpError, Shape, ShapeError
from ...files import regular_file
from ..attrs import boolean, integer, real, reals, string
from ..registry import op
from ..shapes import unify
from ..spec import NEVER, Attr, Env, Onnx, Shapes, Types, arg
from .border import make_border
from .codec import decode
from .resize import pick_method, resize

_FLAG = {
    "flag": Attr(integer(low=0), "1 for three channels of color, 0 for one of grey", 1),
    "to_rgb": Attr(boolean, "red, green, blue rather than blue, green, red", True),
}


def _unknown(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    return ins, outs  # the size stands in the file


def _bytes_type(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    return ["uint8"] * len(ins), ["uint8"]


@op(
    "_cvimdecode",
    [arg("buf")],
    _FLAG,
    infer=_unknown,
    infer_type=_bytes_type,
    batch=NEVER,
    onnx=Onnx(missing="decodes a file"),
)
def cvimdecode(a: Any, env: Env, buf: torch.Tensor) -> torch.Tensor:
    """Decode an image file held in memory.

    Shape:
        buf: (bytes,), uint8.
        returns: (H, W, 3), or (H, W, 1) for grey, uint8.

    Source: MXNet 1.9.1 `_cvimdecode`, with Pillow in place of OpenCV.
    """
    if buf.dtype is not torch.uint8:
        raise DTypeError(f"_cvimdecode: buf is {buf.dtype}, expected uint8: the bytes of an image file")
    return decode(buf.cpu().contiguous().numpy().tobytes(), a.flag, a.to_rgb).to(buf.device)


@op(
    "_cvimread",
    (),
    {"filename": Attr(string, "path of the image file"), **_FLAG},
    infer=_unknown,
    infer_type=_bytes_type,
    batch=NEVER,
    onnx=Onnx(missing="reads a file"),
)
def cvimread(a: Any, env: Env) -> torch.Tensor:
    """Read and decode an image file.

    Shape:
        returns: (H, W, 3), or (H, W, 1) for grey, uint8.

    Source: MXNet 1.9.1 `_cvimread`, with Pillow in place of OpenCV.
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


def _infer_resize(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    if ins[0] is None:
        return ins, outs
    size = (a.h, a.w, _hwc("_cvimresize", ins[0])[2])
    return ins, [unify(outs[0], size, "output")]


@op(
    "_cvimresize",
    [arg("src")],
    {
        "w": Attr(integer(low=1), "new width in pixels"),
        "h": Attr(integer(low=1), "new height in pixels"),
        "interp": Attr(integer(), "0 nearest, 1 linear, 2 cubic, 3 area, 4 Lanczos", 1),
    },
    infer=_infer_resize,
    batch=NEVER,
    onnx=Onnx(builder="image_resize"),
)
def cvimresize(a: Any, env: Env, src: torch.Tensor) -> torch.Tensor:
    """Resize one image.

    Shape:
        src: (H, W, C), uint8, float32 or float64.
        returns: (h, w, C), of the same type.

    Source: MXNet 1.9.1 `_cvimresize`, to OpenCV's numbers.
    """
    height, width, _ = _hwc("_cvimresize", tuple(src.shape))
    if src.dtype is torch.float16:
        raise DTypeError("_cvimresize: src is float16, expected uint8, float32 or float64; cast it first")
    return resize(src, a.w, a.h, pick_method(a.interp, (height, width), (a.h, a.w)))


def _infer_border(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    if ins[0] is None:
        return ins, outs
    height, width, channels = _hwc("_cvcopyMakeBorder", ins[0])
    size = (
        height and a.top + height + a.bot,
        width and a.left + width + a.right,
        channels,
    )
    return ins, [unify(outs[0], size, "output")]


@op(
    "_cvcopyMakeBorder",
    [arg("src")],
    {
        "top": Attr(integer(low=0), "rows above"),
        "bot": Attr(integer(low=0), "rows below"),
        "left": Attr(integer(low=0), "columns on the left"),
        "right": Attr(integer(low=0), "columns on the right"),
        "type": Attr(integer(), "0 constant, 1 replicate, 2 reflect, 3 wrap, 4 reflect without the edge", 0),
        "value": Attr(real, "the constant of every channel, where `values` is empty", 0.0),
        "values": Attr(reals, "the constant, a number per channel", ()),
    },
    infer=_infer_border,
    batch=NEVER,
    onnx=Onnx("Gather", builder="image_border"),
)
def cvcopy_make_border(a: Any, env: Env, src: torch.Tensor) -> torch.Tensor:
    """Surround one image with a border.

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
