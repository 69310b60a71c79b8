"""`Averager`: keeps the parameters of the processes of a run together by averages now and then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..base import ArgumentError
from ..context import cpu
from ..kvstore.ranks import Ranks
from ..module import Module
from ..ndarray.row_sparse import RowSparseNDArray
from ..optimizer.group import slots_of
from .job import WorkerStats
from .places import FilePlaces

Ask = tuple[str, int]
"""Prefix and number of a snapshot."""


@dataclass(slots=True)
class _Table:
    """A parameter with row-sparse gradients, and its states of the optimizer: what travels by rows."""

    arrays: list[torch.Tensor]
    before: list[torch.Tensor] = field(default_factory=list)

    def note(self) -> None:
        """Copy all arrays."""
        self.before = [array.clone() for array in self.arrays]

    def changed(self) -> RowSparseNDArray:
        """Return the rows that have changed since, with a 1 behind each, which counts processes when they are added."""
        pairs = zip(self.arrays, self.before)
        marks = torch.stack([(now != then).any(1) for now, then in pairs]).any(0)
        rows = marks.nonzero().flatten()
        widest = torch.float64 if any(a.dtype == torch.float64 for a in self.arrays) else torch.float32
        columns = [array[rows].to(widest) for array in self.arrays]
        values = torch.cat([*columns, torch.ones(len(rows), 1, dtype=widest)], 1)
        return RowSparseNDArray(values, rows, (len(marks), values.shape[1]), cpu())

    def take(self, sums: RowSparseNDArray) -> None:
        """Take the means of rows that `changed` of all processes add up to."""
        rows, values = sums.parts()
        means = values[:, :-1] / values[:, -1:]
        widths = [array.shape[1] for array in self.arrays]
        for array, before, part in zip(self.arrays, self.before, torch.split_with_sizes(means, widths, 1)):
            array[rows] = part.to(array.dtype)
            before[rows] = array[rows]


class Averager:
    """Averages what the processes of a run have learned, and writes its snapshots at such moments.

    Each process trains by itself in between. An array that is updated as a whole becomes the mean over the processes
    that have trained since the last average; a row of a table with row-sparse gradients the mean over those that have
    changed it since: the others have nothing to say about it, and would only draw it back. States of the optimizer go
    with their parameters. Of tables only rows that changed travel, as numbers and values.

    Args:
        places: how far this process's part of the run has come.
        write: writes a snapshot, given its prefix and number and the places of all processes.
    """

    def __init__(
        self,
        ranks: Ranks,
        module: Module,
        places: FilePlaces,
        shared: bool,
        write: Callable[[Ask, list[dict[str, Any]]], None],
    ) -> None:
        self._ranks = ranks
        self._places = places
        self._shared = shared
        self._write = write
        self._asked: list[Ask] = []
        self._dense, self._tables = _arrays(module)
        self._before = places.marks.clone()
        store = module.store
        everything = [store.array(name, 0).raw for name in store.names()]
        everything += [*self._dense, *(array for table in self._tables for array in table.arrays)]
        self._check_same([list(array.shape) for array in everything])
        with torch.no_grad():
            for array, first in zip(everything, ranks.spread(everything)):
                array.copy_(first)
        for table in self._tables:
            table.note()

    def _check_same(self, shapes: list[list[int]]) -> None:
        for rank, theirs in enumerate(self._ranks.gather(shapes)):
            if theirs != shapes:
                raise ArgumentError(
                    f"AsyncExecutor: rank {rank} has another network or optimizer than rank {self._ranks.rank}; all "
                    "processes have to train the same one"
                )

    def ask(self, prefix: str, epoch: int) -> None:
        """Have a snapshot written at the next average."""
        self._asked.append((prefix, epoch))

    def average(self, going: bool = True) -> bool:
        """Average with the other processes; while no worker is within a batch.

        Returns:
            whether some process is.
        """
        marks = self._places.marks
        trained = float(not torch.equal(marks, self._before))
        self._before = marks.clone()
        asked, self._asked = self._asked, []
        self._ranks.hush()
        self._ranks.say.update(active=float(going), due=float(bool(asked)))
        own = [torch.tensor(trained, dtype=torch.float64), *(array * trained for array in self._dense)]
        count, *sums = self._ranks.sum(own)
        heard = dict(self._ranks.heard)
        changed = self._ranks.sum_rows([table.changed() for table in self._tables])
        with torch.no_grad():
            for array, total in zip(self._dense, sums if count > 0 else ()):
                array.copy_(total / count.to(total.dtype))
            for table, rows in zip(self._tables, changed):
                table.take(rows)
        if heard["due"]:
            self._save(asked)
        return bool(heard["active"])

    def _save(self, asked: Sequence[Ask]) -> None:
        """Write the snapshots that were asked for; of several processes that asked, the first one does."""
        states = self.all_places()
        first = next(rank for rank, asks in enumerate(self._ranks.gather(list(asked))) if asks)
        if first == self._ranks.rank:
            for ask in asked:
                self._write(ask, states)

    def all_places(self) -> list[dict[str, Any]]:
        """Return how far each process has come; as one where they share the files."""
        states = self._ranks.gather(self._places.state_dict())
        if not self._shared:
            return states
        marks = torch.stack([state["marks"] for state in states])
        joined = torch.where((marks < 0).any(0), -1, marks.max(0).values)
        return [{**states[0], "marks": joined}]

    def finish(self, stats: Sequence[WorkerStats]) -> list[WorkerStats]:
        """Average until all processes are done; return what all their workers did."""
        while self.average(going=False):
            pass
        return [each for every in self._ranks.gather(list(stats)) for each in every]


def _arrays(module: Module) -> tuple[list[torch.Tensor], list[_Table]]:
    """Return what is averaged as a whole, and what by rows."""
    store = module.store
    updater = module.updates.active_updater()
    dense: list[torch.Tensor] = [store.aux(name, 0).raw for name in store.aux_names()]
    tables = []
    for index, (name, _) in module.updates.keys().items():
        weight, grad = store.array(name, 0), store.grad(name, 0)
        states = [
            state.raw for state in slots_of(updater.state_of(index, weight)) if state.stype == "default"
        ]
        if grad is None or grad.stype != "row_sparse":
            dense += [weight.raw, *states]
            continue
        rows = weight.shape[0]
        by_row = [weight.raw, *(state for state in states if state.dim() and state.shape[0] == rows)]
        tables.append(_Table([array.view(rows, -1) for array in by_row]))
        dense += [state for state in states if not (state.dim() and state.shape[0] == rows)]
    return [array for array in dense if array.is_floating_point()], tables
