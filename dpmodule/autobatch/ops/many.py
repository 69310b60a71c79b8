"""Sums, means and maxima of many operands of one shape; nodes with different numbers of operands share a batch."""

from __future__ import annotations

from typing import Any

import torch

from .binary import max_kernel
from .kernels import plain, unary
from .native_numbers import OP, Attrs, Machine, Nodes
from .spec import BatchCall, Grads, declare
from .unary import same_shape

Tensor = torch.Tensor


def _segments(call: BatchCall) -> Tensor:
    """Return the number of the node that every operand belongs to."""
    counts = torch.tensor(call.counts, device=call.device)
    return torch.repeat_interleave(torch.arange(call.count, device=call.device), counts)


def _sum(call: BatchCall, x: Tensor) -> Tensor:
    if call.count == 1:
        return x.sum(0, keepdim=True)
    call.saved = _segments(call)
    found = torch.zeros(call.count, *x.shape[1:], dtype=x.dtype, device=x.device)
    return found.index_add_(0, call.saved, x)


def _sum_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    return [g.expand_as(x) if call.count == 1 else g.index_select(0, call.saved)]


def _weights(call: BatchCall, like: Tensor) -> Tensor:
    counts = torch.tensor(call.counts, device=like.device, dtype=like.dtype)
    return counts.view(-1, *[1] * (like.dim() - 1))


def _average(call: BatchCall, x: Tensor) -> Tensor:
    return _sum(call, x) / _weights(call, x)


def _average_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    return _sum_grad(call, g / _weights(call, g), x)


def _max(call: BatchCall, x: Tensor) -> Tensor:
    found, call.saved = x.reshape(call.count, -1, *x.shape[1:]).max(1)
    return found


def _max_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    found = torch.zeros(call.count, x.shape[0] // call.count, *x.shape[1:], dtype=g.dtype, device=g.device)
    found.scatter_(1, call.saved.unsqueeze(1), g.unsqueeze(1))
    return [found.reshape(x.shape)]


def _average_kernel(engine: Machine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    total = engine.kernel(OP["sum"], 0, args)
    return -1 if total < 0 else _SCALED(engine, (), (total,), 1.0 / len(args))


_SCALED = unary("scale")

SUM_MANY = declare("sum_many", same_shape, _sum, _sum_grad, many=True, ragged=True, kernel=plain("sum"))
AVERAGE_MANY = declare(
    "average", same_shape, _average, _average_grad, many=True, ragged=True, kernel=_average_kernel
)
MAX_MANY = declare("max_many", same_shape, _max, _max_grad, many=True, kernel=max_kernel)
