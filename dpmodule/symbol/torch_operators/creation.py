"""Arrays from nothing, and random ones."""

from __future__ import annotations

from typing import Any

import torch

from ..symbol import Symbol
from .builder import Builder
from .sizes import Size, dims_of, is_number
from .table import translates
from .value import Untranslatable, Value

__all__: list[str] = []


def _filled(b: Builder, number: float) -> Value:
    return b.full(dims_of(b.result), number, b.result.dtype)


@translates("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty")
def _zeros(b: Builder, *rest: Any, **named: Any) -> Value:
    return _filled(b, 0)


@translates("ones", "ones_like", "new_ones")
def _ones(b: Builder, *rest: Any, **named: Any) -> Value:
    return _filled(b, 1)


@translates("full", "full_like", "new_full")
def _full(b: Builder, given: object, number: Any, *rest: Any, **named: Any) -> Value:
    # new_full takes the size second
    number = rest[0] if rest and not isinstance(number, (bool, int, float, Value)) else number
    if isinstance(number, Value):
        return b.expand(b.cast(number, b.result.dtype), dims_of(b.result))
    return _filled(b, number)


@translates("scalar_tensor")
def _scalar_tensor(b: Builder, number: Size | float, **named: Any) -> Value:
    return b.size(number, b.result.dtype) if not isinstance(number, float) else _filled(b, number)


@translates("arange")
def _arange(
    b: Builder, start: Size | float, end: Size | float | None = None, step: Size | float = 1, **named: Any
) -> Value:
    start = 0 if end is None else start
    if not is_number(start) or not is_number(step):
        raise Untranslatable("counts from or by a number that is not fixed")
    (size,) = dims_of(b.result)
    found = b.find(size)
    if found is not None:
        row = b.indices(*found)
    else:
        ones = b.full((size,), 1, torch.float32)
        row = b.value(b.op("_minus_scalar", b.op("cumsum", ones, axis=0), scalar=1.0), (size,), torch.float32)
    symbol = b.sym(row)
    if step != 1:
        symbol = b.op("_mul_scalar", symbol, scalar=float(step))
    if start:
        symbol = b.op("_plus_scalar", symbol, scalar=float(start))
    return b.cast(b.value(symbol, (size,), torch.float32), b.result.dtype)


@translates("one_hot")
def _one_hot(b: Builder, value: Value, depth: int = -1) -> Symbol:
    if depth < 0:
        raise Untranslatable("counts the classes of one_hot itself; give num_classes")
    return b.op("one_hot", value, depth=depth, dtype="int64")


def _random(name: str) -> Any:
    def translate(b: Builder, *rest: Any, **named: Any) -> Symbol:
        return b.op(name, _filled(b, 0))

    return translate


translates("randn", "randn_like")(_random("_random_normal_like"))
translates("rand", "rand_like")(_random("_random_uniform_like"))


def _drawn(b: Builder, like: Value, dtype: torch.dtype) -> Value:
    """Return numbers drawn evenly from [0, 1) in the shape of a value."""
    return b.value(b.op("_random_uniform_like", b.cast(like, dtype)), like.dims, dtype)


@translates("bernoulli")
def _bernoulli(b: Builder, value: Value, p: float | Value | None = None, **named: Any) -> Symbol:
    kind = b.result.dtype
    if isinstance(p, float):
        return b.op("_lesser_scalar", _drawn(b, value, kind), scalar=p)
    chance = b.cast(value if p is None else p, kind)
    return b.pair("lesser", _drawn(b, value, kind), chance)


@translates("exponential")
def _exponential(b: Builder, value: Value, rate: float = 1.0, **named: Any) -> Symbol:
    rest = b.op("_rminus_scalar", _drawn(b, value, b.result.dtype), scalar=1.0)
    return b.op("_div_scalar", b.op("negative", b.op("log", rest)), scalar=float(rate))
