"""Functions that select elements, change shapes, or reduce dimensions, elements and minibatches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..arguments import TOO_LARGE, as_integer, flag, one_or_several
from ..errors import ArgumentError, BoundsError, ForeignValueError, NegativeIndexError, user_line
from ..expression import Expression, apply, as_list, c_version, node_of, non_empty_list, with_c_version
from ..ops import reduce
from ..ops.join import RESHAPE, TRANSPOSE
from ..ops.pick import ELEMENTS, PICK, PICK_BATCH, PICK_RANGE, SELECT, STRIDED
from ..parameters import LookupParameters, Parameters
from ..session import state
from .arithmetic import unary_function
from .inputs import dim_of
from .losses import checked_label


@with_c_version
def parameter(*args: Parameters | LookupParameters) -> Any:
    """Return parameters as expressions; needed only for compatibility, since parameters are expressions.

    Args:
        args: one or more parameters.

    Returns:
        One expression, or a tuple.
    """
    return _expressions(args, True)


def const_parameter(*args: Parameters | LookupParameters) -> Any:
    """Return parameters as constants without gradients."""
    return _expressions(args, False)


def _expressions(given: Sequence[Any], update: bool) -> Any:
    found = []
    for each in given:
        if not isinstance(each, (Parameters, LookupParameters)):
            raise ForeignValueError(f"{type(each).__name__} {each!r} is not a parameter (at {user_line()})")
        found.append(each.expr(update))
    return found[0] if len(found) == 1 else tuple(found)


def _table(value: Any) -> LookupParameters:
    if isinstance(value, LookupParameters):
        return value
    raise ForeignValueError(f"{type(value).__name__} {value!r} is not a lookup parameter (at {user_line()})")


def lookup(p: LookupParameters, index: int = 0, update: bool = True) -> Expression:
    """Return a row of a table.

    Args:
        update: False for a constant.

    Raises:
        BoundsError: the row does not exist.
    """
    return p[index] if update is True and isinstance(p, LookupParameters) else _table(p).row(index, update)


@with_c_version
def lookup_batch(p: LookupParameters, indices: Sequence[int], update: bool = True) -> Expression:
    """Return rows of a table as one expression with a minibatch.

    Args:
        update: False for a constant.

    Raises:
        BoundsError: the row does not exist.
        EmptySequenceError: `indices` is empty.
    """
    return _table(p).batch(indices, update)


@with_c_version
def pick(e: Expression, index: int | Sequence[int] = 0, dim: int = 0) -> Expression:
    """Select one element of a dimension, which is removed.

    Args:
        index: the index; a list with one index per element of a minibatch.
        dim: the dimension.

    Raises:
        BoundsError: the index is out of range.
    """
    if type(index) is not int and not isinstance(index := one_or_several(index, "PickElement"), int):
        return pick_batch(e, index, dim)
    axis = as_integer(dim, "pick: dim")
    return apply(PICK, (e,), (axis,), checked_label("PickElement", e, index, axis))


@with_c_version
def pick_batch(e: Expression, indices: Sequence[int], dim: int = 0) -> Expression:
    """Select one element of every element of a minibatch.

    Args:
        e: the operand; without a minibatch, it is used for every index.
        indices: one index per element.
        dim: the dimension.

    Raises:
        BoundsError: an index is out of range.
        EmptySequenceError: the list is empty.
    """
    axis = as_integer(dim, "pick_batch: dim")
    indices = [
        checked_label("PickElement", e, index, axis) for index in non_empty_list("PickElement", indices)
    ]
    return apply(PICK_BATCH, (e,), (axis, len(indices)), indices)


@with_c_version
def pick_batch_elem(x: Expression, v: int) -> Expression:
    """Select one element of the minibatch.

    Args:
        v: the index.

    Raises:
        BoundsError: the element does not exist.
    """
    return pick_batch_elems(x, [v])


@with_c_version
def pick_batch_elems(x: Expression, vs: Sequence[int]) -> Expression:
    """Select elements of the minibatch.

    Args:
        vs: the indices.

    Raises:
        BoundsError: the element does not exist.
    """
    return apply(ELEMENTS, (x,), (-1, _unsigned("pick_batch_elems", vs)))  # -1: the minibatch axis


def _unsigned(name: str, values: Sequence[int]) -> tuple[int, ...]:
    found = tuple(as_integer(each, name) for each in non_empty_list(name, values))
    if any(each < 0 for each in found):
        raise NegativeIndexError(
            f"{name}: can't convert negative value to unsigned int: {list(found)} (at {user_line()})"
        )
    return found


@with_c_version
def pick_range(x: Expression, s: int, e: int, d: int = 0) -> Expression:
    """Select elements `s` (inclusive) to `e` (exclusive) of dimension `d`."""
    s, e = _unsigned("pick_range", (s, e))
    return apply(PICK_RANGE, (x,), (as_integer(d, "pick_range: d"), s, e))


def pickrange(x: Expression, s: int, e: int) -> Expression:
    """Select elements `s` (inclusive) to `e` (exclusive) of the first dimension; DyNet's old name."""
    return pick_range(x, s, e)


@with_c_version
def strided_select(
    x: Expression, strides: Sequence[int], range_from: Sequence[int] = (), range_to: Sequence[int] = ()
) -> Expression:
    """Select with strides in several dimensions: ``x[from[0]:to[0]:strides[0], ...]``.

    Args:
        strides: strides, 1 by default; one more than there are dimensions applies to the minibatch.
        range_from: first elements, 0 by default.

    Raises:
        BoundsError: a range is empty or out of bounds.
    """
    given = {"strides": strides, "range_from": range_from, "range_to": range_to}
    attrs = tuple(
        tuple(as_integer(n, f"strided_select: {name}") for n in as_list(f"strided_select: {name}", each))
        for name, each in given.items()
    )
    return apply(STRIDED, (x,), attrs)


@with_c_version
def select_rows(x: Expression, rs: Sequence[int]) -> Expression:
    """Select rows of a matrix."""
    return apply(SELECT, (x,), (0, _unsigned("select_rows", rs)))


@with_c_version
def select_cols(x: Expression, cs: Sequence[int]) -> Expression:
    """Select columns of a matrix."""
    return apply(SELECT, (x,), (1, _unsigned("select_cols", cs)))


@with_c_version
def reshape(x: Expression, d: int | Sequence[int], batch_size: int = 1) -> Expression:
    """Reshape an expression in column-major order.

    Args:
        d: the dimensions.
        batch_size: size of the minibatch; 1 keeps it, or folds it into the dimensions.

    Raises:
        ShapeError: the number of elements differs.
    """
    return apply(RESHAPE, (x,), (dim_of(d, batch_size),))


@with_c_version
def transpose(x: Expression, dims: Sequence[int] = (1, 0)) -> Expression:
    """Permute dimensions.

    Args:
        dims: order of the dimensions of `x` in the result.

    Raises:
        ShapeError: `dims` is not a permutation.
    """
    order = tuple(as_integer(each, "transpose: dims") for each in as_list("transpose: dims", dims))
    return apply(TRANSPOSE, (x,), (order,))


pickrange = c_version("pick_range", pickrange)


def _count_from(value: int, least: int, what: str) -> int:
    """Return an integer from `least` (0 or 1) that fits 32 bits."""
    count = as_integer(value, what)
    if abs(count) >= TOO_LARGE:
        raise BoundsError(f"{what} is {count}, expected less than {TOO_LARGE} (at {user_line()})")
    if count < 0:
        raise NegativeIndexError(f"{what}: can't convert negative value {count} (at {user_line()})")
    if count < least:
        raise ArgumentError(f"{what} is {count}, expected {least} or more (at {user_line()})")
    return count


def _axes(d: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(d := one_or_several(d, "d"), int):
        return (d,)
    return tuple(as_integer(axis, "d") for axis in as_list("d", d))


def _all(x: Expression) -> tuple[int, ...]:
    return tuple(range(len(state.graph.dim(node_of(x)).d)))


@with_c_version
def sum_dim(x: Expression, d: int | Sequence[int], b: bool = False, n: int = 0) -> Expression:
    """Sum over dimensions, which are removed.

    Args:
        d: the dimensions.
        n: ignored, as in DyNet.
    """
    return apply(reduce.SUM_DIM, (x,), (_axes(d), flag(b, "b")))


@with_c_version
def moment_dim(x: Expression, d: int | Sequence[int], r: int, b: bool, n: int = 0) -> Expression:
    """Compute the mean of the `r`-th powers over dimensions, which are removed.

    Args:
        d: the dimensions.
        r: the power, 1 or more.
        n: divisor, if positive, instead of the number of elements.

    Raises:
        ArgumentError: `r` is 0.
        BoundsError: `r` or `n` is negative or does not fit 32 bits.
        ShapeError: a dimension does not exist, or there are no elements.
    """
    return apply(
        reduce.MOMENT, (x,), (_axes(d), flag(b, "b"), _count_from(r, 1, "r"), _count_from(n, 0, "n"))
    )


@with_c_version
def mean_dim(x: Expression, d: int | Sequence[int], b: bool, n: int = 0) -> Expression:
    """Compute the mean over dimensions; see `moment_dim`.

    Args:
        d: the dimensions.
        n: divisor, if positive, instead of the number of elements.
    """
    return moment_dim(x, d, 1, b, n)


@with_c_version
def std_dim(x: Expression, d: int | Sequence[int], b: bool, n: int = 0) -> Expression:
    """Compute the standard deviation (divided by n, not n - 1) over dimensions; see `moment_dim`.

    Args:
        d: the dimensions.
        n: divisor, if positive, instead of the number of elements.
    """
    return apply(reduce.STD, (x,), (_axes(d), flag(b, "b"), _count_from(n, 0, "n")))


@with_c_version
def moment_elems(x: Expression, r: int) -> Expression:
    """Compute the mean of the `r`-th powers of all elements."""
    return moment_dim(x, _all(x), r, False)


@with_c_version
def mean_elems(x: Expression) -> Expression:
    """Compute the mean of all elements."""
    return moment_elems(x, 1)


@with_c_version
def std_elems(x: Expression) -> Expression:
    """Compute the standard deviation of all elements."""
    return std_dim(x, _all(x), False)


@with_c_version
def moment_batches(x: Expression, r: int) -> Expression:
    """Compute the mean of the `r`-th powers over the minibatch."""
    return moment_dim(x, (), r, True)


@with_c_version
def mean_batches(x: Expression) -> Expression:
    """Compute the mean over the minibatch."""
    return moment_batches(x, 1)


def std_batches(x: Expression) -> Expression:
    """Compute the standard deviation over the minibatch."""
    return std_dim(x, (), True)


@with_c_version
def max_dim(x: Expression, d: int = 0) -> Expression:
    """Compute the maximum along dimension `d`, which is removed."""
    return apply(reduce.MAX_DIM, (x,), (as_integer(d, "d"),))


@with_c_version
def min_dim(x: Expression, d: int = 0) -> Expression:
    """Compute the minimum along dimension `d`, which is removed."""
    return apply(reduce.MIN_DIM, (x,), (as_integer(d, "d"),))


@with_c_version
def logsumexp_dim(x: Expression, d: int = 0) -> Expression:
    """Compute the logarithm of the sum of exponentials of a vector or matrix along dimension `d`, which is removed."""
    return apply(reduce.LOGSUMEXP_DIM, (x,), (as_integer(d, "d"),))


def cumsum(x: Expression, d: int = 0) -> Expression:
    """Compute the cumulative sum along dimension `d`."""
    return apply(reduce.CUMSUM, (x,), (as_integer(d, "d"),))


sum_elems = unary_function(reduce.SUM_ELEMS)
squared_norm = unary_function(reduce.SQUARED_NORM)
l2_norm = unary_function(reduce.L2_NORM)
sum_batches = unary_function(reduce.SUM_BATCHES)
