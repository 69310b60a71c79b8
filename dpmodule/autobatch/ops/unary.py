"""Elementwise operations on one operand."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any

import torch

from .native_kernels import OP, Attrs, NodeEngine, NodeMaker, Nodes, unary
from .native_kernels import UNARY as KINDS
from .spec import BatchCall, Dim, Dims, Grads, Operation, declare, target

Tensor = torch.Tensor
ERF_SLOPE = 2 / math.sqrt(math.pi)
SELU_ALPHA = 1.6732632423543772848170429916717
SELU_LAMBDA = 1.0507009873554804934193349852946


def same_shape(attrs: Attrs, dims: Dims) -> Dim:
    """Return the shape of the operand."""
    return dims[0]


def _spread(number: Tensor, like: Tensor) -> Tensor:
    """Append axes to the numbers of the nodes until they have as many as `like`."""
    return number.view(-1, *[1] * (like.dim() - 1))


Value = Callable[..., Tensor]
"""Function of the operand and, for scalar operations, a number."""
Slope = Callable[..., Tensor]
"""Function of (gradient, operand, result) and, for scalar operations, a number; returns the operand's gradient."""
_ALWAYS_NEW = (torch.relu, torch.selu, torch.nn.functional.logsigmoid)
"""Functions of torch without an `out` argument."""


def _function(
    name: str,
    what: str,
    value: Value,
    slope: Slope | None = None,
    back: Any = None,
) -> Operation:
    """Declare an elementwise function; the native kernel has the same name.

    Args:
        what: the function in words, for the documentation; "" if `functions` defines it.
        back: alternative to `slope`: an operator from (gradient, result) to the operand's gradient.
    """
    into = isinstance(value, BuiltinFunctionType) and value not in _ALWAYS_NEW

    def run(call: BatchCall, x: Tensor) -> Tensor:
        return value(x, *call.attrs, out=target(call)) if into else value(x, *call.attrs)

    def grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
        if slope is not None:
            return [slope(g, x, call.result, *call.attrs)]
        memory = target(call)
        if memory is None:
            return [back.default(g, call.result)]
        return [back.grad_input(g, call.result, grad_input=memory)]

    text = what and f"Compute {what}{'' if 'every' in what else ' of every element'}."
    return declare(name, same_shape, run, grad, kernel=unary(name), text=text)


def _silu_slope(g: Tensor, x: Tensor, y: Tensor, k: float) -> Tensor:
    gate = torch.sigmoid(k * x)
    return g * (gate + k * x * gate * (1 - gate))


_FUNCTIONS = [
    _function("tanh", "the hyperbolic tangent", torch.tanh, back=torch.ops.aten.tanh_backward),
    _function("logistic", "1 / (1 + exp(-x))", torch.sigmoid, back=torch.ops.aten.sigmoid_backward),
    _function("rectify", "max(x, 0)", torch.relu, lambda g, x, y: g * (x > 0)),
    _function("negate", "", torch.neg, lambda g, x, y: -g),
    _function("exp", "e to the power", torch.exp, lambda g, x, y: g * y),
    _function("log", "the natural logarithm", torch.log, lambda g, x, y: g / x),
    _function("square", "the square", torch.square, lambda g, x, y: 2 * g * x),
    _function("sqrt", "the square root", torch.sqrt, lambda g, x, y: g / (2 * y)),
    _function("cube", "the third power", lambda x: x * x * x, lambda g, x, y: 3 * g * x * x),
    _function("abs", "the absolute value", torch.abs, lambda g, x, y: g * torch.sign(x)),
    _function("sin", "the sine of every element, in radians", torch.sin, lambda g, x, y: g * torch.cos(x)),
    _function("cos", "the cosine of every element, in radians", torch.cos, lambda g, x, y: -g * torch.sin(x)),
    _function("tan", "the tangent of every element, in radians", torch.tan, lambda g, x, y: g * (1 + y * y)),
    _function("asin", "the inverse sine", torch.asin, lambda g, x, y: g / torch.sqrt(1 - x * x)),
    _function("acos", "the inverse cosine", torch.acos, lambda g, x, y: -g / torch.sqrt(1 - x * x)),
    _function("atan", "the inverse tangent", torch.atan, lambda g, x, y: g / (1 + x * x)),
    _function("sinh", "the hyperbolic sine", torch.sinh, lambda g, x, y: g * torch.cosh(x)),
    _function("cosh", "the hyperbolic cosine", torch.cosh, lambda g, x, y: g * torch.sinh(x)),
    _function("asinh", "the inverse hyperbolic sine", torch.asinh, lambda g, x, y: g / torch.sqrt(x * x + 1)),
    _function(
        "acosh", "the inverse hyperbolic cosine", torch.acosh, lambda g, x, y: g / torch.sqrt(x * x - 1)
    ),
    _function("atanh", "the inverse hyperbolic tangent", torch.atanh, lambda g, x, y: g / (1 - x * x)),
    _function("erf", "the error function", torch.erf, lambda g, x, y: g * torch.exp(-x * x) * ERF_SLOPE),
    _function(
        "softsign", "x / (1 + |x|)", lambda x: x / (1 + x.abs()), lambda g, x, y: g / (1 + x.abs()).square()
    ),
    _function(
        "log_sigmoid",
        "the logarithm of the logistic function",
        torch.nn.functional.logsigmoid,
        lambda g, x, y: g * torch.sigmoid(-x),
    ),
    _function(
        "lgamma", "the logarithm of the gamma function", torch.lgamma, lambda g, x, y: g * torch.digamma(x)
    ),
    _function(
        "selu",
        "the scaled exponential linear unit of every element (Klambauer et al., 2017)",
        torch.selu,
        lambda g, x, y: g * torch.where(x > 0, SELU_LAMBDA, SELU_LAMBDA * SELU_ALPHA * torch.exp(x)),
    ),
    _function(
        "elu",
        "",
        lambda x, k: torch.where(x > 0, x, k * torch.expm1(x)),
        lambda g, x, y, k: g * torch.where(x > 0, 1.0, k * torch.exp(x)),
    ),
    _function("silu", "", lambda x, k: x * torch.sigmoid(k * x), _silu_slope),
]
UNARY: dict[str, Operation] = {each.name: each for each in _FUNCTIONS}
"""Elementwise operations with a DyNet function each."""


def raise_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    """Add a power node, whose argument is the exponent; see `native_kernels.NodeMaker`."""
    name = {2.0: "square", 3.0: "cube"}.get(aux, "power_number")
    return engine.kernel(OP["unary"], KINDS[name], args, aux if name == "power_number" else 0.0)


def _with_scalar(name: str, kernel: NodeMaker, value: Value, slope: Slope) -> Operation:
    """Declare an elementwise function with a number per node, so that x + 1 and x + 2 share a batch.

    Args:
        value: the function of (operand, numbers of the nodes).
        slope: the operand's gradient, from (gradient, operand, numbers of the nodes).
    """

    def run(call: BatchCall, x: Tensor) -> Tensor:
        return value(x, _spread(call.aux, x))

    def grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
        return [slope(g, x, _spread(call.aux, x))]

    return declare(name, same_shape, run, grad, aux="float", expand=True, kernel=kernel)


def _power_slope(g: Tensor, x: Tensor, k: Tensor) -> Tensor:
    return g * torch.where(k == 0, 0.0, k * torch.pow(x, k - 1))


SHIFT = _with_scalar("add_number", unary("shift"), lambda x, k: x + k, lambda g, x, k: g)
SCALE = _with_scalar("multiply_number", unary("scale"), lambda x, k: x * k, lambda g, x, k: g * k)
RECIPROCAL = _with_scalar(
    "number_divided", unary("recip"), lambda x, k: k / x, lambda g, x, k: -g * k / (x * x)
)
RAISE = _with_scalar("power_number", raise_kernel, torch.pow, _power_slope)
EXPONENT = _with_scalar(
    "number_power",
    unary("number_power"),
    lambda x, k: torch.pow(k, x),
    lambda g, x, k: g * torch.pow(k, x) * torch.log(k),
)
SCALE_GRADIENT = _with_scalar(
    "scale_gradient", unary("scale_gradient"), lambda x, k: x, lambda g, x, k: g * k
)


def _passing(
    name: str, kernel: NodeMaker, value: Value = lambda x: x, constant: bool = False, text: str = ""
) -> Operation:
    """Declare an elementwise function whose gradient passes through unchanged, or not at all."""

    def run(call: BatchCall, x: Tensor) -> Tensor:
        return value(x)

    def grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
        return [None if constant or not all(call.attrs) else g]

    return declare(name, same_shape, run, grad, kernel=kernel, constant=constant, text=text)


def _argmax_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    return engine.kernel(OP["argmax"], int(attrs[0]), args)


NOBACKPROP = _passing(
    "nobackprop",
    unary("nobackprop"),
    constant=True,
    text="Return the value unchanged, and stop the gradient.",
)
IDENTITY = _passing("identity", unary("identity"))
ROUND = _passing(  # halves away from zero
    "round",
    unary("round"),
    lambda x: torch.where(x < 0, -torch.floor(0.5 - x), torch.floor(x + 0.5)),
)
CEIL = _passing("ceil", unary("ceil"), torch.ceil)
FLOOR = _passing("floor", unary("floor"), torch.floor)
ARGMAX = _passing(
    "argmax", _argmax_kernel, lambda x: torch.zeros_like(x).scatter_(2, x.argmax(2, keepdim=True), 1.0)
)
