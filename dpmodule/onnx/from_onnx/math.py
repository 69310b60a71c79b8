"""Translators of arithmetic, comparison, logic, reductions, softmax and random numbers."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from .build import GraphBuilder, NodeCall, Translator
from .check import Unsupported
from .read import DTYPES, RANGES
from .shape_helpers import (
    broadcast_dims,
    expand,
    filled,
    fold,
    normalize_axis,
    positions,
    reshape,
    round_half_even,
    transpose,
    unsqueeze,
)
from .types import cast_to
from .value import OnnxValue, same_type

_SAME = "Abs Ceil Cos Cosh Erf Exp Floor Log Reciprocal Relu Sigmoid Sign Sin Sinh Softsign Sqrt Tan Tanh"
_UNARY = {
    **{name: name.lower() for name in _SAME.split()},
    **{f"A{name}": f"arc{name}" for name in ("cos", "cosh", "sin", "sinh", "tan", "tanh")},
    "Neg": "negative",
}
"""Operators with a single counterpart: ONNX's name and MXNet's."""

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
    result = c.b("_onnx_mod", x, y, fmod=bool(c.attrs["fmod"]))
    return result.as_scalar(x.is_scalar and y.is_scalar)


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
    result = _bits(c, word, x, y)
    if x.type != 13 or word == "left_shift":
        return result
    # the sign is shifted in from the left: mask these bits
    signs = _bits(c, "right_shift", b.constant(torch.tensor([-(2**63)])), y)
    signs = _bits(c, "left_shift", signs, b.constant(torch.tensor([1])))
    return _bits(c, "and", result, _turned(c, signs, -1))


def _variadic(c: NodeCall) -> OnnxValue:
    word = {"Max": "maximum", "Min": "minimum"}.get(c.kind, "plus")
    result = fold(word, [c.value(i) for i in range(len(c.inputs))])
    return result / float(len(c.inputs)) if c.kind == "Mean" else result


def _clip(c: NodeCall) -> OnnxValue:
    low = c.b.constant(float(c.attrs["min"])) if "min" in c.attrs else c.maybe(1)
    high = c.b.constant(float(c.attrs["max"])) if "max" in c.attrs else c.maybe(2)
    result = c.x
    for word, limit in (("maximum", low), ("minimum", high)):
        if limit is not None:
            result = result.arith(word, limit.cast(result.dtype))
    return result


def _leaky(kind: str, c: NodeCall) -> OnnxValue:
    slope = c.attrs.get("alpha", 1.0)
    return c.x.apply("LeakyReLU", act_type=kind, slope=slope)


def _selu(c: NodeCall) -> OnnxValue:
    gamma: float = c.attrs["gamma"]
    return c.x.apply("LeakyReLU", act_type="elu", slope=c.attrs["alpha"]) * gamma


def _celu(c: NodeCall) -> OnnxValue:
    alpha: float = c.attrs["alpha"]
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


def _mish(c: NodeCall) -> OnnxValue:
    inner = c.x.apply("Activation", act_type="softrelu").apply("tanh")
    return c.x * inner


def _shrink(c: NodeCall) -> OnnxValue:
    bias, limit = float(c.attrs["bias"]), float(c.attrs["lambd"])
    high = (c.x - bias) * (c.x > limit)
    low = (c.x + bias) * (c.x < -limit)
    return high + low


def _is_inf(c: NodeCall) -> OnnxValue:
    results = []
    if c.attrs["detect_positive"]:
        results.append(c.x.arith("equal", math.inf))
    if c.attrs["detect_negative"]:
        results.append(c.x.arith("equal", -math.inf))
    return (fold("plus", results) if results else c.x * 0.0).cast("bool")


def _cast(c: NodeCall) -> OnnxValue:
    code = c.value(1).type if c.kind == "CastLike" else c.attrs["to"]
    return cast_to(c.b, c.x, code, bool(c.attrs.get("saturate", 1)))


def _dropout(c: NodeCall) -> list[Any]:
    if len(c.used) > 1 and c.used[1]:
        raise Unsupported("its output of the mask is read")
    rate = c.attrs.get("ratio", 0.5)
    if c.has(1):
        rate = float(c.b.required_constant(c.value(1), "ratio"))
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
    parts = [_broadcast_to(b, v, held) for v in (condition, x, y)]
    return b("where", *parts).as_scalar(is_scalar)


def _broadcast_to(b: Any, x: OnnxValue, shape: tuple[tuple[int, ...], ...]) -> OnnxValue:
    x = x.as_scalar(False)
    number = (
        b.constant_value(x) if x.known is not None and not x.trains and math.prod(x.shapes[0]) == 1 else None
    )
    if number is not None and x.shapes != shape:
        return filled(b, shape, float(number), x.dtype)
    return expand(x, shape)


def _cumsum(c: NodeCall) -> OnnxValue:
    axis = normalize_axis(int(c.b.required_constant(c.value(1), "axis")), c.x.rank)
    result = c.b("reverse", c.x, axis=axis) if c.attrs["reverse"] else c.x
    total: OnnxValue = c.b("_np_cumsum", result, axis=axis)
    if c.attrs["exclusive"]:
        total = total - result
    return c.b("reverse", total, axis=axis) if c.attrs["reverse"] else total


def _trilu(c: NodeCall) -> OnnxValue:
    b, x = c.b, c.x
    k = int(b.required_constant(c.value(1), "k")) if c.maybe(1) is not None else 0
    rows, columns = x.axis(x.rank - 2), x.axis(x.rank - 1)
    i = unsqueeze(positions(b, rows, dtype="float32"), [1])
    j = positions(b, columns, dtype="float32")
    gap = j - i
    keep = gap.arith("greater_equal" if c.attrs["upper"] else "lesser_equal", float(k))
    zero = b.constant(torch.zeros(()), x.dtype)
    shape = x.dims
    parts = [_broadcast_to(b, keep, shape), x, _broadcast_to(b, zero, shape)]
    return b("where", *parts)


def _transpose(c: NodeCall) -> OnnxValue:
    order = c.attrs.get("perm") or list(reversed(range(c.x.rank)))
    return transpose(c.x, [normalize_axis(a, c.x.rank) for a in order])


# reductions and softmax

_PLAIN = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
}


def _axes(c: NodeCall) -> list[int] | None:
    """Return the axes to reduce; None if there is nothing to reduce."""
    given = c.fixed_ints("axes", 1)
    if not given:
        return None if c.attrs.get("noop_with_empty_axes") else list(range(c.x.rank))
    return sorted({normalize_axis(a, c.x.rank) for a in given})


def _reduce(c: NodeCall) -> OnnxValue:
    axes, keep, x, b = _axes(c), bool(c.attrs["keepdims"]), c.x, c.b
    if c.kind in ("ReduceL1", "ReduceL2", "ReduceSumSquare"):
        x = x.apply("abs" if c.kind == "ReduceL1" else "square")
    if c.kind == "ReduceLogSumExp" and axes is not None:
        return _log_sum_exp(b, x, axes, keep)
    result = x if axes is None else _summable(x).reduce(_PLAIN.get(c.kind, "sum"), axes, keep)
    if c.kind == "ReduceL2":
        return result.apply("sqrt")
    return result.apply("log") if c.kind == "ReduceLogSum" else result.cast(x.dtype)


def _summable(x: OnnxValue) -> OnnxValue:
    return x.cast("int64") if x.dtype == "bool" else x


def _log_sum_exp(b: GraphBuilder, x: OnnxValue, axes: list[int], keep: bool) -> OnnxValue:
    highest = b("stop_gradient", x.reduce("max", axes, True))
    total = (x - highest).apply("exp").reduce("sum", axes, True)
    result = total.apply("log") + highest
    if keep or x.is_scalar:
        return result
    shapes = tuple(tuple(d for i, d in enumerate(s) if i not in axes) for s in result.shapes)
    return reshape(result, shapes)


def _arg(c: NodeCall) -> OnnxValue:
    b, x = c.b, c.x
    axis, keep = normalize_axis(c.attrs["axis"], x.rank), bool(c.attrs["keepdims"])
    name = "argmax" if c.kind == "ArgMax" else "argmin"
    source = b("reverse", x, axis=axis) if c.attrs.get("select_last_index") else x
    if x.dtype in ("float16", "bfloat16", "int8", "uint8", "bool"):
        source = source.cast("float32")  # positions have the data's type, which may be too small
    result = b(name, source, axis=axis, keepdims=keep).cast("int64").as_scalar(x.rank == 1 and not keep)
    if c.attrs.get("select_last_index"):
        size = x.size(axis)
        if size is None:
            raise Unsupported("select_last_index along an axis of open length")
        result = float(size - 1) - result
    return result


def _softmax(c: NodeCall) -> OnnxValue:
    b, x = c.b, c.x
    name = {"Softmax": "softmax", "LogSoftmax": "log_softmax", "Hardmax": ""}[c.kind]
    axis = normalize_axis(c.attrs["axis"], x.rank)
    if c.since >= 13 or axis == x.rank - 1:
        return _softmax_of(b, name, x, axis)
    flat = reshape(x, tuple((*s[:axis], math.prod(s[axis:])) for s in x.shapes))
    result = _softmax_of(b, name, flat, axis)
    return b("reshape_like", result, x)


def _softmax_of(b: GraphBuilder, name: str, x: OnnxValue, axis: int) -> OnnxValue:
    if name:
        return x.apply(name, axis=axis)
    size = x.size(axis)
    if size is None:
        raise Unsupported("Hardmax along an axis of open length")
    hot: OnnxValue = b("one_hot", b("argmax", x, axis=axis), depth=size, dtype=x.dtype)
    order = [*range(axis), x.rank - 1, *range(axis, x.rank - 1)]
    return b("transpose", hot, axes=tuple(order)) if x.rank > 1 else hot


# random numbers


def _random_options(c: NodeCall) -> dict[str, Any]:
    a = c.attrs
    if "Normal" in c.kind:
        return {"loc": a["mean"], "scale": a["scale"]}
    return {"low": a["low"], "high": a["high"]}


def _random_operator(c: NodeCall) -> str:
    return "_random_normal" if "Normal" in c.kind else "_random_uniform"


def _like(c: NodeCall) -> OnnxValue:
    wanted = DTYPES.get(c.attrs.get("dtype", 0), c.x.dtype)
    source = c.x if "float" in c.x.dtype else c.x.cast("float32")
    return source.apply(f"{_random_operator(c)}_like", **_random_options(c)).cast(wanted)


def _of_shape(c: NodeCall) -> OnnxValue:
    shape = tuple(c.attrs["shape"])
    if any(d < 1 for d in shape):
        raise Unsupported(f"shape {shape}")
    result = c.b(_random_operator(c), shape=shape or (1,), dtype="float32", **_random_options(c))
    return result.as_scalar(not shape).cast(DTYPES.get(c.attrs["dtype"], "float32"))


TABLE: dict[str, Translator] = {
    **dict.fromkeys(_UNARY, _unary),
    **dict.fromkeys(_BINARY, _binary),
    **dict.fromkeys(_COMPARE, _compare),
    **dict.fromkeys(("And", "Or", "Xor"), _logic),
    **dict.fromkeys(("Max", "Min", "Sum", "Mean"), _variadic),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), _bitwise),
    **dict.fromkeys(("Cast", "CastLike"), _cast),
    "BitShift": _bit_shift,
    "BitwiseNot": _bitwise_not,
    "Celu": _celu,
    "Clip": _clip,
    "CumSum": _cumsum,
    "Det": lambda c: c.b("_linalg_det", c.x).as_scalar(c.x.rank == 2),
    "Dropout": _dropout,
    "Elu": partial(_leaky, "elu"),
    "Gelu": _gelu,
    "HardSigmoid": lambda c: c.x.apply("hard_sigmoid", alpha=c.attrs["alpha"], beta=c.attrs["beta"]),
    "HardSwish": lambda c: c.x * c.x.apply("hard_sigmoid", alpha=1 / 6, beta=0.5),
    "Identity": lambda c: c.inputs[0],
    "IsInf": _is_inf,
    "IsNaN": lambda c: c.b("broadcast_not_equal", c.x, c.x).as_scalar(c.x.is_scalar).cast("bool"),
    "LeakyRelu": partial(_leaky, "leaky"),
    "Mish": _mish,
    "Mod": _mod,
    "Not": lambda c: c.x.cast("float32").apply("logical_not").cast("bool"),
    "PRelu": _prelu,
    "Pow": _power,
    "Round": lambda c: round_half_even(c.x),
    "Selu": _selu,
    "Shrink": _shrink,
    "Softplus": lambda c: c.x.apply("Activation", act_type="softrelu"),
    "Swish": lambda c: c.x * (c.x * c.attrs["alpha"]).apply("sigmoid"),
    "ThresholdedRelu": lambda c: c.x * (c.x > c.attrs["alpha"]),
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Where": _where,
    **dict.fromkeys(_PLAIN, _reduce),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"), _reduce),
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _softmax),
    **dict.fromkeys(("RandomNormalLike", "RandomUniformLike"), _like),
    **dict.fromkeys(("RandomNormal", "RandomUniform"), _of_shape),
}
