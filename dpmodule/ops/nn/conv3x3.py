"""Convolutions by windows of 3x3 in training, by the native extension.

With few channels, oneDNN's kernels wait for memory: they read each number once for each place in the window. The
extension's use what they have read for all columns of the windows. Each of the three computations, of the result and of
the gradients of data and weight, is the extension's or torch's. Which one follows from the processor, sizes and threads
alone, never from a measurement.
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
_LEAST_HEIGHT, _LEAST_WIDTH = 2, 8
"""Sides of a part of the result that is computed at once."""
_STEP_OF_CHANNELS = 4
"""How many channels the data must have a multiple of for the gradient of the weight."""


def _is_whole(filters: int) -> bool:
    """Say whether there are kernels, and filters fill vectors of the processor."""
    core = kernels()
    lanes = core.conv3x3_lanes() if hasattr(core, "conv3x3_lanes") else 0
    return lanes > 0 and filters % lanes == 0


def _fits(x: torch.Tensor, step: int) -> bool:
    """Say whether images are of sizes that pay: few channels, and little that is computed twice at the right side."""
    images, channels, *sides = x.shape
    height, width = (side // step for side in sides)
    computed = -(-width // _LEAST_WIDTH) * _LEAST_WIDTH
    return (
        0 < channels <= _MOST_CHANNELS
        and not any(side % step for side in sides)
        and height >= _LEAST_HEIGHT
        and width >= _LEAST_WIDTH
        and 5 * computed <= 6 * width
        and images >= torch.get_num_threads()
    )


def takes(x: torch.Tensor, weight: torch.Tensor, bias: Optional, step: int) -> bool:
    """Say whether `convolve3x3` takes these, and is faster than torch.

    Args:
        x: as for `convolve3x3`, like the others.
        weight: the weight.
        bias: the bias.
        step: by how much windows move.
    """
    if torch.compiler.is_compiling() or x.dim() != 4:
        return False
    filters = weight.shape[0]
    given = (x, weight) if bias is None else (x, weight, bias)
    return (
        _fits(x, step)
        and weight.shape == (filters, x.shape[1], 3, 3)
        and filters <= _MOST_CHANNELS
        and (bias is None or (bias.shape == (filters,) and bias.is_contiguous()))
        and all(is_plain(each) and not torch_private.is_batched(each) for each in given)
        and x.is_contiguous(memory_format=torch.channels_last)
        and _is_whole(filters)
    )


def _sizes(x: torch.Tensor, filters: int, step: int) -> tuple[int, ...]:
    """Return what the kernels take first."""
    images, channels, height, width = x.shape
    return images, height, width, channels, filters, step, torch.get_num_threads()


def _address(tensor: Optional) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _result(x: torch.Tensor, weight: torch.Tensor, bias: Optional, step: int) -> torch.Tensor:
    images, _, height, width = x.shape
    shape = images, weight.shape[0], height // step, width // step
    out = torch.empty(shape, dtype=torch.float32, memory_format=torch.channels_last)
    given = weight.data_ptr(), *weight.stride(), x.data_ptr(), _address(bias), out.data_ptr()
    kernels().conv3x3(*_sizes(x, weight.shape[0], step), 1, *given)
    return out


def _for_data(grad: torch.Tensor, weight: torch.Tensor, step: int) -> torch.Tensor:
    """Return the gradient of the data: what the turned weight makes of the gradient, with zeros between its numbers."""
    filter_, channel, row, column = weight.stride()
    last = weight.data_ptr() + weight.element_size() * 2 * (row + column)
    images, _, height, width = grad.shape
    shape = images, weight.shape[1], height * step, width * step
    out = torch.empty(shape, dtype=torch.float32, memory_format=torch.channels_last)
    given = last, channel, filter_, -row, -column, grad.data_ptr(), 0, out.data_ptr()
    kernels().conv3x3(*_sizes(grad, weight.shape[1], 1), step, *given)
    return out


def _for_weight(
    x: torch.Tensor, grad: torch.Tensor, weight: torch.Tensor, step: int, with_bias: bool
) -> tuple[torch.Tensor, Optional]:
    """Return the gradients of weight and bias."""
    out, bias = torch.empty_like(weight), weight.new_empty(weight.shape[0]) if with_bias else None
    given = out.data_ptr(), *out.stride(), x.data_ptr(), grad.data_ptr(), _address(bias)
    kernels().conv3x3_gradients(*_sizes(x, weight.shape[0], step), *given)
    return out, bias


class _Convolution(torch.autograd.Function):
    """What `convolve3x3` does."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: Optional, step: int) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.bias_sizes, ctx.step = None if bias is None else [weight.shape[0]], step
        return _result(x, weight, bias, step)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Optional, ...]:
        (grad,), (x, weight), step, wants = grads, ctx.saved_tensors, ctx.step, list(ctx.needs_input_grad[:3])
        found: list[Optional] = [None, None, None]
        if is_plain(grad) and not (torch.is_grad_enabled() or torch_private.is_batched(grad)):
            grad = grad.contiguous(memory_format=torch.channels_last)
            if wants[0] and _is_whole(x.shape[1]):
                found[0], wants[0] = _for_data(grad, weight, step), False
            if wants[1] and x.shape[1] % _STEP_OF_CHANNELS == 0:
                found[1:] = _for_weight(x, grad, weight, step, wants[2])
                wants[1:] = False, False
        if any(wants):
            geometry = [step, step], [1, 1], [1, 1], False, [0, 0], 1
            left = torch.ops.aten.convolution_backward(grad, x, weight, ctx.bias_sizes, *geometry, wants)
            found = [new if wanted else old for new, wanted, old in zip(left, wants, found)]
        return *found, None


_apply: Callable[..., torch.Tensor] = _Convolution.apply


def convolve3x3(x: torch.Tensor, weight: torch.Tensor, bias: Optional, step: int) -> torch.Tensor:
    """Convolve images, which have a border of zeros one wide, for what `takes` holds.

    Shape:
        x: (N, C, H, W), in channels_last.
        weight: (F, C, 3, 3), of any strides.
        bias: (F,).
        returns: (N, F, H / step, W / step), in channels_last.

    Args:
        x: the images.
        weight: the weight.
        bias: what is added to each filter's numbers; None: nothing.
        step: by how much windows move, 1 or 2.
    """
    if torch.is_grad_enabled():
        return _apply(x, weight, bias, step)
    return _result(x, weight, bias, step)
