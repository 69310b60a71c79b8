"""Operations on every element of one operand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..native_machine import Machine
from ..native_names import OP
from ..native_names import UNARY as KINDS
from .kernels import unary, with_attribute
from .spec import Argument, Call, Dim, Op, declare, target

__all__ = ["ROUNDING", "UNARY", "raise_kernel", "same_shape"]

Tensor = torch.Tensor
SELU_ALPHA = 1.6732632423543772848170429916717
SELU_LAMBDA = 1.0507009873554804934193349852946


def same_shape(attrs: tuple[Any, ...], dims: Sequence[Dim]) -> Dim:
    """Give the result the shape of the operand."""
    return dims[0]


def _spread(number: Tensor, like: Tensor) -> Tensor:
    """Give the numbers of the nodes the axes that `like` has."""
    return number.view(-1, *[1] * (like.dim() - 1))


Value = Callable[..., Tensor]
"""Of the operand, and of the number beside it if there is one."""
Slope = Callable[..., Tensor]
"""Times the gradient, of (gradient, operand, result), and of the number beside the operand if there is one."""


def _function(
    name: str,
    text: str,
    value: Value,
    slope: Slope | None = None,
    argument: Argument | None = None,
    into: bool = False,
    back: Callable[..., Tensor] | None = None,
) -> Op:
    """Declare a function of every element; the native engine's kernel has its name.

    Args:
        name: what users call it.
        text: what it does, for its documentation.
        value: computes it.
        slope: computes the gradient; None for autograd.
        argument: the number beside the operand, None for none.
        into: `value` takes memory for the result, as `out`.
        back: computes the gradient of (gradient, result) into memory, `grad_input`.
    """

    def run(call: Call, x: Tensor) -> Tensor:
        return value(x, *call.attrs, out=target(call)) if into else value(x, *call.attrs)

    grad = None if slope is None else _gradient(slope, back)
    kernel = unary(name) if argument is None else with_attribute(name)
    return declare(name, same_shape, run, grad, kernel=kernel, text=text, argument=argument)


def _gradient(slope: Slope, back: Callable[..., Tensor] | None) -> Callable[..., list[Tensor | None]]:
    def grad(call: Call, g: Tensor, x: Tensor) -> list[Tensor | None]:
        memory = target(call)
        if back is not None and memory is not None:
            return [back(g, call.result, grad_input=memory)]
        return [slope(g, x, call.result, *call.attrs)]

    return grad


def _silu_slope(g: Tensor, x: Tensor, y: Tensor, k: float) -> Tensor:
    gate = torch.sigmoid(k * x)
    return g * (gate + k * x * gate * (1 - gate))


_FUNCTIONS = [
    _function(
        "tanh",
        "Compute the hyperbolic tangent of every element.",
        torch.tanh,
        lambda g, x, y: torch.ops.aten.tanh_backward.default(g, y),
        into=True,
        back=torch.ops.aten.tanh_backward.grad_input,
    ),
    _function(
        "logistic",
        "Compute 1 / (1 + exp(-x)) of every element.",
        torch.sigmoid,
        lambda g, x, y: torch.ops.aten.sigmoid_backward.default(g, y),
        into=True,
        back=torch.ops.aten.sigmoid_backward.grad_input,
    ),
    _function("rectify", "Compute max(x, 0) of every element.", torch.relu, lambda g, x, y: g * (x > 0)),
    _function("negate", "", torch.neg, lambda g, x, y: -g, into=True),
    _function("exp", "Compute e to the power of every element.", torch.exp, lambda g, x, y: g * y, into=True),
    _function(
        "log", "Compute the natural logarithm of every element.", torch.log, lambda g, x, y: g / x, into=True
    ),
    _function(
        "square", "Compute the square of every element.", torch.square, lambda g, x, y: 2 * g * x, into=True
    ),
    _function(
        "sqrt",
        "Compute the square root of every element.",
        torch.sqrt,
        lambda g, x, y: g / (2 * y),
        into=True,
    ),
    _function(
        "cube",
        "Compute the third power of every element.",
        lambda x: x * x * x,
        lambda g, x, y: 3 * g * x * x,
    ),
    _function(
        "abs",
        "Compute the absolute value of every element.",
        torch.abs,
        lambda g, x, y: g * torch.sign(x),
        into=True,
    ),
    _function(
        "sin",
        "Compute the sine of every element, in radians.",
        torch.sin,
        lambda g, x, y: g * torch.cos(x),
        into=True,
    ),
    _function(
        "cos",
        "Compute the cosine of every element, in radians.",
        torch.cos,
        lambda g, x, y: -g * torch.sin(x),
        into=True,
    ),
    _function(
        "tan",
        "Compute the tangent of every element, in radians.",
        torch.tan,
        lambda g, x, y: g * (1 + y * y),
        into=True,
    ),
    _function(
        "asin",
        "Compute the inverse sine of every element.",
        torch.asin,
        lambda g, x, y: g / torch.sqrt(1 - x * x),
    ),
    _function(
        "acos",
        "Compute the inverse cosine of every element.",
        torch.acos,
        lambda g, x, y: -g / torch.sqrt(1 - x * x),
    ),
    _function(
        "atan", "Compute the inverse tangent of every element.", torch.atan, lambda g, x, y: g / (1 + x * x)
    ),
    _function(
        "sinh", "Compute the hyperbolic sine of every element.", torch.sinh, lambda g, x, y: g * torch.cosh(x)
    ),
    _function(
        "cosh",
        "Compute the hyperbolic cosine of every element.",
        torch.cosh,
        lambda g, x, y: g * torch.sinh(x),
    ),
    _function(
        "asinh",
        "Compute the inverse hyperbolic sine of every element.",
        torch.asinh,
        lambda g, x, y: g / torch.sqrt(x * x + 1),
    ),
    _function(
        "acosh",
        "Compute the inverse hyperbolic cosine of every element.",
        torch.acosh,
        lambda g, x, y: g / torch.sqrt(x * x - 1),
    ),
    _function(
        "atanh",
        "Compute the inverse hyperbolic tangent of every element.",
        torch.atanh,
        lambda g, x, y: g / (1 - x * x),
    ),
    _function(
        "erf",
        "Compute the error function of every element.",
        torch.erf,
        lambda g, x, y: g * torch.exp(-x * x) * (2 / math.sqrt(math.pi)),
        into=True,
    ),
    _function(
        "softsign",
        "Compute x / (1 + |x|) of every element.",
        lambda x: x / (1 + x.abs()),
        lambda g, x, y: g / torch.square(1 + x.abs()),
    ),
    _function(
        "log_sigmoid",
        "Compute the logarithm of the logistic function of every element.",
        torch.nn.functional.logsigmoid,
        lambda g, x, y: g * torch.sigmoid(-x),
    ),
    _function(
        "lgamma",
        "Compute the logarithm of the gamma function of every element.",
        torch.lgamma,
        lambda g, x, y: g * torch.digamma(x),
    ),
    _function(
        "selu",
        "Compute the scaled exponential linear unit of every element (Klambauer et al., 2017).",
        torch.selu,
        lambda g, x, y: g * torch.where(x > 0, SELU_LAMBDA, SELU_LAMBDA * SELU_ALPHA * torch.exp(x)),
    ),
    _function(
        "elu",
        "Compute x above 0 and alpha * (exp(x) - 1) below, of every element.",
        lambda x, k: torch.where(x > 0, x, k * torch.expm1(x)),
        lambda g, x, y, k: g * torch.where(x > 0, 1.0, k * torch.exp(x)),
        Argument("alpha", 1.0, "the negative of the limit far below 0."),
    ),
    _function(
        "silu",
        "Compute x * logistic(beta * x) of every element, also known as swish.",
        lambda x, k: x * torch.sigmoid(k * x),
        _silu_slope,
        Argument("beta", 1.0, "see above."),
    ),
]
UNARY: dict[str, Op] = {each.name: each for each in _FUNCTIONS}
"""The functions of every element that DyNet has one function for."""


def _shift(call: Call, x: Tensor) -> Tensor:
    return x + _spread(call.aux, x)


def _scale(call: Call, x: Tensor) -> Tensor:
    return x * _spread(call.aux, x)


def _pass(call: Call, g: Tensor, x: Tensor) -> list[Tensor | None]:
    return [g]


def _scale_grad(call: Call, g: Tensor, x: Tensor) -> list[Tensor | None]:
    return [g * _spread(call.aux, g)]


def _reciprocal(call: Call, x: Tensor) -> Tensor:
    return _spread(call.aux, x) / x


def _reciprocal_grad(call: Call, g: Tensor, x: Tensor) -> list[Tensor | None]:
    return [-g * _spread(call.aux, g) / (x * x)]


def _raise(call: Call, x: Tensor) -> Tensor:
    return torch.pow(x, _spread(call.aux, x))


def _raise_grad(call: Call, g: Tensor, x: Tensor) -> list[Tensor | None]:
    power = _spread(call.aux, x)
    return [g * torch.where(power == 0, 0.0, power * torch.pow(x, power - 1))]


def _exponent(call: Call, x: Tensor) -> Tensor:
    return torch.pow(_spread(call.aux, x), x)


def _exponent_grad(call: Call, g: Tensor, x: Tensor) -> list[Tensor | None]:
    base = _spread(call.aux, x)
    return [g * torch.pow(base, x) * torch.log(base)]


def raise_kernel(engine: Machine, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    """Add a node of powers of an operand, the own number being the exponent; see `native_machine.Maker`."""
    name = {2.0: "square", 3.0: "cube"}.get(aux, "power_number")
    return engine.kernel(OP["unary"], KINDS[name], args, aux if name == "power_number" else 0.0)


# a number beside an expression is the node's own: x + 1 and x + 2 make one batch
SHIFT = declare("add_number", same_shape, _shift, _pass, aux="float", expand=True, kernel=unary("shift"))
SCALE = declare(
    "multiply_number", same_shape, _scale, _scale_grad, aux="float", expand=True, kernel=unary("scale")
)
RECIPROCAL = declare(
    "number_divided",
    same_shape,
    _reciprocal,
    _reciprocal_grad,
    aux="float",
    expand=True,
    kernel=unary("recip"),
)
RAISE = declare(
    "power_number", same_shape, _raise, _raise_grad, aux="float", expand=True, kernel=raise_kernel
)
EXPONENT = declare(
    "number_power",
    same_shape,
    _exponent,
    _exponent_grad,
    aux="float",
    expand=True,
    kernel=unary("number_power"),
)


def _copy(call: Call, x: Tensor) -> Tensor:
    return x


def _none(call: Call, g: Tensor, x: Tensor) -> list[Tensor | None]:
    return [None]


def _scaled_back(call: Call, g: Tensor, x: Tensor) -> list[Tensor | None]:
    return [g * _spread(call.aux, g)]


NOBACKPROP = declare(
    "nobackprop",
    same_shape,
    _copy,
    _none,
    constant=True,
    kernel=unary("nobackprop"),
    text="Pass the value on, and no gradient back.",
)
SCALE_GRADIENT = declare(
    "scale_gradient",
    same_shape,
    _copy,
    _scaled_back,
    aux="float",
    expand=True,
    kernel=unary("scale_gradient"),
)
IDENTITY = declare("identity", same_shape, _copy, _pass, kernel=unary("identity"))

_ROUNDINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "round": lambda x: torch.where(
        x < 0, -torch.floor(0.5 - x), torch.floor(x + 0.5)
    ),  # halves away from zero
    "ceil": torch.ceil,
    "floor": torch.floor,
}


def _rounding(name: str) -> Op:
    function: Callable[[Tensor], Tensor] = _ROUNDINGS[name]

    def run(call: Call, x: Tensor) -> Tensor:
        return function(x)

    def grad(call: Call, g: Tensor, x: Tensor) -> list[Tensor | None]:
        return [g if call.attrs[0] else None]

    return declare(name, same_shape, run, grad, kernel=with_attribute(name))


ROUNDING: dict[str, Op] = {name: _rounding(name) for name in _ROUNDINGS}
"""Operations whose attribute says whether the gradient passes straight through."""


def _argmax(call: Call, x: Tensor) -> Tensor:
    best = x.argmax(2, keepdim=True)
    return torch.zeros_like(x).scatter_(2, best, 1.0)


def _argmax_grad(call: Call, g: Tensor, x: Tensor) -> list[Tensor | None]:
    return [g if call.attrs[0] else None]


def _argmax_kernel(engine: Machine, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    return engine.kernel(OP["argmax"], int(attrs[0]), args)


ARGMAX = declare("argmax", same_shape, _argmax, _argmax_grad, kernel=_argmax_kernel)
