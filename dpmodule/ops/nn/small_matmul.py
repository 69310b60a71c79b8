"""Products of moderate size by the native extension.

A library prepares for every product as if it were a large one, and the code of the two that torch has takes some ten
megabytes of memory once it has run. The extension's own kernel has nothing to prepare. Torch's threads share large ones
of these products, and the rows of a chain of layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional as F

from ...compat import torch_private
from ..recording import is_recorded

_LEAST_WORK, _MOST_WORK = 2**14, 2**23
"""Multiplications between which it is the fastest, with one thread or several."""
_MOST_PACKED = 2**25
"""The most of all layers together whose weights are laid out for the kernel already."""
_MOST_LAYERS = 16
_LEAST_ROWS = 8
"""Rows of the left matrix that are computed at once; with fewer, the copy of the right one is not made up for."""
_LEAST_WIDTH = 8
"""Numbers that the processor must compute with at once; libraries know better what to do with less."""

_native: Any = None


def kernels() -> Any:
    """Return the native extension, None where there is none; it is loaded when it is first asked for."""
    global _native
    if _native is None:
        from ... import native

        _native = native.core
    return _native


def pays(rows: int, columns: int, depth: int) -> bool:
    """Say whether the kernel is the fastest for a product of some size, and there is one."""
    work = rows * columns * depth
    return (
        _LEAST_WORK <= work <= _MOST_WORK
        and rows >= _LEAST_ROWS
        and getattr(kernels(), "vector_width", 0) >= _LEAST_WIDTH
    )


def pays_packed(rows: int, layers: Sequence[tuple[int, int]]) -> bool:
    """Say whether `dense` is the fastest for some layers, and there is one.

    Args:
        layers: how many features each makes, and how many it reads.
    """
    return (
        rows >= _LEAST_ROWS
        and len(layers) <= _MOST_LAYERS
        and rows * sum(units * features for units, features in layers) <= _MOST_PACKED
        and getattr(kernels(), "vector_width", 0) >= _LEAST_WIDTH
    )


def is_plain(tensor: torch.Tensor) -> bool:
    """Say whether a tensor is float32 numbers in memory of the CPU; `torch.vmap` is not looked for."""
    return (
        tensor.dtype is torch.float32
        and tensor.is_cpu
        and type(tensor) is torch.Tensor
        and tensor.layout is torch.strided
    )


def are_plain(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Say whether the kernels take two tensors, as far as type, device and storage tell."""
    return (
        is_plain(left)
        and is_plain(right)
        and not (torch_private.is_batched(left) or torch_private.is_batched(right) or is_recorded())
    )


def is_moderate(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Say whether ``left @ right.T`` is a product for `multiply`, if no gradient is recorded."""
    return (
        left.dim() == 2
        and right.dim() == 2
        and pays(left.size(0), right.size(0), right.size(1))
        and are_plain(left, right)
    )


def is_fitting(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None) -> bool:
    """Say whether there is a ``left @ right.T + bias``; left and right as `are_plain` and of two axes."""
    fits = bias is None or (bias.shape == right.shape[:1] and bias.dtype is left.dtype and bias.is_cpu)
    return fits and left.shape[1] == right.shape[1]


def multiply(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return ``left @ right.T + bias``; records no gradient.

    Args:
        left: (rows, depth), of any strides; like the others, float32 on the CPU.
        right: (columns, depth), of any strides.
        bias: (columns,), or None.
    """
    (rows, depth), columns = left.shape, right.shape[0]
    if not is_fitting(left, right, bias):
        return F.linear(left, right, bias)  # which says what is wrong
    result = left.new_empty(rows, columns)
    bias = None if bias is None else bias.contiguous()
    kernels().multiply(
        *(rows, columns, depth),
        *(left.data_ptr(), *left.stride()),
        *(right.data_ptr(), *right.stride()[::-1]),
        0 if bias is None else bias.data_ptr(),
        *(result.data_ptr(), torch.get_num_threads()),
    )
    return result


def pack(weight: torch.Tensor) -> torch.Tensor:
    """Return a weight of a dense layer as `dense` reads it.

    Args:
        weight: (units, features), of any strides; float32 on the CPU.
    """
    found = weight.new_empty(kernels().packed_size(*weight.shape))
    kernels().pack(*weight.shape, weight.data_ptr(), *weight.stride()[::-1], found.data_ptr())
    return found


DenseLayer = tuple[int, int, torch.Tensor, "torch.Tensor | None", bool]
"""Features that are made and read, the packed weight, the bias, and whether negative results become 0."""


def dense(data: torch.Tensor, layers: Sequence[DenseLayer]) -> torch.Tensor:
    """Run dense layers one after the other; records no gradient.

    Args:
        data: (rows, features), contiguous; like the others, float32 on the CPU.
    """
    result = data.new_empty(len(data), layers[-1][0])
    given = [len(data), data.data_ptr(), result.data_ptr(), torch.get_num_threads()]
    for units, features, packed, bias, rectified in layers:
        given += units, features, packed.data_ptr(), 0 if bias is None else bias.data_ptr(), rectified
    kernels().dense(*given)
    return result


_MOST_ROWS = 4
"""Rows that the kernel computes at once."""
_LEAST_WEIGHT = 2**16
"""Numbers of a weight below which calls count more than what they read."""
_LEAST_DEPTH = 128
"""Numbers of a weight's row below which it takes too long to add up what a vector holds."""


def few_rows_pay(rows: int, columns: int, depth: int) -> bool:
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
        and few_rows_pay(left.shape[0], right.shape[0], right.shape[1])
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
