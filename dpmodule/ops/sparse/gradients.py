"""Row-sparse gradients, and sums of rows.

A gradient is a dense tensor or a hybrid COO tensor with one sparse dimension, torch's counterpart of a row-sparse
array; autograd accumulates both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import embedding_bag

from .storage import RowSparse

Tensor = torch.Tensor


def row_gradient(rows: Tensor, values: Tensor, shape: Sequence[int]) -> Tensor:
    """Return a gradient with some rows.

    Args:
        rows: their indices, (R,) int64, ascending and distinct.
        values: the rows, (R, ...).
    """
    return torch.sparse_coo_tensor(
        rows[None], values, tuple(shape), is_coalesced=True, check_invariants=False
    )


def sum_rows_by_index(
    numbers: Tensor, values: Tensor, positions: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return distinct row numbers, ascending, and for each the sum of its rows of `values`, in order.

    Args:
        numbers: (T,), int64.
        values: rows, (T, ...).
        positions: row of `values`, then of any length, for each number, (T,) int64; None = 0, 1, ...

    Returns:
        (R,) and (R, ...), for R distinct numbers.
    """
    if (
        values.dim() == 2
        and values.is_cpu
        and values.dtype in (torch.float32, torch.float64)
        and numbers.numel()
        and values.numel()
    ):
        distinct, starts, positions = group_indices(numbers, positions)
        return distinct, embedding_bag(
            positions, values, starts, mode="sum"
        )  # half of the time of the following
    rows = values if positions is None else values.index_select(0, positions)
    distinct, inverse = torch.unique(numbers, return_inverse=True)
    return distinct, rows.new_zeros((distinct.numel(), *rows.shape[1:])).index_add_(0, inverse, rows)


def stored_rows(grad: Tensor) -> tuple[Tensor, Tensor]:
    """Return the row indices, ascending and distinct, and the rows of a gradient made by `row_gradient`."""
    if not grad.is_coalesced():
        return sum_rows_by_index(grad._indices()[0], grad._values())
    return grad._indices()[0], grad._values()


def as_rows(value: Any) -> RowSparse:
    """Return a dense tensor, a row gradient or a `RowSparse` as `RowSparse`; zero rows are omitted."""
    if isinstance(value, RowSparse):
        return value
    if value.is_sparse:
        return RowSparse(*stored_rows(value), value.shape)
    rows = value.reshape(value.shape[0], -1).ne(0).any(1).nonzero().flatten()
    return RowSparse(rows, value.index_select(0, rows), value.shape)


def group_indices(numbers: Tensor, positions: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Group equal numbers by a stable sort, on the CPU.

    Args:
        numbers: at least one, (T,) int64.
        positions: a value for each number, (T,) int64; None = 0, 1, ...

    Returns:
        The distinct numbers, ascending, (R,); the start of each group in sorted order, (R,); and the `positions` in
        sorted order, (T,).
    """
    from ... import native  # loads the extension

    core = native.core
    if core is None:
        return _by_torch(numbers, positions)
    numbers = numbers.contiguous()
    contiguous = None if positions is None else positions.contiguous()
    distinct, starts, ordered = torch.empty(3, len(numbers), dtype=torch.int64)
    count = core.group_numbers(
        numbers.data_ptr(),
        len(numbers),
        0 if contiguous is None else contiguous.data_ptr(),
        distinct.data_ptr(),
        starts.data_ptr(),
        ordered.data_ptr(),
    )
    return distinct[:count].clone(), starts[:count], ordered  # the first is kept by a gradient


def _by_torch(numbers: Tensor, positions: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    ordered, order = numbers.sort(stable=True)
    is_first = torch.ones(ordered.numel(), dtype=torch.bool)
    torch.ne(ordered[1:], ordered[:-1], out=is_first[1:])
    starts = is_first.nonzero().view(-1)
    return ordered[starts], starts, order if positions is None else positions.index_select(0, order)
