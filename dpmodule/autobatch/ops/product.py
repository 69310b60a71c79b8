"""Products of many rows with one matrix, by the fastest that torch offers."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ...compat import torch_private
from ...ops.nn.linear import onednn_pays
from ...ops.nn.linear import product as onednn_product

Tensor = torch.Tensor

_LARGE = 1_500_000
"""Multiplications from which oneDNN is the faster one, where it is at all."""


def is_large(left: Tensor, right: Tensor) -> bool:
    """Say whether ``left @ right.T`` is a product for oneDNN."""
    return (
        left.shape[0] * right.numel() >= _LARGE
        and left.dtype is right.dtype is torch.float32
        and left.device.type == "cpu"
        and onednn_pays()
    )


def product(left: Tensor, right: Tensor, into: Tensor | None = None) -> Tensor:
    """Return ``left @ right.T`` of two matrices, in new memory or in that of `into`."""
    if is_large(left, right):
        found = onednn_product(left, right)
        return found if into is None else into.copy_(found)
    return torch.mm(left, right.t(), out=into)


def affine(x: Tensor, matrix: Tensor, bias: Tensor | None, into: Tensor | None) -> Tensor:
    """Return ``x @ matrix.T + bias``.

    Args:
        x: (N, K).
        matrix: (M, K).
        bias: (M,), None for zeros.
        into: (N, M), memory for the result, None for new memory.
    """
    if is_large(x, matrix):
        found = torch_private.onednn_linear(x, matrix, bias, "none", [], "")
        return found if into is None else into.copy_(found)
    if into is None:
        return F.linear(x, matrix, bias)
    if bias is None:
        return torch.mm(x, matrix.t(), out=into)
    return torch.addmm(bias, x, matrix.t(), out=into)
