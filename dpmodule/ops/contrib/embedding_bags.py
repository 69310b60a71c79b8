"""Weighted sums of table rows, the basis of operators that sample feature maps at points or in regions.

A feature map (N, C, H, W) becomes a table with one row of C numbers per pixel; an output bin is the weighted sum of
a "bag" of rows. Both directions are one pass of torch's embedding-bag kernel, which reads whole rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from ..dtypes import HALF

_CHUNK = 1 << 18
"""Numbers summed at a time, so that they are still cached when they are transposed."""


def pixel_table(data: torch.Tensor, groups: int = 1) -> torch.Tensor:
    """Return the pixels as rows.

    Shape:
        data: (N, D * groups, H, W), the groups of one D adjacent.
        returns: (N * groups * H * W, D).
    """
    count, channels, height, width = data.shape
    depth = channels // groups
    split = data.reshape(count, depth, groups, height, width)
    # reshape may return a strided view, but rows must be contiguous in memory
    return split.permute(0, 2, 3, 4, 1).reshape(-1, depth).contiguous()


def equal_bag_starts(bags: int, size: int, device: torch.device) -> torch.Tensor:
    """Return the start of each of `bags` bags of one size."""
    return torch.arange(bags, dtype=torch.int32, device=device) * size


def rectangle_elements(
    rows: torch.Tensor, columns: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Enumerate the elements of rectangles of different sizes.

    Args:
        rows: (B,) heights.
        columns: (B,) widths.

    Returns:
        The rectangle, row and column of each element, row by row; and the start of each rectangle.
    """
    counts = (rows * columns).int()
    ends = counts.cumsum(0, dtype=torch.int32)
    starts = ends - counts
    bag = torch.repeat_interleave(
        torch.arange(counts.numel(), dtype=torch.int32, device=counts.device), counts
    )
    local = torch.arange(bag.numel(), dtype=torch.int32, device=counts.device) - starts[bag]
    wide = columns.int()[bag]
    row = torch.div(local, wide, rounding_mode="floor")
    return bag, row, local - row * wide, starts


def linear_corners(position: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the two pixels around each coordinate of one axis and their linear weights.

    A coordinate up to one pixel outside counts as the border; farther away the weights are 0.

    Shape:
        position: any.
        returns: (..., 2) int32 and (..., 2).
    """
    inside = (position >= -1.0) & (position <= size)
    clipped = position.clamp(min=0.0)
    low = clipped.int()
    edge = low >= size - 1
    low = low.clamp(0, size - 1)
    high = torch.where(edge, low, low + 1)
    fraction = torch.where(edge, torch.zeros((), dtype=position.dtype, device=position.device), clipped - low)
    keep = inside.to(position.dtype)
    return torch.stack([low, high], -1), torch.stack([(1.0 - fraction) * keep, fraction * keep], -1)


def _sum_bags(
    table: torch.Tensor, weight: torch.Tensor, index: torch.Tensor, starts: torch.Tensor
) -> torch.Tensor:
    if not index.numel():
        return table.new_zeros((starts.numel(), table.shape[1]))
    return F.embedding_bag(index, table, starts, mode="sum", per_sample_weights=weight)


def _sum_regions(
    table: torch.Tensor, weight: torch.Tensor, index: torch.Tensor, starts: torch.Tensor, bins: int
) -> torch.Tensor:
    """Sum bags, and transpose each region of `bins` bags to (C, bins); on the CPU in chunks that fit the cache."""
    regions, depth = starts.numel() // bins, table.shape[1]
    out = table.new_empty((regions, depth, bins))
    step = max(_CHUNK // max(bins * depth, 1), 1) if starts.is_cpu else max(regions, 1)
    ends = [0, *(starts[step * bins :: step * bins].tolist() if step < regions else ()), index.numel()]
    for number, start in enumerate(range(0, regions, step)):
        elements = slice(ends[number], ends[number + 1])
        own = starts[start * bins : (start + step) * bins] - ends[number]
        sums = _sum_bags(table, weight[elements], index[elements], own)
        # torch transposes single matrices fastest
        for region, matrix in enumerate(sums.view(-1, bins, depth), start):
            out[region] = matrix.t()
    return out


class _WeightedBags(torch.autograd.Function):
    """Weighted bags; backward is the same kernel with rows and bags exchanged."""

    @staticmethod
    def forward(
        ctx: Any,
        table: torch.Tensor,
        weight: torch.Tensor,
        index: torch.Tensor,
        starts: torch.Tensor,
        bins: int,
    ) -> torch.Tensor:
        ctx.rows, ctx.bins = table.shape[0], bins
        ctx.save_for_backward(table if weight.requires_grad else None, weight, index, starts)
        return (
            _sum_regions(table, weight, index, starts, bins)
            if bins
            else _sum_bags(table, weight, index, starts)
        )

    @staticmethod
    def backward(ctx: Any, *heads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        table, weight, index, starts = ctx.saved_tensors
        grad = heads[0]
        if ctx.bins:
            grad = grad.transpose(1, 2).reshape(-1, grad.shape[1])
        grad = grad.contiguous()
        to_table = to_weight = None
        if ctx.needs_input_grad[0]:
            to_table = _table_gradient(grad, weight, index, starts, ctx.rows)
        if ctx.needs_input_grad[1]:
            with torch.enable_grad():
                again = weight.detach().requires_grad_()
                (to_weight,) = torch.autograd.grad(
                    _sum_bags(table.detach(), again, index, starts), again, grad
                )
        return to_table, to_weight, None, None, None


_apply: Callable[..., torch.Tensor] = _WeightedBags.apply


def _table_gradient(
    grad: torch.Tensor, weight: torch.Tensor, index: torch.Tensor, starts: torch.Tensor, rows: int
) -> torch.Tensor:
    """Return the gradient of the table: for each row, the weighted sum of the gradients of its bags."""
    order, positions = index.sort()
    sizes = torch.diff(starts, append=starts.new_full((1,), index.numel()))
    runs = torch.arange(starts.numel(), dtype=torch.int32, device=index.device)
    bag = torch.repeat_interleave(runs, sizes, output_size=index.numel())
    first = torch.searchsorted(
        order, torch.arange(rows, dtype=order.dtype, device=order.device), out_int32=True
    )
    return _sum_bags(grad, weight[positions], bag[positions], first)


def weighted_bags(
    table: torch.Tensor, weight: torch.Tensor, index: torch.Tensor, starts: torch.Tensor, bins: int = 0
) -> torch.Tensor:
    """Return weighted sums of table rows in bags; differentiable in `table` and `weight`.

    Half-precision tables are summed in float32.

    Args:
        table: (R, C).
        weight: (E,).
        index: (E,) int32.
        starts: (B,) int32, the first element of each bag, ascending.
        bins: number of bags per region; 0 if bags are independent.

    Returns:
        (B, C), or (B / bins, C, bins).
    """
    dtype = table.dtype
    if dtype in HALF:
        return weighted_bags(table.float(), weight.float(), index, starts, bins).to(dtype)
    return _apply(table, weight.to(dtype), index, starts, bins)
