"""Arrays from nothing, and random ones."""

from __future__ import annotations

from typing import Any

import torch

from ..symbol import Symbol
from .builder import SymbolBuilder
from .sizes import Size, dims_of, is_number
from .table import translates
from .value import NoCounterpart, TorchValue


def _filled(b: SymbolBuilder, number: float) -> TorchValue:
    return b.full(dims_of(b.result), number, b.result.dtype)


@translates("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty")
def _zeros(b: SymbolBuilder, *rest: Any, **named: Any) -> TorchValue:
    return _filled(b, 0)


@translates("ones", "ones_like", "new_ones")
def _ones(b: SymbolBuilder, *rest: Any, **named: Any) -> TorchValue:
    return _filled(b, 1)


@translates("full", "full_like", "new_full")
def _full(b: SymbolBuilder, given: object, number: Any, *rest: Any, **named: Any) -> TorchValue:
    # new_full takes the size second
    number = rest[0] if rest and not isinstance(number, (bool, int, float, TorchValue)) else number
    if isinstance(number, TorchValue):
        return b.expand(b.cast(number, b.result.dtype), dims_of(b.result))
    return _filled(b, number)


@translates("scalar_tensor")
def _scalar_tensor(b: SymbolBuilder, number: Size | float, **named: Any) -> TorchValue:
    return b.size(number, b.result.dtype) if not isinstance(number, float) else _filled(b, number)


@translates("arange")
def _arange(
    b: SymbolBuilder,
    start: Size | float,
    end: Size | float | None = None,
    step: Size | float = 1,
    **named: Any,
) -> TorchValue:
    start = 0 if end is None else start
    if not is_number(start) or not is_number(step):
        raise NoCounterpart("counts from or by a number that is not fixed")
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
def _one_hot(b: SymbolBuilder, value: TorchValue, depth: int = -1) -> Symbol:
    if depth < 0:
        raise NoCounterpart("counts the classes of one_hot itself; give num_classes")
    return b.op("one_hot", value, depth=depth, dtype="int64")


def _random(name: str) -> Any:
    def translate(b: SymbolBuilder, *rest: Any, **named: Any) -> Symbol:
        return b.op(name, _filled(b, 0))

    return translate


translates("randn", "randn_like")(_random("_random_normal_like"))
translates("rand", "rand_like")(_random("_random_uniform_like"))


def _drawn(b: SymbolBuilder, like: TorchValue, dtype: torch.dtype) -> TorchValue:
    """Return numbers drawn evenly from [0, 1) in the shape of a value."""
    return b.value(b.op("_random_uniform_like", b.cast(like, dtype)), like.dims, dtype)


@translates("bernoulli")
def _bernoulli(
    b: SymbolBuilder, value: TorchValue, p: float | TorchValue | None = None, **named: Any
) -> Symbol:
    kind = b.result.dtype
    if isinstance(p, float):
        return b.op("_lesser_scalar", _drawn(b, value, kind), scalar=p)
    chance = b.cast(value if p is None else p, kind)
    return b.pair("lesser", _drawn(b, value, kind), chance)


@translates("exponential")
def _exponential(b: SymbolBuilder, value: TorchValue, rate: float = 1.0, **named: Any) -> Symbol:
    rest = b.op("_rminus_scalar", _drawn(b, value, b.result.dtype), scalar=1.0)
    return b.op("_div_scalar", b.op("negative", b.op("log", rest)), scalar=float(rate))
