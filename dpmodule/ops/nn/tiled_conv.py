"""Two-dimensional convolutions by the native extension, for prediction.

The extension sums tiles of the result up in registers, from data in channels_last and a weight laid out for it, and
adds a bias and another tensor and rectifies there. oneDNN's kernels are as fast; but torch looks for them anew in every
call, which takes 20 to 40 microseconds, and they are slower where images are small. It uses one thread, so it is for
programs that leave torch one. What computes a convolution follows from the processor, sizes and threads alone, never
from a measurement.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from .small_matmul import kernels

__all__ = ["TiledConvolution"]

Tensor = torch.Tensor

_LEAST_FILTERS = 8
"""Filters below which most of a tile would stay empty."""
_LEAST_RUN = 16
"""Numbers that a row of a window must have one after the other; with fewer, it takes as long to find them."""


class TiledConvolution:
    """A convolution of sizes that do not change, but for those of images and how many they are.

    Args:
        filters: how many.
        kernel, stride, dilate, pad: for height and width.
        rectifies: whether negative numbers and NaN become 0.
    """

    def __init__(
        self,
        filters: int,
        kernel: tuple[int, ...],
        stride: tuple[int, ...],
        dilate: tuple[int, ...],
        pad: tuple[int, ...],
        rectifies: bool,
    ) -> None:
        self._filters, self._axes = filters, list(zip(kernel, stride, dilate, pad, strict=True))
        self._rectifies = rectifies

    @property
    def _block(self) -> int:
        """How many filters lie together in the weight; 0 = there is no kernel."""
        core = kernels()
        return core.convolution_block(self._filters) if hasattr(core, "convolution_block") else 0

    def pays(self, channels: int) -> bool:
        """Say whether the kernel is the fastest for data of some channels, and there is one."""
        return (
            torch.get_num_threads() == 1
            and self._filters >= _LEAST_FILTERS
            and channels * self._axes[1][0] >= _LEAST_RUN
            and self._block > 0
        )

    def pack(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return weight and bias as the kernel reads them.

        Shape:
            weight: (F, C, kernel height, kernel width).
            bias: (F,), or None.
            returns: (blocks, kernel height, kernel width, C, filters in a block), and (all filters of the blocks,).
        """
        block = self._block
        lacking = -self._filters % block
        bias = weight.new_zeros(self._filters + lacking) if bias is None else F.pad(bias, (0, lacking))
        if lacking:
            weight = F.pad(weight, (0, 0) * 3 + (0, lacking))
        return weight.unflatten(0, (-1, block)).permute(0, 3, 4, 2, 1).contiguous(), bias.contiguous()

    def __call__(
        self, data: Tensor, weight: Tensor, bias: Tensor, other: Tensor | None, overwrites: bool
    ) -> Tensor:
        """Return the result, in channels_last; all float32 on the CPU.

        Shape:
            data: (N, C, H, W), in channels_last.
            weight, bias: as `pack` returns them.
            other: what is added, of the result's shape (N, F, H', W'), or None.

        Args:
            data: the data.
            weight: the weight.
            bias: the bias.
            other: what is added.
            overwrites: whether the result may be written over it.
        """
        images, channels, *sizes = data.shape
        axes = [
            (size, (size + 2 * pad - dilate * (kernel - 1) - 1) // stride + 1, kernel, stride, dilate, pad)
            for size, (kernel, stride, dilate, pad) in zip(sizes, self._axes)
        ]
        place = 0
        if other is not None:
            other = other.contiguous(memory_format=torch.channels_last)
            place = other.data_ptr()
        if overwrites and other is not None:
            result = other
        else:
            shape = (images, self._filters, axes[0][1], axes[1][1])
            result = torch.empty(shape, dtype=torch.float32, memory_format=torch.channels_last)
        kernels().convolve(
            *(images, channels, self._filters, *axes[0], *axes[1], weight.shape[-1], self._rectifies),
            *(data.data_ptr(), weight.data_ptr(), bias.data_ptr(), place, result.data_ptr()),
        )
        return result
