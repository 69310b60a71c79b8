"""Sums, means, extremes and sorting along axes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from ..symbol import Symbol
from .builder import SymbolBuilder
from .table import TABLE, translates
from .value import NoCounterpart, Size, TorchValue, is_number

if TYPE_CHECKING:
    from ...types import Ints

Axes: TypeAlias = "Ints | None"
"""One axis, several, or all."""


def _axes(value: TorchValue, axes: Axes) -> tuple[int, ...]:
    """Return non-negative axes; all if none are passed."""
    if axes is None or (isinstance(axes, (list, tuple)) and not axes):
        return tuple(range(max(value.rank, 1)))
    return tuple(value.axis(a) for a in ([axes] if isinstance(axes, int) else axes))


def reduce(b: SymbolBuilder, name: str, value: TorchValue, axes: Axes = None, keep: bool = False) -> Symbol:
    """Apply a reduction."""
    normalized = _axes(value, axes)
    every = len(normalized) == max(value.rank, 1)
    return b.op(name, value, keepdims=keep, **({} if every and not keep else {"axis": normalized}))


def _reduction(name: str) -> Any:
    def translate(
        b: SymbolBuilder,
        value: TorchValue,
        dim: Axes = None,
        keepdim: bool = False,
        dtype: torch.dtype | None = None,
    ) -> Symbol:
        return reduce(b, name, b.cast(value, b.result.dtype), dim, keepdim)

    return translate


for _name, _ours in (
    ("sum", "sum"),
    ("mean", "mean"),
    ("amax", "max"),
    ("amin", "min"),
    ("nansum", "nansum"),
):
    TABLE[_name] = _reduction(_ours)
for _name, _ours in (("max.default", "max"), ("min.default", "min"), ("prod", "prod")):
    TABLE[_name] = _reduction(_ours)


def _with_places(name: str) -> Any:
    def translate(b: SymbolBuilder, value: TorchValue, dim: int, keepdim: bool = False) -> list[Any]:
        axis = value.axis(dim)
        indices = b.op(f"arg{name}", value, axis=axis, keepdims=keepdim)
        # one of several equal elements gets the gradient; in MXNet's max each does
        values = b.op("pick", value, indices, axis=axis, keepdims=keepdim)
        return [values, b.op("Cast", indices, dtype="int64")]

    return translate


TABLE["max.dim"], TABLE["min.dim"] = _with_places("max"), _with_places("min")


def _place(name: str) -> Any:
    def translate(
        b: SymbolBuilder, value: TorchValue, dim: int | None = None, keepdim: bool = False
    ) -> Symbol:
        if dim is None:
            value, dim = b.reshape(value, (_count(value, range(value.rank)),)), 0
        return b.op("Cast", b.op(name, value, axis=value.axis(dim), keepdims=keepdim), dtype="int64")

    return translate


TABLE["argmax"], TABLE["argmin"] = _place("argmax"), _place("argmin")


@translates("any")
def _any(b: SymbolBuilder, value: TorchValue, dim: Axes = None, keepdim: bool = False) -> Symbol:
    return reduce(b, "max", b.cast(value, torch.bool), dim, keepdim)


@translates("all")
def _all(b: SymbolBuilder, value: TorchValue, dim: Axes = None, keepdim: bool = False) -> Symbol:
    return reduce(b, "min", b.cast(value, torch.bool), dim, keepdim)


def _count(value: TorchValue, axes: Iterable[int]) -> Any:
    total: Any = 1
    for axis in axes:
        total = total * value.dims[axis]
    return total


def mean_of(b: SymbolBuilder, value: TorchValue, axes: Axes) -> TorchValue:
    """Return means that keep the axes with size 1."""
    normalized = _axes(value, axes)
    dims = tuple(1 if i in normalized else d for i, d in enumerate(value.dims))
    return b.value(reduce(b, "mean", value, normalized, True), dims, value.dtype)


def _variance(
    b: SymbolBuilder, value: TorchValue, axes: Axes, correction: float | None, keep: bool
) -> Symbol:
    reduced_axes = _axes(value, axes)
    centred = b.value(b.pair("sub", value, mean_of(b, value, reduced_axes)), value.dims, value.dtype)
    squares = b.value(b.op("square", centred), value.dims, value.dtype)
    mean = reduce(b, "mean", squares, reduced_axes, keep)
    correction = 1 if correction is None else correction
    if not correction:
        return mean
    count = _count(value, reduced_axes)
    if not is_number(count):
        raise NoCounterpart("computes a variance with correction over an axis whose size is not fixed")
    return b.op(
        "_mul_scalar", mean, scalar=count / max(count - correction, 0) if count > correction else math.nan
    )


def root(b: SymbolBuilder, total: Symbol, power: float = 0.5) -> Symbol:
    """Return a power of sums, with gradient 0 where a sum is 0, as in torch."""
    is_zero = b.op("_equal_scalar", total, scalar=0.0)
    safe = b.op("elemwise_add", total, is_zero)
    power_of_value = b.op("sqrt", safe) if power == 0.5 else b.op("_power_scalar", safe, scalar=power)
    return b.op("elemwise_sub", power_of_value, is_zero)


def _correction(options: dict[str, Any], dim: Axes, unbiased: bool | None) -> tuple[Any, Any]:
    """Return axes and correction of any overload of var and std."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None:
        return dim, int(unbiased)
    return dim, options.get("correction")


@translates("var")
def _var(
    b: SymbolBuilder,
    value: TorchValue,
    dim: Axes = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    **rest: Any,
) -> Symbol:
    axes, correction = _correction(rest, dim, unbiased)
    return _variance(b, value, axes, correction, keepdim)


translates("std")(lambda b, *of_var, **options: root(b, _var(b, *of_var, **options)))


@translates("var_mean")
def _var_mean(
    b: SymbolBuilder,
    value: TorchValue,
    dim: Axes = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    **rest: Any,
) -> list[Symbol]:
    axes, correction = _correction(rest, dim, unbiased)
    return [_variance(b, value, axes, correction, keepdim), reduce(b, "mean", value, axes, keepdim)]


@translates("linalg_vector_norm", "norm")
def _norm(
    b: SymbolBuilder,
    value: TorchValue,
    ord: float | None = 2,
    dim: Axes = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> Symbol:
    value = b.cast(value, b.result.dtype)
    ord = 2 if ord is None else ord
    if ord == 2:
        squares = b.value(b.op("square", value), value.dims, value.dtype)
        return root(b, reduce(b, "sum", squares, dim, keepdim))
    sizes = b.value(b.op("abs", value), value.dims, value.dtype)
    if math.isinf(ord):
        return reduce(b, "max" if ord > 0 else "min", sizes, dim, keepdim)
    if ord == 0:
        counted = b.value(b.op("_not_equal_scalar", value, scalar=0.0), value.dims, value.dtype)
        return reduce(b, "sum", counted, dim, keepdim)
    if ord == 1:
        return reduce(b, "sum", sizes, dim, keepdim)
    powers = b.value(b.op("_power_scalar", sizes, scalar=float(ord)), value.dims, value.dtype)
    return root(b, reduce(b, "sum", powers, dim, keepdim), 1.0 / ord)


@translates("logsumexp")
def _logsumexp(b: SymbolBuilder, value: TorchValue, dim: Axes, keepdim: bool = False) -> Symbol:
    value = b.cast(value, b.result.dtype)
    axes = _axes(value, dim)
    dims = tuple(1 if i in axes else d for i, d in enumerate(value.dims))
    most = torch.finfo(value.dtype).max  # infinity minus infinity would be NaN
    greatest = b.op("clip", reduce(b, "max", value, axes, True), a_min=-most, a_max=most)
    top = b.value(b.op("BlockGrad", greatest), dims, value.dtype)
    shifted = b.value(b.pair("sub", value, top), value.dims, value.dtype)
    grown = b.value(b.op("exp", shifted), value.dims, value.dtype)
    total = b.value(b.op("log", reduce(b, "sum", grown, axes, True)), dims, value.dtype)
    whole = b.pair("add", total, top, dims)
    return whole if keepdim else b.squeeze(whole, axes, max(value.rank, 1))


@translates("cumsum")
def _cumsum(b: SymbolBuilder, value: TorchValue, dim: int, dtype: torch.dtype | None = None) -> Symbol:
    return b.op("cumsum", b.cast(value, b.result.dtype), axis=value.axis(dim))


@translates("topk")
def _topk(
    b: SymbolBuilder, value: TorchValue, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True
) -> list[Any]:
    if not is_number(k):
        raise NoCounterpart("selects a number of elements that is not fixed")
    return _ordered(b, value, k, dim, not largest)


def _ordered(b: SymbolBuilder, value: TorchValue, k: int, dim: int, ascending: bool) -> list[Any]:
    options = {"axis": value.axis(dim), "k": k, "is_ascend": ascending, "ret_typ": "both", "dtype": "int64"}
    both = b.op("topk", value, **options)
    return [both[0], both[1]]


@translates("sort")
def _sort(
    b: SymbolBuilder, value: TorchValue, dim: int = -1, descending: bool = False, **rest: Any
) -> list[Any]:
    stable = rest.get("stable")
    if isinstance(stable, bool) and "dim" in rest:
        dim = rest["dim"]
    descending = rest.get("descending", descending)
    axis = value.axis(dim)
    indices = b.op("argsort", value, axis=axis, is_ascend=not descending, dtype="int64")
    return [b.op("sort", value, axis=axis, is_ascend=not descending), indices]


@translates("argsort")
def _argsort(
    b: SymbolBuilder, value: TorchValue, dim: int = -1, descending: bool = False, **rest: Any
) -> Symbol:
    axis = value.axis(rest.get("dim", dim))
    return b.op("argsort", value, axis=axis, is_ascend=not rest.get("descending", descending), dtype="int64")
