"""Arithmetic, comparison, logic and functions of one array."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from .call import NodeCall, Translator
from .forms import (
    arith,
    as_scalar,
    broadcast_dims,
    cast,
    even,
    expand,
    filled,
    normal,
    paired,
    positions,
    same_type,
    transpose,
    unary,
    unsqueeze,
)
from .problems import Refused
from .tensors import RANGES
from .types import cast_to
from .value import OnnxValue

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
    return unary(c.b, _UNARY[c.kind], c.x)


def _binary(c: NodeCall) -> OnnxValue:
    return arith(c.b, _BINARY[c.kind], c.x, c.value(1))


def _compare(c: NodeCall) -> OnnxValue:
    return cast(c.b, arith(c.b, _COMPARE[c.kind], c.x, c.value(1)), "bool")


def _logic(c: NodeCall) -> OnnxValue:
    word = {"And": "logical_and", "Or": "logical_or", "Xor": "logical_xor"}[c.kind]
    x, y = (cast(c.b, v, "float32") for v in (c.x, c.value(1)))
    return cast(c.b, as_scalar(c.b(f"broadcast_{word}", x, y), x.is_scalar and y.is_scalar), "bool")


def _not(c: NodeCall) -> OnnxValue:
    return cast(c.b, unary(c.b, "logical_not", cast(c.b, c.x, "float32")), "bool")


def _power(c: NodeCall) -> OnnxValue:
    x, y = c.x, c.value(1)
    if y.dtype != x.dtype and "float" in x.dtype:
        y = cast(c.b, y, x.dtype)
    elif "float" in y.dtype and "float" not in x.dtype:
        return cast(c.b, arith(c.b, "power", cast(c.b, x, y.dtype), y), x.dtype)
    return cast(c.b, arith(c.b, "power", x, y), x.dtype)


def _mod(c: NodeCall) -> OnnxValue:
    x, y = same_type(c.b, c.x, c.value(1))
    if not c.attrs["fmod"] and "float" not in x.dtype:
        return arith(c.b, "mod", x, y)
    made = c.b("_onnx_mod", x, y, fmod=bool(c.attrs["fmod"]))
    return as_scalar(made, x.is_scalar and y.is_scalar)


def _bitwise(c: NodeCall) -> OnnxValue:
    return _bits(c, c.kind.removeprefix("Bitwise").lower(), c.x, c.value(1))


def _bits(c: NodeCall, word: str, x: OnnxValue, y: OnnxValue) -> OnnxValue:
    return as_scalar(c.b("_onnx_bitwise", x, y, kind=word), x.is_scalar and y.is_scalar)


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
    found = paired(c.b, word, [c.value(i) for i in range(len(c.inputs))])
    return arith(c.b, "div", found, float(len(c.inputs))) if c.kind == "Mean" else found


def _clip(c: NodeCall) -> OnnxValue:
    low = c.b.constant(float(c.attrs["min"])) if "min" in c.attrs else c.maybe(1)
    high = c.b.constant(float(c.attrs["max"])) if "max" in c.attrs else c.maybe(2)
    found = c.x
    for word, limit in (("maximum", low), ("minimum", high)):
        if limit is not None:
            found = arith(c.b, word, found, cast(c.b, limit, found.dtype))
    return found


def _round(c: NodeCall) -> OnnxValue:
    return even(c.b, c.x)


def _activation(c: NodeCall) -> OnnxValue:
    return unary(c.b, "Activation", c.x, act_type={"Softplus": "softrelu"}[c.kind])


def _leaky(kind: str, c: NodeCall) -> OnnxValue:
    slope = c.attrs.get("alpha", 1.0)
    return unary(c.b, "LeakyReLU", c.x, act_type=kind, slope=slope)


def _selu(c: NodeCall) -> OnnxValue:
    alpha, gamma = c.attrs["alpha"], c.attrs["gamma"]
    return arith(c.b, "mul", unary(c.b, "LeakyReLU", c.x, act_type="elu", slope=alpha), gamma)


def _celu(c: NodeCall) -> OnnxValue:
    alpha = c.attrs["alpha"]
    inner = arith(c.b, "div", c.x, alpha)
    return arith(c.b, "mul", unary(c.b, "LeakyReLU", inner, act_type="elu", slope=1.0), alpha)


def _prelu(c: NodeCall) -> OnnxValue:
    b, x, slope = c.b, c.x, c.value(1)
    is_plain = slope.rank == x.rank - 1 and slope.rank and math.prod(slope.shapes[0][1:]) == 1
    if is_plain and slope.size(0) == x.size(1):
        flat = slope if slope.rank == 1 else b("Reshape", slope, shape=(-1,))
        return b("LeakyReLU", x, flat, act_type="prelu")
    low = arith(b, "minus", x, unary(b, "relu", x))
    return arith(b, "plus", unary(b, "relu", x), arith(b, "mul", low, slope))


def _gelu(c: NodeCall) -> OnnxValue:
    if c.attrs["approximate"] == "none":
        return unary(c.b, "LeakyReLU", c.x, act_type="gelu")
    cube = arith(c.b, "mul", arith(c.b, "mul", c.x, c.x), c.x)
    inner = arith(c.b, "plus", c.x, arith(c.b, "mul", cube, 0.044715))
    gate = unary(c.b, "tanh", arith(c.b, "mul", inner, math.sqrt(2 / math.pi)))
    return arith(c.b, "mul", arith(c.b, "mul", c.x, 0.5), arith(c.b, "plus", gate, 1.0))


def _hard_sigmoid(c: NodeCall) -> OnnxValue:
    return unary(c.b, "hard_sigmoid", c.x, alpha=c.attrs["alpha"], beta=c.attrs["beta"])


def _hard_swish(c: NodeCall) -> OnnxValue:
    return arith(c.b, "mul", c.x, unary(c.b, "hard_sigmoid", c.x, alpha=1 / 6, beta=0.5))


def _swish(c: NodeCall) -> OnnxValue:
    return arith(c.b, "mul", c.x, unary(c.b, "sigmoid", arith(c.b, "mul", c.x, c.attrs["alpha"])))


def _mish(c: NodeCall) -> OnnxValue:
    inner = unary(c.b, "tanh", unary(c.b, "Activation", c.x, act_type="softrelu"))
    return arith(c.b, "mul", c.x, inner)


def _thresholded(c: NodeCall) -> OnnxValue:
    return arith(c.b, "mul", c.x, arith(c.b, "greater", c.x, c.attrs["alpha"]))


def _shrink(c: NodeCall) -> OnnxValue:
    bias, limit = c.attrs["bias"], c.attrs["lambd"]
    high = arith(c.b, "mul", arith(c.b, "minus", c.x, bias), arith(c.b, "greater", c.x, limit))
    low = arith(c.b, "mul", arith(c.b, "plus", c.x, bias), arith(c.b, "lesser", c.x, -limit))
    return arith(c.b, "plus", high, low)


def _is_nan(c: NodeCall) -> OnnxValue:
    return cast(c.b, as_scalar(c.b("broadcast_not_equal", c.x, c.x), c.x.is_scalar), "bool")


def _is_inf(c: NodeCall) -> OnnxValue:
    found = []
    if c.attrs["detect_positive"]:
        found.append(arith(c.b, "equal", c.x, math.inf))
    if c.attrs["detect_negative"]:
        found.append(arith(c.b, "equal", c.x, -math.inf))
    return cast(c.b, paired(c.b, "plus", found) if found else arith(c.b, "mul", c.x, 0.0), "bool")


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
    return [unary(c.b, "Dropout", c.x, p=rate)]


def _where(c: NodeCall) -> OnnxValue:
    b = c.b
    x, y = same_type(b, c.value(1), c.value(2))
    condition = c.x
    shape = broadcast_dims(condition, x, y)
    is_scalar = not shape[0]
    if condition.dtype == "bool":
        condition = cast(b, condition, "float32")
    held = tuple(s or (1,) for s in shape)
    parts = [_stretched(b, v, held) for v in (condition, x, y)]
    return as_scalar(b("where", *parts), is_scalar)


def _stretched(b: Any, x: OnnxValue, shape: tuple[tuple[int, ...], ...]) -> OnnxValue:
    x = as_scalar(x, False)
    number = b.fixed(x) if x.known is not None and not x.trains and math.prod(x.shapes[0]) == 1 else None
    if number is not None and x.shapes != shape:
        return filled(b, shape, float(number), x.dtype)
    return expand(b, x, shape)


def _cumsum(c: NodeCall) -> OnnxValue:
    axis = normal(int(c.b.needed(c.value(1), "axis")), c.x.rank)
    found = c.b("reverse", c.x, axis=axis) if c.attrs["reverse"] else c.x
    total: OnnxValue = c.b("_np_cumsum", found, axis=axis)
    if c.attrs["exclusive"]:
        total = arith(c.b, "minus", total, found)
    return c.b("reverse", total, axis=axis) if c.attrs["reverse"] else total


def _det(c: NodeCall) -> OnnxValue:
    return as_scalar(c.b("_linalg_det", c.x), c.x.rank == 2)


def _trilu(c: NodeCall) -> OnnxValue:
    b, x = c.b, c.x
    k = int(b.needed(c.value(1), "k")) if c.maybe(1) is not None else 0
    rows, columns = x.axis(x.rank - 2), x.axis(x.rank - 1)
    i = unsqueeze(b, positions(b, rows, dtype="float32"), [1])
    j = positions(b, columns, dtype="float32")
    gap = arith(b, "minus", j, i)
    keep = arith(b, "greater_equal" if c.attrs["upper"] else "lesser_equal", gap, float(k))
    zero = b.constant(torch.zeros(()), x.dtype)
    shape = x.dims
    parts = [_stretched(b, keep, shape), x, _stretched(b, zero, shape)]
    return b("where", *parts)


def _transpose(c: NodeCall) -> OnnxValue:
    order = c.attrs.get("perm") or list(reversed(range(c.x.rank)))
    return transpose(c.b, c.x, [normal(a, c.x.rank) for a in order])


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
