"""Elementwise functions with a gradient formula of their own, and the handling of integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ...compat import torch_private
from ..recording import is_recorded, is_traced

Elementwise = Callable[[torch.Tensor], torch.Tensor]


class _Pointwise(torch.autograd.Function):
    """Runs ``forward(x)`` and differentiates with ``slope(x, y)``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(function: Elementwise, slope: Callable[..., torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return function(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.slope = inputs[1]
        ctx.save_for_backward(inputs[2], output)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        x, y = ctx.saved_tensors
        return None, None, grads[0] * ctx.slope(x, y)


def with_gradient(
    function: Elementwise, slope: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> Elementwise:
    """Return an elementwise function that is differentiated by a formula.

    Args:
        function: ``(x) -> y``.
        slope: ``(x, y) -> dy/dx``.
    """
    apply: Callable[..., torch.Tensor] = _Pointwise.apply

    def run(x: torch.Tensor) -> torch.Tensor:
        return function(x) if is_traced() else apply(function, slope, x)

    return run


def in_type_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return `y` in the type of `x`; fractions are cut, and overflow wraps, when that is an integer type."""
    if y.dtype == x.dtype:
        return y
    if y.is_floating_point() and not x.is_floating_point():
        y = y.to(torch.int64)
    return y.to(x.dtype)


def kept_type(function: Elementwise) -> Elementwise:
    """Make a function that torch answers in float32 for integers keep their type, as MXNet does."""

    def run(x: torch.Tensor) -> torch.Tensor:
        return function(x) if x.is_floating_point() else in_type_of(x, function(x.double()))

    run.__name__ = getattr(function, "__name__", "run")
    return run


def round_away(x: torch.Tensor) -> torch.Tensor:
    """Round to the nearest integer, halves away from 0, as C does."""
    cut = torch.trunc(x)
    return cut + torch.sign(x) * ((x - cut).abs() >= 0.5)


def whole(number: float) -> int:
    """Return a number as an integer operator reads it: fraction cut, limited to int64, NaN as 0."""
    if number != number:
        return 0
    limited = max(-(2.0**63), min(2.0**63, number))
    return min(int(limited), 2**63 - 1)


def relu_gradient(grad: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the data: that of the output where it is above 0, NaN where it is NaN, else 0.

    Args:
        out: the output, at least 0 or NaN everywhere.
    """
    grad = torch.ops.aten.threshold_backward(grad, out, 0)
    # a sum of such numbers is NaN only if one of them is, and takes a fraction of the time of looking at each
    can_look = out.is_cpu and not (torch_private.is_batched(out) or is_recorded())
    if can_look and not math.isnan(out.sum().item()):
        return grad
    return torch.where(out.isnan(), out, grad)


class _Relu(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(data: torch.Tensor) -> torch.Tensor:
        return torch.relu(data)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return relu_gradient(grads[0], *ctx.saved_tensors)


_apply: Callable[..., torch.Tensor] = _Relu.apply


def relu(data: torch.Tensor) -> torch.Tensor:
    """Return the greater one of each element and 0; NaN stays."""
    by_torch = not (data.requires_grad and torch.is_grad_enabled()) or is_traced()
    return torch.relu(data) if by_torch else _apply(data)
