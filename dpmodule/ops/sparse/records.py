"""Sparse values as operators see them: their stored parts, and the gradients that flow along with them.

A gradient is a dense tensor, or a hybrid COO tensor of one sparse dimension, torch's form of a row-sparse array;
the engine adds up both. It flows through an `anchor`: a tensor of the value's full shape that takes no memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import embedding_bag

from .groups import groups_of

Tensor = torch.Tensor


def anchor_for(shape: Sequence[int], like: Tensor) -> Tensor:
    """Return a tensor of a shape that takes the memory of one element."""
    return like.new_zeros(1).expand(tuple(shape))


class Sparse:
    """What all kinds share: stored values, a full shape, and an anchor for gradients.

    Attributes:
        shape: lengths of all axes.
        anchor: where gradients flow; None where nothing is recorded.
        home: the array that these are the parts of, None for what an operator made; a state is written there.
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
        """Where the elements are."""
        return self.values.device

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient is recorded."""
        return self.anchor is not None and self.anchor.requires_grad

    def requires_grad_(self, wanted: bool = True) -> Sparse:
        """Record a gradient from here on."""
        if self.anchor is None:
            self.anchor = anchor_for(self.shape, self.values)
        self.anchor.requires_grad_(wanted)
        return self

    def replaced(self, values: Tensor) -> Any:
        """Return a record of other values in the same places, without an anchor."""
        raise NotImplementedError

    def emptied(self) -> Any:
        """Return a record of the same shape that stores nothing."""
        raise NotImplementedError

    def dense(self) -> Tensor:
        """Return all elements; they may share memory with the stored ones."""
        raise NotImplementedError

    def detach(self) -> Any:
        """Return the same values without their history."""
        found = self.replaced(self.values)
        found.home = self.home
        return found

    @property
    def data(self) -> Any:
        """The same values without their history."""
        return self.detach()

    def leaf(self) -> Tensor:
        """Return the tensor through which the gradient flows."""
        if self.anchor is None:
            self.anchor = anchor_for(self.shape, self.values)
        return self.anchor

    def clone(self) -> Any:
        """Return a copy, with this one's history."""
        found = self.replaced(self.values.clone())
        found.anchor = self.anchor
        return found

    def is_floating_point(self) -> bool:
        """Say whether elements have fractions, and so gradients."""
        return self.values.is_floating_point()

    def is_contiguous(self) -> bool:
        """Say yes: parts are."""
        return True


class Rows(Sparse):
    """Some rows (slices along the first axis) of a tensor; the others are zero.

    Args:
        rows: their numbers, (R,) int64, ascending and all different.
        values: the rows, (R, ...).
        shape: lengths of all axes.
    """

    __slots__ = ("rows",)

    stype = "row_sparse"

    def __init__(self, rows: Tensor, values: Tensor, shape: Sequence[int]) -> None:
        self.rows, self.values, self.shape = rows, values, tuple(shape)
        self.anchor = self.home = None

    def to(self, device: torch.device) -> Rows:
        """Return the rows on a device, without an anchor; this record if they are there already."""
        return (
            self if self.device == device else Rows(self.rows.to(device), self.values.to(device), self.shape)
        )

    def replaced(self, values: Tensor) -> Rows:
        return Rows(self.rows, values, self.shape)

    def emptied(self) -> Rows:
        return Rows(self.rows[:0], self.values[:0], self.shape)

    def dense(self) -> Tensor:
        if self.rows.numel() == self.shape[0]:
            return self.values
        return self.values.new_zeros(self.shape).index_copy_(0, self.rows, self.values)

    def pick(self, numbers: Tensor) -> Tensor:
        """Return rows by number; those that are not stored are zeros.

        Args:
            numbers: which, (...) int64, each within the shape.
        """
        if self.rows.numel() == self.shape[0]:
            return self.values.index_select(0, numbers.flatten()).view(*numbers.shape, *self.shape[1:])
        wanted = numbers.flatten()
        found = self.values.new_zeros((wanted.numel(), *self.shape[1:]))
        if self.rows.numel():
            places = torch.searchsorted(self.rows, wanted).clamp_(max=self.rows.numel() - 1)
            here = self.rows.index_select(0, places) == wanted
            found[here] = self.values.index_select(0, places[here])
        return found.view(*numbers.shape, *self.shape[1:])


class Csr(Sparse):
    """A matrix of which some elements are stored, row by row.

    Args:
        starts: where each row begins among the elements, (rows + 1,) int64.
        columns: the elements' columns, (E,) int64.
        values: the elements, (E,).
        shape: (rows, columns).
        known: what has been found out about the places, shared by matrices that store in the same ones.
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

    def replaced(self, values: Tensor) -> Csr:
        return Csr(self.starts, self.columns, values, self.shape, self._known)

    def to(self, device: torch.device) -> Csr:
        """Return the matrix on a device, without an anchor; this one if it is there already."""
        if self.device == device:
            return self
        return Csr(self.starts.to(device), self.columns.to(device), self.values.to(device), self.shape)

    def row_numbers(self) -> Tensor:
        """Return each stored element's row, (E,)."""
        if "rows" not in self._known:
            rows = torch.arange(self.shape[0], device=self.starts.device)
            found = rows.repeat_interleave(self.starts.diff(), output_size=self.columns.numel())
            self._known["rows"] = found
        numbers: Tensor = self._known["rows"]
        return numbers

    def distinct_columns(self) -> tuple[Tensor, Tensor]:
        """Return the columns that hold anything, ascending, and each stored element's position among them."""
        if "columns" not in self._known:
            self._known["columns"] = torch.unique(self.columns, return_inverse=True)
        found: tuple[Tensor, Tensor] = self._known["columns"]
        return found

    def emptied(self) -> Csr:
        return Csr(torch.zeros_like(self.starts), self.columns[:0], self.values[:0], self.shape)

    def dense(self) -> Tensor:
        places = self.row_numbers(), self.columns
        return self.values.new_zeros(self.shape).index_put_(places, self.values, accumulate=True)

    @classmethod
    def from_places(cls, rows: Tensor, columns: Tensor, values: Tensor, shape: Sequence[int]) -> Csr:
        """Return the matrix of elements given with their rows, which ascend."""
        starts = rows.new_zeros(shape[0] + 1)
        starts[1:] = rows.bincount(minlength=shape[0]).cumsum(0)
        return cls(starts, columns, values, shape)


def row_range(matrix: Csr, begin: int, end: int) -> Csr:
    """Return rows `begin` to `end` of a matrix; they share its memory."""
    starts = matrix.starts[begin : end + 1]
    first, last = int(starts[0]), int(starts[-1])
    return Csr(
        starts - first, matrix.columns[first:last], matrix.values[first:last], (end - begin, matrix.shape[1])
    )


def nothing_in(record: Sparse) -> Any:
    """Return a record of the same shape that stores nothing."""
    return record.emptied()


def leaf_of(value: Any) -> Tensor:
    """Return the tensor through which a value's gradient flows."""
    tensor: Tensor = value.leaf() if isinstance(value, Sparse) else value
    return tensor


def row_gradient(rows: Tensor, values: Tensor, shape: Sequence[int], distinct: bool = True) -> Tensor:
    """Return a gradient of some rows.

    Args:
        rows: their numbers, (R,) int64.
        values: the rows, (R, ...).
        distinct: `rows` ascends without repetition; if not, rows of one number add up.
    """
    if distinct:
        return torch.sparse_coo_tensor(
            rows[None], values, tuple(shape), is_coalesced=True, check_invariants=False
        )
    return torch.sparse_coo_tensor(rows[None], values, tuple(shape), check_invariants=False)


def summed(numbers: Tensor, values: Tensor, places: Tensor | None = None) -> tuple[Tensor, Tensor]:
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
        found, starts, places = groups_of(numbers, places)
        return found, embedding_bag(places, values, starts, mode="sum")  # half of what follows takes
    rows = values if places is None else values.index_select(0, places)
    found, where = torch.unique(numbers, return_inverse=True)
    return found, rows.new_zeros((found.numel(), *rows.shape[1:])).index_add_(0, where, rows)


def stored_rows(grad: Tensor) -> tuple[Tensor, Tensor]:
    """Return the row numbers, ascending and all different, and rows of a gradient that `row_gradient` made."""
    if not grad.is_coalesced():
        return summed(grad._indices()[0], grad._values())
    return grad._indices()[0], grad._values()


def as_rows(value: Any) -> Rows:
    """Return a dense tensor, a row gradient or a `Rows` as `Rows`; rows of zeros of a dense one are left out."""
    if isinstance(value, Rows):
        return value
    if value.is_sparse:
        return Rows(*stored_rows(value), value.shape)
    rows = value.reshape(value.shape[0], -1).ne(0).any(1).nonzero().flatten()
    return Rows(rows, value.index_select(0, rows), value.shape)
