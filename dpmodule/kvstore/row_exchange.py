"""Row-sparse values whose rows are spread over processes, and the exchange of their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import torch

from ..base import BoundsError, StateError
from ..context import Context
from ..ndarray.growing_table import GrowingTable, mixed
from ..ndarray.handle import Handle
from ..ndarray.row_source import parts
from ..ndarray.row_sparse import RowSparseNDArray, rows_of
from ..ops.sparse import all_rows, sum_rows_by_index

_PRESENT, _LOOKS_UP, _GATHERS, _SAVES, _FAILS = range(5)
"""What a process is at in a round: another exchange, looking up rows, a whole table, saving, or a row that is none."""

_SPACE = 8192
"""Length of the messages that follow an announcement, for all processes together."""

_NOTHING, _NO_BYTES = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.uint8)

Gather = Callable[[torch.Tensor], list[torch.Tensor]]
AllToAll = Callable[[torch.Tensor, list[int], list[int]], torch.Tensor]


class ShardedTable:
    """A row-sparse value of which row i is kept by the process of rank i mod size.

    Args:
        name: the key, for messages.
        shape: of the whole table, (rows, ...).
        own: returns the rows of this process; row j of them is row ``j * size + rank`` of the table.
        state: returns the optimizer's state of these rows: None, an array, or a tuple of these.
    """

    def __init__(
        self,
        exchange: RowExchange,
        name: object,
        shape: Sequence[int],
        own: Callable[[], RowSparseNDArray],
        state: Callable[[], Any],
    ) -> None:
        self.exchange, self.name, self.shape = exchange, name, tuple(shape)
        self._own, self.state = own, state
        self._fetched: tuple[torch.Tensor, torch.Tensor] | None = None
        self.number = exchange.add(self)

    @property
    def own(self) -> RowSparseNDArray:
        """The rows of this process."""
        return self._own()

    @property
    def values(self) -> torch.Tensor:
        """The rows of this process, (R, ...)."""
        return self.own.values

    @property
    def context(self) -> Context:
        """The device of the rows."""
        return self.own.context

    def look_up(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows by their numbers; the other processes answer in their next exchange.

        Args:
            rows: row numbers in any order, (R,) int64.

        Returns:
            The rows, (R, ...).

        Raises:
            BoundsError: a row is outside of the table, here or in another process that looks up rows.
        """
        if self._fetched is not None:
            numbers, values = self._fetched
            wanted = rows.to(numbers.device)
            places = torch.searchsorted(numbers, wanted).clamp_(max=len(numbers) - 1)
            if bool((numbers[places] == wanted).all()):
                return values.index_select(0, places.to(values.device))
        distinct, positions = torch.unique(rows, return_inverse=True)
        found = self.exchange.look_up(self, distinct.cpu()).to(self.values.device)
        return found.index_select(0, positions.to(found.device))

    def prefetch(self, rows: torch.Tensor) -> None:
        """Look up rows for later calls of `look_up`, until the next update.

        Args:
            rows: row numbers, strictly ascending, (R,) int64.
        """
        self._fetched = None
        self._fetched = (rows, self.look_up(rows))

    def forget(self) -> None:
        """Drop the rows of `prefetch`, since the table changes."""
        self._fetched = None

    def whole(self) -> torch.Tensor:
        """Return all rows, (rows, ...); all processes must call this at the same point.

        Raises:
            StateError: another process is at another exchange.
        """
        return self.exchange.whole(self)

    def meet(self) -> None:
        """Wait until all processes call this for the table.

        Raises:
            StateError: another process is at another exchange.
        """
        self.exchange.agree(_SAVES, self)

    def assign(self, value: Handle) -> None:
        """Replace the rows of this process by those of an array of the whole table."""
        self.forget()
        rows = self.exchange.own_rows(self.shape[0])
        if len(self.values) < len(rows):  # some are zeros, which are not stored
            self.own.take_over(all_rows(self.values.new_zeros((len(rows), *self.shape[1:]))))
        for begin, end in parts(len(rows)):
            part = rows[begin:end]
            numbers = torch.arange(part.start, part.stop, part.step, device=value.stored.device)
            self.values[begin:end].copy_(rows_of(value, numbers))

    def outside(self, rows: torch.Tensor) -> int | None:
        """Return a row number that the table does not have; None if there is none.

        Args:
            rows: row numbers, ascending, (R,) int64.
        """
        if len(rows) and not 0 <= int(rows[0]) <= int(rows[-1]) < self.shape[0]:
            return int(rows[0]) if int(rows[0]) < 0 else int(rows[-1])
        return None

    def owners(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the ranks of the processes that keep rows."""
        return rows % self.exchange.size

    def picked(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows that this process keeps, (R, ...)."""
        record = self.own.stored
        found: torch.Tensor = record.pick((rows // self.exchange.size).to(record.device))
        return found

    def summed(self, rows: torch.Tensor, values: torch.Tensor) -> RowSparseNDArray:
        """Return the gradient of the rows of this process.

        Args:
            rows: their numbers, each from one process or more, (R,) int64.
            values: gradients of these rows, (R, ...).
        """
        distinct, total = sum_rows_by_index(rows // self.exchange.size, values)
        own = self.own
        device = own.values.device
        return RowSparseNDArray(total.to(device), distinct.to(device), own.shape, own.context, tidy=True)

    def placed(self, grad: RowSparseNDArray) -> RowSparseNDArray:
        """Return a result of `summed`, whose rows are those of `own`, for an update that takes place now."""
        self.forget()
        return grad

    def saved(self) -> dict[str, torch.Tensor]:
        """Return what this process saves of the table: the rows, and more by name."""
        return {"": self.values}

    def to_bytes(self, values: torch.Tensor) -> torch.Tensor:
        """Return rows as a flat tensor of bytes on the CPU."""
        return values.cpu().contiguous().view(-1).view(torch.uint8)

    def from_bytes(self, data: torch.Tensor) -> torch.Tensor:
        """Return the rows of a result of `to_bytes`, (R, ...)."""
        rows: torch.Tensor = data.view(self.values.dtype).view(-1, *self.shape[1:])
        return rows

    @property
    def row_bytes(self) -> int:
        """Number of bytes of a row."""
        return int(torch.Size(self.shape[1:]).numel() * self.values.element_size())


class HashedTable(ShardedTable):
    """A table of 64-bit ids; the process ``mixed(id) mod size`` keeps the row of an id.

    Args:
        rows: the rows of this process.
    """

    def __init__(
        self, exchange: RowExchange, name: object, rows: GrowingTable, state: Callable[[], Any]
    ) -> None:
        self.rows = rows
        super().__init__(exchange, name, rows.shape, self._array, state)

    def _array(self) -> RowSparseNDArray:
        """Return the rows of all slots."""
        return RowSparseNDArray.of_record(all_rows(self.rows.values), self.rows.context)

    @property
    def values(self) -> torch.Tensor:
        return self.rows.values

    def outside(self, rows: torch.Tensor) -> int | None:
        return None

    def owners(self, rows: torch.Tensor) -> torch.Tensor:
        return mixed(rows) % self.exchange.size

    def is_own(self, rows: torch.Tensor) -> torch.Tensor:
        """Return True for the ids whose rows this process keeps."""
        return self.owners(rows) == self.exchange.rank

    def picked(self, rows: torch.Tensor) -> torch.Tensor:
        return self.rows.look_up(rows)

    def summed(self, rows: torch.Tensor, values: torch.Tensor) -> RowSparseNDArray:
        ids, total = sum_rows_by_index(rows, values)
        return RowSparseNDArray(total, ids, self.shape, self.context, tidy=True)

    def placed(self, grad: RowSparseNDArray) -> RowSparseNDArray:
        self.forget()
        slots, order = self.rows.train(grad.stored.rows).sort()
        begin = int((slots < 0).sum())
        own = self.own
        return RowSparseNDArray(grad.values[order][begin:], slots[begin:], own.shape, own.context, tidy=True)

    def parts(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the ids with rows of all processes, ascending, and the rows; all must call this at the same point.

        Raises:
            StateError: another process is at another exchange.
        """
        self.exchange.agree(_GATHERS, self)
        ids, rows = self.rows.parts()
        counts = torch.cat(self.exchange.gather(torch.tensor([len(ids)]))).tolist()
        missing = max(counts) - len(ids)
        all_ids = self.exchange.gather(torch.cat([ids, ids.new_zeros(missing)]))
        all_values = self.exchange.gather(torch.cat([rows, rows.new_zeros((missing, *rows.shape[1:]))]))
        found, order = torch.cat([each[:n] for each, n in zip(all_ids, counts)]).sort()
        return found, torch.cat([each[:n] for each, n in zip(all_values, counts)])[order]

    def whole(self) -> torch.Tensor:
        return self.rows.whole()

    def assign(self, value: Any) -> None:
        self.forget()
        self.rows.assign(value)
        self.rows.keep(self.is_own)

    def saved(self) -> dict[str, torch.Tensor]:
        return {"": self.rows.values, **self.rows.saved()}


class RowExchange:
    """Exchanges rows of tables between the processes of a group.

    A process may look up rows at any time. The processes therefore exchange in rounds, in which each announces what it
    is at: while some look up rows, the others answer; when all are at the same other exchange, that takes place.

    Args:
        gather: returns the tensors of all processes, in the order of ranks.
        all_to_all: ``(tensor, counts to send, counts to receive) -> tensor``: sends consecutive parts of a tensor to
            the processes, and returns theirs, joined. For small tensors it takes less time than other exchanges.
        enter: ``(number, wait) -> ranks``: called at the beginning of a round; if `wait`, it returns the ranks that do
            not come within some seconds.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        gather: Gather,
        all_to_all: AllToAll,
        enter: Callable[[int, bool], list[int]],
    ) -> None:
        self.rank, self.size, self.gather, self._all_to_all = rank, size, gather, all_to_all
        self._enter, self._rounds = enter, 0
        self._tables: WeakValueDictionary[int, ShardedTable] = WeakValueDictionary()
        self._space = _SPACE // size
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
                "another process looks up rows of a kvstore that this process has dropped; keep it until all end"
            )
        return table

    def own_rows(self, rows: int) -> range:
        """Return the numbers of the rows that this process keeps."""
        return range(self.rank, rows, self.size)

    def meet(self) -> None:
        """Answer the processes that look up rows, until all are at another exchange."""
        if self._added:
            self._meet()

    def _meet(self, messages: Sequence[torch.Tensor] = ()) -> list[torch.Tensor]:
        """Meet, send a message to each process, and return theirs; messages are tensors of int64."""
        while True:
            headers = self._announce(_PRESENT, 0, messages)
            if headers.kinds == {_PRESENT}:
                return self._received(headers, _PRESENT, messages)
            self._answer(headers)

    def look_up(self, table: ShardedTable, rows: torch.Tensor) -> torch.Tensor:
        """Return rows of a table; see `ShardedTable.look_up`.

        Args:
            rows: distinct row numbers, ascending, (R,) int64.
        """
        wrong = table.outside(rows)
        if wrong is not None:
            self._announce(_FAILS, table.number, [torch.tensor([wrong])] * self.size)
        order, counts = self._by_owner(table, rows)
        wanted = torch.split(rows[order], counts)
        headers = self._announce(_LOOKS_UP, table.number, wanted)
        values = table.from_bytes(self._answer(headers, wanted, table.row_bytes))
        return torch.empty_like(values).index_copy_(0, order, values)

    def agree(self, kind: int, table: ShardedTable) -> None:
        """Wait until all processes are at the same exchange of a whole table; see `ShardedTable.meet`."""
        while True:
            late = self._enter(self._rounds + 1, True)
            if late:
                self._enter(self._rounds, False)
                raise self._not_together(table, late)
            headers = self._announce(kind, table.number)
            if _LOOKS_UP not in headers.kinds:
                break
            self._answer(headers)
        others = [rank for rank, (*at, _, _) in enumerate(headers.rows) if at != [kind, table.number]]
        if others:
            raise self._not_together(table, others)

    def _not_together(self, table: ShardedTable, others: Sequence[int]) -> StateError:
        return StateError(
            f"{table.name} is spread over {self.size} processes: rank {self.rank} asked for all of it, but not rank "
            f"{', '.join(map(str, others))} within some seconds; call pull, get_params and save_checkpoint in all "
            "processes, after kvstore.barrier() if they have unequal work, or look up rows with row_sparse_pull"
        )

    def whole(self, table: ShardedTable) -> torch.Tensor:
        """Return all rows of a table; see `ShardedTable.whole`."""
        self.agree(_GATHERS, table)
        rows, own = table.shape[0], table.own.stored.dense().cpu()
        padding = own.new_zeros((len(range(0, rows, self.size)) - len(own), *table.shape[1:]))
        found: torch.Tensor = own.new_empty(table.shape)
        for rank, part in enumerate(self.gather(torch.cat([own, padding]))):
            found[rank :: self.size] = part[: len(range(rank, rows, self.size))]
        return found

    def _announce(self, kind: int, number: int, messages: Sequence[torch.Tensor] = ()) -> _Headers:
        """Announce what this process is at, and return what all are at.

        Args:
            number: of the table.
            messages: for each process, int64; they follow the announcement if there is space for all of them.
        """
        self._rounds += 1
        self._enter(self._rounds, False)
        counts = [message.shape[0] for message in messages] or [0] * self.size
        follow = max(counts) <= self._space
        own = torch.empty((self.size, 4 + self._space), dtype=torch.int64)
        own[:, :4] = torch.tensor([(kind, number, count, follow) for count in counts])
        if follow:
            for row, message, count in zip(own, messages, counts):
                row[4 : 4 + count] = message
        same = [4 + self._space] * self.size
        headers = _Headers(self._all_to_all(own.view(-1), same, same).view(self.size, -1))
        for rank, (found, where, *_) in enumerate(headers.rows):
            if found == _FAILS:
                table, row = self._table(where), int(headers.data[rank, 4])
                raise BoundsError(
                    f"{table.name}: rank {rank} looks up row {row} of a table with {table.shape[0]} rows; expected "
                    f"0 to {table.shape[0] - 1}"
                )
        return headers

    def _received(
        self, headers: _Headers, kind: int, messages: Sequence[torch.Tensor] = ()
    ) -> list[torch.Tensor]:
        """Return the messages of the processes that are at `kind`; empty ones of others.

        Args:
            messages: those of this process, if it is at `kind`.
        """
        counts = [count if found == kind else 0 for found, _, count, _ in headers.rows]
        if all(follow for found, _, _, follow in headers.rows if found == kind):
            return [row[4 : 4 + count] for row, count in zip(headers.data, counts)]
        sizes = [message.shape[0] for message in messages] or [0] * self.size
        given = torch.cat(list(messages)) if messages else _NOTHING
        return list(torch.split(self._all_to_all(given, sizes, counts), counts))

    def _answer(self, headers: _Headers, rows: Sequence[torch.Tensor] = (), width: int = 0) -> torch.Tensor:
        """Send the rows that processes look up, and return those that this process looks up, as bytes.

        Args:
            rows: numbers of the rows to look up, for each process.
            width: bytes of a row.
        """
        if _LOOKS_UP not in headers.kinds:
            return _NO_BYTES
        numbers = self._received(headers, _LOOKS_UP, rows)
        counts = [each.shape[0] for each in rows] or [0] * self.size
        answers = [
            self._picked(number, part) if part.shape[0] else _NO_BYTES
            for (_, number, *_), part in zip(headers.rows, numbers)
        ]
        sizes = [answer.shape[0] for answer in answers]
        return self._all_to_all(torch.cat(answers), sizes, [count * width for count in counts])

    def _picked(self, number: int, rows: torch.Tensor) -> torch.Tensor:
        """Return rows of a table that this process keeps, as bytes."""
        table = self._table(number)
        return table.to_bytes(table.picked(rows))

    def _by_owner(self, table: ShardedTable, rows: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
        """Return the order of rows by the processes that keep them, and how many each keeps."""
        if self.size == 1:
            return torch.arange(len(rows)), [len(rows)]
        owners, order = table.owners(rows).sort(stable=True)
        counts: list[int] = owners.bincount(minlength=self.size).tolist()
        return order, counts

    def sum_rows(
        self,
        tables: Sequence[ShardedTable],
        grads: Sequence[RowSparseNDArray],
        others: Sequence[torch.Tensor] = (),
    ) -> tuple[list[RowSparseNDArray], list[torch.Tensor]]:
        """Return the sums of row-sparse arrays over all processes, of the rows that this process keeps.

        Ranks are added in their order. All processes give arrays for the same tables.

        Args:
            others: tensors on the CPU, equal in shape and type in all processes, that are summed, too.

        Returns:
            The sums of the arrays and of the other tensors.
        """
        parts = zip(*(self._split(table, grad) for table, grad in zip(tables, grads)))
        rest = [each.contiguous().view(-1).view(torch.uint8) for each in others]
        data = self._meet([_packed([*rest, *self._message(tables, part)]) for part in parts])
        begin = sum(each.nbytes for each in others)
        received = [message.view(torch.uint8) for message in data]
        messages = [_parts(tables, message[begin:]) for message in received]
        sums = []
        for i, table in enumerate(tables):
            rows, values = (torch.cat([message[i][part] for message in messages]) for part in (0, 1))
            sums.append(table.summed(rows, values))
        return sums, _sum_parts([message[:begin] for message in received], others)

    def _split(self, table: ShardedTable, grad: RowSparseNDArray) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return the rows of a gradient and their values for each process."""
        rows, values = grad.stored.rows.cpu(), grad.stored.values.to(table.values.dtype).cpu()
        order, counts = self._by_owner(table, rows)
        return list(zip(torch.split(rows[order], counts), torch.split(values[order], counts)))

    def _message(
        self, tables: Sequence[ShardedTable], parts: Sequence[tuple[torch.Tensor, torch.Tensor]]
    ) -> list[torch.Tensor]:
        """Return rows of all tables as bytes: the numbers of rows, the rows, and their values."""
        counts = torch.tensor([rows.shape[0] for rows, _ in parts])
        numbers = torch.cat([counts, *(rows for rows, _ in parts)]).view(torch.uint8)
        return [numbers, *(table.to_bytes(values) for table, (_, values) in zip(tables, parts))]


@dataclass(frozen=True)
class _Headers:
    """What each process announced: what it is at, a table, the length of its message, and 1 if that follows; it."""

    data: torch.Tensor

    @cached_property
    def rows(self) -> list[list[int]]:
        rows: list[list[int]] = self.data[:, :4].tolist()
        return rows

    @property
    def kinds(self) -> set[int]:
        return {kind for kind, *_ in self.rows}


def _packed(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return bytes as int64."""
    missing = -sum(part.shape[0] for part in parts) % 8
    return torch.cat([*parts, torch.zeros(missing, dtype=torch.uint8)]).view(torch.int64)


def _sum_parts(data: Sequence[torch.Tensor], like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the sums of tensors, which each process has sent as bytes."""
    sizes = [each.nbytes for each in like]
    found = []
    for one, *received in zip(like, *(torch.split(each.clone(), sizes) for each in data)):
        first, *rest = (part.clone().view(one.dtype).view(one.shape) for part in received)
        for other in rest:
            first += other
        found.append(first)
    return found


def _parts(tables: Sequence[ShardedTable], message: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the rows of each table, and their values, from a message."""
    message = message.clone()  # aligned
    count = len(tables)
    counts: list[int] = message[: 8 * count].view(torch.int64).tolist()
    begin = 8 * (count + sum(counts))
    rows = torch.split(message[8 * count : begin].view(torch.int64), counts)
    sizes = [n * table.row_bytes for n, table in zip(counts, tables)]
    values = torch.split(message[begin : begin + sum(sizes)], sizes)
    return [(each, table.from_bytes(data)) for each, table, data in zip(rows, tables, values)]
