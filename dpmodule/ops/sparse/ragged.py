"""Ragged values: rows of different lengths, one behind the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...base import OpError, ShapeError
from .records import Sparse

Tensor = torch.Tensor


class Ragged(Sparse):
    """Rows of different lengths. Row i is ``values[offsets[i]:offsets[i + 1]]``.

    The shape is (N,) and the trailing axes of the values: how long the rows are is in no shape, so that batches of any
    lengths pass through one binding. Gradients flow through the values themselves: there are as many as values.

    Args:
        values: the elements of all rows, (T, ...).
        offsets: where each row begins among them, (N + 1,) int64 on the same device, from 0 to T, never descending.
        known: what has been found out about the offsets, shared by values of the same rows.
    """

    __slots__ = ("_known", "offsets")

    stype = "ragged"

    def __init__(self, values: Tensor, offsets: Tensor, known: dict[str, Any] | None = None) -> None:
        self.values, self.offsets = values, offsets
        self.shape = (offsets.shape[0] - 1, *values.shape[1:])
        self.anchor, self.home = None, None
        self._known: dict[str, Any] = {} if known is None else known

    # the gradient flows through the values

    @property
    def requires_grad(self) -> bool:
        return self.values.requires_grad

    def requires_grad_(self, wanted: bool = True) -> Ragged:
        self.values.requires_grad_(wanted)
        return self

    def leaf(self) -> Tensor:
        return self.values

    def detach(self) -> Ragged:
        found = self.replaced(self.values.data)
        found.home = self.home
        return found

    def clone(self) -> Ragged:
        return self.replaced(self.values.clone())

    # other values in the same rows

    def replaced(self, values: Tensor) -> Ragged:
        return Ragged(values, self.offsets, self._known)

    def emptied(self) -> Ragged:
        return Ragged(self.values[:0], torch.zeros_like(self.offsets))

    def to(self, device: torch.device) -> Ragged:
        """Return the rows on a device; this record if they are there already."""
        if self.values.device == device:
            return self
        return Ragged(self.values.to(device), self.offsets.to(device))

    def dense(self) -> Tensor:
        raise OpError("a ragged value is to be read as a dense one, which it never becomes by itself")

    # rows

    def lengths(self) -> Tensor:
        """Return the rows' lengths, (N,) int64."""
        if "lengths" not in self._known:
            self._known["lengths"] = self.offsets.diff()
        found: Tensor = self._known["lengths"]
        return found

    def row_numbers(self) -> Tensor:
        """Return each element's row, (T,) int64."""
        if "rows" not in self._known:
            rows = torch.arange(self.shape[0], device=self.offsets.device)
            found = rows.repeat_interleave(self.lengths(), output_size=self.values.shape[0])
            self._known["rows"] = found
        numbers: Tensor = self._known["rows"]
        return numbers

    def has_rows_of(self, other: Ragged) -> bool:
        """Say whether another value's rows are as long as these."""
        return self.offsets is other.offsets or torch.equal(self.offsets, other.offsets)

    def range(self, begin: int, end: int) -> Ragged:
        """Return rows `begin` to `end`; they share memory."""
        offsets = self.offsets[begin : end + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        return Ragged(self.values[first:last], offsets - first)

    def pick(self, numbers: Tensor) -> Ragged:
        """Return rows by number, in the order given.

        Args:
            numbers: which, (M,) int64, each within the shape.
        """
        counts = self.lengths().index_select(0, numbers)
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        shift = (self.offsets[:-1].index_select(0, numbers) - offsets[:-1]).repeat_interleave(counts)
        places = torch.arange(shift.numel(), device=shift.device) + shift
        return Ragged(self.values.index_select(0, places), offsets)

    def expanded(self, dense: Tensor) -> Tensor:
        """Return a dense value's row for each element of the row.

        Args:
            dense: (N, ...).

        Returns:
            (T, ...).
        """
        if not dense.dim() or dense.shape[0] != self.shape[0]:
            raise ShapeError(
                f"a ragged value of {self.shape[0]} rows stands beside a dense one of shape {tuple(dense.shape)}, "
                f"expected {self.shape[0]} on its first axis"
            )
        return dense.index_select(0, self.row_numbers())


def ragged_rows(rows: Sequence[Tensor]) -> Ragged:
    """Return rows, one or more tensors of equal trailing axes, as a ragged value."""
    lengths = torch.tensor([0, *(row.shape[0] for row in rows)], device=rows[0].device)
    return Ragged(torch.cat(list(rows)), lengths.cumsum(0))
