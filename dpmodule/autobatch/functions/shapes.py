"""Functions that pick from an expression or change its shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..arguments import one_or_several, whole
from ..errors import ForeignValueError, NegativeIndexError, user_line
from ..expression import Expression, apply, fast, fast_form, listed, not_empty
from ..ops.join import RESHAPE, TRANSPOSE
from ..ops.pick import ELEMENTS, PICK, PICK_BATCH, PICK_RANGE, SELECT, STRIDED
from ..parameters import LookupParameters, Parameters
from .inputs import dim_of
from .losses import checked_label


@fast_form
def parameter(*args: Parameters | LookupParameters) -> Any:
    """Return parameters as expressions of the graph under construction, which they are without this, too.

    Args:
        args: one or more parameters.

    Returns:
        What was given: one, or a tuple.
    """
    return _expressions(args, True)


def const_parameter(*args: Parameters | LookupParameters) -> Any:
    """Return parameters as constants: no gradient flows into them.

    Args:
        args: one or more parameters.
    """
    return _expressions(args, False)


def _expressions(given: Sequence[Any], update: bool) -> Any:
    found = []
    for each in given:
        if not isinstance(each, (Parameters, LookupParameters)):
            raise ForeignValueError(f"{type(each).__name__} {each!r} is no parameter (at {user_line()})")
        found.append(each.expr(update))
    return found[0] if len(found) == 1 else tuple(found)


def _table(value: Any) -> LookupParameters:
    if isinstance(value, LookupParameters):
        return value
    raise ForeignValueError(f"{type(value).__name__} {value!r} is no lookup parameter (at {user_line()})")


def lookup(p: LookupParameters, index: int = 0, update: bool = True) -> Expression:
    """Return a row of a table.

    Args:
        update: False makes it a constant.

    Raises:
        BoundsError: there is no such row.
    """
    return p[index] if update is True and isinstance(p, LookupParameters) else _table(p).row(index, update)


@fast_form
def lookup_batch(p: LookupParameters, indices: Sequence[int], update: bool = True) -> Expression:
    """Return rows of a table as one expression with a minibatch.

    Args:
        update: False makes it a constant.

    Raises:
        BoundsError: there is no such row.
        EmptySequenceError: `indices` is empty.
    """
    return _table(p).batch(indices, update)


@fast_form
def pick(e: Expression, index: int | Sequence[int] = 0, dim: int = 0) -> Expression:
    """Pick one element of a dimension, which disappears.

    Args:
        index: which one; a list for the elements of a minibatch.
        dim: the dimension.

    Raises:
        BoundsError: the index is outside.
    """
    if type(index) is not int and not isinstance(index := one_or_several(index, "PickElement"), int):
        return pick_batch(e, index, dim)
    axis = whole(dim, "pick: dim")
    return apply(PICK, (e,), (axis,), checked_label("PickElement", e, index, axis))


@fast_form
def pick_batch(e: Expression, indices: Sequence[int], dim: int = 0) -> Expression:
    """Pick one element of every element of a minibatch.

    Args:
        e: the operand; without a minibatch, it is picked from several times.
        indices: one index for each.
        dim: the dimension.

    Raises:
        BoundsError: an index is outside.
        EmptySequenceError: there is none.
    """
    axis = whole(dim, "pick_batch: dim")
    places = [checked_label("PickElement", e, index, axis) for index in not_empty("PickElement", indices)]
    return apply(PICK_BATCH, (e,), (axis, len(places)), places)


@fast_form
def pick_batch_elem(x: Expression, v: int) -> Expression:
    """Pick one element of the minibatch.

    Args:
        v: which one.

    Raises:
        BoundsError: there is no such element.
    """
    return pick_batch_elems(x, [v])


@fast_form
def pick_batch_elems(x: Expression, vs: Sequence[int]) -> Expression:
    """Pick elements of the minibatch.

    Args:
        vs: which ones.

    Raises:
        BoundsError: there is no such element.
    """
    return apply(ELEMENTS, (x,), (_unsigned("pick_batch_elems", vs),))


def _unsigned(name: str, values: Sequence[int]) -> tuple[int, ...]:
    found = tuple(whole(each, name) for each in not_empty(name, values))
    if any(each < 0 for each in found):
        raise NegativeIndexError(
            f"{name}: can't convert negative value to unsigned int: {list(found)} (at {user_line()})"
        )
    return found


@fast_form
def pick_range(x: Expression, s: int, e: int, d: int = 0) -> Expression:
    """Pick elements from `s` to before `e` of a dimension.

    Args:
        d: the dimension.
    """
    s, e = _unsigned("pick_range", (s, e))
    return apply(PICK_RANGE, (x,), (whole(d, "pick_range: d"), s, e))


def pickrange(x: Expression, s: int, e: int) -> Expression:
    """Pick elements from `s` to before `e` of the first dimension; DyNet's old name."""
    return pick_range(x, s, e)


@fast_form
def strided_select(
    x: Expression, strides: Sequence[int], range_from: Sequence[int] = (), range_to: Sequence[int] = ()
) -> Expression:
    """Pick with a stride, in several dimensions: ``x[from[0]:to[0]:strides[0], ...]``.

    Args:
        strides: 1 where there is none given; one more than there are dimensions is that of the minibatch.
        range_from: first elements, 0 where there is none given.

    Raises:
        BoundsError: a range is empty or outside.
    """
    given = {"strides": strides, "range_from": range_from, "range_to": range_to}
    attrs = tuple(
        tuple(whole(n, f"strided_select: {name}") for n in listed(f"strided_select: {name}", each))
        for name, each in given.items()
    )
    return apply(STRIDED, (x,), attrs)


@fast_form
def select_rows(x: Expression, rs: Sequence[int]) -> Expression:
    """Pick rows of a matrix."""
    return apply(SELECT, (x,), (0, _unsigned("select_rows", rs)))


@fast_form
def select_cols(x: Expression, cs: Sequence[int]) -> Expression:
    """Pick columns of a matrix."""
    return apply(SELECT, (x,), (1, _unsigned("select_cols", cs)))


@fast_form
def reshape(x: Expression, d: int | Sequence[int], batch_size: int = 1) -> Expression:
    """Give an expression other dimensions; the first one runs fastest.

    Args:
        d: the dimensions.
        batch_size: the size of the minibatch; 1 keeps it as it is, or folds it into the dimensions.

    Raises:
        ShapeError: the number of elements differs.
    """
    return apply(RESHAPE, (x,), (dim_of(d, batch_size),))


@fast_form
def transpose(x: Expression, dims: Sequence[int] = (1, 0)) -> Expression:
    """Exchange dimensions.

    Args:
        dims: which dimension of `x` comes first, second, ...

    Raises:
        ShapeError: not every dimension is named once.
    """
    order = tuple(whole(each, "transpose: dims") for each in listed("transpose: dims", dims))
    return apply(TRANSPOSE, (x,), (order,))


pickrange = fast("pick_range", pickrange)
