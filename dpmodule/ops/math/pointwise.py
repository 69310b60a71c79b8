"""Elementwise functions with a gradient formula of their own, and the handling of integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..recording import is_traced

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
