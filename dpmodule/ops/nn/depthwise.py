"""Depthwise convolutions in training, by the native extension.

oneDNN prepares each call for as long as a small layer computes, and its gradients are slow for windows of 5x5. The
extension computes the gradients of data and weight in one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..._core import torch_private
from ..tracing import is_tracing
from .linear import address, is_float32_cpu, kernels
from .relayout import in_channels_last
from .trained_convolution import MaybeTensor
from .unfold import WindowGrid

_WINDOWS = (3, 5, 7)
"""Columns of a window for which there is a kernel."""
_MAX_NUMBERS, _MAX_MOVED = 2**19, 2**17
"""Elements of data up to which the gradients are faster for windows of three columns with stride 1, and of data whose
layout must change for any with three columns."""
_MAX_RESULT = 2**17
"""Elements of data up to which the result is faster."""


def can_convolve_depthwise(
    x: torch.Tensor, weight: torch.Tensor, bias: MaybeTensor, grid: WindowGrid
) -> bool:
    """Return True if `convolve_depthwise` supports these arguments, and is faster than torch.

    Args:
        x: as for `convolve_depthwise`, like the others.
    """
    tensors = (x, weight) if bias is None else (x, weight, bias)
    return (
        not torch_private.is_transformed(*tensors)
        and grid.kernel[1] in _WINDOWS
        and x.dim() == 4
        and (grid.kernel[1] > 3 or x.numel() <= _MAX_MOVED or _gains_in_place(x, grid))
        and weight.shape == (x.shape[1], 1, *grid.kernel)
        and (bias is None or (bias.shape == weight.shape[:1] and bias.is_contiguous()))
        and weight.is_contiguous()
        and all(map(is_float32_cpu, tensors))
        and min(*grid.counts(x.shape[2:]), x.numel()) > 0
        and not is_tracing()
        and hasattr(kernels(), "depthwise")
    )


def _gains_in_place(x: torch.Tensor, grid: WindowGrid) -> bool:
    """Return True if large data has the layout of the kernel, and its gradients are faster."""
    is_last = x.is_contiguous(memory_format=torch.channels_last)
    return is_last and (x.numel() <= _MAX_NUMBERS or grid.stride[1] > 1)


def _sizes(x: torch.Tensor, grid: WindowGrid, counts: Sequence[int]) -> list[int]:
    """Return the sizes of images, channels and both axes, and the number of threads."""
    axes = zip(x.shape[2:], counts, grid.kernel, grid.stride, grid.dilate, grid.pad, strict=True)
    return [*x.shape[:2], *(number for axis in axes for number in axis), torch.get_num_threads()]


def _result(x: torch.Tensor, weight: torch.Tensor, bias: MaybeTensor, grid: WindowGrid) -> torch.Tensor:
    if x.numel() > _MAX_RESULT:
        return torch.conv2d(x, weight, bias, grid.stride, grid.pad, grid.dilate, x.shape[1])
    counts = grid.counts(x.shape[2:])
    out = torch.empty((*x.shape[:2], *counts), dtype=x.dtype, memory_format=torch.channels_last)
    addresses = x.data_ptr(), weight.data_ptr(), address(bias), out.data_ptr()
    kernels().depthwise(*_sizes(x, grid, counts), *addresses)
    return out


class _Depthwise(torch.autograd.Function):
    """Autograd function of `convolve_depthwise`."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: MaybeTensor, grid: WindowGrid
    ) -> torch.Tensor:
        x = in_channels_last(x)
        ctx.save_for_backward(x, weight)
        ctx.grid = grid
        return _result(x, weight, bias, grid)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[MaybeTensor, ...]:
        (grad,), (x, weight), grid = grads, ctx.saved_tensors, ctx.grid
        if torch.is_grad_enabled() or not is_float32_cpu(grad) or torch_private.is_transformed(grad):
            channels, wanted = x.shape[1], ctx.needs_input_grad[:3]
            geometry = grid.stride, grid.pad, grid.dilate, False, (0, 0), channels
            return *torch.ops.aten.convolution_backward(grad, x, weight, [channels], *geometry, wanted), None
        grad = in_channels_last(grad)
        for_data, for_weight = torch.empty_like(x), torch.empty_like(weight)
        addresses = map(torch.Tensor.data_ptr, (x, weight, grad, for_data, for_weight))
        kernels().depthwise_gradients(*_sizes(x, grid, grad.shape[2:]), *addresses)
        return for_data, for_weight, grad.sum((0, 2, 3)) if ctx.needs_input_grad[2] else None, None


convolve_depthwise: Callable[..., torch.Tensor] = torch_private.autograd_apply(_Depthwise)
"""Convolve each channel with one filter; requires `can_convolve_depthwise`.

Shape:
    x: (N, C, H, W).
    weight: (C, 1, *kernel).
    bias: (C,), or None.
    returns: (N, C, H', W'), in channels_last.
"""
