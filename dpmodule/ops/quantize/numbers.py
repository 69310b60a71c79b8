"""From float32 to 8 bits and back: ``mx.nd.contrib.quantize_v2`` and its kin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import Shape
from ..attrs import choice
from ..dtypes import name_of
from ..registry import bound
from ..shapes import unify
from ..spec import NEVER, Attr, Onnx, Shapes, Types, arg
from .ranges import CALIBRATED, GREATEST, STEPS, calibrated, magnitude, number, of_types, one, over, rounded

Tensors = Callable[..., Any]
Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

_THREE = ("output0", "output1", "output2")


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """The data and the first output have one shape; all else is the end of a range."""
    shape = unify(ins[0], outs[0], "data and the quantized result")
    return [shape, *[one] * (len(ins) - 1)], [shape, *[one] * (len(outs) - 1)]


def _quantized(
    x: torch.Tensor, low: torch.Tensor, high: torch.Tensor, kind: str, steps: dict[str, float]
) -> Triple:
    low, high = low.reshape(1).float(), high.reshape(1).float()
    reach = magnitude(low, high)
    found = rounded(x * over(steps[kind], reach), kind)
    return (found, low.clone(), high.clone()) if kind == "uint8" else (found, -reach, reach)


def _quantize_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    return ["float32"] * len(ins), [a.out_type, "float32", "float32"]


@bound(
    "_contrib_quantize",
    [arg("data"), arg("min_range"), arg("max_range")],
    {"out_type": Attr(choice("int8", "uint8"), "type of the result", "uint8")},
    outputs=_THREE,
    infer=_infer,
    infer_type=_quantize_types,
    batch=NEVER,
    onnx=Onnx("QuantizeLinear", builder="quantize"),
)
def quantize(a: Any) -> Callable[..., Triple]:
    """Round float32 numbers to 8 bits over a given range; no gradient.

    The greater magnitude of the ends becomes 127 or 255; uint8 cuts what is below 0 off.

    Shape:
        data: any, float32.
        min_range, max_range: (1,) float32, ends of the range.
        output0: as `data`, of `out_type`.
        output1, output2: (1,), the range that `output0` stands for.

    Source: MXNet 1.9.1 `_contrib_quantize`.
    """
    kind = a.out_type

    def quantize(data: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> Triple:
        of_types("_contrib_quantize", {"data": data}, "float32")
        return _quantized(data.detach(), low.detach(), high.detach(), kind, GREATEST)

    return quantize


_TO_8_BITS = {
    "out_type": Attr(
        choice("auto", "int8", "uint8"),
        "type of the result; auto: uint8 if min_calib_range is not negative, else int8",
        "int8",
    ),
    **CALIBRATED,
}


def _out_type(a: Any) -> str:
    if a.out_type == "auto":
        return "uint8" if calibrated(a) and a.min_calib_range >= 0 else "int8"
    return str(a.out_type)


@bound(
    "_contrib_quantize_v2",
    [arg("data")],
    _TO_8_BITS,
    outputs=_THREE,
    infer=_infer,
    infer_type=lambda a, ins, outs: ([ins[0] or "float32"], [_out_type(a), "float32", "float32"]),
    batch=NEVER,
    onnx=Onnx("QuantizeLinear", builder="quantize_v2"),
)
def quantize_v2(a: Any) -> Callable[..., Triple]:
    """Round float32 numbers to 8 bits over a calibrated range, or that of the data; no gradient.

    Shape:
        data: any, float32; what is 8 bits wide already comes back as it is.
        output0: as `data`, int8 or uint8.
        output1, output2: (1,) float32, the range that `output0` stands for.

    Source: MXNet 1.9.1 `_contrib_quantize_v2`.
    """
    kind, given = _out_type(a), calibrated(a)

    def quantize_v2(data: torch.Tensor) -> Triple:
        of_types("_contrib_quantize_v2", {"data": data}, "float32", kind)
        data = data.detach()
        if data.dtype != torch.float32:
            top = STEPS[name_of(data.dtype)]
            low = a.min_calib_range if given else (0.0 if kind == "uint8" else -top)
            return data.clone(), number(data, low), number(data, a.max_calib_range if given else top)
        if given:
            return _quantized(
                data, number(data, a.min_calib_range), number(data, a.max_calib_range), kind, STEPS
            )
        return _quantized(data, data.min(), data.max(), kind, STEPS)

    return quantize_v2


@bound(
    "_contrib_quantize_asym",
    [arg("data")],
    CALIBRATED,
    outputs=("output", "scale", "shift"),
    infer=_infer,
    infer_type=lambda a, ins, outs: ([ins[0] or "float32"], ["uint8", "float32", "float32"]),
    batch=NEVER,
    onnx=Onnx("QuantizeLinear", builder="quantize_asym"),
)
def quantize_asym(a: Any) -> Callable[..., Triple]:
    """Round float32 numbers to ``data * scale + shift`` in 0..255; no gradient.

    Shape:
        data: any, float32, int8 or uint8.
        output: as `data`, uint8.
        scale, shift: (1,) float32.

    Source: MXNet 1.9.1 `_contrib_quantize_asym`.
    """
    given = calibrated(a)

    def quantize_asym(data: torch.Tensor) -> Triple:
        of_types("_contrib_quantize_asym", {"data": data}, "float32", "int8", "uint8")
        data = data.detach()
        if data.dtype == torch.uint8:
            return data.clone(), number(data, 1.0), number(data, 0.0)
        if data.dtype == torch.int8:
            return (data.int() + 128).to(torch.uint8), number(data, 1.0), number(data, 128.0)
        low = number(data, a.min_calib_range) if given else data.min().reshape(1)
        high = number(data, a.max_calib_range) if given else data.max().reshape(1)
        scale = over(255.0, high - low)
        shift = 255.0 - high * scale
        return (data * scale + shift + 0.5).clamp(0, 255).to(torch.uint8), scale, shift

    return quantize_asym


@bound(
    "_contrib_dequantize",
    [arg("data"), arg("min_range"), arg("max_range")],
    {"out_type": Attr(choice("float32"), "type of the result", "float32")},
    infer=_infer,
    infer_type=lambda a, ins, outs: ([ins[0], "float32", "float32"], ["float32"]),
    batch=NEVER,
    onnx=Onnx("DequantizeLinear", builder="dequantize"),
)
def dequantize(a: Any) -> Callable[..., torch.Tensor]:
    """Return what quantized numbers stand for; no gradient.

    Shape:
        data: any; int8, uint8 or int32.
        min_range, max_range: (1,) float32, the range that `data` stands for.
        returns: as `data`, float32.

    Source: MXNet 1.9.1 `_contrib_dequantize`.
    """

    def dequantize(data: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        of_types("_contrib_dequantize", {"data": data}, "int8", "uint8", "int32")
        return _dequantized(data, low.detach(), high.detach())

    return dequantize


def _dequantized(data: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    return data.float() * (magnitude(low, high) / STEPS[name_of(data.dtype)])


@bound(
    "_contrib_requantize",
    [arg("data"), arg("min_range"), arg("max_range")],
    _TO_8_BITS,
    outputs=_THREE,
    infer=_infer,
    infer_type=lambda a, ins, outs: (
        ["int32", "float32", "float32"],
        [_out_type(a), "float32", "float32"],
    ),
    batch=NEVER,
)
def requantize(a: Any) -> Callable[..., Triple]:
    """Round 32-bit sums to 8 bits over a calibrated range, or that of the data; no gradient.

    Shape:
        data: any, int32.
        min_range, max_range: (1,) float32, the range that `data` stands for.
        output0: as `data`, int8 or uint8.
        output1, output2: (1,) float32, the range that `output0` stands for.

    Source: MXNet 1.9.1 `_contrib_requantize`.
    """
    kind, given = _out_type(a), calibrated(a)

    def requantize(data: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> Triple:
        of_types("_contrib_requantize", {"data": data}, "int32")
        unit = magnitude(low.detach(), high.detach()) / STEPS["int32"]
        if given:
            reach = magnitude(number(data, a.min_calib_range), number(data, a.max_calib_range))
        else:
            # abs of the least int32 has no int32
            top = data.max() if kind == "uint8" else data.double().abs().max()
            reach = top.float().reshape(1) * unit
        found = rounded(data.detach().float() * (unit * over(GREATEST[kind], reach)), kind)
        return found, torch.zeros_like(reach) if kind == "uint8" else -reach, reach

    return requantize
