"""Functions of every element of one expression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

from ..errors import ArgumentError, user_line
from ..expression import Expression, apply, single
from ..fast import fast
from ..given import number
from ..ops.spec import Argument, Op
from ..ops.unary import ARGMAX, NOBACKPROP, ROUNDING, SCALE_GRADIENT, UNARY

__all__ = [
    "abs",
    "acos",
    "acosh",
    "argmax",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "cube",
    "elu",
    "erf",
    "exp",
    "flip_gradient",
    "floor",
    "lgamma",
    "log",
    "log_sigmoid",
    "logistic",
    "nobackprop",
    "rectify",
    "round",
    "scale_gradient",
    "selu",
    "silu",
    "sin",
    "sinh",
    "softsign",
    "sqrt",
    "square",
    "tan",
    "tanh",
]


class OfElements(Protocol):
    """A function of an expression, and perhaps of a number beside it."""

    def __call__(self, x: Expression, *beside: float, **named: float) -> Expression:
        """Add its operation to the graph."""
        ...


def _with_number(op: Op, argument: Argument) -> Callable[..., Expression]:
    """Return the function of an operation on one expression with a number beside it."""
    what = f"{op.name}: {argument.name}"

    def made(x: Expression, beside: float = argument.default) -> Expression:
        return apply(op, (x,), (number(beside, what),))

    made.__annotations__[argument.name] = made.__annotations__.pop("beside")
    made.__code__ = made.__code__.replace(co_varnames=("x", argument.name))
    return made


def _function(op: Op) -> OfElements:
    """Make the function of an operation as its record describes it."""
    argument = op.argument
    found = single(op) if argument is None else _with_number(op, argument)
    found.__name__ = found.__qualname__ = op.name
    found.__doc__ = f"{op.text}\n\nArgs:\n    x: the operand."
    if argument is not None:
        found.__doc__ += f"\n    {argument.name}: {argument.text}"
    return cast(OfElements, fast(op.name, found))


tanh = _function(UNARY["tanh"])
logistic = _function(UNARY["logistic"])
rectify = _function(UNARY["rectify"])
exp = _function(UNARY["exp"])
log = _function(UNARY["log"])
sqrt = _function(UNARY["sqrt"])
square = _function(UNARY["square"])
cube = _function(UNARY["cube"])
abs = _function(UNARY["abs"])
sin = _function(UNARY["sin"])
cos = _function(UNARY["cos"])
tan = _function(UNARY["tan"])
asin = _function(UNARY["asin"])
acos = _function(UNARY["acos"])
atan = _function(UNARY["atan"])
sinh = _function(UNARY["sinh"])
cosh = _function(UNARY["cosh"])
asinh = _function(UNARY["asinh"])
acosh = _function(UNARY["acosh"])
atanh = _function(UNARY["atanh"])
erf = _function(UNARY["erf"])
softsign = _function(UNARY["softsign"])
log_sigmoid = _function(UNARY["log_sigmoid"])
lgamma = _function(UNARY["lgamma"])
selu = _function(UNARY["selu"])
elu = _function(UNARY["elu"])
silu = _function(UNARY["silu"])
nobackprop = _function(NOBACKPROP)


def scale_gradient(x: Expression, lambd: float = 1.0) -> Expression:
    """Pass the value on, and the gradient back multiplied by a number.

    Args:
        x: the operand.
        lambd: the number.
    """
    return apply(SCALE_GRADIENT, (x,), (), number(lambd, "scale_gradient: lambd"))


scale_gradient = fast("scale_gradient", scale_gradient)


def flip_gradient(x: Expression) -> Expression:
    """Pass the value on, and the negative of the gradient back.

    Args:
        x: the operand.
    """
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
        x: the operand.
        gradient_mode: "zero_gradient", or "straight_through_gradient" to pass the gradient on as it is.

    Raises:
        ArgumentError: `gradient_mode` is neither.
    """
    return apply(ROUNDING["round"], (x,), (_straight("round", gradient_mode),))


def ceil(x: Expression, gradient_mode: str) -> Expression:
    """Round every element up; see `round`."""
    return apply(ROUNDING["ceil"], (x,), (_straight("ceil", gradient_mode),))


def floor(x: Expression, gradient_mode: str) -> Expression:
    """Round every element down; see `round`."""
    return apply(ROUNDING["floor"], (x,), (_straight("floor", gradient_mode),))


def argmax(x: Expression, gradient_mode: str) -> Expression:
    """Make a vector with a one where the greatest element of `x` is.

    Args:
        x: a vector.
        gradient_mode: see `round`.
    """
    return apply(ARGMAX, (x,), (_straight("argmax", gradient_mode),))
