"""Concatenation, addition, multiplication and normalization of 8-bit numbers with different ranges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import OpError, Shape
from ..attrs import boolean
from ..dtypes import name_of
from ..registry import get
from ..shapes import unify
from ..spec import Attr, Input, Shapes, Types, arg, aux
from .integer_ranges import (
    CALIBRATED,
    RANGE_SHAPE,
    STEPS,
    bound,
    check_calibration,
    check_types,
    float_like,
    has_calibration,
    magnitude,
    product_range,
    pure,
    quotient,
    round_to,
    steps_per_unit,
)
from .layers import OUTPUTS

Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _concat_inputs(a: Any) -> tuple[Input, ...]:
    """Return all data inputs, then the range limits of each."""
    limits = (arg(f"arg{i}_{end}") for i in range(a.num_args) for end in ("min", "max"))
    return (*(arg(f"arg{i}") for i in range(a.num_args)), *limits)


def _infer_concat(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    rule = get("Concat").infer
    if rule is None:
        raise OpError("Concat has no shape rule")
    found_ins, found_outs = rule(a, ins[: a.num_args], outs[:1])
    return [*found_ins, *[RANGE_SHAPE] * (2 * a.num_args)], [*found_outs, RANGE_SHAPE, RANGE_SHAPE]


def _concat_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    data = ins[: a.num_args]
    dtype = "int8" if "int8" in data else (outs[0] if None in data else "uint8")
    return [*data, *["float32"] * (2 * a.num_args)], [dtype, "float32", "float32"]


@pure(
    "_contrib_quantized_concat",
    _concat_inputs,
    {
        "num_args": Attr(get("Concat").attrs["num_args"].type, "number of arrays to join"),
        "dim": get("Concat").attrs["dim"],
    },
    outputs=OUTPUTS,
    infer=_infer_concat,
    infer_type=_concat_types,
)
def quantized_concat(a: Any, *tensors: torch.Tensor) -> Triple:
    """Concatenate arrays of 8-bit numbers along an axis, rescaled to a common range; no gradient.

    Shape:
        arg0, arg1, ...: shapes that differ at most at axis `dim`, int8 or uint8.
        arg0_min, arg0_max, arg1_min, ...: (1,) float32, their ranges.
        output: the sum of their sizes at `dim`; int8, or uint8 if all inputs are.
        min_output, max_output: (1,) float32, the smallest range that includes all ranges and 0.

    Source: MXNet 1.9.1 `_contrib_quantized_concat`.
    """
    data, limits = [t.detach() for t in tensors[: a.num_args]], [t.detach() for t in tensors[a.num_args :]]
    check_types("_contrib_quantized_concat", {f"arg{i}": t for i, t in enumerate(data)}, "int8", "uint8")
    low = torch.stack([e.reshape(1) for e in limits[::2]]).amin(0).clamp(max=0)
    high = torch.stack([e.reshape(1) for e in limits[1::2]]).amax(0).clamp(min=0)
    dtype = "int8" if any(t.dtype == torch.int8 for t in data) else "uint8"
    scale = quotient(STEPS[dtype], magnitude(low, high))
    rescaled = [
        round_to(t * (scale / steps_per_unit(t, limits[2 * i], limits[2 * i + 1])), dtype)
        for i, t in enumerate(data)
    ]
    return torch.cat(rescaled, a.dim), low, high


_PAIR = (arg("lhs"), arg("rhs"), arg("lhs_min"), arg("lhs_max"), arg("rhs_min"), arg("rhs_max"))


def _infer_pair(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    both = unify(unify(ins[0], ins[1], "lhs and rhs"), outs[0], "inputs and result")
    return [both, both, *[RANGE_SHAPE] * (len(ins) - 2)], [both, *[RANGE_SHAPE] * (len(outs) - 1)]


def _add_kind(a: Any, left: str | None, right: str | None) -> str:
    if not has_calibration(a):
        return "int32"
    return "uint8" if left == right == "uint8" else "int8"


def _add_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    return [*ins[:2], *["float32"] * 4], [_add_kind(a, ins[0], ins[1]), "float32", "float32"]


@bound(
    "_contrib_quantized_elemwise_add",
    _PAIR,
    CALIBRATED,
    outputs=OUTPUTS,
    infer=_infer_pair,
    infer_type=_add_types,
)
def quantized_elemwise_add(a: Any) -> Callable[..., Triple]:
    """Add 8-bit numbers with different ranges; no gradient.

    Shape:
        lhs, rhs: one shape, int8 or uint8.
        lhs_min, lhs_max, rhs_min, rhs_max: (1,) float32, their ranges.
        output: the same shape; int32 over the sum of both magnitudes, or 8 bits over a calibrated range.
        min_output, max_output: (1,) float32, the range of `output`.

    Source: MXNet 1.9.1 `_contrib_quantized_elemwise_add`; without calibration its CPU build clips the uint8
    numbers if the other input is int8.
    """
    check_calibration("_contrib_quantized_elemwise_add", a)

    def quantized_elemwise_add(left: torch.Tensor, right: torch.Tensor, *limits: torch.Tensor) -> Triple:
        check_types("_contrib_quantized_elemwise_add", {"lhs": left, "rhs": right}, "int8", "uint8")
        dtype = _add_kind(a, name_of(left.dtype), name_of(right.dtype))
        if has_calibration(a):
            low, high = float_like(left, a.min_calib_range), float_like(left, a.max_calib_range)
        else:
            high = magnitude(limits[0], limits[1]) + magnitude(limits[2], limits[3])
            low = -high
        scale = quotient(STEPS[dtype], magnitude(low, high))
        scaled_inputs = []
        for x, start in ((left.detach(), 0), (right.detach(), 2)):
            scaled = x * (scale / steps_per_unit(x, limits[start], limits[start + 1]))
            mixed = left.dtype != right.dtype and x.dtype == torch.uint8 and dtype == "int8"
            scaled_inputs.append(round_to(scaled, "int8").float() if mixed else scaled)
        return round_to(scaled_inputs[0] + scaled_inputs[1], dtype), low, high

    return quantized_elemwise_add


def _mul_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    kinds: list[str | None] = ["int8", "int8", *["float32"] * 4]
    if a.enable_float_output:
        return kinds, ["float32"]
    return kinds, ["int8" if has_calibration(a) else "int32", "float32", "float32"]


@bound(
    "_contrib_quantized_elemwise_mul",
    _PAIR,
    {
        **CALIBRATED,
        "enable_float_output": Attr(boolean, "return the dequantized products in float32", False),
    },
    outputs=lambda a: ("output",) if a.enable_float_output else OUTPUTS,
    infer=_infer_pair,
    infer_type=_mul_types,
)
def quantized_elemwise_mul(a: Any) -> Callable[..., Any]:
    """Multiply 8-bit numbers element by element; no gradient.

    Shape:
        lhs, rhs: one shape, int8.
        lhs_min, lhs_max, rhs_min, rhs_max: (1,) float32, their ranges.
        output: the same shape; int32, with a calibrated range int8, with `enable_float_output` float32.
        min_output, max_output: (1,) float32, the range of `output`; not with float output.

    Source: MXNet 1.9.1 `_contrib_quantized_elemwise_mul`.
    """
    check_calibration("_contrib_quantized_elemwise_mul", a)

    def quantized_elemwise_mul(left: torch.Tensor, right: torch.Tensor, *limits: torch.Tensor) -> Any:
        check_types("_contrib_quantized_elemwise_mul", {"lhs": left, "rhs": right}, "int8")
        product = left.detach().int() * right.detach().int()
        per_unit = steps_per_unit(left, limits[0], limits[1]) * steps_per_unit(right, limits[2], limits[3])
        if a.enable_float_output:
            return product.float() / per_unit
        if not has_calibration(a):
            low, high = product_range(left, right, (limits[0], limits[1], limits[2], limits[3]))
            return product, low, high
        low, high = float_like(left, a.min_calib_range), float_like(left, a.max_calib_range)
        scaled = product.float() * (quotient(STEPS["int8"], magnitude(low, high)) / per_unit)
        return round_to(scaled.trunc(), "int8"), low, high

    return quantized_elemwise_mul


def _infer_norm(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    shape = unify(ins[0], outs[0], "data and the result of _contrib_quantized_batch_norm")
    row: Shape = None if shape is None else (shape[a.axis],)
    return [shape, *[row] * 4, RANGE_SHAPE, RANGE_SHAPE], [shape, RANGE_SHAPE, RANGE_SHAPE]


@bound(
    "_contrib_quantized_batch_norm",
    [
        arg("data"),
        arg("gamma"),
        arg("beta"),
        aux("moving_mean", '["zero", {}]'),
        aux("moving_var", '["one", {}]'),
        arg("min_data"),
        arg("max_data"),
    ],
    get("BatchNorm").attrs,
    outputs=OUTPUTS,
    infer=_infer_norm,
    infer_type=lambda a, ins, outs: ([ins[0] or "int8", *["float32"] * 6], ["int8", "float32", "float32"]),
)
def quantized_batch_norm(a: Any) -> Callable[..., Triple]:
    """Normalize channels of 8-bit numbers by the moving statistics; no gradient.

    Shape:
        data: (N, C, ...), with C at `axis`; int8 or uint8.
        gamma, beta, moving_mean, moving_var: (C,) float32.
        min_data, max_data: (1,) float32, the range of `data`.
        output: the shape of `data`, int8.
        min_output, max_output: (1,) float32, the calibrated range, which is required.

    Raises:
        OpError: min_calib_range or max_calib_range is missing.

    Source: MXNet 1.9.1 `_contrib_quantized_batch_norm`.
    """
    if not has_calibration(a):
        raise OpError(
            "_contrib_quantized_batch_norm: min_calib_range or max_calib_range is None, expected the calibrated "
            "range of the result"
        )

    def quantized_batch_norm(
        data: torch.Tensor,
        gamma: torch.Tensor,
        beta: torch.Tensor,
        mean: torch.Tensor,
        variance: torch.Tensor,
        *limits: torch.Tensor,
    ) -> Triple:
        check_types("_contrib_quantized_batch_norm", {"data": data}, "int8", "uint8")
        x = data.detach()
        if x.dtype == torch.uint8:
            x = round_to(x * (STEPS["int8"] / STEPS["uint8"]), "int8")
        low, high = float_like(data, a.min_calib_range), float_like(data, a.max_calib_range)
        out_magnitude, in_magnitude = magnitude(low, high), magnitude(*limits)
        inverse = torch.rsqrt(variance.detach() + a.eps)
        # MXNet's kernel divides by the deviation of a unit variance again
        factor = gamma.detach() * inverse * in_magnitude / out_magnitude / (1 + a.eps) ** 0.5
        added = (beta.detach() - mean.detach() * gamma.detach() * inverse) * STEPS["int8"] / out_magnitude
        axes = [-1 if i == a.axis % data.dim() else 1 for i in range(data.dim())]
        return round_to(x * factor.reshape(axes) + added.reshape(axes), "int8"), low, high

    return quantized_batch_norm
