"""What a run is told and what each worker tells of it: `Job`, `WorkerStats`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..metric import EvalMetric
from .data_files import Part


@dataclass(slots=True)
class WorkerStats:
    """What one worker has done so far in a run.

    Args:
        worker: its number, from 0.
        seconds: where its time went, in seconds by stage.
        fetched: for every fetch the sum over its batches of the batch's mean.
        metric: the worker's own metric, None if there is none.
        file: the file that it works on; empty before the first.
    """

    worker: int
    examples: int = 0
    batches: int = 0
    skipped: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    fetched: list[float] = field(default_factory=list)
    metric: EvalMetric | None = None
    file: str = ""


class Averaging:
    """When to average with other processes, and how.

    Args:
        batches: of all workers of this process after which it is time to; 0: their number does not matter.
    """

    def __init__(self, average: Callable[[], Any], batches: int, seconds: float) -> None:
        self.batches = batches
        self.seconds = seconds
        self._average = average
        self._next = time.monotonic() + seconds

    @property
    def is_late(self) -> bool:
        """Whether so many seconds are over."""
        return time.monotonic() >= self._next

    def __call__(self) -> None:
        """Average."""
        self._average()
        self._next = time.monotonic() + self.seconds


@dataclass(frozen=True, slots=True)
class Job:
    """One run over some files, as every engine takes it.

    Args:
        desc: description of the feed; its slots are dense, and used, as the program wants them.
        seed: of random numbers that are not the calling process's own.
        metric: every worker gets a copy of its own; None: there is none.
        report: called in the calling thread with the stats of all workers while they work; None: nobody asks.
        report_s: how often, in seconds.
        marks: how far the parts have been trained on, see `Places`; None where nothing is trained.
        averaging: with other processes; None: there are none.
        check_labels: what each worker does about labels of its first batch that are not classes: "raise", "warn" or
            "ignore".
    """

    desc: Any
    parts: Sequence[Part]
    workers: int
    fetch: Sequence[str]
    train: bool = True
    on_bad_line: str = "error"
    debug: bool = False
    seed: int = 0
    metric: EvalMetric | None = None
    report: Callable[[list[WorkerStats]], None] | None = None
    report_s: float = 10.0
    marks: torch.Tensor | None = None
    averaging: Averaging | None = None
    check_labels: str = "ignore"


def merged_metric(stats: Sequence[WorkerStats]) -> EvalMetric | None:
    """Return one metric over what all workers have seen; None if there is none."""
    found: EvalMetric | None = None
    for each in stats:
        if each.metric is None:
            continue
        if found is None:
            found = each.metric
        else:
            found.merge(each.metric)
    return found
