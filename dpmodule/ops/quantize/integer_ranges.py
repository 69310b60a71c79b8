"""Ranges of quantized numbers: conversion between float32 and 8-bit or 32-bit integers.

A quantized number represents itself times ``max(|low|, |high|)`` divided by the number of steps of its type. The
arithmetic follows MXNet: float32, in the same order, halves rounded to even, and half a step more than the type has in
some places.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ..._devices.device_transfer import tensor_like
from ...base import DTypeError, OpError, Shape
from .. import registry
from ..attrs import choice, integer, optional, real
from ..dtypes import name_of, torch_dtype
from ..shapes import unify
from ..spec import NEVER, Attr, Onnx, Shapes, arg

bound = partial(registry.bound, batch=NEVER)
pure = partial(registry.pure, batch=NEVER)
"""Declare a quantized operator, as in `registry`."""

MAX_VALUE = {"int8": 127.0, "uint8": 255.0, "int32": 2147483647.0}
"""Maximum of each type: the number of steps of products and of `_contrib_quantize`."""

STEPS = {"int8": 127.5, "uint8": 255.5, "int32": 2147483647.0}
"""Number of steps of each type in all other operators."""

CALIBRATED = {
    "min_calib_range": Attr(optional(real), "minimum from calibration; None: use the data's", None),
    "max_calib_range": Attr(optional(real), "maximum from calibration; None: use the data's", None),
}

RANGE_SHAPE: Shape = (1,)
"""Shape of the arrays with range limits."""


def has_calibration(a: Any) -> bool:
    """Return True if the attributes have a calibrated range."""
    return a.min_calib_range is not None and a.max_calib_range is not None


def float_like(like: torch.Tensor, value: float) -> torch.Tensor:
    """Return a number as a float32 tensor (1,) on the device of another tensor."""
    return tensor_like(like, [value], torch.float32)


def magnitude(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Return the larger magnitude of a range's limits, (1,) float32."""
    return torch.maximum(low.reshape(1).float().abs(), high.reshape(1).float().abs())


def quotient(value: float, by: torch.Tensor) -> torch.Tensor:
    """Return ``value / by`` in float32, rounded once; torch would multiply by a rounded reciprocal."""
    return float_like(by, value) / by


def steps_per_unit(data: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Return the number of steps of the data's type per unit."""
    return quotient(STEPS[name_of(data.dtype)], magnitude(low, high))


def round_to(x: torch.Tensor, dtype: str) -> torch.Tensor:
    """Round to an integer type, halves to even, and clip to its range."""
    target = torch_dtype(dtype)
    limits = torch.iinfo(target)
    return x.double().round().clamp(limits.min, limits.max).to(target)


def product_range(
    left: torch.Tensor,
    right: torch.Tensor,
    ranges: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the range of int32 products of two quantized arrays from their ranges."""
    low_left, high_left, low_right, high_right = ranges
    step = magnitude(low_left, high_left) / MAX_VALUE[name_of(left.dtype)]
    step = step * (magnitude(low_right, high_right) / MAX_VALUE[name_of(right.dtype)])
    high = step * MAX_VALUE["int32"]
    return -high, high


def check_types(name: str, tensors: dict[str, torch.Tensor], *kinds: str) -> None:
    """Raise an error for inputs of other types."""
    for key, tensor in tensors.items():
        if name_of(tensor.dtype) not in kinds:
            raise DTypeError(
                f"{name}: {key} has type {name_of(tensor.dtype)}, expected {' or '.join(kinds)}; "
                "quantize it with _contrib_quantize_v2"
            )


def check_calibration(name: str, a: Any) -> None:
    """Raise an error if only one limit of the calibrated range is given."""
    if (a.min_calib_range is None) != (a.max_calib_range is None):
        raise OpError(
            f"{name}: only one of min_calib_range and max_calib_range is given, expected both or none"
        )


# conversion between float32 and 8 bits: ``mx.nd.contrib.quantize_v2`` and similar operators

Tensors = Callable[..., Any]
Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

_THREE = ("output0", "output1", "output2")


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Infer one shape for the data and the first output; all others are range limits."""
    shape = unify(ins[0], outs[0], "data and the quantized result")
    return [shape, *[RANGE_SHAPE] * (len(ins) - 1)], [shape, *[RANGE_SHAPE] * (len(outs) - 1)]


def _quantize(
    x: torch.Tensor, low: torch.Tensor, high: torch.Tensor, dtype: str, steps: dict[str, float]
) -> Triple:
    low, high = low.reshape(1).float(), high.reshape(1).float()
    limit = magnitude(low, high)
    quantized = round_to(x * quotient(steps[dtype], limit), dtype)
    return (quantized, low.clone(), high.clone()) if dtype == "uint8" else (quantized, -limit, limit)


@pure(
    "_contrib_quantize",
    [arg("data"), arg("min_range"), arg("max_range")],
    {"out_type": Attr(choice("int8", "uint8"), "type of the result", "uint8")},
    outputs=_THREE,
    infer=_infer,
    infer_type=lambda a, ins, outs: (["float32"] * len(ins), [a.out_type, "float32", "float32"]),
    onnx=Onnx("QuantizeLinear", builder="quantize"),
)
def quantize(a: Any, data: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> Triple:
    """Quantize float32 numbers to 8 bits over a given range; no gradient.

    The larger magnitude of the limits becomes 127 or 255; uint8 clips negative numbers to 0.

    Shape:
        data: any, float32.
        min_range, max_range: (1,) float32, limits of the range.
        output0: the shape of `data`, of `out_type`.
        output1, output2: (1,), the range of `output0`.

    Source: MXNet 1.9.1 `_contrib_quantize`.
    """
    check_types("_contrib_quantize", {"data": data}, "float32")
    return _quantize(data.detach(), low.detach(), high.detach(), a.out_type, MAX_VALUE)


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
        return "uint8" if has_calibration(a) and a.min_calib_range >= 0 else "int8"
    return str(a.out_type)


@pure(
    "_contrib_quantize_v2",
    [arg("data")],
    _TO_8_BITS,
    outputs=_THREE,
    infer=_infer,
    infer_type=lambda a, ins, outs: ([ins[0] or "float32"], [_out_type(a), "float32", "float32"]),
    onnx=Onnx("QuantizeLinear", builder="quantize_v2"),
)
def quantize_v2(a: Any, data: torch.Tensor) -> Triple:
    """Quantize float32 numbers to 8 bits over a calibrated range or the data's; no gradient.

    Shape:
        data: any, float32; 8-bit data is returned unchanged.
        output0: the shape of `data`, int8 or uint8.
        output1, output2: (1,) float32, the range of `output0`.

    Source: MXNet 1.9.1 `_contrib_quantize_v2`.
    """
    check_types("_contrib_quantize_v2", {"data": data}, "float32", _out_type(a))
    data = data.detach()
    if data.dtype != torch.float32:
        top = STEPS[name_of(data.dtype)]
        low = a.min_calib_range if has_calibration(a) else (0.0 if _out_type(a) == "uint8" else -top)
        return (
            data.clone(),
            float_like(data, low),
            float_like(data, a.max_calib_range if has_calibration(a) else top),
        )
    if has_calibration(a):
        return _quantize(
            data,
            float_like(data, a.min_calib_range),
            float_like(data, a.max_calib_range),
            _out_type(a),
            STEPS,
        )
    return _quantize(data, data.min(), data.max(), _out_type(a), STEPS)


@pure(
    "_contrib_quantize_asym",
    [arg("data")],
    CALIBRATED,
    outputs=("output", "scale", "shift"),
    infer=_infer,
    infer_type=lambda a, ins, outs: ([ins[0] or "float32"], ["uint8", "float32", "float32"]),
    onnx=Onnx("QuantizeLinear", builder="quantize_asym"),
)
def quantize_asym(a: Any, data: torch.Tensor) -> Triple:
    """Quantize float32 numbers to ``data * scale + shift`` in 0..255; no gradient.

    Shape:
        data: any, float32, int8 or uint8.
        output: the shape of `data`, uint8.
        scale, shift: (1,) float32.

    Source: MXNet 1.9.1 `_contrib_quantize_asym`.
    """
    check_types("_contrib_quantize_asym", {"data": data}, "float32", "int8", "uint8")
    data = data.detach()
    if data.dtype == torch.uint8:
        return data.clone(), float_like(data, 1.0), float_like(data, 0.0)
    if data.dtype == torch.int8:
        return (data.int() + 128).to(torch.uint8), float_like(data, 1.0), float_like(data, 128.0)
    low = float_like(data, a.min_calib_range) if has_calibration(a) else data.min().reshape(1)
    high = float_like(data, a.max_calib_range) if has_calibration(a) else data.max().reshape(1)
    scale = quotient(255.0, high - low)
    shift = 255.0 - high * scale
    return (data * scale + shift + 0.5).clamp(0, 255).to(torch.uint8), scale, shift


@pure(
    "_contrib_dequantize",
    [arg("data"), arg("min_range"), arg("max_range")],
    {"out_type": Attr(choice("float32"), "type of the result", "float32")},
    infer=_infer,
    infer_type=lambda a, ins, outs: ([ins[0], "float32", "float32"], ["float32"]),
    onnx=Onnx("DequantizeLinear", builder="dequantize"),
)
def dequantize(a: Any, data: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Dequantize numbers to float32; no gradient.

    Shape:
        data: any; int8, uint8 or int32.
        min_range, max_range: (1,) float32, the range of `data`.
        returns: the shape of `data`, float32.

    Source: MXNet 1.9.1 `_contrib_dequantize`.
    """
    check_types("_contrib_dequantize", {"data": data}, "int8", "uint8", "int32")
    return data.float() * (magnitude(low.detach(), high.detach()) / STEPS[name_of(data.dtype)])


@pure(
    "_contrib_requantize",
    [arg("data"), arg("min_range"), arg("max_range")],
    _TO_8_BITS,
    outputs=_THREE,
    infer=_infer,
    infer_type=lambda a, ins, outs: (
        ["int32", "float32", "float32"],
        [_out_type(a), "float32", "float32"],
    ),
)
def requantize(a: Any, data: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> Triple:
    """Requantize 32-bit sums to 8 bits over a calibrated range or the data's; no gradient.

    Shape:
        data: any, int32.
        min_range, max_range: (1,) float32, the range of `data`.
        output0: the shape of `data`, int8 or uint8.
        output1, output2: (1,) float32, the range of `output0`.

    Source: MXNet 1.9.1 `_contrib_requantize`.
    """
    check_types("_contrib_requantize", {"data": data}, "int32")
    unit = magnitude(low.detach(), high.detach()) / STEPS["int32"]
    if has_calibration(a):
        limit = magnitude(float_like(data, a.min_calib_range), float_like(data, a.max_calib_range))
    else:
        # the magnitude of the minimum int32 is not an int32
        top = data.max() if _out_type(a) == "uint8" else data.double().abs().max()
        limit = top.float().reshape(1) * unit
    quantized = round_to(
        data.detach().float() * (unit * quotient(MAX_VALUE[_out_type(a)], limit)), _out_type(a)
    )
    return quantized, torch.zeros_like(limit) if _out_type(a) == "uint8" else -limit, limit


# choice of the range to quantize from a histogram of values

Pair = tuple[torch.Tensor, torch.Tensor]

_SMOOTHING = 0.0001


def _infer_threshold(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    bins, edges = ins
    if bins is None and edges is not None and edges[0]:
        bins = (edges[0] - 1,)
    if bins is not None and edges is None and bins[0]:
        edges = (bins[0] + 1,)
    return [bins, edges], [RANGE_SHAPE, RANGE_SHAPE]


def _smooth(counts: torch.Tensor) -> torch.Tensor | None:
    """Return counts with some weight moved to empty bins; None if there are too few nonempty bins."""
    empty = counts == 0
    missing, filled = int(empty.sum()), int((~empty).sum())
    if not filled or _SMOOTHING * missing >= filled:
        return None
    return counts + torch.where(empty, _SMOOTHING, -_SMOOTHING * missing / filled)


def _divergence(kept: torch.Tensor, left: torch.Tensor, right: torch.Tensor, quantized: int) -> float:
    """Return the Kullback-Leibler divergence of a clipped histogram and its quantized version."""
    clipped = kept.clone()
    clipped[0] = left
    clipped[-1] += right
    merged = kept.numel() // quantized
    group = torch.arange(kept.numel(), device=kept.device).div(merged, rounding_mode="floor")
    group = group.clamp(max=quantized - 1)
    sums = kept.new_zeros(quantized).index_add(0, group, kept)
    filled = kept.new_zeros(quantized).index_add(0, group, (kept != 0).to(kept.dtype))
    share = torch.where(filled > 0, sums / filled.clamp(min=1), 0.0)[group]
    coarse = _smooth(torch.where(clipped != 0, share, 0.0))
    fine = _smooth(clipped)
    if coarse is None or fine is None:
        return float("inf")
    fine, coarse = fine / fine.sum(), coarse / coarse.sum()
    return float((fine * (fine / coarse).log()).sum())


@pure(
    "_contrib_calibrate_entropy",
    [arg("hist"), arg("hist_edges")],
    {"num_quantized_bins": Attr(integer(low=1), "number of bins after quantization", 255)},
    outputs=("threshold", "divergence"),
    infer=_infer_threshold,
    infer_type=lambda a, ins, outs: (["float32", "float32"], ["float32", "float32"]),
    onnx=Onnx(missing="calibration runs before a model is quantized, not inside it"),
)
def calibrate_entropy(a: Any, hist: torch.Tensor, edges: torch.Tensor) -> Pair:
    """Return the threshold for clipping and quantizing a histogram with the least loss of information; no gradient.

    Shape:
        hist: (B,) float32: counts over a range around 0.
        hist_edges: (B + 1,) float32: edges of the bins.
        threshold: (1,): the clipping magnitude.
        divergence: (1,): the Kullback-Leibler divergence there.

    Source: MXNet 1.9.1 `_contrib_calibrate_entropy`; Migacz (2017), 8-bit inference with TensorRT.
    """
    bins, quantized = hist.numel(), a.num_quantized_bins
    if edges.numel() != bins + 1:
        raise OpError(
            f"_contrib_calibrate_entropy: hist_edges has {edges.numel()} elements, expected {bins + 1}"
        )
    middle, half = bins // 2, quantized // 2
    if middle < half or bins < 2 * middle + 1:
        raise OpError(
            f"_contrib_calibrate_entropy: hist has {bins} bins, expected an odd number of at least {quantized}"
        )
    counts = hist.detach().cpu().double()  # each divergence is read by Python
    divergences = []
    for reach in range(half, middle + 1):
        start, stop = middle - reach, middle + reach + 1
        kept = counts[start:stop].clone()
        kept[0] = 0
        divergences.append(_divergence(kept, counts[: start + 1].sum(), counts[stop:].sum(), quantized))
    best = min(range(len(divergences)), key=divergences.__getitem__)
    threshold = edges.detach()[middle + half + best + 1].reshape(1).float()
    return threshold, tensor_like(hist, [divergences[best]], torch.float32)
