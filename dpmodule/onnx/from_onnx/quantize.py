"""Numbers of eight bits: computed in float32, in the steps that the file prescribes."""

from __future__ import annotations

from .build import GraphBuilder
from .call import NodeCall, Translator
from .conv import TABLE as CONV
from .forms import even, normal, unsqueeze
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
    return unsqueeze(part, [i for i in range(x.rank) if i != place])


def _opened(b: GraphBuilder, x: OnnxValue, scale: OnnxValue, zero: OnnxValue | None, axis: int) -> OnnxValue:
    """Return the numbers that quantized ones stand for."""
    found = x.cast(scale.dtype)
    if zero is not None:
        found = found - _along(b, zero, x, axis).cast(scale.dtype)
    return found * _along(b, scale, x, axis)


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
    parts = x.cast(scale.dtype) / _along(b, scale, x, axis)
    if code in FEW_BITS:  # their zero point is 0
        return cast_to(b, parts, code, saturate)
    if code not in RANGES:
        raise Refused(f"numbers quantized to element type {code}")
    low, high = RANGES[code]
    found = even(parts)
    if zero is not None:
        found = found + _along(b, zero, x, axis).cast(scale.dtype)
    return cast_to(b, found.apply("clip", a_min=float(low), a_max=float(high)), code)


def _quantize(c: NodeCall) -> OnnxValue:
    zero = c.maybe(2)
    code = zero.type if zero is not None else c.attrs.get("output_dtype") or 2
    saturate = bool(c.attrs.get("saturate", 1))
    return _closed(c.b, c.x, c.value(1), zero, c.attrs.get("axis", 1), code, saturate)


def _dequantize(c: NodeCall) -> OnnxValue:
    return _opened(c.b, c.x, c.value(1), c.maybe(2), c.attrs.get("axis", 1))


def _dynamic(c: NodeCall) -> list[OnnxValue]:
    b, x = c.b, c.x
    high = b("max", x).as_scalar(True).arith("maximum", 0.0)
    low = b("min", x).as_scalar(True).arith("minimum", 0.0)
    scale = (high - low) / 255.0
    zero = even(((0.0 - low) / scale).apply("clip", a_min=0.0, a_max=255.0))
    whole = zero.cast("uint8")
    return [_closed(b, x, scale, whole, 0, 2), scale, whole]


def _shifted(b: GraphBuilder, x: OnnxValue, zero: OnnxValue | None, axis: int) -> OnnxValue:
    found = x.cast("float32")
    return found if zero is None else found - _along(b, zero, x, axis).cast("float32")


def _whole_product(c: NodeCall) -> OnnxValue:
    b, x, y = c.b, c.x, c.value(1)
    left = _shifted(b, x, c.maybe(2), x.rank - 2)
    return even(product(left, _shifted(b, y, c.maybe(3), y.rank - 1))).cast("int32")


def _product(c: NodeCall) -> OnnxValue:
    b, x, y = c.b, c.x, c.value(3)
    left = _opened(b, x, c.value(1), c.maybe(2), x.rank - 2)
    right = _opened(b, y, c.value(4), c.maybe(5), y.rank - 1)
    return _closed(b, product(left, right), c.value(6), c.maybe(7), -1, c.value(7).type)


def _convolved(c: NodeCall, x: OnnxValue, weight: OnnxValue) -> OnnxValue:
    inner = NodeCall(c.b, "Conv", [x, weight], c.attrs, c.since, [True], c.body, c.read)
    found: OnnxValue = CONV["Conv"](inner)
    return found


def _whole_conv(c: NodeCall) -> OnnxValue:
    b = c.b
    x, weight = _shifted(b, c.x, c.maybe(2), 1), _shifted(b, c.value(1), c.maybe(3), 0)
    return even(_convolved(c, x, weight)).cast("int32")


def _conv(c: NodeCall) -> OnnxValue:
    b, x, weight = c.b, c.x, c.value(3)
    left = _opened(b, x, c.value(1), c.maybe(2), 1)
    found = _convolved(c, left, _opened(b, weight, c.value(4), c.maybe(5), 0))
    if c.maybe(8) is not None:
        scale = c.value(4) * c.value(1)
        bias = c.value(8).cast("float32") * scale
        found = found + _along(b, bias, found, 1)
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
