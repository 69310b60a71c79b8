"""Numbers of eight bits: computed in float32, in the steps that the file prescribes."""

from __future__ import annotations

from .build import GraphBuilder
from .call import NodeCall, Translator
from .conv import TABLE as CONV
from .forms import arith, as_scalar, cast, even, normal, unary, unsqueeze
from .linear import product
from .problems import Refused
from .tensors import FEW_BITS, RANGES
from .types import cast_to
from .value import OnnxValue


def _along(b: GraphBuilder, part: OnnxValue, x: OnnxValue, axis: int) -> OnnxValue:
    """Return scales or zero points so that they broadcast with the data."""
    if part.rank == 0 or part.shapes[0] == (1,):
        return part
    if part.rank != 1:
        raise Refused("scales of blocks")
    place = normal(axis, x.rank)
    return unsqueeze(b, part, [i for i in range(x.rank) if i != place])


def _opened(b: GraphBuilder, x: OnnxValue, scale: OnnxValue, zero: OnnxValue | None, axis: int) -> OnnxValue:
    """Return the numbers that quantized ones stand for."""
    found = cast(b, x, scale.dtype)
    if zero is not None:
        found = arith(b, "minus", found, cast(b, _along(b, zero, x, axis), scale.dtype))
    return arith(b, "mul", found, _along(b, scale, x, axis))


def _closed(
    b: GraphBuilder,
    x: OnnxValue,
    scale: OnnxValue,
    zero: OnnxValue | None,
    axis: int,
    code: int,
    saturate: bool = True,
) -> OnnxValue:
    """Return numbers quantized; `code` is ONNX's number of the type."""
    parts = arith(b, "div", cast(b, x, scale.dtype), _along(b, scale, x, axis))
    if code in FEW_BITS:  # their zero point is 0
        return cast_to(b, parts, code, saturate)
    if code not in RANGES:
        raise Refused(f"numbers quantized to element type {code}")
    low, high = RANGES[code]
    found = even(b, parts)
    if zero is not None:
        found = arith(b, "plus", found, cast(b, _along(b, zero, x, axis), scale.dtype))
    return cast_to(b, unary(b, "clip", found, a_min=float(low), a_max=float(high)), code)


def _quantize(c: NodeCall) -> OnnxValue:
    zero = c.maybe(2)
    code = zero.type if zero is not None else c.attrs.get("output_dtype") or 2
    saturate = bool(c.attrs.get("saturate", 1))
    return _closed(c.b, c.x, c.value(1), zero, c.attrs.get("axis", 1), code, saturate)


def _dequantize(c: NodeCall) -> OnnxValue:
    return _opened(c.b, c.x, c.value(1), c.maybe(2), c.attrs.get("axis", 1))


def _dynamic(c: NodeCall) -> list[OnnxValue]:
    b, x = c.b, c.x
    high = arith(b, "maximum", as_scalar(b("max", x), True), 0.0)
    low = arith(b, "minimum", as_scalar(b("min", x), True), 0.0)
    scale = arith(b, "div", arith(b, "minus", high, low), 255.0)
    zero = even(
        b, unary(b, "clip", arith(b, "div", arith(b, "rminus", low, 0.0), scale), a_min=0.0, a_max=255.0)
    )
    whole = cast(b, zero, "uint8")
    return [_closed(b, x, scale, whole, 0, 2), scale, whole]


def _shifted(b: GraphBuilder, x: OnnxValue, zero: OnnxValue | None, axis: int) -> OnnxValue:
    found = cast(b, x, "float32")
    return found if zero is None else arith(b, "minus", found, cast(b, _along(b, zero, x, axis), "float32"))


def _whole_product(c: NodeCall) -> OnnxValue:
    b, x, y = c.b, c.x, c.value(1)
    left = _shifted(b, x, c.maybe(2), x.rank - 2)
    return cast(b, even(b, product(b, left, _shifted(b, y, c.maybe(3), y.rank - 1))), "int32")


def _product(c: NodeCall) -> OnnxValue:
    b, x, y = c.b, c.x, c.value(3)
    left = _opened(b, x, c.value(1), c.maybe(2), x.rank - 2)
    right = _opened(b, y, c.value(4), c.maybe(5), y.rank - 1)
    return _closed(b, product(b, left, right), c.value(6), c.maybe(7), -1, c.value(7).type)


def _convolved(c: NodeCall, x: OnnxValue, weight: OnnxValue) -> OnnxValue:
    inner = NodeCall(c.b, "Conv", [x, weight], c.attrs, c.since, [True], c.body, c.read)
    found: OnnxValue = CONV["Conv"](inner)
    return found


def _whole_conv(c: NodeCall) -> OnnxValue:
    b = c.b
    x, weight = _shifted(b, c.x, c.maybe(2), 1), _shifted(b, c.value(1), c.maybe(3), 0)
    return cast(b, even(b, _convolved(c, x, weight)), "int32")


def _conv(c: NodeCall) -> OnnxValue:
    b, x, weight = c.b, c.x, c.value(3)
    left = _opened(b, x, c.value(1), c.maybe(2), 1)
    found = _convolved(c, left, _opened(b, weight, c.value(4), c.maybe(5), 0))
    if c.maybe(8) is not None:
        scale = arith(b, "mul", c.value(4), c.value(1))
        bias = arith(b, "mul", cast(b, c.value(8), "float32"), scale)
        found = arith(b, "plus", found, _along(b, bias, found, 1))
    return _closed(b, found, c.value(6), c.maybe(7), 1, c.value(7).type)


TABLE: dict[str, Translator] = {
    "ConvInteger": _whole_conv,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic,
    "MatMulInteger": _whole_product,
    "QLinearConv": _conv,
    "QLinearMatMul": _product,
    "QuantizeLinear": _quantize,
}
