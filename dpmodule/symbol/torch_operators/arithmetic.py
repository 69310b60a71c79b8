"""Elementwise arithmetic, comparison and selection."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..symbol import Symbol
from .builder import SymbolBuilder
from .table import TABLE, translates
from .value import Dims, NoCounterpart, Operand, TorchValue, broadcast_dims, dims_of, same


def _value(b: SymbolBuilder, operand: Operand, dtype: torch.dtype) -> TorchValue:
    """Return an operand as a value of a type."""
    if isinstance(operand, TorchValue):
        return b.cast(operand, dtype)
    if isinstance(operand, (bool, int, float)):
        return TorchValue((), dtype, None, torch.tensor(operand, dtype=dtype))
    return b.size(operand, dtype)


def _alone(operand: Operand, other: Operand, dims: Dims) -> Any:
    """Return an operand as a number, if the other one already has the shape of the result."""
    if isinstance(operand, (bool, int, float)):
        return operand
    if not isinstance(operand, TorchValue) or operand.number is None or not isinstance(other, TorchValue):
        return None
    whole = other.rank == len(dims) and all(map(same, other.dims, dims))
    return operand.number if whole else None


def binary(
    b: SymbolBuilder,
    names: tuple[str, str, str],
    left: Operand,
    right: Operand,
    dtype: torch.dtype | None = None,
) -> Symbol:
    """Apply an operator to two operands, one of which may be a number.

    Args:
        names: names of the operator for arrays, with a number on the right, and with one on the left, without prefix
            and suffix.
        dtype: type of the computation; None means that of the result.
    """
    dtype = dtype or b.result.dtype
    dims = dims_of(b.result)
    number = _alone(right, left, dims)
    if number is not None and isinstance(left, TorchValue):
        return b.with_number(names[1], b.cast(left, dtype), number)
    number = _alone(left, right, dims)
    if number is not None and isinstance(right, TorchValue):
        return b.with_number(names[2], b.cast(right, dtype), number)
    return b.pair(names[0], _value(b, left, dtype), _value(b, right, dtype))


def _scaled(b: SymbolBuilder, operand: Operand, factor: float) -> Operand:
    """Return an operand times a number."""
    if factor == 1:
        return operand
    if isinstance(operand, TorchValue) and operand.number is None:
        value = b.cast(operand, b.result.dtype)
        return b.value(b.with_number("mul", value, factor), value.dims, value.dtype)
    return (operand.number if isinstance(operand, TorchValue) else operand) * factor


@translates("add")
def _add(b: SymbolBuilder, left: Operand, right: Operand, alpha: float = 1) -> Symbol:
    return binary(b, ("add", "plus", "plus"), left, _scaled(b, right, alpha))


@translates("sub", "subtract")
def _sub(b: SymbolBuilder, left: Operand, right: Operand, alpha: float = 1) -> Symbol:
    return binary(b, ("sub", "minus", "rminus"), left, _scaled(b, right, alpha))


@translates("rsub")
def _rsub(b: SymbolBuilder, left: Operand, right: Operand, alpha: float = 1) -> Symbol:
    return binary(b, ("sub", "minus", "rminus"), right, _scaled(b, left, alpha))


_PLAIN = {
    ("mul", "mul", "mul"): ("mul", "multiply"),
    ("mod", "mod", "rmod"): ("remainder",),
    ("maximum", "maximum", "maximum"): ("maximum", "max.other", "fmax"),
    ("minimum", "minimum", "minimum"): ("minimum", "min.other", "fmin"),
    ("hypot", "hypot", "hypot"): ("hypot",),
}
"""Operators translated by `binary`: its names, and those of torch."""


def _binary(names: tuple[str, str, str]) -> Any:
    def translate(b: SymbolBuilder, left: Operand, right: Operand) -> Symbol:
        return binary(b, names, left, right)

    return translate


for _ours, _theirs in _PLAIN.items():
    translates(*_theirs)(_binary(_ours))


@translates("div", "divide", "true_divide")
def _div(b: SymbolBuilder, left: Operand, right: Operand, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        dtype = b.result.dtype
        if not (dtype.is_floating_point or dtype.is_complex):  # torch 2.6 reports this type for dynamic sizes
            raise NoCounterpart(
                "divides integers, whose quotient is an integer in this torch; divide x.float()"
            )
        return binary(b, ("div", "div", "rdiv"), left, right)
    real = b.result.dtype if b.result.dtype.is_floating_point else torch.float64
    quotient = binary(b, ("div", "div", "rdiv"), left, right, real)
    rounded = b.op("floor" if rounding_mode == "floor" else "trunc", quotient)
    return b.cast(b.value(rounded, dims_of(b.result), real), b.result.dtype)


translates("floor_divide")(lambda b, left, right: _div(b, left, right, "floor"))


@translates("fmod")
def _fmod(b: SymbolBuilder, left: Operand, right: Operand) -> Symbol:
    dims, dtype = dims_of(b.result), b.result.dtype
    whole = b.value(b.op("trunc", binary(b, ("div", "div", "rdiv"), left, right)), dims, dtype)
    taken = b.value(binary(b, ("mul", "mul", "mul"), whole, right), dims, dtype)
    return binary(b, ("sub", "minus", "rminus"), left, taken)


@translates("pow")
def _pow(b: SymbolBuilder, left: Operand, right: Operand) -> Symbol:
    exponent = _alone(right, left, dims_of(b.result))
    special = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}.get(exponent)
    if special and isinstance(left, TorchValue):
        return b.op(special, b.cast(left, b.result.dtype))
    return binary(b, ("power", "power", "rpower"), left, right)


def _add_both(name: str) -> Any:
    def translate(
        b: SymbolBuilder, base: TorchValue, left: TorchValue, right: TorchValue, value: float = 1
    ) -> Symbol:
        both = b.value(b.pair(name, left, right), broadcast_dims(left.dims, right.dims), b.result.dtype)
        return _add(b, base, both, value)

    return translate


TABLE["addcmul"], TABLE["addcdiv"] = _add_both("mul"), _add_both("div")


@translates("lerp")
def _lerp(b: SymbolBuilder, start: TorchValue, end: TorchValue, weight: Operand) -> Symbol:
    gap = b.value(b.pair("sub", end, start), broadcast_dims(end.dims, start.dims), b.result.dtype)
    change = b.value(binary(b, ("mul", "mul", "mul"), gap, weight), dims_of(b.result), b.result.dtype)
    return _add(b, start, change)


# comparison


def _common(left: Operand, right: Operand) -> torch.dtype:
    """Return the type in which two operands are compared."""
    examples: list[Any] = [
        torch.empty((1,) * min(o.rank, 1), dtype=o.dtype)
        if isinstance(o, TorchValue)
        else (o if isinstance(o, (bool, int, float)) else 0)
        for o in (left, right)
    ]
    return torch.result_type(*examples)


def _compare(name: str, mirrored: str) -> Any:
    def translate(b: SymbolBuilder, left: Operand, right: Operand) -> Symbol:
        dtype = _common(left, right)
        answers = binary(b, (name, name, mirrored), left, right, dtype)
        return b.as_truth(answers, TorchValue((), dtype))

    return translate


for _name, _compared, _mirrored in (
    ("eq", "equal", "equal"),
    ("ne", "not_equal", "not_equal"),
    ("gt", "greater", "lesser"),
    ("ge", "greater_equal", "lesser_equal"),
    ("lt", "lesser", "greater"),
    ("le", "lesser_equal", "greater_equal"),
):
    TABLE[_name] = _compare(_compared, _mirrored)


def _logical(name: str) -> Any:
    def translate(b: SymbolBuilder, left: Operand, right: Operand) -> Symbol:
        if b.result.dtype is not torch.bool:
            raise NoCounterpart("uses bits of integers, for which MXNet has no operator")
        return b.pair(name, _value(b, left, torch.bool), _value(b, right, torch.bool))

    return translate


for _word in ("and", "or", "xor"):
    translates(f"logical_{_word}", f"bitwise_{_word}", f"__{_word}__")(_logical(f"logical_{_word}"))


@translates("logical_not", "bitwise_not")
def _not(b: SymbolBuilder, value: TorchValue) -> Symbol:
    if b.result.dtype is not torch.bool:
        raise NoCounterpart("uses bits of integers, for which MXNet has no operator")
    return b.op("logical_not", b.cast(value, torch.bool))


translates("isnan")(lambda b, value: b.as_truth(b.pair("not_equal", value, value), value))


# selection


@translates("where")
def _where(b: SymbolBuilder, condition: TorchValue, left: Operand, right: Operand) -> Symbol:
    dims, dtype = dims_of(b.result), b.result.dtype
    sides = [b.expand(_value(b, side, dtype), dims) for side in (left, right)]
    return b.op("where", b.expand(b.cast(condition, torch.bool), dims), *sides)


translates("masked_fill")(lambda b, value, mask, number: _where(b, mask, number, value))


@translates("clamp", "clip")
def _clamp(
    b: SymbolBuilder, value: TorchValue, low: Operand | None = None, high: Operand | None = None, **named: Any
) -> Any:
    low, high = named.get("min", low), named.get("max", high)
    value = b.cast(value, b.result.dtype)
    if not isinstance(low, TorchValue) and not isinstance(high, TorchValue):
        least, most = (-math.inf if low is None else low), (math.inf if high is None else high)
        return b.op("clip", value, a_min=float(least), a_max=float(most))
    for name, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            bounded = binary(b, (name, name, name), value, bound)
            value = b.value(bounded, dims_of(b.result), value.dtype)
    return value


translates("clamp_min")(lambda b, value, low: _clamp(b, value, low))
translates("clamp_max")(lambda b, value, high: _clamp(b, value, None, high))


# functions of one operand

_UNARY = """
    abs ceil cos cosh erf erfinv exp expm1 floor log log10 log1p log2 negative reciprocal rsqrt
    sigmoid sign sin sinh sqrt square tan tanh trunc
"""
_RENAMED_UNARY = {
    "absolute": "abs",
    "acos": "arccos",
    "acosh": "arccosh",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atanh": "arctanh",
    "deg2rad": "radians",
    "fix": "trunc",
    "lgamma": "gammaln",
    "neg": "negative",
    "rad2deg": "degrees",
    "round.default": "rint",
    "sgn": "sign",
    "special_expit": "sigmoid",
}
"""Functions of one name in torch and here, and others by torch's name."""


def _unary(name: str) -> Any:
    def translate(b: SymbolBuilder, value: TorchValue) -> Symbol:
        return b.op(name, b.cast(value, b.result.dtype))

    return translate


for _name, _element in {**{name: name for name in _UNARY.split()}, **_RENAMED_UNARY}.items():
    TABLE[_name] = _unary(_element)


@translates("exp2")
def _exp2(b: SymbolBuilder, value: TorchValue) -> Symbol:
    return b.op("exp", b.with_number("mul", b.cast(value, b.result.dtype), math.log(2.0)))


translates("erfc")(lambda b, value: b.op("_rminus_scalar", b.op("erf", value), scalar=1.0))
