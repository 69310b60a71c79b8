"""`FileRun`: a run over files in one or several processes, with resuming, averaging and snapshots."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch

from ..base import ArgumentError, StateError
from ..context import cpu
from ..kvstore.ranks import Ranks, join
from ..module import Module
from ..ndarray.row_sparse import RowSparseNDArray
from ..optimizer.group import slots_of
from .dataset import ReadPlan
from .job import RunArguments, WorkerStats
from .program import BoundProgram
from .progress import FileProgress, load_parameters, pack_snapshot, save_snapshot, snapshot_to_resume
from .spread_tables import SpreadTables

_logger = logging.getLogger(__name__)

_FIRST_BATCHES, _MOST_BATCHES = 16, 4096
"""Batches of a round of spread tables: the first one if averages are limited by seconds alone, and the longest."""

_WAIT_FACTOR = 5
"""Factor of `timeout_s` that processes wait for each other, since a whole round is between two averages."""


def join_processes(args: RunArguments, timeout_s: float) -> Ranks | None:
    """Return the group of processes that train together, None for a single process.

    Args:
        timeout_s: longest time without progress of a worker, in seconds.
    """
    if args.averages:
        wait_s = _WAIT_FACTOR * timeout_s
        if (args.average_every_s or 0.0) >= wait_s:
            raise ArgumentError(
                f"average_every_s is {args.average_every_s!r}, but processes wait {wait_s:g} s for each other; set "
                f"AsyncExecutor(timeout_s=...) to more than a fifth of the seconds between two averages"
            )
        ranks = join("of AsyncExecutor", wait_s)
        return ranks if ranks.size > 1 else None
    if os.environ.get("RANK") == "0" and os.environ.get("WORLD_SIZE", "1") != "1":
        _logger.warning(
            "AsyncExecutor: each of the %s processes trains independently on all files; set average_every_s=10 or "
            "average_every_n_batches=1000 to train together",
            os.environ["WORLD_SIZE"],
        )
    return None


class FileRun:
    """A run over files: its start, averages with other processes, snapshots, and its end.

    Use it as a context manager, which informs the other processes if the run fails.

    Args:
        ranks: the processes that train together; None: a single process.

    Attributes:
        parts: file ranges of this process.
        averager: averages with other processes; None for a single process, or after the end of the run.
    """

    def __init__(
        self, prepared: BoundProgram, reading: ReadPlan, args: RunArguments, ranks: Ranks | None
    ) -> None:
        self._tables, self._ranks = prepared.tables, ranks
        self._worker = prepared.module
        self._module = prepared.module if self._tables is None else self._tables.host
        self._desc, self._fetched = (
            reading.desc,
            [each.name for each in prepared.fetches.items if each.output is None],
        )
        self._progress = FileProgress(reading)
        self._states: list[dict[str, Any]] | None = None
        self.averager: ParameterAverager | None = None
        try:
            self._begin(args)
        except BaseException:
            self._abort()
            raise

    def _begin(self, args: RunArguments) -> None:
        ranks, progress = self._ranks, self._progress
        own = None if ranks is None else ranks.gather(progress.identity())
        is_shared = own is None or all(files == own[0] for files in own)
        if args.resume is not None:
            self._resume(args.resume, is_shared)
        self.parts = progress.rest()
        if ranks is None:
            return
        if is_shared:
            self.parts = self.parts[ranks.rank :: ranks.size]
        seconds = float("inf") if args.average_every_s is None else args.average_every_s
        batches = args.average_every_n_batches or 0
        if self._tables is not None:
            depth = min(batches or _MOST_BATCHES, _MOST_BATCHES)
            self._tables.begin(self.parts, self._fetched, args.on_bad_line, progress.lines_done, depth)
        self.averager = ParameterAverager(
            ranks, self._worker, self._tables, progress, is_shared, self._save, batches, seconds
        )

    @property
    def lines_done(self) -> torch.Tensor:
        """Number of lines done in each file range; see `FileProgress`."""
        return self._progress.lines_done

    def _resume(self, prefix: Any, is_shared: bool) -> None:
        snapshot = snapshot_to_resume(prefix, self._module, self._desc)
        states = snapshot.state["progress"]
        rank, size = (0, 1) if is_shared or self._ranks is None else (self._ranks.rank, self._ranks.size)
        if len(states) != size:
            saved, current = (
                "each process has its own files" if n > 1 else "all processes have the same files"
                for n in (len(states), size)
            )
            raise ArgumentError(
                f"resume: in the run under {os.fspath(prefix)!r} {saved} ({len(states)}), here {current} ({size}); "
                "start the same number of processes with the same lists of files"
            )
        self._progress.load_state_dict(states[rank])
        load_parameters(snapshot, self._module, self._ranks is None, self._tables)

    def end(self, stats: Sequence[WorkerStats]) -> list[WorkerStats]:
        """Wait for the other processes, end the run, and return the stats of all workers."""
        averager, ranks, all_stats = self.averager, self._ranks, list(stats)
        if averager is not None and ranks is not None:
            if self._tables is not None:
                all_stats[0].skipped += self._tables.skipped
            while averager.average(going=False):
                pass
            all_stats = [worker for workers in ranks.gather(all_stats) for worker in workers]
        self._progress.end()
        if averager is not None:
            self._states = averager.all_states()
            self.averager = None
        return all_stats

    def snapshot(self, prefix: Any, epoch: int, paused: Callable[[], AbstractContextManager[None]]) -> None:
        """Write a snapshot, with several processes at the next average.

        Args:
            paused: returns a context manager that pauses all workers between two batches.
        """
        if self.averager is not None:
            self.averager.request_snapshot(prefix, epoch)
            return
        with paused():
            if self._ranks is None:
                self._states = [self._progress.state_dict()]
            if self._states is None:
                raise StateError(
                    "snapshot: the run of several processes was interrupted; resume from its last snapshot"
                )
            packed = pack_snapshot(self._module, self._desc, self._states, self._tables)
        save_snapshot(prefix, epoch, self._module, packed)

    def _save(self, requests: tuple[Any, int], states: list[dict[str, Any]]) -> None:
        packed = pack_snapshot(self._module, self._desc, states, self._tables)
        save_snapshot(*requests, self._module, packed)

    def _abort(self) -> None:
        self.averager = None
        if self._ranks is not None:
            self._ranks.abort()

    def __enter__(self) -> FileRun:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._tables is not None:
            self._tables.end()
        if kind is not None:
            self._abort()


# averages with other processes

SnapshotRequest = tuple[str, int]
"""Prefix and number of a snapshot."""


@dataclass(slots=True)
class _RowTable:
    """A parameter with row-sparse gradients and its optimizer states, which are averaged by rows."""

    arrays: list[torch.Tensor]
    before: list[torch.Tensor] = field(default_factory=list)

    def save_rows(self) -> None:
        """Save a copy of all arrays."""
        self.before = [array.clone() for array in self.arrays]

    def changed_rows(self) -> RowSparseNDArray:
        """Return the changed rows, each followed by a 1, whose sum counts the processes."""
        pairs = zip(self.arrays, self.before)
        lines_done = torch.stack([(now != then).any(1) for now, then in pairs]).any(0)
        rows = lines_done.nonzero().flatten()
        widest = torch.float64 if any(a.dtype == torch.float64 for a in self.arrays) else torch.float32
        columns = [array[rows].to(widest) for array in self.arrays]
        values = torch.cat([*columns, torch.ones(len(rows), 1, dtype=widest)], 1)
        return RowSparseNDArray(values, rows, (len(lines_done), values.shape[1]), cpu())

    def load_means(self, sums: RowSparseNDArray) -> None:
        """Set rows to their means, given the sums of `changed_rows` over all processes."""
        rows, values = sums.parts()
        means = values[:, :-1] / values[:, -1:]
        widths = [array.shape[1] for array in self.arrays]
        for array, before, columns in zip(self.arrays, self.before, torch.split_with_sizes(means, widths, 1)):
            array[rows] = columns.to(array.dtype)
            before[rows] = array[rows]


class ParameterAverager:
    """Averages the parameters of the processes of a run, and writes snapshots at averages.

    Between two averages the processes train independently. A dense array becomes the mean over the processes that have
    trained since the last average; a row of a table with row-sparse gradients becomes the mean over the processes that
    have changed it, since the old rows of others would only pull it back. Optimizer states are averaged in the same
    way. Only changed rows of tables are sent, as indices and values.

    Args:
        tables: tables that are spread over the processes, which are averaged there.
        progress: progress of this process.
        shared: whether the processes share the files.
        write: writes a snapshot, given its prefix and number and the progress of all processes.
        batches: number of batches of this process between two averages; 0: no limit.
        seconds: seconds between two averages.
    """

    def __init__(
        self,
        ranks: Ranks,
        module: Module,
        tables: SpreadTables | None,
        progress: FileProgress,
        shared: bool,
        write: Callable[[SnapshotRequest, list[dict[str, Any]]], None],
        batches: int,
        seconds: float,
    ) -> None:
        self.batches = batches
        self._seconds = seconds
        self._next = time.monotonic() + seconds
        self._ranks = ranks
        self._progress = progress
        self._shared = shared
        self._write = write
        self._requests: list[SnapshotRequest] = []
        self.tables = tables
        own = () if tables is None else tables.names
        self._dense, self._tables = _averaged_arrays(module, own)
        self._before = progress.lines_done.clone()
        store = module.store
        everything = [store.array(name, 0).raw for name in store.names() if name not in own]
        everything += [*self._dense, *(array for table in self._tables for array in table.arrays)]
        self._check_same([list(array.shape) for array in everything])
        with torch.no_grad():
            for array, first in zip(everything, ranks.broadcast(everything)):
                array.copy_(first)
        for table in self._tables:
            table.save_rows()
        self._seconds_per_batch = 0.0
        self._begun = time.monotonic()
        if tables is not None:
            tables.read(self._next_count())

    def _next_count(self) -> int:
        """Return the number of batches of the next round of spread tables."""
        count = self.batches or (
            max(1, round(self._seconds / self._seconds_per_batch))
            if self._seconds_per_batch
            else _FIRST_BATCHES
        )
        return min(count, _MOST_BATCHES)

    def _check_same(self, shapes: list[list[int]]) -> None:
        for rank, theirs in enumerate(self._ranks.gather(shapes)):
            if theirs != shapes:
                raise ArgumentError(
                    f"AsyncExecutor: rank {rank} has another network or optimizer than rank {self._ranks.rank}; all "
                    "processes must train the same one"
                )

    def request_snapshot(self, prefix: str, epoch: int) -> None:
        """Request a snapshot at the next average."""
        self._requests.append((prefix, epoch))

    @property
    def is_late(self) -> bool:
        """True if it is time to average, by the number of seconds."""
        return time.monotonic() >= self._next

    def __call__(self) -> None:
        """Average, and restart the timer."""
        self.average()
        self._next = time.monotonic() + self._seconds

    def average(self, going: bool = True) -> bool:
        """Average with the other processes, while all workers pause between two batches.

        Args:
            going: whether this process still trains.

        Returns:
            True if some process still trains.
        """
        lines_done = self._progress.lines_done
        has_trained = (
            not torch.equal(lines_done, self._before) if self.tables is None else self.tables.batches
        )
        trained = float(bool(has_trained))
        self._before = lines_done.clone()
        requests, self._requests = self._requests, []
        self._ranks.reset_flags()
        self._ranks.flags.update(active=float(going), due=float(bool(requests)))
        own = [torch.tensor(trained, dtype=torch.float64), *(array * trained for array in self._dense)]
        count, *sums = self._ranks.sum(own)
        flags = dict(self._ranks.summed_flags)
        changed_rows = self._ranks.sum_rows([table.changed_rows() for table in self._tables])
        with torch.no_grad():
            for array, total in zip(self._dense, sums if count > 0 else ()):
                array.copy_(total / count.to(total.dtype))
            for table, rows in zip(self._tables, changed_rows):
                table.load_means(rows)
        if self.tables is not None:
            self.tables.average()
        if flags["due"]:
            self._save(requests)
        if self.tables is not None and flags["active"]:
            trained_on = len(self.tables.batches)
            if trained_on:
                self._seconds_per_batch = (time.monotonic() - self._begun) / trained_on
            self.tables.read(self._next_count())
            self._begun = time.monotonic()
        return bool(flags["active"])

    def _save(self, requests: Sequence[SnapshotRequest]) -> None:
        """Write the requested snapshots, in the first process with a request."""
        states = self.all_states()
        first, asked = next(
            (rank, asks) for rank, asks in enumerate(self._ranks.gather(list(requests))) if asks
        )
        if first == self._ranks.rank or self.tables is not None:  # each saves its rows
            for request_snapshot in asked:
                self._write(request_snapshot, states)

    def all_states(self) -> list[dict[str, Any]]:
        """Return the progress of each process, merged if they share the files."""
        states = self._ranks.gather(self._progress.state_dict())
        if not self._shared:
            return states
        lines_done = torch.stack([state["lines_done"] for state in states])
        joined = torch.where((lines_done < 0).any(0), -1, lines_done.max(0).values)
        return [{**states[0], "lines_done": joined}]


def _averaged_arrays(module: Module, without: Collection[str]) -> tuple[list[torch.Tensor], list[_RowTable]]:
    """Return the arrays that are averaged as a whole, and the tables that are averaged by rows.

    Args:
        without: parameters that are left out.
    """
    store = module.store
    updater = module.updates.active_updater()
    dense: list[torch.Tensor] = [store.aux(name, 0).raw for name in store.aux_names()]
    tables = []
    for index, (name, _) in module.updates.keys().items():
        if name in without:
            continue
        weight, grad = store.array(name, 0), store.grad(name, 0)
        states = [
            state.raw for state in slots_of(updater.state_of(index, weight)) if state.stype == "default"
        ]
        if grad is None or grad.stype != "row_sparse":
            dense += [weight.raw, *states]
            continue
        rows = weight.shape[0]
        by_row = [weight.raw, *(state for state in states if state.dim() and state.shape[0] == rows)]
        tables.append(_RowTable([array.view(rows, -1) for array in by_row]))
        dense += [state for state in states if not (state.dim() and state.shape[0] == rows)]
    return [array for array in dense if array.is_floating_point()], tables
