"""Layers for images by the native extension, in prediction.

A convolution accumulates tiles of the result in registers, from channels_last data and a packed weight, adds a bias and
another tensor, and applies a function. oneDNN's kernels are as fast on cached data; this kernel prefetches and only
takes addresses, while torch sets oneDNN up in every call. Torch's threads share the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from struct import Struct
from typing import NamedTuple

import torch
from torch.nn import functional as F

from .linear import FUNCTIONS, kernels

Tensor = torch.Tensor
Axes = Sequence[tuple[int, int, int, int, int, int]]
"""Size, result, kernel, stride, dilate and pad of height and of width."""
Function = tuple[str, float, float]
"""Name of a function in `FUNCTIONS`, and its two parameters."""

_KINDS = (
    "convolution",
    "depthwise",
    "grouped",
    "max",
    "mean",
    "max_rows",
    "mean_rows",
    "sum",
    "scale",
    "affine",
    "copy",
    "shuffle",
    "relayout",
)
_ROW = Struct("=19q2d10q")

NO_FUNCTION: Function = ("none", 0.0, 0.0)


def as_image(shape: Sequence[int]) -> tuple[int, ...]:
    """Return (N, C, H, W) for the shape of images, of sequences, which have one row, or of rows of one pixel each."""
    images, channels, *size = shape if len(shape) > 2 else (*shape, 1)
    return (images, channels, *[1] * (2 - len(size)), *size)


def has_kernels() -> bool:
    """Return True if the extension has kernels for this processor."""
    return hasattr(kernels(), "run_layers") and kernels().convolution_block(1) > 0


def layer_row(
    kind: str,
    counts: tuple[int, int, int, int],
    axes: Axes,
    block: int,
    function: Function,
    gaps: tuple[int, int, int],
    addresses: Iterable[int],
    row_gap: int = 0,
    image_gap: int = 0,
) -> bytes:
    """Return the arguments of a layer for the extension's `run_layers`, as bytes.

    Args:
        counts: images, channels and filters of each group, groups.
        block: filters per block of a convolution's weight; for averages 1 to count the padding.
        gaps: numbers from one pixel to the next, in data, other operand and result.
        addresses: indices, in the list of addresses, of data, weight, bias, other operand and result.
        row_gap, image_gap: numbers from one row and from one image of a convolution's result to the next; 0 if they
            follow each other.
    """
    name, low, high = function
    row_gap = row_gap or axes[1][1] * gaps[2]
    image_gap = image_gap or axes[0][1] * row_gap
    numbers = *counts, *axes[0], *axes[1], block, FUNCTIONS.index(name)
    return _ROW.pack(_KINDS.index(kind), *numbers, low, high, *gaps, row_gap, image_gap, *addresses)


class ConvolutionSizes(NamedTuple):
    """Sizes of a convolution's data and result.

    Attributes:
        data: (N, C, H, W).
        result: (N, F, H', W').
    """

    data: tuple[int, ...]
    result: tuple[int, ...]
    axes: Axes


_GROUP_FILTERS = frozenset({1, 2, 4, 8})
"""Filters per group with which a vector of filters has whole groups."""
_MIN_GROUPED = 16
"""Channels of an image that fill every vector."""


class TiledConvolution:
    """Convolution with fixed parameters, for any image sizes and batch sizes."""

    def __init__(
        self,
        filters: int,
        kernel: Sequence[int],
        stride: Sequence[int],
        dilate: Sequence[int],
        pad: Sequence[int],
        groups: int = 1,
    ) -> None:
        self._filters, self._groups = filters // groups, groups  # filters of each group
        self._axes = list(zip(kernel, stride, dilate, pad, strict=True))

    @cached_property
    def _block(self) -> int:
        """Filters in a block of the packed weight."""
        block: int = kernels().convolution_block(self._filters)
        return block

    def kind(self, channels: int) -> str:
        """Return the kind of layer that computes it, for images of some channels."""
        own = channels // self._groups
        if self._groups == 1:
            return "convolution"
        if own == self._filters == 1:
            return "depthwise"
        fits = own == self._filters or (own < self._filters and channels >= _MIN_GROUPED)
        return "grouped" if fits and self._filters in _GROUP_FILTERS else "convolution"

    def pack(
        self, weight: Tensor, bias: Tensor | None, channels: int, scale: Tensor | None = None
    ) -> tuple[Tensor, Tensor] | tuple[()]:
        """Return weight, times a factor for each filter, and bias in the kernel's layout; () if shapes do not fit.

        Shape:
            weight: (F, C / groups, kernel height, kernel width).
            bias, scale: (F,), or None.
            returns: (blocks, kernel height, kernel width, C / groups, filters in a block), and (filters of all
                blocks,); for kinds other than "convolution" (C / groups * kernel height * kernel width, F), and (F,).
        """
        filters = self._groups * self._filters
        shape = (filters, channels // self._groups, *(axis[0] for axis in self._axes))
        if weight.shape != shape or not (bias is None or bias.shape == shape[:1]):
            return ()
        bias = weight.new_zeros(filters) if bias is None else bias
        if self.kind(channels) != "convolution":
            columns = weight.flatten(1).t()
            return (columns if scale is None else columns * scale).contiguous(), bias.contiguous()
        lacking = -self._filters % self._block

        def padded(x: Tensor) -> Tensor:
            if not lacking:
                return x
            rows = x.reshape(self._groups, self._filters, -1)
            return F.pad(rows, (0, 0, 0, lacking)).view(-1, *x.shape[1:])

        weight, bias = padded(weight), padded(bias)
        blocks = weight.reshape(-1, self._block, *shape[1:])
        result = weight.new_empty(len(blocks), *shape[2:], shape[1], self._block)
        for block, to in zip(blocks, result):
            columns = block.flatten(1).t().contiguous()  # torch transposes matrices faster than other tensors
            to.copy_(columns.view(*block.shape[1:], self._block).permute(1, 2, 0, 3))
        if scale is not None:
            result *= padded(scale).view(-1, 1, 1, 1, self._block)
        return result, bias.contiguous()

    def sizes(self, shape: Sequence[int]) -> ConvolutionSizes:
        """Return the sizes for data of shape (N, C, H, W)."""
        images, channels, *sides = shape
        axes = tuple(
            (size, (size + 2 * pad - dilate * (kernel - 1) - 1) // stride + 1, kernel, stride, dilate, pad)
            for size, (kernel, stride, dilate, pad) in zip(sides, self._axes, strict=True)
        )
        result = images, self._groups * self._filters, axes[0][1], axes[1][1]
        return ConvolutionSizes(tuple(shape), result, axes)
