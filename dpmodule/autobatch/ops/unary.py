"""Operations on every element of one operand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .spec import Call, Dim, Op, declare, target

__all__ = ["ROUNDING", "UNARY", "same_shape"]

Tensor = torch.Tensor
SELU_ALPHA = 1.6732632423543772848170429916717
SELU_LAMBDA = 1.0507009873554804934193349852946


def same_shape(attrs: tuple[Any, ...], dims: Sequence[Dim]) -> Dim:
    """Give the result the shape of the operand."""
    return dims[0]


def _spread(number: Tensor, like: Tensor) -> Tensor:
    """Give the numbers of the nodes the axes that `like` has."""
    return number.view(-1, *[1] * (like.dim() - 1))


# function of x; derivative times g as a function of (g, x, y)
_PLAIN: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor, Tensor], Tensor]]] = {
    "tanh": (torch.tanh, lambda g, x, y: torch.ops.aten.tanh_backward.default(g, y)),
    "logistic": (torch.sigmoid, lambda g, x, y: torch.ops.aten.sigmoid_backward.default(g, y)),
    "rectify": (torch.relu, lambda g, x, y: g * (x > 0)),
    "negate": (torch.neg, lambda g, x, y: -g),
    "exp": (torch.exp, lambda g, x, y: g * y),
    "log": (torch.log, lambda g, x, y: g / x),
    "square": (torch.square, lambda g, x, y: 2 * g * x),
    "sqrt": (torch.sqrt, lambda g, x, y: g / (2 * y)),
    "cube": (lambda x: x * x * x, lambda g, x, y: 3 * g * x * x),
    "abs": (torch.abs, lambda g, x, y: g * torch.sign(x)),
    "sin": (torch.sin, lambda g, x, y: g * torch.cos(x)),
    "cos": (torch.cos, lambda g, x, y: -g * torch.sin(x)),
    "tan": (torch.tan, lambda g, x, y: g * (1 + y * y)),
    "asin": (torch.asin, lambda g, x, y: g / torch.sqrt(1 - x * x)),
    "acos": (torch.acos, lambda g, x, y: -g / torch.sqrt(1 - x * x)),
    "atan": (torch.atan, lambda g, x, y: g / (1 + x * x)),
    "sinh": (torch.sinh, lambda g, x, y: g * torch.cosh(x)),
    "cosh": (torch.cosh, lambda g, x, y: g * torch.sinh(x)),
    "asinh": (torch.asinh, lambda g, x, y: g / torch.sqrt(x * x + 1)),
    "acosh": (torch.acosh, lambda g, x, y: g / torch.sqrt(x * x - 1)),
    "atanh": (torch.atanh, lambda g, x, y: g / (1 - x * x)),
    "erf": (torch.erf, lambda g, x, y: g * torch.exp(-x * x) * (2 / math.sqrt(math.pi))),
    "softsign": (lambda x: x / (1 + x.abs()), lambda g, x, y: g / torch.square(1 + x.abs())),
    "log_sigmoid": (torch.nn.functional.logsigmoid, lambda g, x, y: g * torch.sigmoid(-x)),
    "lgamma": (torch.lgamma, lambda g, x, y: g * torch.digamma(x)),
    "selu": (
        torch.selu,
        lambda g, x, y: g * torch.where(x > 0, SELU_LAMBDA, SELU_LAMBDA * SELU_ALPHA * torch.exp(x)),
    ),
}


# these take out=
_INTO = frozenset(
    ["tanh", "logistic", "negate", "exp", "log", "square", "sqrt", "abs", "sin", "cos", "tan", "erf"]
)
# derivatives that take grad_input=, of g and y
_BACK: dict[str, Callable[..., Tensor]] = {
    "tanh": torch.ops.aten.tanh_backward.grad_input,
    "logistic": torch.ops.aten.sigmoid_backward.grad_input,
}


def _plain(name: str) -> Op:
    function, derivative = _PLAIN[name]

    if name in _INTO:

        def run(call: Call, x: Tensor) -> Tensor:
            return into(x, out=target(call))

        into: Callable[..., Tensor] = function
    else:

        def run(call: Call, x: Tensor) -> Tensor:
            return function(x)

    back = _BACK.get(name)

    def grad(call: Call, g: Tensor, x: Tensor) -> list[Tensor | None]:
        memory = target(call)
        if back is not None and memory is not None:
            return [back(g, call.result, grad_input=memory)]
        return [derivative(g, x, call.result)]

    return declare(name, same_shape, run, grad)


UNARY: dict[str, Op] = {name: _plain(name) for name in _PLAIN}
"""The operations that take nothing but their operand."""


def _elu(call: Call, x: Tensor) -> Tensor:
    alpha = call.attrs[0]
    return torch.where(x > 0, x, alpha * torch.expm1(x))


def _elu_grad(call: Call, g: Tensor, x: Tensor) -> list[Tensor | None]:
    return [
        g * torch.where(x > 0, torch.ones((), dtype=x.dtype, device=x.device), call.attrs[0] * torch.exp(x))
    ]


def _silu(call: Call, x: Tensor) -> Tensor:
    return x * torch.sigmoid(call.attrs[0] * x)


def _silu_grad(call: Call, g: Tensor, x: Tensor) -> list[Tensor | None]:
    beta = call.attrs[0]
    gate = torch.sigmoid(beta * x)
    return [g * (gate + beta * x * gate * (1 - gate))]


ELU = declare("elu", same_shape, _elu, _elu_grad)
SILU = declare("silu", same_shape, _silu, _silu_grad)


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


# a number beside an expression is the node's own: x + 1 and x + 2 make one batch
SHIFT = declare("add_number", same_shape, _shift, _pass, aux="float", expand=True)
SCALE = declare("multiply_number", same_shape, _scale, _scale_grad, aux="float", expand=True)
RECIPROCAL = declare("number_divided", same_shape, _reciprocal, _reciprocal_grad, aux="float", expand=True)
RAISE = declare("power_number", same_shape, _raise, _raise_grad, aux="float", expand=True)
EXPONENT = declare("number_power", same_shape, _exponent, _exponent_grad, aux="float", expand=True)


def _copy(call: Call, x: Tensor) -> Tensor:
    return x


def _none(call: Call, g: Tensor, x: Tensor) -> list[Tensor | None]:
    return [None]


def _scaled_back(call: Call, g: Tensor, x: Tensor) -> list[Tensor | None]:
    return [g * _spread(call.aux, g)]


NOBACKPROP = declare("nobackprop", same_shape, _copy, _none, constant=True)
SCALE_GRADIENT = declare("scale_gradient", same_shape, _copy, _scaled_back, aux="float", expand=True)
IDENTITY = declare("identity", same_shape, _copy, _pass)

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

    return declare(name, same_shape, run, grad)


ROUNDING: dict[str, Op] = {name: _rounding(name) for name in _ROUNDINGS}
"""Operations whose attribute says whether the gradient passes straight through."""


def _argmax(call: Call, x: Tensor) -> Tensor:
    best = x.argmax(2, keepdim=True)
    return torch.zeros_like(x).scatter_(2, best, 1.0)


def _argmax_grad(call: Call, g: Tensor, x: Tensor) -> list[Tensor | None]:
    return [g if call.attrs[0] else None]


ARGMAX = declare("argmax", same_shape, _argmax, _argmax_grad)
