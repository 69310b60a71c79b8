"""Convolutions by windows of 3x3 in training, by the native extension.

With few channels, oneDNN's kernels wait for memory: they read each number once for each place in the window. The
extension's use what they have read for all three columns of the windows. Each of the three computations, of the result
and of the gradients of data and weight, is the extension's or torch's. Which one follows from the processor, sizes and
threads alone, never from a measurement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...compat import torch_private
from .small_matmul import is_plain, kernels

__all__ = ["convolve3x3", "takes"]

Optional = torch.Tensor | None

_MOST_CHANNELS = 64
"""Channels, and filters, up to which the weight of a vector of filters stays in the first cache."""
_LEAST_WIDTH, _LEAST_HEIGHT = 8, 2
"""Sides of the largest part of an image that is computed at once."""
_STEP = 4
"""How many channels the data must have a multiple of for the gradient of the weight."""
_GEOMETRY = [1, 1], [1, 1], [1, 1], False, [0, 0], 1


def _lanes() -> int:
    """Return how many filters the processor computes at once; 0 = there are no kernels for it."""
    core = kernels()
    return core.conv3x3_lanes() if hasattr(core, "conv3x3_lanes") else 0


def _is_whole(filters: int) -> bool:
    """Say whether filters fill vectors of the processor."""
    lanes = _lanes()
    return lanes > 0 and filters % lanes == 0


def _fits(x: torch.Tensor) -> bool:
    """Say whether images are of sizes that pay: few channels, and little that is computed twice at the right side."""
    images, channels, height, width = x.shape
    computed = -(-width // _LEAST_WIDTH) * _LEAST_WIDTH
    return (
        0 < channels <= _MOST_CHANNELS
        and height >= _LEAST_HEIGHT
        and width >= _LEAST_WIDTH
        and computed * 5 <= width * 6
        and images >= torch.get_num_threads()
    )


def takes(x: torch.Tensor, weight: torch.Tensor, bias: Optional) -> bool:
    """Say whether `convolve3x3` takes these, and is faster than torch.

    Args:
        x: as for `convolve3x3`, like the others.
        weight: the weight.
        bias: the bias.
    """
    if torch.compiler.is_compiling() or x.dim() != 4:
        return False
    filters = weight.shape[0]
    given = (x, weight) if bias is None else (x, weight, bias)
    return (
        _fits(x)
        and weight.shape == (filters, x.shape[1], 3, 3)
        and filters <= _MOST_CHANNELS
        and (bias is None or (bias.shape == (filters,) and bias.is_contiguous()))
        and all(is_plain(each) and not torch_private.is_batched(each) for each in given)
        and x.is_contiguous(memory_format=torch.channels_last)
        and _is_whole(filters)
    )


def _sizes(x: torch.Tensor, filters: int) -> tuple[int, ...]:
    """Return what the kernels take first."""
    images, channels, height, width = x.shape
    return images, height, width, channels, filters, torch.get_num_threads()


def _address(tensor: Optional) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _result(x: torch.Tensor, weight: torch.Tensor, bias: Optional) -> torch.Tensor:
    out = torch.empty((x.shape[0], weight.shape[0], *x.shape[2:]), memory_format=torch.channels_last)
    given = weight.data_ptr(), *weight.stride(), x.data_ptr(), _address(bias), out.data_ptr()
    kernels().conv3x3(*_sizes(x, weight.shape[0]), *given)
    return out


def _for_data(grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the data: the result for the gradient, by the weight turned by 180 degrees."""
    filter_, channel, row, column = weight.stride()
    last = weight.data_ptr() + weight.element_size() * 2 * (row + column)
    images, filters, height, width = grad.shape
    out = torch.empty((images, weight.shape[1], height, width), memory_format=torch.channels_last)
    given = last, channel, filter_, -row, -column, grad.data_ptr(), 0, out.data_ptr()
    kernels().conv3x3(*_sizes(grad, weight.shape[1]), *given)
    return out


def _for_weight(
    x: torch.Tensor, grad: torch.Tensor, weight: torch.Tensor, with_bias: bool
) -> tuple[torch.Tensor, Optional]:
    """Return the gradients of weight and bias."""
    out, bias = torch.empty_like(weight), weight.new_empty(weight.shape[0]) if with_bias else None
    given = out.data_ptr(), *out.stride(), x.data_ptr(), grad.data_ptr(), _address(bias)
    kernels().conv3x3_gradients(*_sizes(x, weight.shape[0]), *given)
    return out, bias


class _Convolution(torch.autograd.Function):
    """What `convolve3x3` does."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: Optional) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.bias_sizes = None if bias is None else [weight.shape[0]]
        return _result(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Optional, ...]:
        grad, (x, weight), wants = grads[0], ctx.saved_tensors, list(ctx.needs_input_grad)
        for_x = for_weight = for_bias = None
        if is_plain(grad) and not torch.is_grad_enabled() and not torch_private.is_batched(grad):
            grad = grad.contiguous(memory_format=torch.channels_last)
            if wants[0] and _is_whole(x.shape[1]):
                wants[0], for_x = False, _for_data(grad, weight)
            if wants[1] and x.shape[1] % _STEP == 0:
                for_weight, for_bias = _for_weight(x, grad, weight, wants[2])
                wants[1:] = False, False
        if any(wants):
            left = torch.ops.aten.convolution_backward(
                grad, x, weight, ctx.bias_sizes, *_GEOMETRY, wants
            )
            for_x, for_weight, for_bias = (
                new if wanted else old
                for old, new, wanted in zip((for_x, for_weight, for_bias), left, wants)
            )
        return for_x, for_weight, for_bias


_apply: Callable[..., torch.Tensor] = _Convolution.apply


def convolve3x3(x: torch.Tensor, weight: torch.Tensor, bias: Optional) -> torch.Tensor:
    """Convolve images, which have a border of one zero around them, for what `takes` holds.

    Shape:
        x: (N, C, H, W), in channels_last.
        weight: (F, C, 3, 3), of any strides.
        bias: (F,).
        returns: (N, F, H, W), in channels_last.

    Args:
        x: the images.
        weight: the weight.
        bias: what is added to each filter's numbers; None: nothing.
    """
    if torch.is_grad_enabled():
        return _apply(x, weight, bias)
    return _result(x, weight, bias)
