"""3x3 convolutions in training, by the native extension.

oneDNN's kernels read each number once per position in the window, and are memory-bound with few channels. The
extension's kernels reuse numbers for all columns of the windows. The result and the gradients of data and weight are
each computed by the extension if that is faster, else by torch. The choice depends only on processor, sizes and
threads, never on a measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ..._core import torch_private
from ..tracing import is_tracing
from .linear import is_float32_cpu, kernels
from .relayout import in_channels_last

MaybeTensor = torch.Tensor | None

_TILE = 8
"""Minimum number of columns of a tile of the result, for which all kernels are the fastest."""
_MAX_NUMBERS = 2**16
"""Size of an image up to which it fits the L2 cache."""
_MAX_FILTERS = 96
"""Channels and filters up to which the kernels are faster with wide vectors."""
_MAX_NARROW, _MAX_NARROW_WIDE = 64, 32
"""The same limits with narrow vectors, and with more columns than `_TILE`."""
_MIN_POSITIONS = 256
"""Window positions below which torch prepares less than the kernels."""
_MAX_PAIRS = 2**16
"""Channels times filters up to which the threads' partial sums take little memory."""
_STEP_OF_CHANNELS = 4
"""Required divisor of the number of channels for the gradient of the weight."""


class _Conv3x3Sizes(NamedTuple):
    """Sizes of a convolution; height and width are those of the result."""

    images: int
    channels: int
    filters: int
    height: int
    width: int
    step: int

    def fill(self, lanes: int) -> bool:
        """Return True if tiles of the result overlap only a little."""
        if lanes <= _TILE or self.width <= _TILE:
            return self.width % _TILE == 0
        return self.width >= lanes and 8 * self.width >= 7 * (-(-self.width // lanes) * lanes)


def _lanes() -> int:
    """Return the number of filters per vector; 0 if there are no kernels for the processor."""
    core = kernels()
    return core.conv3x3_lanes() if hasattr(core, "conv3x3_lanes") else 0


def _use_result_kernel(sizes: _Conv3x3Sizes, computed: int) -> bool:
    """Return True if the kernel of the result is the fastest."""
    lanes, most = _lanes(), max(sizes.channels, sizes.filters)
    if not lanes or computed % lanes or sizes.height < 2 or not sizes.fill(lanes):
        return False
    numbers = sizes.height * sizes.width * max(sizes.channels * sizes.step**2, sizes.filters)
    narrow = _MAX_NARROW if sizes.width == _TILE else _MAX_NARROW_WIDE
    return numbers <= _MAX_NUMBERS and most <= (_MAX_FILTERS if lanes > _TILE else narrow)


def _use_weight_kernel(sizes: _Conv3x3Sizes) -> bool:
    """Return True if the kernel of the weight's gradient is the fastest."""
    lanes = _lanes()
    return (
        lanes > 0
        and sizes.filters % lanes == 0
        and sizes.channels % _STEP_OF_CHANNELS == 0
        and sizes.channels * sizes.filters <= _MAX_PAIRS
        and sizes.width > 1
    )


def _sizes(data: Sequence[int], filters: int, step: int) -> _Conv3x3Sizes:
    images, channels, height, width = data
    return _Conv3x3Sizes(images, channels, filters, height // step, width // step, step)


def is_fast3x3(data: Sequence[int], filters: int, step: int) -> bool:
    """Return True if `convolve3x3` is faster than torch, in part, for data of a shape (N, C, H, W).

    The gradient of the weight alone is not worth a function of our own.
    """
    sizes = _sizes(data, filters, step)
    return (
        data[2] % step == data[3] % step == 0
        and sizes.images >= torch.get_num_threads()
        and sizes.images * sizes.height * sizes.width >= _MIN_POSITIONS
        and _use_result_kernel(sizes, filters)
    )


def can_convolve3x3(x: torch.Tensor, weight: torch.Tensor, bias: MaybeTensor) -> bool:
    """Return True if `convolve3x3` supports these arguments, of a shape for which `is_fast3x3` is true.

    Args:
        x: as for `convolve3x3`, like the others.
    """
    tensors = (x, weight) if bias is None else (x, weight, bias)
    return (
        not is_tracing()
        and weight.shape[1:] == (x.shape[1], 3, 3)
        and (bias is None or (bias.shape == weight.shape[:1] and bias.is_contiguous()))
        and all(is_float32_cpu(t) and not torch_private.is_batched(t) for t in tensors)
        and x.is_contiguous(memory_format=torch.channels_last)
    )


def address(tensor: MaybeTensor) -> int:
    """Return the address of a tensor, 0 for None."""
    return 0 if tensor is None else tensor.data_ptr()


def _run_kernel(
    x: torch.Tensor,
    shape: tuple[int, ...],
    weight: tuple[int, ...],
    bias: MaybeTensor,
    step: int,
    spread: int,
) -> torch.Tensor:
    """Run the result's kernel.

    Args:
        weight: address, strides in the order (filters, channels, rows, columns), and True to rotate it.
    """
    images, channels, height, width = x.shape
    out = torch.empty(shape, dtype=torch.float32, memory_format=torch.channels_last)
    sizes = images, height, width, channels, shape[1], step, torch.get_num_threads(), spread
    kernels().conv3x3(*sizes, *weight, x.data_ptr(), address(bias), out.data_ptr())
    return out


def _result(x: torch.Tensor, weight: torch.Tensor, bias: MaybeTensor, step: int) -> torch.Tensor:
    sizes = _sizes(x.shape, weight.shape[0], step)
    shape = sizes.images, sizes.filters, sizes.height, sizes.width
    return _run_kernel(x, shape, (weight.data_ptr(), *weight.stride(), False), bias, step, 1)


def _for_data(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, step: int) -> torch.Tensor:
    """Return the gradient of the data: a convolution of the result's gradient with the rotated weight."""
    filter_, channel, row, column = weight.stride()
    turned = weight.data_ptr(), channel, filter_, row, column, True
    return _run_kernel(grad, x.shape, turned, None, 1, step)


def _for_weight(
    x: torch.Tensor, grad: torch.Tensor, weight: torch.Tensor, step: int, with_bias: bool
) -> tuple[torch.Tensor, MaybeTensor]:
    """Return the gradients of weight and bias."""
    out, bias = torch.empty_like(weight), weight.new_empty(weight.shape[0]) if with_bias else None
    images, channels, height, width = x.shape
    sizes = images, height, width, channels, weight.shape[0], step, torch.get_num_threads()
    arguments = out.data_ptr(), *out.stride(), x.data_ptr(), grad.data_ptr(), address(bias)
    kernels().conv3x3_gradients(*sizes, *arguments)
    return out, bias


class _Convolution(torch.autograd.Function):
    """Autograd function of `convolve3x3`."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: MaybeTensor, step: int
    ) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.bias_sizes, ctx.step = None if bias is None else [weight.shape[0]], step
        return _result(x, weight, bias, step)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[MaybeTensor, ...]:
        (grad,), (x, weight), step, wanted = (
            grads,
            ctx.saved_tensors,
            ctx.step,
            list(ctx.needs_input_grad[:3]),
        )
        gradients: list[MaybeTensor] = [None, None, None]
        if is_float32_cpu(grad) and not (torch.is_grad_enabled() or torch_private.is_batched(grad)):
            sizes = _sizes(x.shape, weight.shape[0], step)
            grad = in_channels_last(grad)
            if wanted[0] and _use_result_kernel(sizes, sizes.channels):
                gradients[0], wanted[0] = _for_data(grad, x, weight, step), False
            if wanted[1] and _use_weight_kernel(sizes):
                gradients[1:] = _for_weight(x, grad, weight, step, wanted[2])
                wanted[1:] = False, False
        if any(wanted):
            geometry = [step, step], [1, 1], [1, 1], False, [0, 0], 1
            computed = torch.ops.aten.convolution_backward(grad, x, weight, ctx.bias_sizes, *geometry, wanted)
            gradients = [
                new if is_wanted else old for new, is_wanted, old in zip(computed, wanted, gradients)
            ]
        return *gradients, None


_apply: Callable[..., torch.Tensor] = torch_private.autograd_apply(_Convolution)


def convolve3x3(x: torch.Tensor, weight: torch.Tensor, bias: MaybeTensor, step: int) -> torch.Tensor:
    """Convolve images padded by one zero; requires `can_convolve3x3`.

    Shape:
        x: (N, C, H, W), in channels_last.
        weight: (F, C, 3, 3), any strides.
        bias: (F,).
        returns: (N, F, H / step, W / step), in channels_last.

    Args:
        bias: summand of each filter, or None.
        step: stride of the windows, 1 or 2.
    """
    if torch.is_grad_enabled():
        return _apply(x, weight, bias, step)
    return _result(x, weight, bias, step)
