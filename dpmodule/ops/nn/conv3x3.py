"""3x3 convolutions in training, by the native extension.

oneDNN's kernels read each number once per position in the window, and are memory-bound with few channels. The
extension's kernels reuse numbers for all columns of the windows. The result and the gradients of data and weight are
each computed by the extension if that is faster, else by torch. The choice depends only on processor, sizes and
threads, never on a measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from math import prod
from struct import Struct
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

from ..._core import torch_private
from ..tracing import is_tracing
from .linear import is_float32_cpu, kernels

MaybeTensor = torch.Tensor | None

_TILE = 8
"""Minimum number of columns of a tile of the result, for which all kernels are the fastest."""
_MAX_NUMBERS = 2**16
"""Size of an image up to which it fits the L2 cache."""
_MAX_FILTERS = 128
"""Channels and filters up to which the kernels are faster with wide vectors."""
_MAX_NARROW, _MAX_NARROW_WIDE = 64, 32
"""The same limits with narrow vectors, and with more columns than `_TILE`."""
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


def _sizes(x: torch.Tensor, filters: int, step: int) -> _Conv3x3Sizes:
    images, channels, height, width = x.shape
    return _Conv3x3Sizes(images, channels, filters, height // step, width // step, step)


def can_convolve3x3(x: torch.Tensor, weight: torch.Tensor, bias: MaybeTensor, step: int) -> bool:
    """Return True if `convolve3x3` supports these arguments, and is faster than torch in part.

    If there are fewer window positions than filters, a matrix product is the fastest.

    Args:
        x: as for `convolve3x3`, like the others.
    """
    if is_tracing() or x.dim() != 4 or x.shape[2] % step or x.shape[3] % step:
        return False
    sizes = _sizes(x, weight.shape[0], step)
    tensors = (x, weight) if bias is None else (x, weight, bias)
    return (
        sizes.images >= torch.get_num_threads()
        and sizes.images * sizes.height * sizes.width > sizes.filters
        and weight.shape == (sizes.filters, sizes.channels, 3, 3)
        and (bias is None or (bias.shape == (sizes.filters,) and bias.is_contiguous()))
        and all(is_float32_cpu(t) and not torch_private.is_batched(t) for t in tensors)
        and x.is_contiguous(memory_format=torch.channels_last)
        and (_use_result_kernel(sizes, sizes.filters) or _use_weight_kernel(sizes))
    )


def _address(tensor: MaybeTensor) -> int:
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
    kernels().conv3x3(*sizes, *weight, x.data_ptr(), _address(bias), out.data_ptr())
    return out


def _result(x: torch.Tensor, weight: torch.Tensor, bias: MaybeTensor, step: int) -> torch.Tensor:
    sizes = _sizes(x, weight.shape[0], step)
    if not _use_result_kernel(sizes, sizes.filters):
        return torch.conv2d(x, weight, bias, step, 1)
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
    arguments = out.data_ptr(), *out.stride(), x.data_ptr(), grad.data_ptr(), _address(bias)
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
            sizes = _sizes(x, weight.shape[0], step)
            grad = grad.contiguous(memory_format=torch.channels_last)
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


_apply: Callable[..., torch.Tensor] = _Convolution.apply


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


# Two-dimensional convolutions by the native extension, for prediction.
#
# The extension accumulates tiles of the result in registers, from channels_last data and a packed weight, adds a bias
# and another tensor, and applies relu. oneDNN's kernels are as fast on cached data; this kernel prefetches and only
# takes addresses, while torch sets oneDNN up in every call. Torch's threads share the work. The choice depends only on
# processor and sizes, never on a measurement.

Tensor = torch.Tensor

_ROW = Struct("=22q")


class ConvolutionSizes(NamedTuple):
    """Sizes of a convolution's data and result.

    Attributes:
        data: (N, C, H, W).
        result: (N, F, H', W').
    """

    data: tuple[int, ...]
    result: tuple[int, ...]
    given: tuple[int, ...]


_MIN_FILTERS = 8
"""Filters below which most of a tile would be empty."""
_MIN_RUN = 16
"""Minimum run of contiguous numbers in a row of a window; shorter runs cost as much for addressing."""
_MAX_POSITIONS = 2**12
"""Window positions of all images up to which data and result fit the L2 cache; beyond it oneDNN is faster."""
_MAX_POSITIONS_FULL_TILES = 2**14
"""`_MAX_POSITIONS` if no vector of a tile is partly empty."""
_SHORT = 2**22
"""Multiplications up to which torch's overhead matters; beyond it, the kernel itself has to be faster."""
_LONG_RUN = 48
"""`_MIN_RUN` of larger convolutions with narrow windows."""
_WIDE_WINDOW = 5
"""Columns of a window from which the run length does not matter, as in a network's first convolution."""
_LARGE_BLOCK = 32
"""Block size with tiles that load too many numbers for wide windows."""
_FEW_FILTERS = 16
"""Number of filters that is too small for larger convolutions: tiles of one vector load as much as they compute."""
_WIDE = 16
"""Vector width with which the kernel is faster within all other limits."""
_MAX_CHANNELS = 64
"""Channels up to which it is faster with narrower vectors, too, for windows larger than 1x1."""
_SHORT_ROW = 16
"""Windows per row up to which that holds: oneDNN's tiles, parts of a row, are partly empty."""


class TiledConvolution:
    """Convolution with fixed parameters, for any image sizes and batch sizes.

    Args:
        rectifies: apply relu, which also sets NaN to 0.
    """

    def __init__(
        self,
        filters: int,
        kernel: Sequence[int],
        stride: Sequence[int],
        dilate: Sequence[int],
        pad: Sequence[int],
        rectifies: bool,
    ) -> None:
        self._filters, self._axes = filters, list(zip(kernel, stride, dilate, pad, strict=True))
        self._rectifies = rectifies

    @cached_property
    def _block(self) -> int:
        """Number of filters in a block of the packed weight; 0 if there is no kernel."""
        core = kernels()
        return core.convolution_block(self._filters) if hasattr(core, "convolution_block") else 0

    @property
    def fills_tiles(self) -> bool:
        """True if there are enough filters."""
        return self._filters >= _MIN_FILTERS

    def is_faster(self, sizes: ConvolutionSizes) -> bool:
        """Return True if the kernel exists and is the fastest for these sizes."""
        columns = self._axes[1][0]
        run_length = sizes.data[1] * columns
        if not self.fills_tiles or run_length < _MIN_RUN or not self._block:
            return False
        images, _, height, width = sizes.result
        max_positions = _MAX_POSITIONS if self._filters % self._block else _MAX_POSITIONS_FULL_TILES
        if images * height * width > max_positions:
            return False
        window = prod(axis[0] for axis in self._axes)
        if prod(sizes.result) * sizes.data[1] * window <= _SHORT:
            return True
        if self._filters <= _FEW_FILTERS:
            return False
        if columns >= _WIDE_WINDOW and self._block != _LARGE_BLOCK:
            return True
        small_window = window == 1 or (sizes.data[1] <= _MAX_CHANNELS and width <= _SHORT_ROW)
        has_wide_vectors: bool = kernels().vector_width >= _WIDE
        return run_length >= _LONG_RUN and (small_window or has_wide_vectors)

    def pack(self, weight: Tensor, bias: Tensor | None, channels: int) -> tuple[Tensor, Tensor] | tuple[()]:
        """Return weight and bias in the kernel's layout; () if their shapes do not fit.

        Shape:
            weight: (F, C, kernel height, kernel width).
            bias: (F,), or None.
            returns: (blocks, kernel height, kernel width, C, filters in a block), and (filters of all blocks,).
        """
        shape = (self._filters, channels, *(axis[0] for axis in self._axes))
        if weight.shape != shape or not (bias is None or bias.shape == shape[:1]):
            return ()
        lacking = -self._filters % self._block
        bias = weight.new_zeros(self._filters + lacking) if bias is None else F.pad(bias, (0, lacking))
        if lacking:
            weight = F.pad(weight, (0, 0) * 3 + (0, lacking))
        blocks = weight.reshape(-1, self._block, *shape[1:])
        return blocks.permute(0, 3, 4, 2, 1).contiguous(), bias.contiguous()

    def sizes(self, shape: Sequence[int]) -> ConvolutionSizes:
        """Return the sizes for data of shape (N, C, H, W)."""
        images, channels, *sides = shape
        axes = [
            (size, (size + 2 * pad - dilate * (kernel - 1) - 1) // stride + 1, kernel, stride, dilate, pad)
            for size, (kernel, stride, dilate, pad) in zip(sides, self._axes, strict=True)
        ]
        result = images, self._filters, axes[0][1], axes[1][1]
        return ConvolutionSizes(tuple(shape), result, (images, channels, self._filters, *axes[0], *axes[1]))

    def __call__(
        self,
        sizes: ConvolutionSizes,
        data: Tensor,
        weight: Tensor,
        bias: Tensor,
        other: Tensor | None,
        overwrites: bool,
    ) -> Tensor:
        """Return the result, in channels_last; all float32 on the CPU.

        Shape:
            data: (N, C, H, W).
            weight, bias: results of `pack`.
            other: summand of the result's shape (N, F, H', W'), or None.
        """
        data = data.contiguous(memory_format=torch.channels_last)
        other = None if other is None else other.contiguous(memory_format=torch.channels_last)
        if overwrites and other is not None:
            result = other
        else:
            result = torch.empty(sizes.result, dtype=torch.float32, memory_format=torch.channels_last)
        summand = 0 if other is None else other.data_ptr()
        addresses = data.data_ptr(), weight.data_ptr(), bias.data_ptr(), summand, result.data_ptr()
        kernels().convolve(self.row(sizes, range(5)), torch.get_num_threads(), *addresses)
        return result

    def row(self, sizes: ConvolutionSizes, addresses: Iterable[int]) -> bytes:
        """Return the kernel's arguments for the same convolution, as bytes.

        Args:
            addresses: indices, in the kernel's list of addresses, of data, weight, bias, summand (address 0 for none)
                and result, all in channels_last.
        """
        return _ROW.pack(*sizes.given, self._block, self._rectifies, *addresses)
