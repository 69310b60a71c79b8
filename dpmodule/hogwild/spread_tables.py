"""`SpreadTables`: the tables of a program whose rows are spread over the processes of a run over files."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import torch

from .. import kvstore as kv
from .. import optimizer as opt
from ..base import dtype_name
from ..context import cpu
from ..executor.memory import allocate
from ..kvstore.ranks import Ranks
from ..kvstore.row_exchange import ShardedTable
from ..module import Module
from ..module.updates import trains_spread_rows
from ..ndarray import NDArray
from ..ndarray.row_sparse import RowSparseNDArray
from ..ndarray.sparse import zeros
from ..ops.sparse import all_rows
from ..optimizer.group import slots_of
from ..params import ParamStore
from ..streams import ReadAhead
from .data_feed import FeedBatch, FileBatches
from .data_files import FileRange
from .job import RunArguments
from .native_engine import plan
from .native_graph import NotNative, read_graph
from .native_operators import HANDLERS
from .program import BoundProgram
from .progress import ProgressMarker
from .slot_feed import SlotFeed

_logger = logging.getLogger(__name__)

_NO_IDS = torch.empty(0, dtype=torch.int64)


class _Window:
    """A table of the worker: rows and states of the batches of a round, at the beginning of large arrays.

    Args:
        source: the rows of this process.
        arrays: weight and states of the worker, (rows, W); what is not used takes no memory.
    """

    def __init__(self, source: ShardedTable, arrays: Sequence[torch.Tensor]) -> None:
        self._source, self._arrays = source, list(arrays)
        exchange, name, shape = source.exchange, source.name, source.shape
        states = [
            ShardedTable(exchange, name, shape, partial(self._own_state, i), lambda: None)
            for i in range(len(arrays) - 1)
        ]
        self._tables = [source, *states]
        # weight and states of a row, followed by a 1, whose sum counts the processes
        width = len(arrays) * shape[1] + 1
        nothing: Any = zeros("row_sparse", (len(source.values), width), cpu(), dtype_name(source.own.dtype))
        self.joined = ShardedTable(exchange, name, (shape[0], width), lambda: nothing, lambda: None)
        self._rows = torch.empty(0, dtype=torch.int64)
        self._before: list[torch.Tensor] = []

    def _own_states(self) -> list[torch.Tensor]:
        return [state.raw for state in slots_of(self._source.state())]

    def _own_state(self, i: int) -> RowSparseNDArray:
        return RowSparseNDArray.of_record(all_rows(self._own_states()[i]), cpu())

    def clear(self) -> None:
        """Set the rows of this process to 0."""
        self._source.values.zero_()

    def fetch(self, rows: torch.Tensor) -> None:
        """Fetch rows, in all processes at the same point.

        Args:
            rows: ascending, (R,) int64.
        """
        self._rows, self._before = rows, []
        for array, table in zip(self._arrays, self._tables):
            array[: len(rows)] = table.look_up(rows)
            self._before.append(array[: len(rows)].clone())

    def changes(self) -> RowSparseNDArray:
        """Return the rows that have changed since `fetch`."""
        arrays = [array[: len(self._rows)] for array in self._arrays]
        changed = torch.stack([(now != then).any(1) for now, then in zip(arrays, self._before)]).any(0)
        rows = self._rows[changed]
        values = torch.cat([*(array[changed] for array in arrays), arrays[0].new_ones(len(rows), 1)], 1)
        return RowSparseNDArray(values, rows, self.joined.shape, cpu(), tidy=True)

    def store(self, sums: RowSparseNDArray) -> None:
        """Set own rows to the means of the processes that have changed them, given the sums of `changes`."""
        rows, values = sums.stored.rows, sums.stored.values
        means = (values[:, :-1] / values[:, -1:]).split(self._source.shape[1], 1)
        for target, columns in zip([self._source.values, *self._own_states()], means):
            target[rows] = columns
        self._source.forget()


class SpreadTables:
    """Trains a program on tables whose rows and optimizer states are spread over processes.

    Workers train without asking for rows. So a run has rounds: each process reads the batches until the next average,
    and all fetch the rows of theirs; the workers train on a second module, whose tables begin with these rows; then
    each row becomes the mean over the processes that have changed it. The result is that of whole tables.

    Args:
        host: the program's module, whose tables are spread.
        worker: a module with the same dense arrays, on which workers train.

    Attributes:
        names: the tables.
        batches: of the next round, as the native engine takes them.
    """

    def __init__(self, host: Module, worker: Module, feed: SlotFeed, names: Sequence[str]) -> None:
        self.host, self.worker = host, worker
        self._optimizer: Any = worker.optimizer
        self._feed, self._slots = feed, _slots_by_tables(worker, feed, names)
        self._names, self.names = [slot.name for slot in feed.desc.slots], list(names)
        self._updater = worker.updates.active_updater()
        self._window_states: dict[Any, Any] = {}
        self._windows: dict[str, _Window] = {}
        own = host.updates.active_updater()
        for index, (name, _) in worker.updates.keys().items():
            array: Any = host.store.array(name, 0)
            if name not in names:  # both have the same states
                self._updater.states[index] = own.state_of(name, array)
                continue
            own.state_of(name, array.source.own)
            state = self._window_states[index] = _window_state(self._optimizer, index, array)
            self._updater.states[index] = state
            arrays = [each.raw for each in (worker.store.array(name, 0), *slots_of(state))]
            self._windows[name] = _Window(array.source, arrays)
        if type(self._optimizer) is opt.Ftrl:
            # its first update sets rows without a gradient to 0, and later ones keep them
            for window in self._windows.values():
                window.clear()
        self.batches: list[tuple[Any, ...]] = []
        self._source: FileBatches | None = None
        self._reader: ReadAhead[FeedBatch] | None = None

    @classmethod
    def install(cls, prepared: BoundProgram, ranks: Ranks, args: RunArguments) -> SpreadTables | None:
        """Spread the tables of a program with parameters and without an optimizer; None if they stay whole."""
        host, feed = prepared.module, prepared.feed
        store = host.store
        names = [
            name
            for name in store.names()
            if (grad := store.grad(name, 0)) is not None and grad.stype == "row_sparse"
        ]
        if not names:
            return None
        worker = _worker(host, feed, names)
        worker.init_optimizer(None, *args.how_to_update())
        why = _why_whole(replace(prepared, module=worker), names, args)
        if host.preloaded_states is not None:
            why = "the optimizer's states are read from a file"
        if why is None:
            with warnings.catch_warnings():  # of gradients that are divided by the batch of one process
                warnings.simplefilter("ignore", UserWarning)
                host.init_optimizer(
                    kv.DistKVStore("dist_sync", ranks=ranks), deepcopy(worker.updates.optimizer)
                )
            return cls(host, worker, feed, names)
        _logger.info("AsyncExecutor: every process keeps all rows of %s, since %s", ", ".join(names), why)
        return None

    # a run

    def begin(
        self,
        parts: Sequence[FileRange],
        fetched: Sequence[str],
        on_bad_line: str,
        lines_done: torch.Tensor,
        batches: int,
    ) -> None:
        """Begin to read the files of this process.

        Args:
            fetched: slots whose values are averaged.
            batches: number of batches to read ahead.
        """
        rest = iter(parts)
        self._numbers = {*read_graph(self.worker.symbol, self._feed, HANDLERS).numbers, *fetched}
        self._source = FileBatches(self._feed.desc, lambda: next(rest, None), on_bad_line)
        self._reader = ReadAhead(iter(self._source), batches, "reader")
        self._positions = {part.number: i for i, part in enumerate(parts)}
        self._marker, self._given = ProgressMarker(lines_done), 0

    def end(self) -> None:
        """Stop reading."""
        if self._reader is not None:
            self._reader.close()
        if self._source is not None:
            self._source.close()

    @property
    def skipped(self) -> int:
        """Number of malformed lines."""
        return 0 if self._source is None else self._source.skipped

    def average(self) -> None:
        """Average the rows that the workers of all processes have changed in the round."""
        windows = list(self._windows.values())
        exchange = windows[0].joined.exchange
        sums, _ = exchange.sum_rows(
            [window.joined for window in windows], [window.changes() for window in windows]
        )
        for window, rows in zip(windows, sums):
            window.store(rows)

    def read(self, count: int) -> None:
        """Read the batches of the next round, and fetch their rows.

        Args:
            count: most batches of this process.
        """
        found = list(islice(self._reader or (), count))
        if not found and self._given:
            self._marker.end()
        self._given += len(found)
        places: dict[str, Sequence[torch.Tensor]] = {}
        for slots, tables in self._slots:
            ids = [batch.slots[slot].values.reshape(-1) for slot in slots for batch in found]
            rows, numbers = torch.unique(torch.cat([_NO_IDS, *ids]), return_inverse=True)
            for name in tables:
                self._windows[name].fetch(rows)
            parts = torch.split(numbers.to(torch.int32), [len(each) for each in ids])
            for i, slot in enumerate(slots):
                places[slot] = parts[i * len(found) : (i + 1) * len(found)]
        self.batches = [self._native_batch(i, batch, places) for i, batch in enumerate(found)]
        for batch in found:
            self._marker.note(batch.ends)

    def _native_batch(
        self, i: int, batch: FeedBatch, places: Mapping[str, Sequence[torch.Tensor]]
    ) -> tuple[Any, ...]:
        slots: list[tuple[Any, Any, Any]] = []
        for name in self._names:
            column = batch.slots.get(name)
            if column is None:
                slots.append((None, None, None))
                continue
            ids = places[name][i].numpy() if name in places else None
            is_read = ids is None or name in self._numbers
            numbers = column.values.reshape(-1).to(torch.float32).contiguous().numpy() if is_read else None
            slots.append((ids, numbers, column.offsets.to(torch.int32).contiguous().numpy()))
        return self._positions[batch.ends[0][0]], batch.line - 1, batch.num_lines, slots

    # snapshots

    def saved_states(self) -> bytes:
        """Return the worker's optimizer with the states of dense parameters."""
        return self._updater.get_states(True, without=self._window_states)

    def take_states(self) -> None:
        """Let the host have the states that have been loaded into the worker: whole ones of tables, too."""
        own, loaded = self.host.updates.active_updater(), self._updater.states
        for index, (name, _) in self.worker.updates.keys().items():
            window = self._window_states.get(index)
            if loaded.get(index, window) is not window:
                own.states[name] = self._updater.state_of(index, self.worker.store.array(name, 0))
            if window is not None:
                loaded[index] = window


def _worker(host: Module, feed: SlotFeed, tables: Sequence[str]) -> Module:
    """Return a module over the dense arrays of another one, with tables that take no memory before they are written."""
    store = ParamStore([cpu()])
    for name in host.store.names():
        array = host.store.array(name, 0)
        store.declare(name, array.shape, dtype_name(array.dtype), False)
        store.replace_array(name, store.array(name, 0) if name in tables else array)
    data, labels = [d.name for d in feed.data], [d.name for d in feed.labels]
    worker = Module(host.symbol, data, labels, host.logger, cpu(), None, host.group.fixed_param_names)
    worker.bind(list(feed.data), list(feed.labels) or None, True, store=store)
    return worker


def _window_state(optimizer: Any, index: Any, array: NDArray) -> Any:
    """Return an optimizer's state of a table as arrays that take no memory before they are written."""
    dtype = dtype_name(array.dtype)
    row = allocate((1, *array.shape[1:]), cpu(), dtype)

    def whole(state: Any) -> Any:
        if isinstance(state, (tuple, list)):
            return type(state)(whole(part) for part in state)
        return None if state is None else allocate(array.shape, cpu(), dtype)

    return whole(optimizer.create_state_multi_precision(index, row))


def _why_whole(prepared: BoundProgram, names: Sequence[str], args: RunArguments) -> str | None:
    """Return why tables stay whole; None if they can be spread."""
    if not args.shard_rows:
        return "shard_rows is False"
    if args.mode not in ("auto", "native"):
        return f"mode is {args.mode!r}"
    if prepared.module.store.aux_names():
        return "the network has auxiliary states"
    if not trains_spread_rows(prepared.module.updates.optimizer):
        return f"the optimizer is {type(prepared.module.updates.optimizer).__name__}"
    try:
        records = plan(prepared).description[2]
    except NotNative as refused:
        return str(refused)
    schedule = prepared.module.updates.optimizer.lr_scheduler
    updates_all = [
        name
        for name, *_, rule, _, _, all_rows in records
        if name in names and all_rows and (rule["kind"] != "ftrl" or schedule is not None)
    ]
    return f"{', '.join(updates_all)} has an optimizer that updates all rows" if updates_all else None


def _slots_by_tables(
    worker: Module, feed: SlotFeed, names: Sequence[str]
) -> list[tuple[list[str], list[str]]]:
    """Return the slots and the tables that share row numbers: slots of one table, and tables of one slot."""
    groups: list[tuple[set[str], set[str]]] = []
    for slot, tables in read_graph(worker.symbol, feed, HANDLERS).indexed.items():
        mine: tuple[set[str], set[str]] = {slot}, set(tables)
        others = []
        for group in groups:
            if group[1] & mine[1]:
                mine = mine[0] | group[0], mine[1] | group[1]
            else:
                others.append(group)
        groups = [*others, mine]
    return [(sorted(slots), [name for name in names if name in tables]) for slots, tables in groups]
