"""Functions of every element of one expression."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import ArgumentError, user_line
from ..expression import Expression, apply, single
from ..fast import fast
from ..given import number
from ..ops.spec import Op
from ..ops.unary import ARGMAX, ELU, NOBACKPROP, ROUNDING, SCALE_GRADIENT, SILU, UNARY

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


def _face(name: str, op: Op, text: str) -> Callable[[Expression], Expression]:
    """Make the function of an operation that takes one expression and nothing else."""
    found = single(op)
    found.__name__ = found.__qualname__ = name
    found.__doc__ = f"{text}\n\nArgs:\n    x: the operand."
    return found


def _plain(name: str, text: str) -> Callable[[Expression], Expression]:
    found = _face(name, UNARY[name], text)
    return fast(name, found)


tanh = _plain("tanh", "Compute the hyperbolic tangent of every element.")
logistic = _plain("logistic", "Compute 1 / (1 + exp(-x)) of every element.")
rectify = _plain("rectify", "Compute max(x, 0) of every element.")
exp = _plain("exp", "Compute e to the power of every element.")
log = _plain("log", "Compute the natural logarithm of every element.")
sqrt = _plain("sqrt", "Compute the square root of every element.")
square = _plain("square", "Compute the square of every element.")
cube = _plain("cube", "Compute the third power of every element.")
abs = _plain("abs", "Compute the absolute value of every element.")
sin = _plain("sin", "Compute the sine of every element, in radians.")
cos = _plain("cos", "Compute the cosine of every element, in radians.")
tan = _plain("tan", "Compute the tangent of every element, in radians.")
asin = _plain("asin", "Compute the inverse sine of every element.")
acos = _plain("acos", "Compute the inverse cosine of every element.")
atan = _plain("atan", "Compute the inverse tangent of every element.")
sinh = _plain("sinh", "Compute the hyperbolic sine of every element.")
cosh = _plain("cosh", "Compute the hyperbolic cosine of every element.")
asinh = _plain("asinh", "Compute the inverse hyperbolic sine of every element.")
acosh = _plain("acosh", "Compute the inverse hyperbolic cosine of every element.")
atanh = _plain("atanh", "Compute the inverse hyperbolic tangent of every element.")
erf = _plain("erf", "Compute the error function of every element.")
softsign = _plain("softsign", "Compute x / (1 + |x|) of every element.")
log_sigmoid = _plain("log_sigmoid", "Compute the logarithm of the logistic function of every element.")
lgamma = _plain("lgamma", "Compute the logarithm of the gamma function of every element.")
selu = _plain("selu", "Compute the scaled exponential linear unit of every element (Klambauer et al., 2017).")
nobackprop = fast("nobackprop", _face("nobackprop", NOBACKPROP, "Pass the value on, and no gradient back."))


def elu(x: Expression, alpha: float = 1.0) -> Expression:
    """Compute x above 0 and alpha * (exp(x) - 1) below, of every element.

    Args:
        x: the operand.
        alpha: the negative of the limit far below 0.
    """
    return apply(ELU, (x,), (number(alpha, "elu: alpha"),))


elu = fast("elu", elu)


def silu(x: Expression, beta: float = 1.0) -> Expression:
    """Compute x * logistic(beta * x) of every element, also known as swish.

    Args:
        x: the operand.
        beta: see above.
    """
    return apply(SILU, (x,), (number(beta, "silu: beta"),))


silu = fast("silu", silu)


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
