"""Normalisation over the batch in training, a sum and relu behind it, as one call of the native extension.

torch reads the data three times for the statistics and the result, and goes over the result again for the sum and for
relu; backward, relu's gradient is written, and read twice. Here forward reads the data twice and writes the result,
and backward does the same; of what follows the normalisation nothing but the result is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ...compat import torch_private
from ..recording import is_recorded
from .small_matmul import is_plain, kernels

_CHANNELS = 4
"""How many channels there must be a multiple of."""

Optional = torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Rectifier:
    """What becomes of a normalised tensor at the end.

    Attributes:
        relu: what is below 0 becomes 0.
        nan_stays: relu's gradient at NaN is NaN; else it is that of the result.
    """

    relu: bool = False
    nan_stays: bool = False


def _is_nhwc(tensor: torch.Tensor) -> bool:
    return (
        is_plain(tensor)
        and tensor.is_contiguous(memory_format=torch.channels_last)
        and not torch_private.is_batched(tensor)
    )


def _is_vector(tensor: torch.Tensor, size: int) -> bool:
    return (
        tensor.shape == (size,)
        and is_plain(tensor)
        and tensor.is_contiguous()
        and not torch_private.is_batched(tensor)
    )


def is_native(x: torch.Tensor, other: Optional, vectors: Sequence[torch.Tensor]) -> bool:
    """Say whether `native_norm` takes these."""
    if is_recorded() or x.dim() != 4 or x.shape[1] % _CHANNELS:
        return False
    return (
        x.numel() > x.shape[1] > 0
        and _is_nhwc(x)
        and (other is None or (other.shape == x.shape and _is_nhwc(other)))
        and all(_is_vector(each, x.shape[1]) for each in vectors)
        and not (vectors[2].requires_grad or vectors[3].requires_grad)
        and hasattr(kernels(), "norm_forward")
    )


def _address(tensor: Optional) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _sizes(x: torch.Tensor) -> tuple[int, int, int]:
    """Return positions, channels, and how many threads may work."""
    return x.numel() // x.shape[1], x.shape[1], torch.get_num_threads()


@dataclass(frozen=True, slots=True)
class _Done:
    """What forward has computed.

    Attributes:
        out: the result.
        statistics: (4, C), as the kernel has them.
        end: what was done at the end.
    """

    out: torch.Tensor
    statistics: torch.Tensor
    end: Rectifier


class _Norm(torch.autograd.Function):
    """Takes what was computed, data, the other summand or None, gamma or None, and beta; returns the result."""

    @staticmethod
    def forward(
        ctx: Any, done: _Done, x: torch.Tensor, other: Optional, gamma: Optional, beta: torch.Tensor
    ) -> torch.Tensor:
        ctx.end = done.end
        # without a sum, the data tell what relu has let through
        out = done.out if done.end.relu and other is not None else None
        ctx.save_for_backward(x, out, done.statistics)
        return done.out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Optional, ...]:
        x, out, statistics = ctx.saved_tensors
        _, for_data, for_sum, for_factors, for_summands = ctx.needs_input_grad
        grad = grads[0].contiguous(memory_format=torch.channels_last)
        for_x = torch.empty_like(grad) if for_data else None
        for_other = torch.empty_like(grad) if for_sum and ctx.end.relu else None
        for_gamma, for_beta = statistics.new_empty(x.shape[1]), statistics.new_empty(x.shape[1])
        given = grad, x, out, statistics, for_other, for_x, for_gamma, for_beta
        kernels().norm_backward(*_sizes(x), ctx.end.relu, ctx.end.nan_stays, *map(_address, given))
        return (
            None,
            for_x,
            (for_other if ctx.end.relu else grad) if for_sum else None,
            for_gamma if for_factors else None,
            for_beta if for_summands else None,
        )


_apply: Callable[..., torch.Tensor] = _Norm.apply


def native_norm(
    x: torch.Tensor,
    other: Optional,
    vectors: Sequence[Optional],
    eps: float,
    momentum: float,
    end: Rectifier,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Normalise over the batch, for what `is_native` holds; everything is float32 on the CPU.

    Args:
        x: data, (N, C, H, W) with channels innermost in memory, and more than one position.
        other: what is added to the result, laid out as the data; None: nothing.
        vectors: gamma, None for 1; beta, moving mean and moving variance, (C,).

    Returns:
        (result, new moving mean, new moving variance)

    Source: Ioffe and Szegedy, "Batch normalization", 2015.
    """
    gamma, beta, *moving = vectors
    out, statistics = torch.empty_like(x, requires_grad=False), x.new_empty(4, x.shape[1])
    new_mean, new_var = statistics.new_empty(x.shape[1]), statistics.new_empty(x.shape[1])
    given = x, other, gamma, beta, *moving, out, statistics, new_mean, new_var
    kernels().norm_forward(*_sizes(x), end.relu, eps, momentum, *map(_address, given))
    if torch.is_grad_enabled():
        out = _apply(_Done(out, statistics, end), x, other, gamma, beta)
    return out, new_mean, new_var
