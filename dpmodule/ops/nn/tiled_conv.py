"""Two-dimensional convolutions by the native extension, for prediction.

The extension sums tiles of the result up in registers, from data in channels_last and a weight laid out for it, adds a
bias and another tensor, and rectifies. oneDNN's kernels have the same speed where all they read is near; this one
fetches the numbers that come next meanwhile, and takes nothing but addresses, while torch prepares oneDNN anew in every
call. Torch's threads share the work. What computes a convolution follows from the processor and sizes alone, never from
a measurement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from math import prod
from struct import Struct
from typing import NamedTuple

import torch
from torch.nn import functional as F

from .small_matmul import kernels

Tensor = torch.Tensor

_ROW = Struct("=22q")


class Sizes(NamedTuple):
    """Sizes of a convolution's data and result.

    Attributes:
        data: (N, C, H, W).
        result: (N, F, H', W').
    """

    data: tuple[int, ...]
    result: tuple[int, ...]
    given: tuple[int, ...]


_LEAST_FILTERS = 8
"""Filters below which most of a tile would stay empty."""
_LEAST_RUN = 16
"""Numbers that a row of a window must have one after the other; with fewer, it takes as long to find them."""
_MOST_PLACES = 2**12
"""Places of windows, of all images, up to which data and result stay in the second cache; oneDNN minds less if not."""
_MORE_PLACES = 2**14
"""`_MOST_PLACES` where no vector of a tile is partly empty."""
_SHORT = 2**22
"""Multiplications of a convolution up to which torch's work around it counts; the kernel alone has to win beyond."""
_LONG_RUN = 48
"""`_LEAST_RUN` of others, if their windows are narrow."""
_WIDE_WINDOW = 5
"""Columns of a window from which on it does not matter; they are those of a network's first convolution."""
_HUNGRY_BLOCK = 32
"""Filters that lie together in tiles that load too many numbers for that."""
_FEW_FILTERS = 16
"""Filters of others that are too few: they are one vector, and their tiles load as much as they compute."""
_WIDE = 16
"""Numbers of a vector with which the kernel wins wherever the other limits let it."""
_MOST_CHANNELS = 64
"""Channels up to which it wins with narrower vectors, too, if windows have more than one place."""
_SHORT_ROW = 16
"""Windows of a row up to which it then does: oneDNN's tiles, parts of a row, stay partly empty."""


class TiledConvolution:
    """A convolution of sizes that do not change, but for those of images and how many they are.

    Args:
        rectifies: whether negative numbers and NaN become 0.
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
        """How many filters lie together in the weight; 0 = there is no kernel."""
        core = kernels()
        return core.convolution_block(self._filters) if hasattr(core, "convolution_block") else 0

    @property
    def fills_tiles(self) -> bool:
        """Whether there are filters enough."""
        return self._filters >= _LEAST_FILTERS

    def pays(self, sizes: Sizes) -> bool:
        """Say whether the kernel is the fastest for some sizes, and there is one."""
        columns = self._axes[1][0]
        run = sizes.data[1] * columns
        if not self.fills_tiles or run < _LEAST_RUN or not self._block:
            return False
        images, _, height, width = sizes.result
        most = _MOST_PLACES if self._filters % self._block else _MORE_PLACES
        if images * height * width > most:
            return False
        window = prod(axis[0] for axis in self._axes)
        if prod(sizes.result) * sizes.data[1] * window <= _SHORT:
            return True
        if self._filters <= _FEW_FILTERS:
            return False
        if columns >= _WIDE_WINDOW and self._block != _HUNGRY_BLOCK:
            return True
        is_good = window == 1 or (sizes.data[1] <= _MOST_CHANNELS and width <= _SHORT_ROW)
        has_wide_vectors: bool = kernels().vector_width >= _WIDE
        return run >= _LONG_RUN and (is_good or has_wide_vectors)

    def pack(self, weight: Tensor, bias: Tensor | None, channels: int) -> tuple[Tensor, Tensor] | tuple[()]:
        """Return weight and bias as the kernel reads them; () where they do not fit.

        Shape:
            weight: (F, C, kernel height, kernel width).
            bias: (F,), or None.
            returns: (blocks, kernel height, kernel width, C, filters in a block), and (all filters of the blocks,).
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

    def sizes(self, shape: Sequence[int]) -> Sizes:
        """Return the sizes for data of a shape (N, C, H, W)."""
        images, channels, *sides = shape
        axes = [
            (size, (size + 2 * pad - dilate * (kernel - 1) - 1) // stride + 1, kernel, stride, dilate, pad)
            for size, (kernel, stride, dilate, pad) in zip(sides, self._axes, strict=True)
        ]
        result = images, self._filters, axes[0][1], axes[1][1]
        return Sizes(tuple(shape), result, (images, channels, self._filters, *axes[0], *axes[1]))

    def __call__(
        self, sizes: Sizes, data: Tensor, weight: Tensor, bias: Tensor, other: Tensor | None, overwrites: bool
    ) -> Tensor:
        """Return the result, in channels_last; all float32 on the CPU.

        Shape:
            data: (N, C, H, W).
            weight, bias: as `pack` returns them.
            other: what is added, of the result's shape (N, F, H', W'), or None.
        """
        data = data.contiguous(memory_format=torch.channels_last)
        other = None if other is None else other.contiguous(memory_format=torch.channels_last)
        if overwrites and other is not None:
            result = other
        else:
            result = torch.empty(sizes.result, dtype=torch.float32, memory_format=torch.channels_last)
        place = 0 if other is None else other.data_ptr()
        addresses = data.data_ptr(), weight.data_ptr(), bias.data_ptr(), place, result.data_ptr()
        kernels().convolve(self.row(sizes, range(5)), torch.get_num_threads(), *addresses)
        return result

    def row(self, sizes: Sizes, places: Iterable[int]) -> bytes:
        """Return what tells the kernel to do the same.

        Args:
            places: which of the addresses that the kernel gets, too, are those of data, weight, bias, summand (an
                address of 0 for none) and result, all in channels_last.
        """
        return _ROW.pack(*sizes.given, self._block, self._rectifies, *places)
