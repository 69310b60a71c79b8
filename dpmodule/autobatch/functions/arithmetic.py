"""Elementwise functions, sums, products, maxima and concatenation of expressions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from ..arguments import as_integer, number
from ..errors import ArgumentError, ShapeError, user_line
from ..expression import (
    Expression,
    append_many,
    apply,
    apply_to_padded,
    c_version,
    node_of,
    non_empty_list,
    plain,
    with_c_version,
)
from ..ops import binary
from ..ops.join import CONCATENATE, CONCATENATE_MANY, TO_BATCH, TO_BATCH_MANY
from ..ops.linear import AFFINE, CONTRACT, DOT, INVERSE, LOGDET, TRACE
from ..ops.spec import Operation
from ..ops.unary import ARGMAX, CEIL, FLOOR, NOBACKPROP, ROUND, SCALE_GRADIENT, UNARY
from ..session import state


class UnaryFunction(Protocol):
    """A function of one expression."""

    def __call__(self, x: Expression) -> Expression:
        """Add the operation to the graph."""


def unary_function(op: Operation) -> UnaryFunction:
    """Create the function of a unary operation from its record."""

    def found(x: Expression) -> Expression:
        return apply(op, (x,))

    found.__name__ = found.__qualname__ = op.name
    found.__module__ = __name__.rpartition(".functions.")[0]  # the public module, so that it can be pickled
    found.__doc__ = f"{op.text}\n\nArgs:\n    x: the operand."
    return c_version(op.name, found)


tanh = unary_function(UNARY["tanh"])
logistic = unary_function(UNARY["logistic"])
rectify = unary_function(UNARY["rectify"])
exp = unary_function(UNARY["exp"])
log = unary_function(UNARY["log"])
sqrt = unary_function(UNARY["sqrt"])
square = unary_function(UNARY["square"])
cube = unary_function(UNARY["cube"])
abs = unary_function(UNARY["abs"])
sin = unary_function(UNARY["sin"])
cos = unary_function(UNARY["cos"])
tan = unary_function(UNARY["tan"])
asin = unary_function(UNARY["asin"])
acos = unary_function(UNARY["acos"])
atan = unary_function(UNARY["atan"])
sinh = unary_function(UNARY["sinh"])
cosh = unary_function(UNARY["cosh"])
asinh = unary_function(UNARY["asinh"])
acosh = unary_function(UNARY["acosh"])
atanh = unary_function(UNARY["atanh"])
erf = unary_function(UNARY["erf"])
softsign = unary_function(UNARY["softsign"])
log_sigmoid = unary_function(UNARY["log_sigmoid"])
lgamma = unary_function(UNARY["lgamma"])
selu = unary_function(UNARY["selu"])
nobackprop = unary_function(NOBACKPROP)


@with_c_version
def elu(x: Expression, alpha: float = 1.0) -> Expression:
    """Compute x if x > 0, else alpha * (exp(x) - 1), by element.

    Args:
        x: the operand.
        alpha: negative of the limit for x to minus infinity.
    """
    return apply(UNARY["elu"], (x,), (number(alpha, "elu: alpha"),))


@with_c_version
def silu(x: Expression, beta: float = 1.0) -> Expression:
    """Compute x * logistic(beta * x) by element, also known as swish.

    Args:
        x: the operand.
        beta: factor in the logistic function.
    """
    return apply(UNARY["silu"], (x,), (number(beta, "silu: beta"),))


@with_c_version
def scale_gradient(x: Expression, lambd: float = 1.0) -> Expression:
    """Return the value unchanged, and multiply the gradient by `lambd`."""
    return apply(SCALE_GRADIENT, (x,), (), number(lambd, "scale_gradient: lambd"))


def flip_gradient(x: Expression) -> Expression:
    """Return the value unchanged, and negate the gradient."""
    return scale_gradient(x, -1.0)


_MODES = {"zero_gradient": False, "straight_through_gradient": True}


def _straight(name: str, gradient_mode: str) -> bool:
    if not isinstance(gradient_mode, str) or gradient_mode not in _MODES:
        raise ArgumentError(
            f"Unknown gradient mode for {name}: {gradient_mode!r}; expected {' or '.join(_MODES)} (at {user_line()})"
        )
    return _MODES[gradient_mode]


def round(x: Expression, gradient_mode: str) -> Expression:
    """Round every element, halves away from zero.

    Args:
        gradient_mode: "zero_gradient", or "straight_through_gradient" to pass the gradient through unchanged.

    Raises:
        ArgumentError: `gradient_mode` is invalid.
    """
    return apply(ROUND, (x,), (_straight("round", gradient_mode),))


def ceil(x: Expression, gradient_mode: str) -> Expression:
    """Round every element up; for `gradient_mode` see `round`."""
    return apply(CEIL, (x,), (_straight("ceil", gradient_mode),))


def floor(x: Expression, gradient_mode: str) -> Expression:
    """Round every element down; for `gradient_mode` see `round`."""
    return apply(FLOOR, (x,), (_straight("floor", gradient_mode),))


def argmax(x: Expression, gradient_mode: str) -> Expression:
    """Return a one-hot vector of the greatest element of `x`; for `gradient_mode` see `round`."""
    return apply(ARGMAX, (x,), (_straight("argmax", gradient_mode),))


FEW = 4
"""Largest number of operands of an ordinary operation; more operands of one shape are stacked."""


def _are_alike(xs: Sequence[Any]) -> bool:
    """Return True if all operands are computed nodes of one shape."""
    return state.graph.are_alike([node_of(x) for x in xs])


def _fold(
    few: Operation,
    many: Operation,
    xs: list[Any],
    attrs: tuple[Any, ...] = (),
    many_attrs: tuple[Any, ...] = (),
) -> Expression:
    if len(xs) > FEW and _are_alike(xs):
        return append_many(many, xs, many_attrs)
    return apply(few, xs, attrs)


@with_c_version
def esum(xs: Iterable[Expression]) -> Expression:
    """Add expressions.

    Args:
        xs: at least one; dimensions of 1 are broadcast.

    Raises:
        EmptySequenceError: the list is empty.
        ShapeError: their dimensions differ.
    """
    return _fold(binary.SUM, binary.SUM_MANY, non_empty_list("esum", xs))


@with_c_version
def average(xs: Iterable[Expression]) -> Expression:
    """Compute the mean of expressions.

    Args:
        xs: at least one.

    Raises:
        EmptySequenceError: the list is empty.
        ShapeError: their dimensions differ.
    """
    found = non_empty_list("average", xs)
    if len(found) > 1 and _are_alike(found):
        return append_many(binary.AVERAGE_MANY, found)
    return apply(binary.SUM, found) * (1.0 / len(found))


@with_c_version
def emax(xs: Iterable[Expression]) -> Expression:
    """Compute the elementwise maximum of expressions; the first of equal ones gets the gradient.

    Args:
        xs: at least one, of equal dimensions.
    """
    return _fold(binary.MAX, binary.MAX_MANY, non_empty_list("emax", xs))


@with_c_version
def logsumexp(xs: Iterable[Expression]) -> Expression:
    """Compute log(exp(x1) + exp(x2) + ...) by element, for expressions of equal dimensions."""
    found = xs if type(xs) is list and xs else non_empty_list("logsumexp", xs)
    try:
        return apply(binary.LOGSUMEXP, found)
    except ShapeError as error:
        return apply_to_padded(error, binary.LOGSUMEXP, found, (), min)


@with_c_version
def bmax(x: Expression, y: Expression) -> Expression:
    """Compute the elementwise maximum of two expressions of equal dimensions."""
    return plain(binary.MAX, x, y)


@with_c_version
def bmin(x: Expression, y: Expression) -> Expression:
    """Compute the elementwise minimum of two expressions of equal dimensions."""
    return plain(binary.MIN, x, y)


@with_c_version
def cmult(x: Expression, y: Expression) -> Expression:
    """Multiply element by element; dimensions of 1 are broadcast."""
    return plain(binary.CMULT, x, y)


@with_c_version
def cdiv(x: Expression, y: Expression) -> Expression:
    """Divide `x` by `y`, element by element; dimensions of 1 of `y` are broadcast."""
    return plain(binary.CDIV, x, y)


@with_c_version
def pow(x: Expression, y: Expression) -> Expression:
    """Raise every element of `x` to a power."""
    return plain(binary.POW, x, y)


@with_c_version
def colwise_add(x: Expression, y: Expression) -> Expression:
    """Add a vector to every column of a matrix."""
    return plain(binary.COLWISE_ADD, x, y)


@with_c_version
def dot_product(x: Expression, y: Expression) -> Expression:
    """Compute the sum of the products of elements of two expressions of equal dimensions."""
    return plain(DOT, x, y)


@with_c_version
def affine_transform(exprs: Iterable[Expression]) -> Expression:
    """Compute ``b + W1 * x1 + W2 * x2 + ...`` of ``[b, W1, x1, W2, x2, ...]``.

    Args:
        exprs: a bias, and pairs of a matrix and its factor.

    Raises:
        ShapeError: the shapes do not fit.
    """
    if type(exprs) is list and len(exprs) == 3:
        bias, matrix, x = exprs
        return plain(AFFINE, bias, matrix, x)
    return apply(AFFINE, non_empty_list("transform", exprs))


@with_c_version
def concatenate(xs: Iterable[Expression], d: int = 0) -> Expression:
    """Concatenate expressions along a dimension.

    Args:
        xs: at least one; all other dimensions are equal.
        d: the dimension.

    Raises:
        EmptySequenceError: the list is empty.
        ShapeError: other dimensions differ.
    """
    found = xs if type(xs) is list and xs else non_empty_list("concatenate", xs)
    axis = as_integer(d, "concatenate: d")
    if len(found) <= FEW:
        return apply(CONCATENATE, found, (axis,))
    return _fold(CONCATENATE, CONCATENATE_MANY, found, (axis,), (axis, len(found)))


@with_c_version
def concatenate_cols(xs: Iterable[Expression]) -> Expression:
    """Concatenate vectors or matrices of equal heights along columns."""
    return concatenate(xs, 1)


def concatenate_to_batch(xs: Iterable[Expression]) -> Expression:
    """Concatenate the minibatches of expressions of equal dimensions."""
    found = non_empty_list("concatenate", xs)
    return _fold(TO_BATCH, TO_BATCH_MANY, found, (), (len(found),))


def trace_of_product(x: Expression, y: Expression) -> Expression:
    """Compute the trace of ``x * transpose(y)`` of two matrices of equal dimensions."""
    return plain(TRACE, x, y)


def inverse(x: Expression) -> Expression:
    """Invert a square matrix.

    Raises:
        ArgumentError: the matrix is singular (raised when the value is computed).
    """
    return apply(INVERSE, (x,))


def logdet(x: Expression) -> Expression:
    """Compute the logarithm of the absolute value of the determinant of a square matrix."""
    return apply(LOGDET, (x,))


def contract3d_1d(x: Expression, y: Expression) -> Expression:
    """Multiply the last of three dimensions of `x` (i, j, k) with a vector `y` (k) and sum over it."""
    return apply(CONTRACT, (x, y), (1, False))


def contract3d_1d_bias(x: Expression, y: Expression, b: Expression) -> Expression:
    """Compute `contract3d_1d` and add a matrix `b` (i, j)."""
    return apply(CONTRACT, (x, y, b), (1, True))


def contract3d_1d_1d(x: Expression, y: Expression, z: Expression) -> Expression:
    """Multiply the last two of three dimensions of `x` (i, j, k) with vectors `y` (k) and `z` (j) and sum over them."""
    return apply(CONTRACT, (x, y, z), (2, False))


def contract3d_1d_1d_bias(x: Expression, y: Expression, z: Expression, b: Expression) -> Expression:
    """Compute `contract3d_1d_1d` and add a vector `b` (i)."""
    return apply(CONTRACT, (x, y, z, b), (2, True))
