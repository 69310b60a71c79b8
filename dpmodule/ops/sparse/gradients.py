"""Gradients of some rows of a tensor, and sums of rows.

A gradient is a dense tensor, or a hybrid COO tensor of one sparse dimension, torch's form of a row-sparse array; the
engine adds up both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import embedding_bag

from .storage import RowSparse

Tensor = torch.Tensor


def row_gradient(rows: Tensor, values: Tensor, shape: Sequence[int]) -> Tensor:
    """Return a gradient of some rows.

    Args:
        rows: their numbers, (R,) int64, ascending and all different.
        values: the rows, (R, ...).
    """
    return torch.sparse_coo_tensor(
        rows[None], values, tuple(shape), is_coalesced=True, check_invariants=False
    )


def sum_rows_by_index(numbers: Tensor, values: Tensor, places: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the different ones of some numbers, ascending, and for each the sum of its rows of `values`, in order.

    Args:
        numbers: (T,), int64.
        values: rows, (T, ...).
        places: which row of `values`, then of any number of rows, each number has, (T,) int64; None = its own.

    Returns:
        (R,) and (R, ...), R distinct numbers.
    """
    if (
        values.dim() == 2
        and values.is_cpu
        and values.dtype in (torch.float32, torch.float64)
        and numbers.numel()
        and values.numel()
    ):
        found, starts, places = group_indices(numbers, places)
        return found, embedding_bag(places, values, starts, mode="sum")  # half of what follows takes
    rows = values if places is None else values.index_select(0, places)
    found, where = torch.unique(numbers, return_inverse=True)
    return found, rows.new_zeros((found.numel(), *rows.shape[1:])).index_add_(0, where, rows)


def stored_rows(grad: Tensor) -> tuple[Tensor, Tensor]:
    """Return the row numbers, ascending and all different, and rows of a gradient that `row_gradient` made."""
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


def group_indices(numbers: Tensor, places: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Sort numbers of the CPU, equal ones in the order in which they come.

    Args:
        numbers: at least one, (T,) int64.
        places: a place for each number, (T,) int64; None = they count from 0.

    Returns:
        The different numbers, ascending, (R,); where each begins among the sorted ones, (R,); and the places in the
        order of the sorted numbers, (T,).
    """
    from ... import native  # loads the extension

    core = native.core
    if core is None:
        return _by_torch(numbers, places)
    numbers = numbers.contiguous()
    given = None if places is None else places.contiguous()
    distinct, starts, ordered = torch.empty(3, len(numbers), dtype=torch.int64)
    count = core.group_numbers(
        numbers.data_ptr(),
        len(numbers),
        0 if given is None else given.data_ptr(),
        distinct.data_ptr(),
        starts.data_ptr(),
        ordered.data_ptr(),
    )
    return distinct[:count].clone(), starts[:count], ordered  # a gradient keeps the first


def _by_torch(numbers: Tensor, places: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    ordered, order = numbers.sort(stable=True)
    is_first = torch.ones(ordered.numel(), dtype=torch.bool)
    torch.ne(ordered[1:], ordered[:-1], out=is_first[1:])
    starts = is_first.nonzero().view(-1)
    return ordered[starts], starts, order if places is None else places.index_select(0, order)
