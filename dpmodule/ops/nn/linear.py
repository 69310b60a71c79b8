"""The product of dense layers, by the faster of the two libraries that torch comes with.

torch multiplies matrices on the CPU with MKL, which some processors run at half of oneDNN's speed and others at the
same. Which one it is here shows at the first large product, once for the process; only a clear advantage counts, so
that runs on one machine agree. After that the choice looks at sizes alone. The environment variable
DPMODULE_ONEDNN=0 or 1 decides instead of the measurement.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from ... import private
from .moderate import is_moderate, multiply

__all__ = ["LARGE", "by_onednn", "linear", "onednn_pays", "product", "product_by_faster"]

LARGE = 2**22
"""Multiplications in a product below which oneDNN gains too little to begin with it: its code takes about 8 MB."""
_LEAST_ROWS = 8
"""Samples below which oneDNN's gradients are the slower ones."""
_MOST_TIMED = 512
"""Rows of data and weight that are timed, so that it does not take long."""
_CLEARLY = 1.3
"""How many times as long MKL must take."""


def _least_time(call: Callable[..., Any], *args: Any) -> float:
    call(*args)
    times = []
    for _ in range(7):
        begin = time.perf_counter()
        call(*args)
        times.append(time.perf_counter() - begin)
    return min(times)


_answer: bool | None = None
"""What `onednn_pays` has found, None before the first large product."""


def onednn_pays(data: torch.Tensor, weight: torch.Tensor) -> bool:
    """Say whether oneDNN is clearly faster than MKL here; measured at the first call, which takes some milliseconds.

    Args:
        data: (N, K), of the first large product; no other kernels than it needs anyway are loaded for the measurement.
        weight: (M, K).
    """
    global _answer
    if _answer is None:
        asked = os.environ.get("DPMODULE_ONEDNN")
        if asked == "0" or private.onednn_linear is private.plain_linear:
            _answer = False
        else:
            _answer = asked == "1" or _is_faster(data, weight)
    return _answer


def _is_faster(data: torch.Tensor, weight: torch.Tensor) -> bool:
    with torch.no_grad():
        data, weight = data[:_MOST_TIMED], weight[:_MOST_TIMED]
        fast = _least_time(private.onednn_linear, data, weight, None, "none", [], "")
        return _least_time(F.linear, data, weight) > _CLEARLY * fast


def by_onednn(data: torch.Tensor, weight: torch.Tensor) -> bool:
    """Say whether ``data @ weight.T`` is a product for oneDNN."""
    return (
        data.dim() == 2
        and data.shape[0] * weight.numel() >= LARGE
        and data.dtype is torch.float32
        and weight.dtype is torch.float32
        and data.device.type == "cpu"
        and not (private.is_batched(data) or private.is_batched(weight))
        and not torch.compiler.is_compiling()  # it knows no such call, and chooses for itself
        and onednn_pays(data, weight)
    )


def product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return ``left @ right.T``, by oneDNN; both float32 on the CPU and of two axes."""
    if right.stride(0) == 1 and right.stride(1) != right.shape[0]:
        # columns that lie apart, as of one step cut out of a sequence: oneDNN takes a thousand times as long for them
        right = right.t().contiguous().t()
    if torch.is_grad_enabled() and (left.requires_grad or right.requires_grad):
        return _apply(left, right, None)
    return private.onednn_linear(left, right, None, "none", [], "")


def product_by_faster(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return ``left @ right.T``, of two axes each, by what is the fastest for their size; records no gradient."""
    if is_moderate(left, right):
        return multiply(left, right)
    return (product if by_onednn(left, right) else F.linear)(left, right)


class _Linear(torch.autograd.Function):
    """``data @ weight.T + bias`` by oneDNN, with gradients that go the same way."""

    @staticmethod
    def forward(
        ctx: Any, data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        ctx.save_for_backward(data, weight)
        ctx.has_bias = bias is not None
        return private.onednn_linear(data, weight, bias, "none", [], "")

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        data, weight = ctx.saved_tensors
        (grad,) = grads
        multiply = F.linear if data.shape[0] < _LEAST_ROWS else product
        for_data = multiply(grad, weight.t()) if ctx.needs_input_grad[0] else None
        for_weight = multiply(grad.t(), data.t()) if ctx.needs_input_grad[1] else None
        for_bias = grad.sum(0) if ctx.has_bias and ctx.needs_input_grad[2] else None
        return for_data, for_weight, for_bias


_apply: Callable[..., torch.Tensor] = _Linear.apply


def linear(data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return ``data @ weight.T + bias`` as `F.linear` does, by what is the fastest for their size.

    Args:
        data: (N, K), or (..., K) of one axis or more.
        weight: (M, K), of any strides.
        bias: (M,), or None.
    """
    if not torch.is_grad_enabled() and is_moderate(data, weight):
        return multiply(data, weight, bias)
    if not by_onednn(data, weight):
        return F.linear(data, weight, bias)
    if torch.is_grad_enabled() and (
        data.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    ):
        return _apply(data, weight, bias)
    return private.onednn_linear(data, weight, bias, "none", [], "")
