"""`Course`: one run over its files, from where it begins to its end, in this process and in others."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from ..base import ArgumentError, StateError
from ..kvstore.ranks import Ranks, join
from . import snapshots
from .arguments import RunArguments
from .averaging import Averager
from .dataset import Reading
from .job import Averaging, WorkerStats
from .places import FilePlaces
from .program import BoundProgram

_logger = logging.getLogger(__name__)

_WAITS = 5
"""How many times `timeout_s` the processes wait for each other, since whole rounds lie between their meetings."""


def processes(args: RunArguments, timeout_s: float) -> Ranks | None:
    """Return the processes that train together, None if there is one.

    Args:
        timeout_s: how long a worker may be without progress, in seconds.
    """
    if args.averages:
        wait_s = _WAITS * timeout_s
        if (args.average_every_s or 0.0) >= wait_s:
            raise ArgumentError(
                f"average_every_s is {args.average_every_s!r}, and processes wait {wait_s:g} s for each other; make "
                f"AsyncExecutor(timeout_s=...) more than a fifth of the seconds between two averages"
            )
        found = join("of AsyncExecutor", wait_s)
        return found if found.size > 1 else None
    if os.environ.get("RANK") == "0" and os.environ.get("WORLD_SIZE", "1") != "1":
        _logger.warning(
            "AsyncExecutor: each of the %s processes trains by itself, on all files; average_every_s=10 or "
            "average_every_n_batches=1000 lets them train together",
            os.environ["WORLD_SIZE"],
        )
    return None


class Course:
    """How one run over files goes: where it begins, its averages with other processes, its snapshots, its end.

    Use it as a context manager: if it is left before the end, the other processes hear of it.

    Args:
        ranks: the processes that train together; None: this one is alone.

    Attributes:
        averaging: when and how to average with other processes; None: there are none.
    """

    def __init__(
        self, prepared: BoundProgram, reading: Reading, args: RunArguments, ranks: Ranks | None
    ) -> None:
        self._module, self._desc, self._ranks = prepared.module, reading.desc, ranks
        self._places = FilePlaces(reading)
        self._states: list[dict[str, Any]] | None = None
        self._averager: Averager | None = None
        self.averaging: Averaging | None = None
        try:
            self._begin(args)
        except BaseException:
            self._break_off()
            raise

    def _begin(self, args: RunArguments) -> None:
        ranks, places = self._ranks, self._places
        own = None if ranks is None else ranks.gather(places.identity())
        is_shared = own is None or all(each == own[0] for each in own)
        if args.resume is not None:
            self._go_on(args.resume, is_shared)
        self.parts = places.rest()
        if ranks is None:
            return
        if is_shared:
            self.parts = self.parts[ranks.rank :: ranks.size]
        averager = Averager(ranks, self._module, places, is_shared, self._save)
        self._averager = averager
        seconds = float("inf") if args.average_every_s is None else args.average_every_s
        self.averaging = Averaging(averager.average, args.average_every_n_batches or 0, seconds)

    @property
    def marks(self) -> torch.Tensor:
        """How far each part of the run has come; see `FilePlaces`."""
        return self._places.marks

    def _go_on(self, prefix: Any, is_shared: bool) -> None:
        snapshot = snapshots.found(prefix, self._module, self._desc)
        states = snapshot.state["places"]
        rank, size = (0, 1) if is_shared or self._ranks is None else (self._ranks.rank, self._ranks.size)
        if len(states) != size:
            there, here = (
                "each process had files of its own" if n > 1 else "all processes had the same files"
                for n in (len(states), size)
            )
            raise ArgumentError(
                f"resume: in the run under {os.fspath(prefix)!r} {there} ({len(states)}), here {here} ({size}); start "
                "as many processes, with the same lists of files"
            )
        self._places.load_state_dict(states[rank])
        snapshots.load_parameters(snapshot, self._module, self._ranks is None)

    def end(self, stats: Sequence[WorkerStats]) -> list[WorkerStats]:
        """End the run, once the other processes are done; return what all their workers did."""
        averager, found = self._averager, list(stats)
        if averager is not None:
            found = averager.finish(stats)
        self._places.end()
        if averager is not None:
            self._states = averager.all_places()
            self._averager = None
        return found

    def snapshot(self, prefix: Any, epoch: int, paused: Callable[[], AbstractContextManager[None]]) -> None:
        """Write a snapshot; of several processes at their next average.

        Args:
            paused: returns a context in which no worker is within an update.
        """
        if self._averager is not None:
            self._averager.ask(prefix, epoch)
            return
        with paused():
            if self._ranks is None:
                self._states = [self._places.state_dict()]
            if self._states is None:
                raise StateError(
                    "snapshot: the run of several processes was broken off; go on from its last snapshot"
                )
            packed = snapshots.pack(self._module, self._desc, self._states)
        snapshots.save(prefix, epoch, self._module, packed)

    def _save(self, asked: tuple[Any, int], states: list[dict[str, Any]]) -> None:
        snapshots.save(*asked, self._module, snapshots.pack(self._module, self._desc, states))

    def _break_off(self) -> None:
        self._averager = None
        if self._ranks is not None:
            self._ranks.break_off()

    def __enter__(self) -> Course:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self._break_off()
