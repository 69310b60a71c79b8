"""Convolutions by windows of 3x3 in training, by the native extension.

oneDNN's kernels read each number once for each place in the window, and with few channels they wait for it. Those of
the extension use what they have read for all columns of the windows. Each of the three computations, of the result and
of the gradients of data and weight, is the extension's where that is faster, else torch's. Which one follows from the
processor, sizes and threads alone, never from a measurement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ...compat import torch_private
from ..recording import is_recorded
from .small_matmul import is_plain, kernels

Optional = torch.Tensor | None

_TILE = 8
"""Columns of the result that are computed at once, at least; all kernels are at their best with just as many."""
_MOST_NUMBERS = 2**16
"""Numbers of an image up to which it stays in the second cache."""
_MOST_FILTERS = 128
"""Channels and filters up to which the kernels win with wide vectors."""
_MOST_NARROW, _MOST_NARROW_WIDE = 64, 32
"""The same with narrow vectors, and where the result has more columns than `_TILE`."""
_MOST_PAIRS = 2**16
"""Channels times filters up to which sums of products for each thread take little memory."""
_STEP_OF_CHANNELS = 4
"""How many channels there must be a multiple of for the gradient of the weight."""


class _Sizes(NamedTuple):
    """Sizes of a convolution; height and width are the result's."""

    images: int
    channels: int
    filters: int
    height: int
    width: int
    step: int

    def fill(self, lanes: int) -> bool:
        """Say whether tiles of the result lie over each other but little."""
        if lanes <= _TILE or self.width <= _TILE:
            return self.width % _TILE == 0
        return self.width >= lanes and 8 * self.width >= 7 * (-(-self.width // lanes) * lanes)


def _lanes() -> int:
    """Return how many filters the processor computes at once; 0 = there are no kernels for it."""
    core = kernels()
    return core.conv3x3_lanes() if hasattr(core, "conv3x3_lanes") else 0


def _result_pays(sizes: _Sizes, computed: int) -> bool:
    """Say whether the result's kernel is the fastest."""
    lanes, most = _lanes(), max(sizes.channels, sizes.filters)
    if not lanes or computed % lanes or sizes.height < 2 or not sizes.fill(lanes):
        return False
    numbers = sizes.height * sizes.width * max(sizes.channels * sizes.step**2, sizes.filters)
    narrow = _MOST_NARROW if sizes.width == _TILE else _MOST_NARROW_WIDE
    return numbers <= _MOST_NUMBERS and most <= (_MOST_FILTERS if lanes > _TILE else narrow)


def _weight_pays(sizes: _Sizes) -> bool:
    """Say whether the kernel of the weight's gradient is the fastest."""
    lanes = _lanes()
    return (
        lanes > 0
        and sizes.filters % lanes == 0
        and sizes.channels % _STEP_OF_CHANNELS == 0
        and sizes.channels * sizes.filters <= _MOST_PAIRS
        and sizes.width > 1
    )


def _sizes(x: torch.Tensor, filters: int, step: int) -> _Sizes:
    images, channels, height, width = x.shape
    return _Sizes(images, channels, filters, height // step, width // step, step)


def takes(x: torch.Tensor, weight: torch.Tensor, bias: Optional, step: int) -> bool:
    """Say whether `convolve3x3` takes these, and some of it is faster than torch.

    With no more places of windows than filters, neither is the fastest, but a product of matrices.

    Args:
        x: as for `convolve3x3`, like the others.
    """
    if is_recorded() or x.dim() != 4 or x.shape[2] % step or x.shape[3] % step:
        return False
    sizes = _sizes(x, weight.shape[0], step)
    given = (x, weight) if bias is None else (x, weight, bias)
    return (
        sizes.images >= torch.get_num_threads()
        and sizes.images * sizes.height * sizes.width > sizes.filters
        and weight.shape == (sizes.filters, sizes.channels, 3, 3)
        and (bias is None or (bias.shape == (sizes.filters,) and bias.is_contiguous()))
        and all(is_plain(each) and not torch_private.is_batched(each) for each in given)
        and x.is_contiguous(memory_format=torch.channels_last)
        and (_result_pays(sizes, sizes.filters) or _weight_pays(sizes))
    )


def _address(tensor: Optional) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _convolved(
    x: torch.Tensor, shape: tuple[int, ...], weight: tuple[int, ...], bias: Optional, step: int, spread: int
) -> torch.Tensor:
    """Run the result's kernel.

    Args:
        weight: its address, its strides in the order (filters, channels, rows, columns), and whether it is turned.
    """
    images, channels, height, width = x.shape
    out = torch.empty(shape, dtype=torch.float32, memory_format=torch.channels_last)
    sizes = images, height, width, channels, shape[1], step, torch.get_num_threads(), spread
    kernels().conv3x3(*sizes, *weight, x.data_ptr(), _address(bias), out.data_ptr())
    return out


def _result(x: torch.Tensor, weight: torch.Tensor, bias: Optional, step: int) -> torch.Tensor:
    sizes = _sizes(x, weight.shape[0], step)
    if not _result_pays(sizes, sizes.filters):
        return torch.conv2d(x, weight, bias, step, 1)
    shape = sizes.images, sizes.filters, sizes.height, sizes.width
    return _convolved(x, shape, (weight.data_ptr(), *weight.stride(), False), bias, step, 1)


def _for_data(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, step: int) -> torch.Tensor:
    """Return the gradient of the data: what the weight, turned by 180 degrees, makes of the result's."""
    filter_, channel, row, column = weight.stride()
    turned = weight.data_ptr(), channel, filter_, row, column, True
    return _convolved(grad, x.shape, turned, None, 1, step)


def _for_weight(
    x: torch.Tensor, grad: torch.Tensor, weight: torch.Tensor, step: int, with_bias: bool
) -> tuple[torch.Tensor, Optional]:
    """Return the gradients of weight and bias."""
    out, bias = torch.empty_like(weight), weight.new_empty(weight.shape[0]) if with_bias else None
    images, channels, height, width = x.shape
    sizes = images, height, width, channels, weight.shape[0], step, torch.get_num_threads()
    given = out.data_ptr(), *out.stride(), x.data_ptr(), grad.data_ptr(), _address(bias)
    kernels().conv3x3_gradients(*sizes, *given)
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
            sizes = _sizes(x, weight.shape[0], step)
            grad = grad.contiguous(memory_format=torch.channels_last)
            if wants[0] and _result_pays(sizes, sizes.channels):
                found[0], wants[0] = _for_data(grad, x, weight, step), False
            if wants[1] and _weight_pays(sizes):
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
        bias: what is added to each filter's numbers; None: nothing.
        step: by how much windows move, 1 or 2.
    """
    if torch.is_grad_enabled():
        return _apply(x, weight, bias, step)
    return _result(x, weight, bias, step)
