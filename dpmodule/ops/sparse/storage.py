"""Stored parts of sparse and ragged values, as used by operators and arrays.

A gradient flows through an `anchor`, a tensor of the value's full shape that takes no memory; see `gradients`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from ...base import OpError, ShapeError

Tensor = torch.Tensor


def anchor_for(shape: Sequence[int], like: Tensor) -> Tensor:
    """Return a tensor of a shape that uses the memory of one element."""
    return like.new_zeros(1).expand(tuple(shape))


class Sparse:
    """Base class of sparse values: stored values, a full shape, and an anchor for gradients.

    Attributes:
        shape: lengths of all axes.
        anchor: tensor for autograd; None if no gradient is recorded.
        home: weak reference to the array of these parts, None for an operator's result; states are written there.
    """

    __slots__ = ("anchor", "home", "shape", "values")

    stype = "default"

    values: Tensor
    shape: tuple[int, ...]
    anchor: Tensor | None
    home: Any

    @property
    def dtype(self) -> torch.dtype:
        """Type of the elements."""
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        """Device of the elements."""
        return self.values.device

    @property
    def requires_grad(self) -> bool:
        """True if a gradient is recorded."""
        return self.anchor is not None and self.anchor.requires_grad

    def requires_grad_(self, wanted: bool = True) -> Sparse:
        """Record a gradient from now on."""
        if self.anchor is None:
            self.anchor = anchor_for(self.shape, self.values)
        self.anchor.requires_grad_(wanted)
        return self

    def replaced(self, values: Tensor) -> Any:
        """Return a record with other values at the same positions, without an anchor."""
        raise NotImplementedError

    def emptied(self) -> Any:
        """Return an empty record of the same shape."""
        raise NotImplementedError

    def to(self, device: torch.device) -> Any:
        """Return the record on a device, without an anchor; itself if it is already there."""
        raise NotImplementedError

    def dense(self) -> Tensor:
        """Return the dense tensor, which may share memory with the values."""
        raise NotImplementedError

    def detach(self) -> Any:
        """Return the same values without autograd history."""
        detached = self.replaced(self.values)
        detached.home = self.home
        return detached

    @property
    def data(self) -> Any:
        """The same values without autograd history."""
        return self.detach()

    def leaf(self) -> Tensor:
        """Return the tensor through which the gradient flows."""
        if self.anchor is None:
            self.anchor = anchor_for(self.shape, self.values)
        return self.anchor

    def clone(self) -> Any:
        """Return a copy with the same autograd history."""
        copy = self.replaced(self.values.clone())
        copy.anchor = self.anchor
        return copy

    def is_floating_point(self) -> bool:
        """Return True if the dtype is floating-point."""
        return self.values.is_floating_point()

    def is_contiguous(self) -> bool:
        """Return True, since all parts are contiguous."""
        return True


class RowSparse(Sparse):
    """Row-sparse tensor, which stores some rows (slices along the first axis); the others are zero.

    Args:
        rows: indices of the stored rows, (R,) int64, ascending and distinct.
        values: the rows, (R, ...).
        shape: lengths of all axes.
    """

    __slots__ = ("rows",)

    stype = "row_sparse"
    checks_bounds = False
    """True if `pick` raises BoundsError for rows outside of the array."""

    def __init__(self, rows: Tensor, values: Tensor, shape: Sequence[int]) -> None:
        self.rows, self.values, self.shape = rows, values, tuple(shape)
        self.anchor = self.home = None

    def to(self, device: torch.device) -> RowSparse:
        if self.device == device:
            return self
        return RowSparse(self.rows.to(device), self.values.to(device), self.shape)

    def replaced(self, values: Tensor) -> RowSparse:
        return RowSparse(self.rows, values, self.shape)

    def emptied(self) -> RowSparse:
        return RowSparse(self.rows[:0], self.values[:0], self.shape)

    def dense(self) -> Tensor:
        if self.rows.numel() == self.shape[0]:
            return self.values
        return self.values.new_zeros(self.shape).index_copy_(0, self.rows, self.values)

    def pick(self, numbers: Tensor) -> Tensor:
        """Return rows by index; rows that are not stored are zero.

        Args:
            numbers: row indices, (...) int64.
        """
        if self.rows.numel() == self.shape[0]:
            return self.values.index_select(0, numbers.flatten()).view(*numbers.shape, *self.shape[1:])
        wanted = numbers.flatten()
        picked = self.values.new_zeros((wanted.numel(), *self.shape[1:]))
        if self.rows.numel():
            positions = torch.searchsorted(self.rows, wanted).clamp_(max=self.rows.numel() - 1)
            here = self.rows.index_select(0, positions) == wanted
            picked[here] = self.values.index_select(0, positions[here])
        return picked.view(*numbers.shape, *self.shape[1:])


def all_rows(tensor: Tensor) -> RowSparse:
    """Return a dense tensor as a row-sparse value that stores every row, sharing memory.

    Shape:
        tensor, returns: (N, ...).
    """
    return RowSparse(_counting(tensor.shape[0], tensor.device), tensor, tensor.shape)


@lru_cache(maxsize=64)
def _counting(length: int, device: torch.device) -> Tensor:
    return torch.arange(length, device=device)


def add_rows(records: Sequence[RowSparse]) -> RowSparse:
    """Return the sum of records of one shape and device, in order; it stores the union of their rows."""
    rows, positions = torch.unique(torch.cat([one.rows for one in records]), return_inverse=True)
    total = records[0].values.new_zeros((rows.numel(), *records[0].shape[1:]))
    for one, slots in zip(records, positions.split([one.rows.numel() for one in records]), strict=True):
        total.index_add_(0, slots, one.values)
    return RowSparse(rows, total, records[0].shape)


class Csr(Sparse):
    """Matrix in compressed sparse row (CSR) format.

    Args:
        starts: start of each row among the elements, (rows + 1,) int64.
        columns: columns of the elements, (E,) int64.
        values: the elements, (E,).
        shape: (rows, columns).
        known: cached properties of the positions, shared by matrices with the same positions.
    """

    __slots__ = ("_known", "columns", "starts")

    stype = "csr"

    def __init__(
        self,
        starts: Tensor,
        columns: Tensor,
        values: Tensor,
        shape: Sequence[int],
        known: dict[str, Any] | None = None,
    ) -> None:
        self.starts, self.columns, self.values = starts, columns, values
        self.shape, self.anchor, self.home = tuple(shape), None, None
        self._known: dict[str, Any] = {} if known is None else known

    @classmethod
    def of_dense(cls, dense: Tensor) -> Csr:
        """Return a dense matrix as CSR, storing its nonzero elements."""
        if dense.dim() != 2:
            raise ShapeError(f"CSR arrays have 2 axes, got shape {tuple(dense.shape)}")
        rows, columns = dense.ne(0).nonzero(as_tuple=True)
        return cls.from_coordinates(rows, columns.contiguous(), dense[rows, columns], dense.shape)

    @classmethod
    def from_coordinates(cls, rows: Tensor, columns: Tensor, values: Tensor, shape: Sequence[int]) -> Csr:
        """Return the matrix of elements given with rows, which ascend, and columns."""
        starts = rows.new_zeros(shape[0] + 1)
        starts[1:] = rows.bincount(minlength=shape[0]).cumsum(0)
        return cls(starts, columns, values, shape)

    def replaced(self, values: Tensor) -> Csr:
        return Csr(self.starts, self.columns, values, self.shape, self._known)

    def to(self, device: torch.device) -> Csr:
        if self.device == device:
            return self
        return Csr(self.starts.to(device), self.columns.to(device), self.values.to(device), self.shape)

    def row_numbers(self) -> Tensor:
        """Return the row of each stored element, (E,)."""
        if "rows" not in self._known:
            rows = torch.arange(self.shape[0], device=self.starts.device)
            repeated = rows.repeat_interleave(self.starts.diff(), output_size=self.columns.numel())
            self._known["rows"] = repeated
        numbers: Tensor = self._known["rows"]
        return numbers

    def distinct_columns(self) -> tuple[Tensor, Tensor]:
        """Return the nonempty columns, ascending, and each stored element's index among them."""
        if "columns" not in self._known:
            self._known["columns"] = torch.unique(self.columns, return_inverse=True)
        columns_and_positions: tuple[Tensor, Tensor] = self._known["columns"]
        return columns_and_positions

    def emptied(self) -> Csr:
        return Csr(torch.zeros_like(self.starts), self.columns[:0], self.values[:0], self.shape)

    def dense(self) -> Tensor:
        coordinates = self.row_numbers(), self.columns
        return self.values.new_zeros(self.shape).index_put_(coordinates, self.values, accumulate=True)

    def range(self, begin: int, end: int) -> Csr:
        """Return rows `begin` to `end` - 1, sharing memory."""
        starts = self.starts[begin : end + 1]
        first, last = int(starts[0]), int(starts[-1])
        shape = end - begin, self.shape[1]
        return Csr(starts - first, self.columns[first:last], self.values[first:last], shape)

    def pick(self, numbers: Tensor) -> Csr:
        """Return rows by index, in the given order.

        Args:
            numbers: row indices, (M,) int64.
        """
        starts, positions = _pick_ranges(self.starts, numbers)
        return Csr(starts, self.columns[positions], self.values[positions], (numbers.numel(), self.shape[1]))


def leaf_of(value: Any) -> Tensor:
    """Return the tensor through which a value's gradient flows."""
    tensor: Tensor = value.leaf() if isinstance(value, Sparse) else value
    return tensor


class Ragged(Sparse):
    """Rows of different lengths. Row i is ``values[offsets[i]:offsets[i + 1]]``.

    The shape is (N,) and the trailing axes of the values. It does not include row lengths, so that one binding accepts
    batches of any lengths. Gradients flow through the values themselves.

    Args:
        values: the elements of all rows, (T, ...).
        offsets: start of each row, (N + 1,) int64 on the same device, from 0 to T, nondecreasing.
        known: cached properties of the offsets, shared by values with the same rows.
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
        detached = Ragged(self.values.data, self.offsets, self._known)
        detached.home = self.home
        return detached

    def clone(self) -> Ragged:
        return self.replaced(self.values.clone())

    # other values in the same rows

    def replaced(self, values: Tensor) -> Ragged:
        return Ragged(values, self.offsets, self._known)

    def emptied(self) -> Ragged:
        return Ragged(self.values[:0], torch.zeros_like(self.offsets))

    def to(self, device: torch.device) -> Ragged:
        if self.values.device == device:
            return self
        return Ragged(self.values.to(device), self.offsets.to(device))

    def dense(self) -> Tensor:
        raise OpError("a ragged value cannot be used as a dense one; convert it first, as sequence_pool does")

    # rows

    def lengths(self) -> Tensor:
        """Return the lengths of the rows, (N,) int64."""
        if "lengths" not in self._known:
            self._known["lengths"] = self.offsets.diff()
        lengths: Tensor = self._known["lengths"]
        return lengths

    def row_numbers(self) -> Tensor:
        """Return the row of each element, (T,) int64."""
        if "rows" not in self._known:
            rows = torch.arange(self.shape[0], device=self.offsets.device)
            repeated = rows.repeat_interleave(self.lengths(), output_size=self.values.shape[0])
            self._known["rows"] = repeated
        numbers: Tensor = self._known["rows"]
        return numbers

    def has_same_rows(self, other: Ragged) -> bool:
        """Return True if another value has the same row lengths."""
        return self.offsets is other.offsets or torch.equal(self.offsets, other.offsets)

    def range(self, begin: int, end: int) -> Ragged:
        """Return rows `begin` to `end` - 1, sharing memory."""
        offsets = self.offsets[begin : end + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        return Ragged(self.values[first:last], offsets - first)

    def pick(self, numbers: Tensor) -> Ragged:
        """Return rows by index, in the given order.

        Args:
            numbers: row indices, (M,) int64.
        """
        offsets, positions = _pick_ranges(self.offsets, numbers)
        return Ragged(self.values.index_select(0, positions), offsets)

    def expanded(self, dense: Tensor) -> Tensor:
        """Repeat each row of a dense value for each element of the ragged row.

        Args:
            dense: (N, ...).

        Returns:
            (T, ...).
        """
        if not dense.dim() or dense.shape[0] != self.shape[0]:
            raise ShapeError(
                f"a ragged value with {self.shape[0]} rows is combined with a dense one of shape {tuple(dense.shape)}, "
                f"expected {self.shape[0]} on its first axis"
            )
        return dense.index_select(0, self.row_numbers())


def _pick_ranges(starts: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Return the starts of picked rows, and the positions of their elements among the elements of all rows.

    Args:
        starts: start of each row, (N + 1,).
        numbers: indices of the picked rows, (M,).
    """
    counts = starts.diff().index_select(0, numbers)
    begins = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    shift = (starts[:-1].index_select(0, numbers) - begins[:-1]).repeat_interleave(counts)
    return begins, torch.arange(shift.numel(), device=shift.device) + shift


def ragged_rows(rows: Sequence[Tensor]) -> Ragged:
    """Return one or more tensors with equal trailing axes as rows of a ragged value."""
    lengths = torch.tensor([0, *(row.shape[0] for row in rows)], device=rows[0].device)
    return Ragged(torch.cat(list(rows)), lengths.cumsum(0))
