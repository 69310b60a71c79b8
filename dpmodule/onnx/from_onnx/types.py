"""Element types that torch cannot compute with: conversions, wrapping to their range, and quantization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .build import GraphBuilder, NodeCall, Translator
from .check import Unsupported
from .layers import TABLE as CONV
from .linear import product
from .read import CODES, DTYPES, FEW_BITS, RANGES, UNSIGNED
from .shape_helpers import normalize_axis, round_half_even, to_bool, unsqueeze
from .value import OnnxValue

_UINT64 = 13
_BOOL = 9
_WRAPS = "Add BitShift CumProd CumSum Einsum Gemm MatMul Mul ReduceProd ReduceSum ReduceSumSquare Sub Sum"
"""Operators whose results may leave the range of unsigned integers."""
_ORDERS = "ArgMax ArgMin Clip Greater GreaterOrEqual Less LessOrEqual Max Min ReduceMax ReduceMin TopK"
"""Operators that depend only on the order of numbers."""
_REFUSED = "Abs Div Mean Mod Pow Range ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean Sign"
"""Operators that signed arithmetic cannot compute for unsigned 64-bit integers."""


def cast_to(b: GraphBuilder, x: OnnxValue, code: int, saturate: bool = True) -> OnnxValue:
    """Convert to an element type, as ONNX's Cast does.

    Args:
        code: ONNX's code of the type.
        saturate: True to clip floats to the range of an 8-bit type.
    """
    if code not in DTYPES or code == 8:
        raise Unsupported(f"a cast to element type {code}, which is not supported")
    if x.type == code:
        return x
    dtype = DTYPES[code]
    if x.type == _UINT64 and (code in FEW_BITS or "float" in dtype):
        x = x.cast(UNSIGNED[_UINT64])
    if code == _BOOL:
        return to_bool(x)
    if code in FEW_BITS:
        floats = x if "float" in x.dtype else x.cast(dtype)
        return floats.apply("_onnx_round", to=FEW_BITS[code], saturate=saturate).cast(dtype)
    if code in UNSIGNED:
        return x.cast(UNSIGNED[code]).cast(dtype)
    low, high = RANGES.get(code, (0, 0))
    if not 0 < high - low < 16:
        return x.cast(dtype)
    rest = (x.cast("int32") - float(low)) % float(high - low + 1)
    return (rest + float(low)).cast(dtype)


def prepare_uint64(b: GraphBuilder, kind: str, inputs: Sequence[Any]) -> list[Any]:
    """Return the inputs of an operator, converted so that signed arithmetic is correct for uint64."""
    large = [isinstance(value, OnnxValue) and value.code == _UINT64 for value in inputs]
    if kind in _REFUSED.split() and any(large):
        raise Unsupported(
            f"{kind} of uint64; torch has no unsigned arithmetic; cast to int64 or a float first"
        )
    if kind not in _ORDERS.split():
        return list(inputs)
    return [_flip_sign_bit(b, value) if is_large else value for value, is_large in zip(inputs, large)]


def _flip_sign_bit(b: GraphBuilder, x: OnnxValue) -> OnnxValue:
    """Flip the highest bit, so that signed integers have the order of the unsigned ones; its own inverse."""
    lowest = b.constant(torch.tensor([-(2**63)]))
    result = b("broadcast_add", x, lowest).as_scalar(x.is_scalar)
    result.code = x.code
    return result


def assign_types(
    b: GraphBuilder, kind: str, schema: Any, inputs: Sequence[Any], attrs: dict[str, Any], made: Any
) -> list[Any]:
    """Return the results of an operator with the file's element types, wrapped to their range."""
    codes: dict[str, int] = {}
    for i, value in enumerate(inputs):
        if isinstance(value, OnnxValue) and schema.inputs:
            codes.setdefault(schema.inputs[min(i, len(schema.inputs) - 1)].type_str, value.type)
    named = next((attrs[name] for name in ("to", "dtype", "output_dtype") if attrs.get(name)), 0)
    named = named or getattr(attrs.get("value"), "data_type", 0)
    body = attrs.get("then_branch", attrs.get("body"))
    values = list(made) if isinstance(made, (list, tuple)) else [made]
    for i, value in enumerate(values):
        if not isinstance(value, OnnxValue) or not schema.outputs:
            continue
        code = codes.get(schema.outputs[min(i, len(schema.outputs) - 1)].type_str, named)
        if body is not None:  # the first output of a loop's body is its condition
            code = body.output[i + (kind == "Loop")].type.tensor_type.elem_type
        values[i] = _in_range(b, kind, of_type(value, code))
    return values


def of_type(value: OnnxValue, code: int) -> OnnxValue:
    """Return a value with ONNX's code of its type in the file if operators compute in another type."""
    is_other = DTYPES.get(code) == value.dtype and CODES[value.dtype] != code
    code = code if is_other else 0
    if value.code == code:
        return value
    result = value.again()
    result.code = code
    return result


def _in_range(b: GraphBuilder, kind: str, value: OnnxValue) -> OnnxValue:
    if value.code == _UINT64 and kind in _ORDERS.split():
        return _flip_sign_bit(b, value)
    if value.code in UNSIGNED and value.code != _UINT64 and kind in _WRAPS.split():
        code, value = value.code, value.cast(UNSIGNED[value.code]).cast(value.dtype)
        value.code = code
    return value


# quantized values: computed in float32, in the order of operations that the file prescribes


def _broadcast_along(b: GraphBuilder, part: OnnxValue, x: OnnxValue, axis: int) -> OnnxValue:
    """Reshape scales or zero points to broadcast with the data."""
    if part.rank == 0 or part.shapes[0] == (1,):
        return part
    if part.rank != 1:
        raise Unsupported("blockwise scales are not supported")
    position = normalize_axis(axis, x.rank)
    return unsqueeze(part, [i for i in range(x.rank) if i != position])


def _dequantized(
    b: GraphBuilder, x: OnnxValue, scale: OnnxValue, zero: OnnxValue | None, axis: int
) -> OnnxValue:
    """Return dequantized values."""
    values = x.cast(scale.dtype)
    if zero is not None:
        values = values - _broadcast_along(b, zero, x, axis).cast(scale.dtype)
    return values * _broadcast_along(b, scale, x, axis)


def _quantized(
    b: GraphBuilder,
    x: OnnxValue,
    scale: OnnxValue,
    zero: OnnxValue | None,
    axis: int,
    code: int,
    saturate: bool = True,
) -> OnnxValue:
    """Return quantized values; `code` is ONNX's code of the type."""
    parts = x.cast(scale.dtype) / _broadcast_along(b, scale, x, axis)
    if code in FEW_BITS:  # their zero point is 0
        return cast_to(b, parts, code, saturate)
    if code not in RANGES:
        raise Unsupported(f"numbers quantized to element type {code}")
    low, high = RANGES[code]
    rounded = round_half_even(parts)
    if zero is not None:
        rounded = rounded + _broadcast_along(b, zero, x, axis).cast(scale.dtype)
    return cast_to(b, rounded.apply("clip", a_min=float(low), a_max=float(high)), code)


def _quantize(c: NodeCall) -> OnnxValue:
    zero = c.maybe(2)
    code = zero.type if zero is not None else c.attrs.get("output_dtype") or 2
    saturate = bool(c.attrs.get("saturate", 1))
    return _quantized(c.b, c.x, c.value(1), zero, c.attrs.get("axis", 1), code, saturate)


def _dynamic_quantize(c: NodeCall) -> list[OnnxValue]:
    b, x = c.b, c.x
    high = b("max", x).as_scalar(True).arith("maximum", 0.0)
    low = b("min", x).as_scalar(True).arith("minimum", 0.0)
    scale = (high - low) / 255.0
    zero = round_half_even(((0.0 - low) / scale).apply("clip", a_min=0.0, a_max=255.0))
    whole = zero.cast("uint8")
    return [_quantized(b, x, scale, whole, 0, 2), scale, whole]


def _shifted(b: GraphBuilder, x: OnnxValue, zero: OnnxValue | None, axis: int) -> OnnxValue:
    values = x.cast("float32")
    return values if zero is None else values - _broadcast_along(b, zero, x, axis).cast("float32")


def _matmul_integer(c: NodeCall) -> OnnxValue:
    b, x, y = c.b, c.x, c.value(1)
    left = _shifted(b, x, c.maybe(2), x.rank - 2)
    return round_half_even(product(left, _shifted(b, y, c.maybe(3), y.rank - 1))).cast("int32")


def _qlinear_matmul(c: NodeCall) -> OnnxValue:
    b, x, y = c.b, c.x, c.value(3)
    left = _dequantized(b, x, c.value(1), c.maybe(2), x.rank - 2)
    right = _dequantized(b, y, c.value(4), c.maybe(5), y.rank - 1)
    return _quantized(b, product(left, right), c.value(6), c.maybe(7), -1, c.value(7).type)


def _convolution(c: NodeCall, x: OnnxValue, weight: OnnxValue) -> OnnxValue:
    inner = NodeCall(c.b, "Conv", [x, weight], c.attrs, c.since, [True], c.body, c.read)
    result: OnnxValue = CONV["Conv"](inner)
    return result


def _conv_integer(c: NodeCall) -> OnnxValue:
    b = c.b
    x, weight = _shifted(b, c.x, c.maybe(2), 1), _shifted(b, c.value(1), c.maybe(3), 0)
    return round_half_even(_convolution(c, x, weight)).cast("int32")


def _qlinear_conv(c: NodeCall) -> OnnxValue:
    b, x, weight = c.b, c.x, c.value(3)
    left = _dequantized(b, x, c.value(1), c.maybe(2), 1)
    result = _convolution(c, left, _dequantized(b, weight, c.value(4), c.maybe(5), 0))
    if c.maybe(8) is not None:
        scale = c.value(4) * c.value(1)
        bias = c.value(8).cast("float32") * scale
        result = result + _broadcast_along(b, bias, result, 1)
    return _quantized(b, result, c.value(6), c.maybe(7), 1, c.value(7).type)


TABLE: dict[str, Translator] = {
    "ConvInteger": _conv_integer,
    "DequantizeLinear": lambda c: _dequantized(c.b, c.x, c.value(1), c.maybe(2), c.attrs.get("axis", 1)),
    "DynamicQuantizeLinear": _dynamic_quantize,
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize,
}
