"""Windows of images as rows of a matrix, one for each place of the window, in which they are multiplied with weights.

torch lays windows out as columns, from which rows have to be copied, and takes most of its time over small images with
many channels. The native extension writes the rows at once, and adds their gradients up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from ...compat import torch_private
from ..recording import is_recorded
from .small_matmul import is_plain, kernels

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class WindowGrid:
    """Where windows lie over the height and width of images.

    Attributes:
        kernel: sizes of the window.
        stride: steps from one to the next.
        pad: zeros added at both ends of an axis.
        dilate: distances between a window's elements.
    """

    kernel: Pair
    stride: Pair
    pad: Pair
    dilate: Pair

    def counts(self, sizes: Sequence[int]) -> Pair:
        """Return how many windows images of a height and width have along each."""
        axes = zip(sizes, self.kernel, self.stride, self.pad, self.dilate, strict=True)
        height, width = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in axes]
        return height, width


def unfold(images: torch.Tensor, grid: WindowGrid) -> torch.Tensor:
    """Return all windows as rows.

    Shape:
        images: (N, C, H, W), of any strides.
        returns: (N * windows, C * kernel height * kernel width), in the order of a weight (F, C, *kernel).
    """
    if (
        is_plain(images)
        and hasattr(kernels(), "unfold")
        and not (torch_private.is_batched(images) or is_recorded())
    ):
        return _apply(images, grid)
    return _by_torch(images, grid)


def _by_torch(images: torch.Tensor, grid: WindowGrid) -> torch.Tensor:
    columns = F.unfold(images, grid.kernel, grid.dilate, grid.pad, grid.stride)
    return columns.transpose(1, 2).reshape(-1, columns.shape[1])


def _arguments(images: torch.Tensor, grid: WindowGrid, rows: torch.Tensor) -> tuple[int, ...]:
    """Return what the extension's functions take."""
    shape, counts = images.shape, grid.counts(images.shape[2:])
    where = (*counts, *grid.kernel, *grid.stride, *grid.pad, *grid.dilate)
    return images.data_ptr(), *images.stride(), *shape, *where, rows.data_ptr()


class _Unfold(torch.autograd.Function):
    """What `unfold` does, by the native extension."""

    @staticmethod
    def forward(ctx: Any, images: torch.Tensor, grid: WindowGrid) -> torch.Tensor:
        ctx.shape, ctx.grid = images.shape, grid
        height, width = grid.counts(images.shape[2:])
        depth = images.shape[1] * grid.kernel[0] * grid.kernel[1]
        rows = images.new_empty(images.shape[0] * height * width, depth)
        kernels().unfold(*_arguments(images, grid, rows))
        return rows

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        (rows,), shape, grid = grads, ctx.shape, ctx.grid
        if torch.is_grad_enabled() or not is_plain(rows) or torch_private.is_batched(rows):
            columns = rows.reshape(shape[0], -1, rows.shape[1]).transpose(1, 2)
            return F.fold(columns, shape[2:], grid.kernel, grid.dilate, grid.pad, grid.stride), None
        images = torch.empty(shape, memory_format=torch.channels_last).zero_()
        rows = rows.contiguous()  # held until the kernel has read it, which gets an address alone
        kernels().fold(*_arguments(images, grid, rows))
        return images, None


_apply: Callable[..., torch.Tensor] = _Unfold.apply
