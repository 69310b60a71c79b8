"""Row-sparse values whose rows are spread over processes, and the exchange of their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import torch

from ..base import BoundsError, StateError
from ..context import Context
from ..executor.sparse_arrays import all_rows
from ..ndarray import NDArray
from ..ndarray.handle import Handle
from ..ndarray.row_sparse import RowSparseNDArray, rows_of
from ..ops.sparse import RowSparse, sum_rows_by_index

if TYPE_CHECKING:
    from ..types import DTypeLike

_PRESENT, _LOOKS_UP, _GATHERS = 0, 1, 2
"""What a process is at in a round: another exchange, looking up rows, or gathering a whole table."""

Gather = Callable[[torch.Tensor], list[torch.Tensor]]
AllToAll = Callable[[torch.Tensor, list[int], list[int]], torch.Tensor]


class ShardedTable:
    """A row-sparse value of which row i is kept by the process of rank i mod size.

    Args:
        name: the key, for messages.
        shape: of the whole table, (rows, ...).
        own: returns the rows of this process; row j of them is row ``j * size + rank`` of the table.
    """

    def __init__(
        self,
        exchange: RowExchange,
        name: object,
        shape: Sequence[int],
        own: Callable[[], RowSparseNDArray],
    ) -> None:
        self._exchange, self.name, self.shape, self._own = exchange, name, tuple(shape), own
        self.number = exchange.add(self)

    @property
    def own(self) -> RowSparseNDArray:
        """The rows of this process."""
        return self._own()

    def look_up(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows by their numbers; the other processes answer in their next exchange.

        Args:
            rows: row numbers, (R,) int64.

        Returns:
            The rows, (R, ...).

        Raises:
            BoundsError: a row is outside of the table, here or in another process that looks up rows.
        """
        distinct, positions = torch.unique(rows, return_inverse=True)
        found = self._exchange.look_up(self, distinct.cpu()).to(self.own.values.device)
        return found.index_select(0, positions.to(found.device))

    def whole(self) -> torch.Tensor:
        """Return all rows, (rows, ...); all processes must call this at the same point.

        Raises:
            StateError: another process is at another exchange.
        """
        return self._exchange.whole(self)

    def assign(self, value: Handle) -> None:
        """Replace the rows of this process by those of an array of the whole table."""
        own, rows = self.own, torch.tensor(self._exchange.own_rows(self.shape[0]))
        own.take_over(all_rows(rows_of(value, rows.to(value.stored.device)).to(own.values)))

    def to_bytes(self, values: torch.Tensor) -> torch.Tensor:
        """Return rows as a flat tensor of bytes on the CPU."""
        return values.cpu().contiguous().view(-1).view(torch.uint8)

    def from_bytes(self, data: torch.Tensor) -> torch.Tensor:
        """Return the rows of a result of `to_bytes`, (R, ...)."""
        rows: torch.Tensor = data.view(self.own.values.dtype).view(-1, *self.shape[1:])
        return rows

    @property
    def row_bytes(self) -> int:
        """Number of bytes of a row."""
        return int(torch.Size(self.shape[1:]).numel() * self.own.values.element_size())


class _ShardedRows(RowSparse):
    """A `ShardedTable` as a value of operators: rows are looked up when an operator reads them."""

    __slots__ = ("table",)

    def __init__(self, table: ShardedTable) -> None:
        values = table.own.values
        nothing = torch.empty(0, dtype=torch.int64, device=values.device)
        super().__init__(nothing, values.new_empty((0, *table.shape[1:])), table.shape)
        self.table = table

    def replaced(self, values: torch.Tensor) -> RowSparse:
        return _ShardedRows(self.table)

    def emptied(self) -> RowSparse:
        return RowSparse(self.rows, self.values, self.shape)

    def pick(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.table.look_up(numbers.flatten()).view(*numbers.shape, *self.shape[1:])

    def dense(self) -> torch.Tensor:
        return self.table.whole().to(self.device)


class ShardedArray(RowSparseNDArray):
    """A `ShardedTable` as an array, which is fetched when it is read, by all processes at the same point.

    Args:
        is_dense: True if `fetched` returns a dense array.
    """

    __slots__ = ("_is_dense", "_table")

    def __init__(self, table: ShardedTable, is_dense: bool) -> None:
        self._table, self._is_dense = table, is_dense
        self._hold(_ShardedRows(table), table.own.context, True)

    def fetched(self) -> Any:
        """Return all rows as an array in this process."""
        rows = self.dense()
        if self._is_dense:
            return NDArray(rows, self.context)
        return RowSparseNDArray.of_record(all_rows(rows), self.context)

    def dense(self) -> torch.Tensor:
        found: torch.Tensor = self.stored.dense()
        return found

    def assign(self, other: Handle) -> None:
        self._table.assign(other)

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


class RowExchange:
    """Exchanges rows of tables between the processes of a group.

    A process may look up rows at any time. The processes therefore exchange in rounds, in which each announces what it
    is at: while some look up rows, the others answer; when all are at the same other exchange, that takes place.

    Args:
        gather: returns the tensors of all processes, in the order of ranks.
        all_to_all: ``(tensor, counts to send, counts to receive) -> tensor``: sends consecutive parts of a tensor to
            the processes, and returns theirs, joined.
    """

    def __init__(self, rank: int, size: int, gather: Gather, all_to_all: AllToAll) -> None:
        self.rank, self.size, self._gather, self._all_to_all = rank, size, gather, all_to_all
        self._tables: WeakValueDictionary[int, ShardedTable] = WeakValueDictionary()
        self._added = 0  # the processes may drop tables at different times, and must go on to meet

    def add(self, table: ShardedTable) -> int:
        """Register a table, in all processes in the same order, and return its number."""
        self._tables[self._added] = table
        self._added += 1
        return self._added - 1

    def _table(self, number: int) -> ShardedTable:
        table = self._tables.get(number)
        if table is None:
            raise StateError(
                "a process looks up rows of a kvstore that this process has dropped; keep it until all end"
            )
        return table

    def own_rows(self, rows: int) -> range:
        """Return the numbers of the rows that this process keeps."""
        return range(self.rank, rows, self.size)

    def meet(self) -> None:
        """Answer the processes that look up rows, until all are at another exchange."""
        while self._added and not (self._round(_PRESENT, 0, torch.empty(0))[0] == _PRESENT).all():
            pass

    def look_up(self, table: ShardedTable, rows: torch.Tensor) -> torch.Tensor:
        """Return rows of a table; see `ShardedTable.look_up`.

        Args:
            rows: distinct row numbers, (R,) int64.
        """
        return table.from_bytes(self._round(_LOOKS_UP, table.number, rows)[1])

    def whole(self, table: ShardedTable) -> torch.Tensor:
        """Return all rows of a table; see `ShardedTable.whole`."""
        kinds = torch.tensor([_LOOKS_UP])
        while not (kinds == _GATHERS).all():
            kinds, _ = self._round(_GATHERS, table.number, torch.empty(0))
            if (kinds == _PRESENT).any() and not (kinds == _LOOKS_UP).any():
                others = ", ".join(map(str, (kinds == _PRESENT).nonzero().flatten().tolist()))
                raise StateError(
                    f"{table.name} is spread over {self.size} processes: rank {self.rank} asked for all of it, but not "
                    f"rank {others}; call pull, get_params and save_checkpoint in all processes, or look up rows with "
                    "row_sparse_pull"
                )
        rows, own = table.shape[0], table.own.stored.dense().cpu()
        padding = own.new_zeros((len(range(0, rows, self.size)) - len(own), *table.shape[1:]))
        found: torch.Tensor = own.new_empty(table.shape)
        for rank, part in enumerate(self._gather(torch.cat([own, padding]))):
            found[rank :: self.size] = part[: len(range(rank, rows, self.size))]
        return found

    def _round(self, kind: int, number: int, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Take part in a round.

        Args:
            number: of the table to look up.
            rows: distinct row numbers to look up, (R,) int64.

        Returns:
            What each process is at, and the rows that were looked up, as bytes.
        """
        order, counts, outside = rows, [0] * self.size, -1
        if kind == _LOOKS_UP:
            height = self._table(number).shape[0]
            wrong = rows[(rows < 0) | (rows >= height)].tolist()
            if wrong:
                kind, outside = -1, wrong[0]
            else:
                order, counts = self._by_owner(rows)
        header = torch.tensor([kind, number, outside, *counts])
        headers = torch.stack(self._gather(header))
        self._check(headers)
        kinds = headers[:, 0]
        if not (kinds == _LOOKS_UP).any():
            return kinds, torch.empty(0)
        wanted = headers[:, 3 + self.rank].tolist()
        asked = self._all_to_all(rows[order] if kind == _LOOKS_UP else rows.long(), counts, wanted)
        parts = zip(headers[:, 1].tolist(), torch.split(asked, wanted))
        answers = [
            self._answer(each, part) if len(part) else torch.empty(0, dtype=torch.uint8)
            for each, part in parts
        ]
        width = self._table(number).row_bytes if kind == _LOOKS_UP else 0
        sizes = [count * width for count in counts]
        found = self._all_to_all(torch.cat(answers), [len(each) for each in answers], sizes)
        if kind != _LOOKS_UP:
            return kinds, found
        ordered = torch.empty_like(found.view(-1, width))
        ordered[order] = found.view(-1, width)
        return kinds, ordered.view(-1)

    def _answer(self, number: int, rows: torch.Tensor) -> torch.Tensor:
        """Return rows of a table that this process keeps, as bytes."""
        table = self._table(number)
        record = table.own.stored
        return table.to_bytes(record.pick((rows // self.size).to(record.device)))

    def _check(self, headers: torch.Tensor) -> None:
        """Raise an error in all processes if one of them looks up a row outside of a table."""
        for rank, (kind, number, row, *_) in enumerate(headers.tolist()):
            if kind < 0:
                table = self._table(number)
                raise BoundsError(
                    f"{table.name}: rank {rank} looks up row {row} of a table with {table.shape[0]} rows; expected "
                    f"0 to {table.shape[0] - 1}"
                )

    def _by_owner(self, rows: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
        """Return the order of rows by the processes that keep them, and how many each keeps."""
        owners = rows % self.size
        counts: list[int] = owners.bincount(minlength=self.size).tolist()
        return owners.argsort(stable=True), counts

    def sum_rows(
        self, tables: Sequence[ShardedTable], grads: Sequence[RowSparseNDArray]
    ) -> list[RowSparseNDArray]:
        """Return the sums of row-sparse arrays over all processes, of the rows that this process keeps.

        Ranks are added in their order. All processes give arrays for the same tables.
        """
        sums = []
        for table, grad in zip(tables, grads):
            rows, values = grad.stored.rows.cpu(), grad.stored.values.to(table.own.values.dtype)
            order, counts = self._by_owner(rows)
            received = torch.stack(self._gather(torch.tensor(counts)))[:, self.rank].tolist()
            numbers = self._all_to_all(rows[order], counts, received)
            width = table.row_bytes
            sent = table.to_bytes(values.index_select(0, order.to(values.device)))
            data = self._all_to_all(sent, [n * width for n in counts], [n * width for n in received])
            own = table.own
            distinct, total = sum_rows_by_index(numbers // self.size, table.from_bytes(data))
            device = own.values.device
            sums.append(
                RowSparseNDArray(total.to(device), distinct.to(device), own.shape, own.context, tidy=True)
            )
        return sums
