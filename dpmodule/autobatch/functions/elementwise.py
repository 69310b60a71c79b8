"""Functions of every element of one expression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

from ..arguments import number
from ..errors import ArgumentError, user_line
from ..expression import Expression, apply, fast, fast_form, single
from ..ops.spec import Argument, Operation
from ..ops.unary import ARGMAX, CEIL, FLOOR, NOBACKPROP, ROUND, SCALE_GRADIENT, UNARY


class OfOne(Protocol):
    """A function of an expression, and perhaps of a number beside it."""

    def __call__(self, x: Expression, *beside: float, **named: float) -> Expression:
        """Add its operation to the graph."""


def _with_number(op: Operation, argument: Argument) -> Callable[..., Expression]:
    """Return the function of an operation on one expression with a number beside it."""
    what = f"{op.name}: {argument.name}"

    def made(x: Expression, beside: float = argument.default) -> Expression:
        return apply(op, (x,), (number(beside, what),))

    made.__annotations__[argument.name] = made.__annotations__.pop("beside")
    made.__code__ = made.__code__.replace(co_varnames=("x", argument.name))
    return made


def function_of(op: Operation) -> OfOne:
    """Make the function of an operation as its record describes it."""
    argument = op.argument
    found = single(op) if argument is None else _with_number(op, argument)
    found.__name__ = found.__qualname__ = op.name
    found.__module__ = __name__.rpartition(".functions.")[0]  # where it is found by its name, as pickles ask
    found.__doc__ = f"{op.text}\n\nArgs:\n    x: the operand."
    if argument is not None:
        found.__doc__ += f"\n    {argument.name}: {argument.text}"
    return cast(OfOne, fast(op.name, found))


tanh = function_of(UNARY["tanh"])
logistic = function_of(UNARY["logistic"])
rectify = function_of(UNARY["rectify"])
exp = function_of(UNARY["exp"])
log = function_of(UNARY["log"])
sqrt = function_of(UNARY["sqrt"])
square = function_of(UNARY["square"])
cube = function_of(UNARY["cube"])
abs = function_of(UNARY["abs"])
sin = function_of(UNARY["sin"])
cos = function_of(UNARY["cos"])
tan = function_of(UNARY["tan"])
asin = function_of(UNARY["asin"])
acos = function_of(UNARY["acos"])
atan = function_of(UNARY["atan"])
sinh = function_of(UNARY["sinh"])
cosh = function_of(UNARY["cosh"])
asinh = function_of(UNARY["asinh"])
acosh = function_of(UNARY["acosh"])
atanh = function_of(UNARY["atanh"])
erf = function_of(UNARY["erf"])
softsign = function_of(UNARY["softsign"])
log_sigmoid = function_of(UNARY["log_sigmoid"])
lgamma = function_of(UNARY["lgamma"])
selu = function_of(UNARY["selu"])
elu = function_of(UNARY["elu"])
silu = function_of(UNARY["silu"])
nobackprop = function_of(NOBACKPROP)


@fast_form
def scale_gradient(x: Expression, lambd: float = 1.0) -> Expression:
    """Pass the value on, and the gradient back multiplied by a number."""
    return apply(SCALE_GRADIENT, (x,), (), number(lambd, "scale_gradient: lambd"))


def flip_gradient(x: Expression) -> Expression:
    """Pass the value on, and the negative of the gradient back."""
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
        gradient_mode: "zero_gradient", or "straight_through_gradient" to pass the gradient on as it is.

    Raises:
        ArgumentError: `gradient_mode` is neither.
    """
    return apply(ROUND, (x,), (_straight("round", gradient_mode),))


def ceil(x: Expression, gradient_mode: str) -> Expression:
    """Round every element up; see `round`.

    Args:
        gradient_mode: "zero_gradient", or "straight_through_gradient" to pass the gradient on as it is.
    """
    return apply(CEIL, (x,), (_straight("ceil", gradient_mode),))


def floor(x: Expression, gradient_mode: str) -> Expression:
    """Round every element down; see `round`.

    Args:
        gradient_mode: "zero_gradient", or "straight_through_gradient" to pass the gradient on as it is.
    """
    return apply(FLOOR, (x,), (_straight("floor", gradient_mode),))


def argmax(x: Expression, gradient_mode: str) -> Expression:
    """Make a vector with a one where the greatest element of `x` is.

    Args:
        gradient_mode: see `round`.
    """
    return apply(ARGMAX, (x,), (_straight("argmax", gradient_mode),))
