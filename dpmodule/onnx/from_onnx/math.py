"""Arithmetic, comparison, logic and functions of one array."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from .call import NodeCall, Translator
from .forms import broadcast_dims, even, expand, filled, normal, paired, positions, transpose, unsqueeze
from .problems import Refused
from .tensors import RANGES
from .types import cast_to
from .value import OnnxValue, same_type

_UNARY = {
    "Abs": "abs",
    "Acos": "arccos",
    "Acosh": "arccosh",
    "Asin": "arcsin",
    "Asinh": "arcsinh",
    "Atan": "arctan",
    "Atanh": "arctanh",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "Log": "log",
    "Neg": "negative",
    "Reciprocal": "reciprocal",
    "Relu": "relu",
    "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Softsign": "softsign",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}
"""Operators that have one here: ONNX's name and ours."""

_BINARY = {"Add": "plus", "Sub": "minus", "Mul": "mul", "Div": "div"}
_COMPARE = {
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Less": "lesser",
    "LessOrEqual": "lesser_equal",
}


def _unary(c: NodeCall) -> OnnxValue:
    return c.x.apply(_UNARY[c.kind])


def _binary(c: NodeCall) -> OnnxValue:
    return c.x.arith(_BINARY[c.kind], c.value(1))


def _compare(c: NodeCall) -> OnnxValue:
    return c.x.arith(_COMPARE[c.kind], c.value(1)).cast("bool")


def _logic(c: NodeCall) -> OnnxValue:
    word = {"And": "logical_and", "Or": "logical_or", "Xor": "logical_xor"}[c.kind]
    x, y = (v.cast("float32") for v in (c.x, c.value(1)))
    return c.b(f"broadcast_{word}", x, y).as_scalar(x.is_scalar and y.is_scalar).cast("bool")


def _not(c: NodeCall) -> OnnxValue:
    return c.x.cast("float32").apply("logical_not").cast("bool")


def _power(c: NodeCall) -> OnnxValue:
    x, y = c.x, c.value(1)
    if y.dtype != x.dtype and "float" in x.dtype:
        y = y.cast(x.dtype)
    elif "float" in y.dtype and "float" not in x.dtype:
        return (x.cast(y.dtype) ** y).cast(x.dtype)
    return (x**y).cast(x.dtype)


def _mod(c: NodeCall) -> OnnxValue:
    x, y = same_type(c.x, c.value(1))
    if not c.attrs["fmod"] and "float" not in x.dtype:
        return x % y
    made = c.b("_onnx_mod", x, y, fmod=bool(c.attrs["fmod"]))
    return made.as_scalar(x.is_scalar and y.is_scalar)


def _bitwise(c: NodeCall) -> OnnxValue:
    return _bits(c, c.kind.removeprefix("Bitwise").lower(), c.x, c.value(1))


def _bits(c: NodeCall, word: str, x: OnnxValue, y: OnnxValue) -> OnnxValue:
    return c.b("_onnx_bitwise", x, y, kind=word).as_scalar(x.is_scalar and y.is_scalar)


def _bitwise_not(c: NodeCall) -> OnnxValue:
    low, high = RANGES.get(c.x.type, (-1, -1))
    return _turned(c, c.x, -1 if low else high)


def _turned(c: NodeCall, x: OnnxValue, bits: int) -> OnnxValue:
    return _bits(c, "xor", x, c.b.constant(torch.tensor(bits), x.dtype))


def _bit_shift(c: NodeCall) -> OnnxValue:
    b, x, y = c.b, c.x, c.value(1)
    word = f"{c.attrs['direction'].lower()}_shift"
    found = _bits(c, word, x, y)
    if x.type != 13 or word == "left_shift":
        return found
    # the sign comes in from the left: these bits, and the ones that it fills in
    signs = _bits(c, "right_shift", b.constant(torch.tensor([-(2**63)])), y)
    signs = _bits(c, "left_shift", signs, b.constant(torch.tensor([1])))
    return _bits(c, "and", found, _turned(c, signs, -1))


def _many(c: NodeCall) -> OnnxValue:
    word = {"Max": "maximum", "Min": "minimum"}.get(c.kind, "plus")
    found = paired(word, [c.value(i) for i in range(len(c.inputs))])
    return found / float(len(c.inputs)) if c.kind == "Mean" else found


def _clip(c: NodeCall) -> OnnxValue:
    low = c.b.constant(float(c.attrs["min"])) if "min" in c.attrs else c.maybe(1)
    high = c.b.constant(float(c.attrs["max"])) if "max" in c.attrs else c.maybe(2)
    found = c.x
    for word, limit in (("maximum", low), ("minimum", high)):
        if limit is not None:
            found = found.arith(word, limit.cast(found.dtype))
    return found


def _round(c: NodeCall) -> OnnxValue:
    return even(c.x)


def _activation(c: NodeCall) -> OnnxValue:
    return c.x.apply("Activation", act_type={"Softplus": "softrelu"}[c.kind])


def _leaky(kind: str, c: NodeCall) -> OnnxValue:
    slope = c.attrs.get("alpha", 1.0)
    return c.x.apply("LeakyReLU", act_type=kind, slope=slope)


def _selu(c: NodeCall) -> OnnxValue:
    alpha, gamma = c.attrs["alpha"], c.attrs["gamma"]
    return c.x.apply("LeakyReLU", act_type="elu", slope=alpha) * gamma


def _celu(c: NodeCall) -> OnnxValue:
    alpha = c.attrs["alpha"]
    inner = c.x / alpha
    return inner.apply("LeakyReLU", act_type="elu", slope=1.0) * alpha


def _prelu(c: NodeCall) -> OnnxValue:
    b, x, slope = c.b, c.x, c.value(1)
    is_plain = slope.rank == x.rank - 1 and slope.rank and math.prod(slope.shapes[0][1:]) == 1
    if is_plain and slope.size(0) == x.size(1):
        flat = slope if slope.rank == 1 else b("Reshape", slope, shape=(-1,))
        return b("LeakyReLU", x, flat, act_type="prelu")
    low = x - x.apply("relu")
    return x.apply("relu") + low * slope


def _gelu(c: NodeCall) -> OnnxValue:
    if c.attrs["approximate"] == "none":
        return c.x.apply("LeakyReLU", act_type="gelu")
    cube = c.x * c.x * c.x
    inner = c.x + cube * 0.044715
    gate = (inner * math.sqrt(2 / math.pi)).apply("tanh")
    return c.x * 0.5 * (gate + 1.0)


def _hard_sigmoid(c: NodeCall) -> OnnxValue:
    return c.x.apply("hard_sigmoid", alpha=c.attrs["alpha"], beta=c.attrs["beta"])


def _hard_swish(c: NodeCall) -> OnnxValue:
    return c.x * c.x.apply("hard_sigmoid", alpha=1 / 6, beta=0.5)


def _swish(c: NodeCall) -> OnnxValue:
    return c.x * (c.x * c.attrs["alpha"]).apply("sigmoid")


def _mish(c: NodeCall) -> OnnxValue:
    inner = c.x.apply("Activation", act_type="softrelu").apply("tanh")
    return c.x * inner


def _thresholded(c: NodeCall) -> OnnxValue:
    return c.x * (c.x > c.attrs["alpha"])


def _shrink(c: NodeCall) -> OnnxValue:
    bias, limit = c.attrs["bias"], c.attrs["lambd"]
    high = (c.x - bias) * (c.x > limit)
    low = (c.x + bias) * (c.x < -limit)
    return high + low


def _is_nan(c: NodeCall) -> OnnxValue:
    return c.b("broadcast_not_equal", c.x, c.x).as_scalar(c.x.is_scalar).cast("bool")


def _is_inf(c: NodeCall) -> OnnxValue:
    found = []
    if c.attrs["detect_positive"]:
        found.append(c.x.arith("equal", math.inf))
    if c.attrs["detect_negative"]:
        found.append(c.x.arith("equal", -math.inf))
    return (paired("plus", found) if found else c.x * 0.0).cast("bool")


def _cast(c: NodeCall) -> OnnxValue:
    code = c.value(1).type if c.kind == "CastLike" else c.attrs["to"]
    return cast_to(c.b, c.x, code, bool(c.attrs.get("saturate", 1)))


def _identity(c: NodeCall) -> Any:
    return c.inputs[0]


def _dropout(c: NodeCall) -> list[Any]:
    if len(c.used) > 1 and c.used[1]:
        raise Refused("its mask is read")
    rate = c.attrs.get("ratio", 0.5)
    if c.has(1):
        rate = float(c.b.needed(c.value(1), "ratio"))
    if not 0 < rate < 1 or c.x.known is not None:
        return [c.x]
    return [c.x.apply("Dropout", p=rate)]


def _where(c: NodeCall) -> OnnxValue:
    b = c.b
    x, y = same_type(c.value(1), c.value(2))
    condition = c.x
    shape = broadcast_dims(condition, x, y)
    is_scalar = not shape[0]
    if condition.dtype == "bool":
        condition = condition.cast("float32")
    held = tuple(s or (1,) for s in shape)
    parts = [_stretched(b, v, held) for v in (condition, x, y)]
    return b("where", *parts).as_scalar(is_scalar)


def _stretched(b: Any, x: OnnxValue, shape: tuple[tuple[int, ...], ...]) -> OnnxValue:
    x = x.as_scalar(False)
    number = b.fixed(x) if x.known is not None and not x.trains and math.prod(x.shapes[0]) == 1 else None
    if number is not None and x.shapes != shape:
        return filled(b, shape, float(number), x.dtype)
    return expand(x, shape)


def _cumsum(c: NodeCall) -> OnnxValue:
    axis = normal(int(c.b.needed(c.value(1), "axis")), c.x.rank)
    found = c.b("reverse", c.x, axis=axis) if c.attrs["reverse"] else c.x
    total: OnnxValue = c.b("_np_cumsum", found, axis=axis)
    if c.attrs["exclusive"]:
        total = total - found
    return c.b("reverse", total, axis=axis) if c.attrs["reverse"] else total


def _det(c: NodeCall) -> OnnxValue:
    return c.b("_linalg_det", c.x).as_scalar(c.x.rank == 2)


def _trilu(c: NodeCall) -> OnnxValue:
    b, x = c.b, c.x
    k = int(b.needed(c.value(1), "k")) if c.maybe(1) is not None else 0
    rows, columns = x.axis(x.rank - 2), x.axis(x.rank - 1)
    i = unsqueeze(positions(b, rows, dtype="float32"), [1])
    j = positions(b, columns, dtype="float32")
    gap = j - i
    keep = gap.arith("greater_equal" if c.attrs["upper"] else "lesser_equal", float(k))
    zero = b.constant(torch.zeros(()), x.dtype)
    shape = x.dims
    parts = [_stretched(b, keep, shape), x, _stretched(b, zero, shape)]
    return b("where", *parts)


def _transpose(c: NodeCall) -> OnnxValue:
    order = c.attrs.get("perm") or list(reversed(range(c.x.rank)))
    return transpose(c.x, [normal(a, c.x.rank) for a in order])


TABLE: dict[str, Translator] = {
    **dict.fromkeys(_UNARY, _unary),
    **dict.fromkeys(_BINARY, _binary),
    **dict.fromkeys(_COMPARE, _compare),
    **dict.fromkeys(("And", "Or", "Xor"), _logic),
    **dict.fromkeys(("Max", "Min", "Sum", "Mean"), _many),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), _bitwise),
    **dict.fromkeys(("Cast", "CastLike"), _cast),
    "BitShift": _bit_shift,
    "BitwiseNot": _bitwise_not,
    "Celu": _celu,
    "Clip": _clip,
    "CumSum": _cumsum,
    "Det": _det,
    "Dropout": _dropout,
    "Elu": partial(_leaky, "elu"),
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Identity": _identity,
    "IsInf": _is_inf,
    "IsNaN": _is_nan,
    "LeakyRelu": partial(_leaky, "leaky"),
    "Mish": _mish,
    "Mod": _mod,
    "Not": _not,
    "PRelu": _prelu,
    "Pow": _power,
    "Round": _round,
    "Selu": _selu,
    "Shrink": _shrink,
    "Softplus": _activation,
    "Swish": _swish,
    "ThresholdedRelu": _thresholded,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Where": _where,
}
