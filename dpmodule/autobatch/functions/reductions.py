"""Sums, means, moments, extremes over dimensions, elements and minibatches."""

from __future__ import annotations

from collections.abc import Sequence

from ..arguments import TOO_LARGE, flag, one_or_several, whole
from ..errors import ArgumentError, BoundsError, NegativeIndexError, user_line
from ..expression import Expression, apply, fast_form, listed, node_of
from ..ops import reduce
from ..session import state
from .arithmetic import function_of


def _unsigned(value: int, least: int, what: str) -> int:
    """Return an integer that is not below `least`, 0 or 1, and that every engine can hold."""
    found = whole(value, what)
    if abs(found) >= TOO_LARGE:
        raise BoundsError(f"{what} is {found}, expected less than {TOO_LARGE} (at {user_line()})")
    if found < 0:
        raise NegativeIndexError(f"{what}: can't convert negative value {found} (at {user_line()})")
    if found < least:
        raise ArgumentError(f"{what} is {found}, expected {least} or more (at {user_line()})")
    return found


def _axes(d: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(d := one_or_several(d, "d"), int):
        return (d,)
    return tuple(whole(axis, "d") for axis in listed("d", d))


def _all(x: Expression) -> tuple[int, ...]:
    return tuple(range(len(state.graph.dim(node_of(x)).d)))


@fast_form
def sum_dim(x: Expression, d: int | Sequence[int], b: bool = False, n: int = 0) -> Expression:
    """Sum over dimensions, which disappear.

    Args:
        d: the dimensions.
        n: not used; as in DyNet.
    """
    return apply(reduce.SUM_DIM, (x,), (_axes(d), flag(b, "b")))


@fast_form
def moment_dim(x: Expression, d: int | Sequence[int], r: int, b: bool, n: int = 0) -> Expression:
    """Compute the mean of the `r`-th powers over dimensions, which disappear.

    Args:
        d: the dimensions.
        r: the power, 1 or more.
        n: what to divide by, if positive, in place of the number of elements.

    Raises:
        ArgumentError: `r` is 0.
        BoundsError: `r` or `n` does not fit 32 bits, or is negative.
        ShapeError: there is no such dimension, or nothing to compute the mean over.
    """
    return apply(reduce.MOMENT, (x,), (_axes(d), flag(b, "b"), _unsigned(r, 1, "r"), _unsigned(n, 0, "n")))


@fast_form
def mean_dim(x: Expression, d: int | Sequence[int], b: bool, n: int = 0) -> Expression:
    """Compute the mean over dimensions; see `moment_dim`.

    Args:
        d: the dimensions.
        n: what to divide by, if positive, in place of the number of elements.
    """
    return moment_dim(x, d, 1, b, n)


@fast_form
def std_dim(x: Expression, d: int | Sequence[int], b: bool, n: int = 0) -> Expression:
    """Compute the standard deviation (divided by n, not n - 1) over dimensions; see `moment_dim`.

    Args:
        d: the dimensions.
        n: what to divide by, if positive, in place of the number of elements.
    """
    return apply(reduce.STD, (x,), (_axes(d), flag(b, "b"), _unsigned(n, 0, "n")))


@fast_form
def moment_elems(x: Expression, r: int) -> Expression:
    """Compute the mean of the `r`-th powers of all elements."""
    return moment_dim(x, _all(x), r, False)


@fast_form
def mean_elems(x: Expression) -> Expression:
    """Compute the mean of all elements."""
    return moment_elems(x, 1)


@fast_form
def std_elems(x: Expression) -> Expression:
    """Compute the standard deviation of all elements."""
    return std_dim(x, _all(x), False)


@fast_form
def moment_batches(x: Expression, r: int) -> Expression:
    """Compute the mean of the `r`-th powers over the minibatch."""
    return moment_dim(x, (), r, True)


@fast_form
def mean_batches(x: Expression) -> Expression:
    """Compute the mean over the minibatch."""
    return moment_batches(x, 1)


def std_batches(x: Expression) -> Expression:
    """Compute the standard deviation over the minibatch."""
    return std_dim(x, (), True)


@fast_form
def max_dim(x: Expression, d: int = 0) -> Expression:
    """Pick the greatest element along a dimension, which disappears.

    Args:
        d: the dimension.
    """
    return apply(reduce.MAX_DIM, (x,), (whole(d, "d"),))


@fast_form
def min_dim(x: Expression, d: int = 0) -> Expression:
    """Pick the smallest element along a dimension, which disappears.

    Args:
        d: the dimension.
    """
    return apply(reduce.MIN_DIM, (x,), (whole(d, "d"),))


@fast_form
def logsumexp_dim(x: Expression, d: int = 0) -> Expression:
    """Compute the logarithm of the sum of exponentials along a dimension, which disappears.

    Args:
        x: a vector or matrix.
        d: the dimension.
    """
    return apply(reduce.LOGSUMEXP_DIM, (x,), (whole(d, "d"),))


def cumsum(x: Expression, d: int = 0) -> Expression:
    """Sum up to every element along a dimension.

    Args:
        d: the dimension.
    """
    return apply(reduce.CUMSUM, (x,), (whole(d, "d"),))


sum_elems = function_of(reduce.SUM_ELEMS)
squared_norm = function_of(reduce.SQUARED_NORM)
l2_norm = function_of(reduce.L2_NORM)
sum_batches = function_of(reduce.SUM_BATCHES)
