"""The rectifier whose gradient at NaN is NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ...compat import torch_private
from ..recording import is_recorded, is_traced


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
