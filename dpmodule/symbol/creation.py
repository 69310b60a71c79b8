"""Symbols of constants, and functions of two operands, of which either may be a number.

Source: the functions of MXNet 1.9.1's `mx.sym`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ..base import ArgumentError, DTypeError, dtype_name
from ..ndarray.convert import is_number
from .symbol import Symbol, call
from .symbol import split_v2 as split_v2

if TYPE_CHECKING:
    from ..types import DTypeLike, Number, ShapeLike

Operand: TypeAlias = "Symbol | Number"
"""Operand of a binary function."""


def zeros(shape: ShapeLike, dtype: DTypeLike = None, **kwargs: Any) -> Symbol:
    """Return a symbol of zeros; a dimension of 0 is inferred from its use.

    Args:
        shape: an integer or a tuple.
        dtype: element type, default float32.
    """
    return call("_zeros", shape=shape, dtype=dtype_name(dtype), **kwargs)


def ones(shape: ShapeLike, dtype: DTypeLike = None, **kwargs: Any) -> Symbol:
    """Return a symbol of ones; see `zeros`.

    Args:
        shape: an integer or a tuple.
        dtype: element type, default float32.
    """
    return call("_ones", shape=shape, dtype=dtype_name(dtype), **kwargs)


def full(shape: ShapeLike, val: float, dtype: DTypeLike = None, **kwargs: Any) -> Symbol:
    """Return a symbol filled with `val`; see `zeros`.

    Args:
        shape: an integer or a tuple.
        dtype: element type, default float32.
    """
    return call("_full", shape=shape, dtype=dtype_name(dtype), value=float(val), **kwargs)


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    infer_range: bool = False,
    name: str | None = None,
    dtype: DTypeLike = None,
) -> Symbol:
    """Return a symbol of evenly spaced numbers in [start, stop), or in [0, start) without `stop`.

    Args:
        stop: end, not included.
        repeat: number of repetitions of each number.
        infer_range: True to infer the length from its use.
        dtype: element type, default float32.
    """
    end = "None" if stop is None else stop
    options: dict[str, Any] = {"step": step, "repeat": repeat, "infer_range": infer_range}
    return call("_arange", start=start, stop=end, name=name, dtype=dtype_name(dtype), **options)


def linspace(
    start: float,
    stop: float,
    num: int,
    endpoint: bool = True,
    name: str | None = None,
    dtype: DTypeLike = None,
) -> Symbol:
    """Return a symbol of `num` evenly spaced numbers from `start` to `stop`.

    Args:
        stop: last number; without `endpoint`, the one after it.
        num: number of values.
        endpoint: True to include `stop`.
        name: name of the node; None for an automatic one.
        dtype: element type, default float32.

    Raises:
        ArgumentError: `num` is less than 1.
    """
    if num < 1:
        raise ArgumentError(f"linspace: num is {num}, expected a number from 1")
    options: dict[str, Any] = {"num": num, "endpoint": endpoint, "dtype": dtype_name(dtype)}
    return call("_linspace", start=start, stop=stop, name=name, **options)


def eye(N: int, M: int = 0, k: int = 0, dtype: DTypeLike = None, **kwargs: Any) -> Symbol:
    """Return a symbol of an N x M matrix (N x N if M is 0) with ones on the `k`-th diagonal.

    Args:
        M: number of columns; 0 for a square matrix.
        k: the diagonal: 0 is the main one, positive is above, negative is below.
        dtype: element type, default float32.
    """
    return call("_eye", N=N, M=M, k=k, dtype=dtype_name(dtype), **kwargs)


def histogram(
    a: Symbol, bins: int | Symbol = 10, range: tuple[float, float] | None = None, **kwargs: Any
) -> Symbol:
    """Count values in bins; see `nd.histogram`.

    Args:
        bins: number of equal bins, or a symbol of their edges.
        range: smallest and greatest edge; required for a number of bins.

    Returns:
        A symbol of two outputs: the counts as int64, and the edges.

    Raises:
        ArgumentError: `bins` is a number and `range` is None.
    """
    if isinstance(bins, Symbol):
        return call("_histogram", a, bins, **kwargs)
    if range is None:
        raise ArgumentError(
            f"histogram: range is None, expected two numbers for {bins} bins, since a symbol has no values"
        )
    return call("_histogram", a, bin_cnt=bins, range=range, **kwargs)


def _either(
    op: str, scalar_op: str, reversed_op: str, plain: Callable[..., Any], left: Operand, right: Operand
) -> Any:
    """Apply an operator to two symbols, to a symbol and a number in either order, or to two numbers."""
    if isinstance(left, Symbol) and isinstance(right, Symbol):
        return call(op, left, right)
    if isinstance(left, Symbol) and is_number(right):
        return call(scalar_op, left, scalar=right)
    if isinstance(right, Symbol) and is_number(left):
        return call(reversed_op, right, scalar=left)
    if is_number(left) and is_number(right):
        return plain(left, right)
    raise DTypeError(f"{op.strip('_').lower()}: got {left!r} and {right!r}, expected Symbols or numbers")


def maximum(left: Operand, right: Operand) -> Any:
    """Return the elementwise maximum of two symbols or numbers.

    Args:
        left: a symbol or a number.
        right: a symbol of the same shape, or a number.
    """
    return _either("_Maximum", "_MaximumScalar", "_MaximumScalar", max, left, right)


def minimum(left: Operand, right: Operand) -> Any:
    """Return the elementwise minimum of two symbols or numbers.

    Args:
        left: a symbol or a number.
        right: a symbol of the same shape, or a number.
    """
    return _either("_Minimum", "_MinimumScalar", "_MinimumScalar", min, left, right)


def power(base: Operand, exp: Operand) -> Any:
    """Return `base` to the power of `exp`; either may be a number.

    Args:
        base: a symbol or a number.
        exp: a symbol of the same shape, or a number.
    """
    return _either("_Power", "_PowerScalar", "_RPowerScalar", operator.pow, base, exp)


pow = power


def hypot(left: Operand, right: Operand) -> Any:
    """Return sqrt(left^2 + right^2); either may be a number.

    Args:
        left: a symbol or a number.
        right: a symbol of the same shape, or a number.
    """
    return _either("_Hypot", "_HypotScalar", "_HypotScalar", math.hypot, left, right)
