"""`FetchedArray`: an array whose rows are elsewhere, such as in other processes or in files, until they are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ..context import Context
from ..ops.sparse import RowSparse, all_rows
from ..ops.user_code import user_code
from .handle import Handle
from .ndarray import NDArray
from .row_sparse import RowSparseNDArray

if TYPE_CHECKING:
    from ..types import DTypeLike

_ROWS_AT_ONCE = 1 << 14


def parts(rows: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of the parts in which tables are made, sent and read."""
    for begin in range(0, rows, _ROWS_AT_ONCE):
        yield begin, min(begin + _ROWS_AT_ONCE, rows)


class RowSource(Protocol):
    """The keeper of the rows of a table.

    Attributes:
        shape: of the table, (rows, ...).
        values: a tensor of the dtype of the rows, on their device.
    """

    shape: tuple[int, ...]

    @property
    def values(self) -> torch.Tensor: ...

    @property
    def context(self) -> Context: ...

    def look_up(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows by their numbers, (R,) int64."""

    def whole(self) -> torch.Tensor:
        """Return all rows, (rows, ...)."""

    def assign(self, value: Handle) -> None:
        """Replace all rows by those of an array."""


class _SourceRows(RowSparse):
    """A `RowSource` as a value of operators: rows are looked up when an operator reads them."""

    __slots__ = ("source",)

    checks_bounds = True

    def __init__(self, source: RowSource) -> None:
        values = source.values
        nothing = torch.empty(0, dtype=torch.int64, device=values.device)
        super().__init__(nothing, values.new_empty((0, *source.shape[1:])), source.shape)
        self.source = source

    def replaced(self, values: torch.Tensor) -> RowSparse:
        return _SourceRows(self.source)

    def emptied(self) -> RowSparse:
        return RowSparse(self.rows, self.values, self.shape)

    def pick(self, numbers: torch.Tensor) -> torch.Tensor:
        with user_code():  # its errors name rows and processes, not an operator
            found = self.source.look_up(numbers.flatten())
        return found.view(*numbers.shape, *self.shape[1:])

    def dense(self) -> torch.Tensor:
        return self.source.whole().to(self.device)


class FetchedArray(RowSparseNDArray):
    """An array of the rows of a `RowSource`, which are fetched when they are read.

    Rows that other processes keep must be read by all processes at the same point.

    Args:
        is_dense: True if `fetched` returns a dense array.
    """

    __slots__ = ("is_dense", "source")

    def __init__(self, source: Any, is_dense: bool) -> None:
        self.source, self.is_dense = source, is_dense
        self._hold(_SourceRows(source), source.context, True)

    def fetched(self) -> Any:
        """Return all rows as an array in this process."""
        rows = self.dense()
        if self.is_dense:
            return NDArray(rows, self.context)
        return RowSparseNDArray.of_record(all_rows(rows), self.context)

    def dense(self) -> torch.Tensor:
        found: torch.Tensor = self.stored.dense()
        return found

    def assign(self, other: Handle) -> None:
        self.source.assign(other)

    def parts(self) -> tuple[torch.Tensor, torch.Tensor]:
        record = all_rows(self.dense())
        return record.rows, record.values

    @property
    def indices(self) -> NDArray:
        return NDArray(self.parts()[0], self.context)

    @property
    def data(self) -> NDArray:
        return NDArray(self.dense(), self.context)

    def replaced(self, values: torch.Tensor, ctx: Context | None = None) -> Any:
        return self.fetched() if ctx is None else self.fetched().as_in_context(ctx)

    def astype(self, dtype: DTypeLike, copy: bool = True) -> Any:
        return self.fetched().astype(dtype, copy)

    def __reduce__(self) -> Any:
        """Return a recipe for an array of all rows."""
        return self.fetched().__reduce__()
