"""One worker's loop over the batches of its files, the same in every engine that runs the one lowering."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from ..base import NonFiniteError
from ..executor.sparse_arrays import is_sparse
from ..module import Module
from ..module.nonfinite import NonFiniteCheck
from ..streams import ReadAhead
from .data_feed import FileBatches
from .data_files import Part
from .job import Job, WorkerStats
from .program import Fetch
from .progress import ProgressMarker
from .slot_feed import SlotFeed, check_labels_of

Inferred = tuple[str, int, list[Any]]
"""File, number of its first line, and an array for each fetch of a batch."""

_STAGES = ("parse", "read", "feed", "compute", "update", "fetch")
_QUEUE = 4
"""Batches that a reader holds ready."""


class Watch(Protocol):
    """Who looks on while a worker works."""

    def begins(self, file: str) -> None:
        """Hear that the reader has opened its first file."""

    def after(self, stats: WorkerStats) -> bool:
        """Look at the stats after a batch, and say whether to go on."""


@dataclass(slots=True)
class WorkerState:
    """What a worker works with.

    Args:
        module: bound over the store, and with the optimizer if it trains.
    """

    module: Module
    feed: SlotFeed
    fetches: Sequence[Fetch]
    metric_outputs: Sequence[str]
    finite: NonFiniteCheck = field(init=False)

    def __post_init__(self) -> None:
        self.finite = NonFiniteCheck(self.module)


def run(
    work: WorkerState,
    job: Job,
    worker: int,
    next_part: Callable[[], Part | None],
    watch: Watch,
    metric: Any = None,
) -> WorkerStats:
    """Train on the parts that `next_part` gives until there are no more, or `watch` says so.

    Args:
        worker: number of this worker.
    """
    seconds = dict.fromkeys(_STAGES, 0.0)
    stats = WorkerStats(worker, seconds=seconds, fetched=[0.0] * len(work.fetches), metric=metric)
    last = time.perf_counter()
    marker = ProgressMarker(job.marks)
    begun: list[str] = []

    def take() -> Part | None:
        part = next_part()
        if part is not None and not begun:
            begun.append(part.path)
            watch.begins(part.path)
        return part

    with (
        FileBatches(job.desc, take, job.on_bad_line) as source,
        ReadAhead(_timed(iter(source), stats.seconds), _QUEUE, f"reader-{worker}") as reader,
    ):
        for lines in reader:
            seconds["read"] += time.perf_counter() - last
            if not stats.batches:
                check_labels_of(work.feed, work.module.symbol, lines, job.check_labels)
            last = _step(work, lines, stats)
            marker.note(lines.ends)
            stats.skipped = source.skipped
            if not watch.after(stats):
                break
        else:
            marker.end()
        seconds["read"] += time.perf_counter() - last
        stats.skipped = source.skipped
    return stats


def infer(work: WorkerState, job: Job, part: Part) -> Iterator[Inferred]:
    """Yield (file, first line, arrays) for the batches of one part, without changing anything.

    Args:
        part: what to read; the last of its batches may be short.
    """
    rest = iter([part])
    with (
        FileBatches(job.desc, lambda: next(rest, None), job.on_bad_line) as source,
        ReadAhead(iter(source), _QUEUE, "reader") as reader,
    ):
        for lines in reader:
            work.module.evaluate(work.feed.batch(lines))
            outputs = work.module.get_outputs()
            arrays = [
                work.feed.input(each.name, lines) if each.output is None else outputs[each.output].copy()
                for each in work.fetches
            ]
            yield lines.file, lines.first_line, arrays


def _timed(batches: Iterator[Any], seconds: dict[str, float]) -> Iterator[Any]:
    """Yield batches, and note how long the reader's thread took to make them."""
    while True:
        start = time.perf_counter()
        batch = next(batches, None)
        seconds["parse"] += time.perf_counter() - start
        if batch is None:
            return
        yield batch


def _step(work: WorkerState, lines: Any, stats: WorkerStats) -> float:
    """Train on one batch; return when it ended, by the clock of `time.perf_counter`."""
    module, seconds, now = work.module, stats.seconds, time.perf_counter
    stats.file = lines.file
    start = now()
    batch = work.feed.batch(lines)
    fed = now()
    module.forward_backward(batch)
    what = work.finite.first()
    if what is not None:
        module.restore_aux_states()
        raise _not_finite(what, lines, stats)
    computed = now()
    module.update()
    updated = now()
    stats.examples += lines.num_lines
    stats.batches += 1
    _look(work, lines, batch, stats)
    end = now()
    seconds["feed"] += fed - start
    seconds["compute"] += computed - fed
    seconds["update"] += updated - computed
    seconds["fetch"] += end - updated
    return end


def _not_finite(what: str, lines: Any, stats: WorkerStats) -> NonFiniteError:
    error = NonFiniteError(
        f"{what} is not finite in batch {stats.batches} of worker {stats.worker}, which begins in line "
        f"{lines.first_line} of {lines.file}; it has changed no parameters. A smaller learning rate, clip_gradient "
        "or a look at the data may help"
    )
    error.file, error.batch = lines.file, stats.batches  # type: ignore[attr-defined]  # beside the text, for handlers
    return error


def _look(work: WorkerState, lines: Any, batch: Any, stats: WorkerStats) -> None:
    """Add a batch's values to the sums and to the metric."""
    outputs = work.module.get_outputs() if work.fetches or stats.metric is not None else []
    for i, fetch in enumerate(work.fetches):
        if fetch.output is None:
            stats.fetched[i] += _mean(lines.slots[fetch.name].values)
        else:
            array = outputs[fetch.output]
            stats.fetched[i] += _mean(array.values if is_sparse(array) else array.raw)
    if stats.metric is not None:
        named = dict(zip(work.module.output_names, outputs))
        labels = dict(zip((desc.name for desc in work.feed.labels), batch.label))
        stats.metric.update_dict(labels, {name: named[name] for name in work.metric_outputs})


def _mean(values: torch.Tensor) -> float:
    return float(values.mean(dtype=torch.float64)) if values.numel() else 0.0
