"""Convolution, dense layers, pooling and embedding of 8-bit numbers.

Sums are exact: products of 8-bit numbers are summed in float64, which represents all integers up to 2 ** 53.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import OpError, Shape
from ..attrs import integer
from ..dtypes import name_of
from ..registry import get
from ..shapes import OF_HASHED_ROWS
from ..spec import Attr, Input, Onnx, Shapes, Types, arg
from .integer_ranges import (
    RANGE_SHAPE,
    STEPS,
    bound,
    check_types,
    magnitude,
    product_range,
    pure,
    quotient,
    round_to,
)

Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

OUTPUTS = ("output", "min_output", "max_output")
"""Output names of a quantized layer."""


def _with_bias(a: Any) -> bool:
    return not a.no_bias


def _layer_inputs() -> tuple[Input, ...]:
    return (
        arg("data"),
        arg("weight"),
        arg("bias", when=_with_bias),
        arg("min_data"),
        arg("max_data"),
        arg("min_weight"),
        arg("max_weight"),
        arg("min_bias", when=_with_bias),
        arg("max_bias", when=_with_bias),
    )


def _attrs_like(name: str) -> dict[str, Attr]:
    return dict(get(name).attrs)


def _infer_like(name: str, count: Callable[[Any], int]) -> Callable[..., Shapes]:
    """Return the shape rule of the float layer, extended by range limits."""

    def infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
        rule, own = get(name).infer, count(a)
        if rule is None:
            raise OpError(f"{name} has no shape rule")
        found_ins, found_outs = rule(a, ins[:own], outs[:1])
        return [*found_ins, *[RANGE_SHAPE] * (len(ins) - own)], [*found_outs[:1], RANGE_SHAPE, RANGE_SHAPE]

    return infer


def _linear_count(a: Any) -> int:
    """Return the number of inputs of the float layer."""
    return 2 if a.no_bias else 3


def _layer_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    own = _linear_count(a)
    kinds: list[str | None] = [ins[0] or "int8", *["int8"] * (own - 1)]
    return [*kinds, *["float32"] * (len(ins) - own)], ["int32", "float32", "float32"]


def _split(a: Any, tensors: tuple[torch.Tensor, ...]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return data, weight and bias, and their range limits."""
    own = _linear_count(a)
    return [t.detach() for t in tensors[:own]], [t.detach() for t in tensors[own:]]


def _bias_steps(data: torch.Tensor, bias: torch.Tensor, ends: list[torch.Tensor]) -> torch.Tensor:
    """Return a bias in the steps of the 32-bit sums, truncated."""
    steps = quotient(STEPS["int8"], magnitude(*ends[2:4]))
    per_unit = quotient(STEPS[name_of(data.dtype)], magnitude(*ends[:2])) * steps
    factor = per_unit / quotient(STEPS["int8"], magnitude(*ends[4:]))
    return (bias.float() * factor).trunc().double()


@pure(
    "_contrib_quantized_fully_connected",
    _layer_inputs(),
    _attrs_like("FullyConnected"),
    outputs=OUTPUTS,
    infer=_infer_like("FullyConnected", _linear_count),
    infer_type=_layer_types,
    onnx=Onnx("MatMulInteger", builder="quantized_fully_connected"),
)
def quantized_fully_connected(a: Any, *tensors: torch.Tensor) -> Triple:
    """Apply a linear map to each row, with 8-bit numbers and 32-bit sums; no gradient.

    Shape:
        data: (N, ...), int8 or uint8; with flatten=False (..., K).
        weight: (num_hidden, K), int8.
        bias: (num_hidden,), int8; rescaled to the steps of the sums.
        min_data, max_data, min_weight, max_weight, min_bias, max_bias: (1,) float32, their ranges.
        output: (N, num_hidden), or (..., num_hidden), int32.
        min_output, max_output: (1,) float32, the range of `output`.

    Source: MXNet 1.9.1 `_contrib_quantized_fully_connected`.
    """
    call = get("FullyConnected").bind
    (data, weight, *bias), limits = _split(a, tensors)
    check_types("_contrib_quantized_fully_connected", {"data": data}, "int8", "uint8")
    check_types("_contrib_quantized_fully_connected", {"weight": weight}, "int8")
    added = [_bias_steps(data, b, limits) for b in bias]
    sums = call(a)(data.double(), weight.double(), *added) if call else data
    low, high = product_range(data, weight, (limits[0], limits[1], limits[2], limits[3]))
    return round_to(sums, "int32"), low, high


@pure(
    "_contrib_quantized_conv",
    _layer_inputs(),
    _attrs_like("Convolution"),
    outputs=OUTPUTS,
    infer=_infer_like("Convolution", _linear_count),
    infer_type=_layer_types,
    onnx=Onnx("ConvInteger", builder="quantized_conv"),
)
def quantized_conv(a: Any, *tensors: torch.Tensor) -> Triple:
    """Convolve 8-bit numbers with 32-bit sums; no gradient.

    With uint8 data, the only type supported by MXNet's CPU build, the bias is added without rescaling and the range is
    that of int8 data, both as in MXNet. For int8 data, the bias is rescaled to the steps of the sums.

    Shape:
        data: (N, C, *spatial), int8 or uint8.
        weight: (num_filter, C / num_group, *kernel), int8.
        bias: (num_filter,), int8.
        min_data, max_data, min_weight, max_weight, min_bias, max_bias: (1,) float32, their ranges.
        output: (N, num_filter, *sizes) like `Convolution`, int32.
        min_output, max_output: (1,) float32, the range of `output`.

    Source: MXNet 1.9.1 `_contrib_quantized_conv`.
    """
    call = get("Convolution").bind
    (data, weight, *bias), limits = _split(a, tensors)
    check_types("_contrib_quantized_conv", {"data": data}, "int8", "uint8")
    check_types("_contrib_quantized_conv", {"weight": weight}, "int8")
    plain = data.dtype == torch.uint8
    added = [b.double() if plain else _bias_steps(data, b, limits) for b in bias]
    sums = call(a)(data.double(), weight.double(), *added) if call else data
    low, high = product_range(weight, weight, (limits[0], limits[1], limits[2], limits[3]))
    return round_to(sums, "int32"), low, high


def _same_range_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    dtype = ins[0] or outs[0]
    return [dtype, *["float32"] * (len(ins) - 1)], [dtype, "float32", "float32"]


_ONE_INPUT = (arg("data"), arg("min_data"), arg("max_data"))


@bound(
    "_contrib_quantized_pooling",
    _ONE_INPUT,
    _attrs_like("Pooling"),
    outputs=OUTPUTS,
    infer=_infer_like("Pooling", lambda a: 1),
    infer_type=_same_range_types,
)
def quantized_pooling(a: Any) -> Callable[..., Triple]:
    """Return the maximum or average of each window of 8-bit numbers; no gradient.

    Shape:
        data: (N, C, *spatial), int8 or uint8.
        min_data, max_data: (1,) float32, the range of `data`.
        output: (N, C, *sizes) like `Pooling`, with the type of `data`; averages are rounded, halves to even.
        min_output, max_output: (1,) float32, the same range.

    Raises:
        OpError: pool_type is not "max" or "avg".

    Source: MXNet 1.9.1 `_contrib_quantized_pooling`.
    """
    if a.pool_type not in ("max", "avg"):
        raise OpError(f"_contrib_quantized_pooling: pool_type is {a.pool_type!r}, expected 'max' or 'avg'")
    call = get("Pooling").bind

    def quantized_pooling(data: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> Triple:
        check_types("_contrib_quantized_pooling", {"data": data}, "int8", "uint8")
        pooled = call(a)(data.detach().double()) if call else data
        return round_to(pooled, name_of(data.dtype)), low.detach().clone(), high.detach().clone()

    return quantized_pooling


@bound(
    "_contrib_quantized_act",
    _ONE_INPUT,
    {key: attr for key, attr in get("Activation").attrs.items() if key == "act_type"},
    outputs=OUTPUTS,
    infer=_infer_like("Activation", lambda a: 1),
    infer_type=_same_range_types,
    onnx=Onnx("Relu", builder="quantized_act"),
)
def quantized_act(a: Any) -> Callable[..., Triple]:
    """Apply relu to 8-bit numbers; no gradient.

    Shape:
        data: any, int8 or uint8.
        min_data, max_data: (1,) float32, the range of `data`.
        output: like `data`.
        min_output, max_output: (1,) float32, the same range.

    Raises:
        OpError: act_type is not "relu".

    Source: MXNet 1.9.1 `_contrib_quantized_act`.
    """
    if a.act_type != "relu":
        raise OpError(f"_contrib_quantized_act: act_type is {a.act_type!r}, expected 'relu'")

    def quantized_act(data: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> Triple:
        check_types("_contrib_quantized_act", {"data": data}, "int8", "uint8")
        return data.detach().clamp(min=0), low.detach().clone(), high.detach().clone()

    return quantized_act


@pure(
    "_contrib_quantized_flatten",
    _ONE_INPUT,
    outputs=OUTPUTS,
    infer=_infer_like("Flatten", lambda a: 1),
    infer_type=_same_range_types,
    onnx=Onnx("Flatten", builder="quantized_flatten"),
)
def quantized_flatten(a: Any, data: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> Triple:
    """Flatten all axes but the first of 8-bit numbers; no gradient.

    Shape:
        data: (N, ...), int8 or uint8.
        min_data, max_data: (1,) float32, the range of `data`.
        output: (N, product of the other axes).
        min_output, max_output: (1,) float32, the same range.

    Source: MXNet 1.9.1 `_contrib_quantized_flatten`.
    """
    flat = data.detach().reshape(data.shape[0], -1).clone()
    return flat, low.detach().clone(), high.detach().clone()


def _embedding_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    return [ins[0] or "float32", "int8", "float32", "float32"], ["int8", "float32", "float32"]


@pure(
    "_contrib_quantized_embedding",
    [arg("data"), arg("weight"), arg("min_weight"), arg("max_weight")],
    {
        **{name: attr for name, attr in _attrs_like("Embedding").items() if name not in OF_HASHED_ROWS},
        "input_dim": Attr(integer(low=1), "number of rows of the table"),
    },
    outputs=OUTPUTS,
    infer=_infer_like("Embedding", lambda a: 2),
    infer_type=_embedding_types,
    onnx=Onnx("Gather", builder="quantized_embedding"),
)
def quantized_embedding(
    a: Any, data: torch.Tensor, weight: torch.Tensor, low: torch.Tensor, high: torch.Tensor
) -> Triple:
    """Look up rows of a matrix of 8-bit numbers; out-of-range indices are clipped. No gradient.

    Shape:
        data: any, integer indices.
        weight: (input_dim, output_dim), int8.
        min_weight, max_weight: (1,) float32, the range of `weight`.
        output: the shape of `data`, then output_dim; int8.
        min_output, max_output: (1,) float32, the same range.

    Source: MXNet 1.9.1 `_contrib_quantized_embedding`.
    """
    check_types("_contrib_quantized_embedding", {"weight": weight}, "int8")
    indices = data.detach().long().clamp(0, weight.shape[0] - 1)
    return weight.detach()[indices], low.detach().clone(), high.detach().clone()
