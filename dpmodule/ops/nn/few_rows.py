"""Products of a few samples with a dense layer's weight by the native extension.

They take as long as the weight takes to come from memory. MKL reads it at half of the speed that memory has, with one
thread, and once more for every further sample or two.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from .small_matmul import are_plain, is_fitting, kernels

_MOST_ROWS = 4
"""Rows that the kernel computes at once."""
_LEAST_WEIGHT = 2**16
"""Numbers of a weight below which calls count more than what they read."""
_LEAST_DEPTH = 128
"""Numbers of a weight's row below which it takes too long to add up what a vector holds."""


def pays(rows: int, columns: int, depth: int) -> bool:
    """Say whether the kernel is the fastest for a product of some size, and there is one."""
    return (
        0 < rows <= _MOST_ROWS
        and depth >= _LEAST_DEPTH
        and columns * depth >= _LEAST_WEIGHT
        and hasattr(kernels(), "multiply_few_rows")
    )


def has_few_rows(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Say whether ``left @ right.T`` is a product for `multiply_few_rows`, if no gradient is recorded."""
    return (
        left.dim() == 2
        and right.dim() == 2
        and pays(left.shape[0], right.shape[0], right.shape[1])
        and are_plain(left, right)
    )


def multiply_few_rows(
    left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Return ``left @ right.T + bias``; records no gradient.

    Args:
        left: (rows, depth), of `pays`' sizes; like the others, float32 on the CPU.
        right: (columns, depth).
        bias: (columns,), or None.
    """
    (rows, depth), columns = left.shape, right.shape[0]
    # `F.linear` says what is wrong, and knows how to read across a weight
    if not is_fitting(left, right, bias) or right.stride(1) != 1:
        return F.linear(left, right, bias)
    left = left if left.stride(1) == 1 else left.contiguous()
    bias = None if bias is None else bias.contiguous()
    result = left.new_empty(rows, columns)
    kernels().multiply_few_rows(
        *(rows, columns, depth, left.data_ptr(), left.stride(0), right.data_ptr(), right.stride(0)),
        *(0 if bias is None else bias.data_ptr(), result.data_ptr(), torch.get_num_threads()),
    )
    return result
