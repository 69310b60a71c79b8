"""Dropout and noise; every node draws numbers of its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .kernels import drawn
from .native_numbers import Attrs
from .spec import BatchCall, Dim, Dims, Grads, Operation, Run, ShapeRule, declare, fail
from .unary import same_shape

Tensor = torch.Tensor


def draw_mask(mask: Tensor, rate: float, generator: torch.Generator | None) -> Tensor:
    """Fill a tensor with a mask: 0 with probability `rate`, else 1 / (1 - rate)."""
    if rate >= 1.0:
        return mask.zero_()
    return mask.bernoulli_(1.0 - rate, generator=generator).div_(1.0 - rate)


def _masked(call: BatchCall, x: Tensor, shape: Sequence[int], rate: float) -> Tensor:
    """Multiply with a mask that keeps elements with probability 1 - rate, and makes up for the others."""
    call.saved = draw_mask(torch.empty(tuple(shape), dtype=x.dtype, device=x.device), rate, call.generator)
    answer: Tensor = x * call.saved
    return answer


def _masked_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    return [g * call.saved]


def _dropout(call: BatchCall, x: Tensor) -> Tensor:
    return _masked(call, x, x.shape, call.attrs[0])


def _dim_shape(attrs: Attrs, dims: Dims) -> Dim:
    if not 0 <= attrs[1] < len(dims[0].d):
        fail("dropout_dim", dims, f"there is no dimension {attrs[1]}")
    return dims[0]


def _dropout_dim(call: BatchCall, x: Tensor) -> Tensor:
    shape = [*x.shape]
    shape[call.attrs[1] + 2] = 1
    return _masked(call, x, shape, call.attrs[0])


def _dropout_batch(call: BatchCall, x: Tensor) -> Tensor:
    return _masked(call, x, [*x.shape[:2], *[1] * (x.dim() - 2)], call.attrs[0])


def _block(call: BatchCall, x: Tensor) -> Tensor:
    return _masked(call, x, [x.shape[0], *[1] * (x.dim() - 1)], call.attrs[0])


def _noise(call: BatchCall, x: Tensor) -> Tensor:
    return x + torch.empty_like(x).normal_(0.0, call.attrs[0], generator=call.generator)


def _noise_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    return [g]


def _noisy(name: str, run: Run, grad: Run = _masked_grad, shape: ShapeRule = same_shape) -> Operation:
    return declare(name, shape, run, grad, random=True, expand=True, kernel=drawn(name))


DROPOUT = _noisy("dropout", _dropout)
DROPOUT_DIM = _noisy("dropout_dim", _dropout_dim, shape=_dim_shape)
DROPOUT_BATCH = _noisy("dropout_batch", _dropout_batch)
BLOCK_DROPOUT = _noisy("block_dropout", _block)
NOISE = _noisy("noise", _noise, _noise_grad)
