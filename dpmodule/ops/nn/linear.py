"""The product of dense layers, by the faster of the two libraries that torch comes with.

torch multiplies matrices on the CPU with MKL, which runs at half of oneDNN's speed on AMD's processors and at the same
or better on Intel's. What computes a product follows from the processor, types and sizes alone, never from a
measurement: one program has the same bits in every run on a machine. The environment variable DPMODULE_ONEDNN=0 or 1
decides instead of the table of processors.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.nn import functional as F

from ...compat import torch_private
from ..recording import is_recorded
from .small_matmul import few_rows_pay, has_few_rows, is_moderate, multiply, multiply_few_rows, pays

LARGE = 2**22
"""Multiplications in a product below which oneDNN gains too little to begin with it: its code takes about 8 MB."""
SMALL = 2**16
"""Multiplications below which all that chooses counts more than what is chosen, where no gradient is recorded."""
_WORTH_RECORDING = 2**20
"""Multiplications below which our own kernel does not make up for gradients that are recorded in Python."""
_LEAST_ROWS = 8
"""Samples below which oneDNN's gradients are the slower ones."""
_SLOW_WITH_MKL = ("AuthenticAMD", "HygonGenuine")
"""Vendors whose processors MKL does not run its fastest kernels on."""


def _vendor() -> str:
    """Return the text in which the system names the processor's vendor."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("vendor_id"):
                    return line
    except OSError:
        pass  # not Linux
    return platform.processor()


@cache
def onednn_pays() -> bool:
    """Say whether oneDNN multiplies large matrices faster than `F.linear` on this processor."""
    asked = os.environ.get("DPMODULE_ONEDNN")
    if asked == "0" or torch_private.onednn_linear is torch_private.plain_linear:
        return False
    by_mkl = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    return asked == "1" or (by_mkl and any(name in _vendor() for name in _SLOW_WITH_MKL))


def by_onednn(data: torch.Tensor, weight: torch.Tensor) -> bool:
    """Say whether ``data @ weight.T`` is a product for oneDNN."""
    return (
        data.dim() == 2
        and data.shape[0] * weight.numel() >= LARGE
        and data.dtype is torch.float32
        and weight.dtype is torch.float32
        and data.device.type == "cpu"
        and onednn_pays()
        and not (torch_private.is_batched(data) or torch_private.is_batched(weight))
        and not is_recorded()  # it knows no such call, and chooses for itself
    )


def product(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return ``left @ right.T + bias``, by oneDNN; all float32 on the CPU, matrices of two axes and a bias of one."""
    if right.stride(0) == 1 and right.stride(1) != right.shape[0]:
        # columns that lie apart, as of one step cut out of a sequence: oneDNN takes a thousand times as long for them
        right = right.t().contiguous().t()
    if torch.is_grad_enabled() and (left.requires_grad or right.requires_grad):
        return _apply(left, right, bias)
    return torch_private.onednn_linear(left, right, bias, "none", [], "")


def product_of_sizes(rows: int, columns: int, depth: int) -> Callable[..., torch.Tensor]:
    """Return what is the fastest for ``left @ right.T + bias``; under `torch.no_grad`, all float32 on the CPU."""
    if pays(rows, columns, depth):
        return multiply
    if few_rows_pay(rows, columns, depth):
        return multiply_few_rows
    return product if rows * columns * depth >= LARGE and onednn_pays() else F.linear


def product_by_faster(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return ``left @ right.T``, of two axes each, by what is the fastest for their size; records no gradient."""
    if is_moderate(left, right):
        return multiply(left, right)
    return (product if by_onednn(left, right) else F.linear)(left, right)


class _Linear(torch.autograd.Function):
    """``data @ weight.T + bias`` by oneDNN or our own kernel, with gradients that go the same way."""

    @staticmethod
    def forward(
        ctx: Any, data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        ctx.save_for_backward(data, weight)
        ctx.has_bias = bias is not None
        return _by_faster(data, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        data, weight = ctx.saved_tensors
        (grad,) = grads
        by = F.linear if data.shape[0] < _LEAST_ROWS else product_by_faster
        for_data = by(grad, weight.t()) if ctx.needs_input_grad[0] else None
        for_weight = by(grad.t(), data.t()) if ctx.needs_input_grad[1] else None
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
    if not torch.is_grad_enabled():
        return _by_faster(data, weight, bias)
    if data.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad):
        by = _apply if by_onednn(data, weight) or _is_worth_recording(data, weight) else F.linear
        return by(data, weight, bias)
    if by_onednn(data, weight):
        return torch_private.onednn_linear(data, weight, bias, "none", [], "")
    return F.linear(data, weight, bias)


def _is_worth_recording(data: torch.Tensor, weight: torch.Tensor) -> bool:
    """Say whether our own kernel, which takes half of the time of a slow MKL, is for a product that is learned."""
    return data.shape[0] * weight.numel() >= _WORTH_RECORDING and onednn_pays() and is_moderate(data, weight)


def _by_faster(data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return ``data @ weight.T + bias``; records no gradient."""
    if is_moderate(data, weight):
        return multiply(data, weight, bias)
    if has_few_rows(data, weight):
        return multiply_few_rows(data, weight, bias)
    if by_onednn(data, weight):
        return torch_private.onednn_linear(data, weight, bias, "none", [], "")
    return F.linear(data, weight, bias)
