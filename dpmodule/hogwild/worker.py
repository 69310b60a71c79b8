"""Training loop of a worker over the batches of its files, for the serial and the process engine."""

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
from .data_files import FileRange
from .job import Job, WorkerStats
from .program import Fetch
from .progress import ProgressMarker
from .slot_feed import SlotFeed, check_labels_of

Inferred = tuple[str, int, list[Any]]
"""File, number of the first line, and an array for each fetch of a batch."""

_STAGES = ("parse", "read", "feed", "compute", "update", "fetch")
_QUEUE_SIZE = 4
"""Number of batches that a reader holds ready."""


class WorkerMonitor(Protocol):
    """Callbacks of a worker."""

    def on_file(self, file: str) -> None:
        """Called when the reader opens its first file."""

    def on_batch(self, stats: WorkerStats) -> bool:
        """Called with the stats after a batch; return True to continue."""


@dataclass(slots=True)
class WorkerState:
    """State of a worker.

    Args:
        module: module over the store, with the optimizer for training.
    """

    module: Module
    feed: SlotFeed
    fetches: Sequence[Fetch]
    metric_outputs: Sequence[str]
    finite: NonFiniteCheck = field(init=False)

    def __post_init__(self) -> None:
        self.finite = NonFiniteCheck(self.module)


def run(
    state: WorkerState,
    job: Job,
    worker: int,
    next_part: Callable[[], FileRange | None],
    monitor: WorkerMonitor,
    metric: Any = None,
) -> WorkerStats:
    """Train on the ranges of `next_part` until there are no more, or `monitor` stops.

    Args:
        worker: number of this worker.
    """
    seconds = dict.fromkeys(_STAGES, 0.0)
    stats = WorkerStats(worker, seconds=seconds, fetched=[0.0] * len(state.fetches), metric=metric)
    last = time.perf_counter()
    marker = ProgressMarker(job.lines_done)
    begun: list[str] = []

    def take() -> FileRange | None:
        part = next_part()
        if part is not None and not begun:
            begun.append(part.path)
            monitor.on_file(part.path)
        return part

    with (
        FileBatches(job.desc, take, job.on_bad_line) as source,
        ReadAhead(_time_batches(iter(source), stats.seconds), _QUEUE_SIZE, f"reader-{worker}") as reader,
    ):
        for lines in reader:
            seconds["read"] += time.perf_counter() - last
            if not stats.batches:
                check_labels_of(state.feed, state.module.symbol, lines, job.check_labels)
            last = _step(state, lines, stats)
            marker.note(lines.ends)
            stats.skipped = source.skipped
            if not monitor.on_batch(stats):
                break
        else:
            marker.end()
        seconds["read"] += time.perf_counter() - last
        stats.skipped = source.skipped
    return stats


def infer(state: WorkerState, job: Job, part: FileRange) -> Iterator[Inferred]:
    """Yield (file, first line, arrays) for the batches of one file range.

    Args:
        part: the range; its last batch may be short.
    """
    rest = iter([part])
    with (
        FileBatches(job.desc, lambda: next(rest, None), job.on_bad_line) as source,
        ReadAhead(iter(source), _QUEUE_SIZE, "reader") as reader,
    ):
        for lines in reader:
            state.module.evaluate(state.feed.batch(lines))
            outputs = state.module.get_outputs()
            arrays = [
                state.feed.input(fetch.name, lines) if fetch.output is None else outputs[fetch.output].copy()
                for fetch in state.fetches
            ]
            yield lines.file, lines.first_line, arrays


def _time_batches(batches: Iterator[Any], seconds: dict[str, float]) -> Iterator[Any]:
    """Yield batches, and record the time of the reader's thread."""
    while True:
        start = time.perf_counter()
        batch = next(batches, None)
        seconds["parse"] += time.perf_counter() - start
        if batch is None:
            return
        yield batch


def _step(state: WorkerState, lines: Any, stats: WorkerStats) -> float:
    """Train on one batch; return the time of its end, from `time.perf_counter`."""
    module, seconds, now = state.module, stats.seconds, time.perf_counter
    stats.file = lines.file
    start = now()
    batch = state.feed.batch(lines)
    fed = now()
    module.forward_backward(batch)
    what = state.finite.first()
    if what is not None:
        module.restore_aux_states()
        raise _not_finite(what, lines, stats)
    limit_norms(module)
    computed = now()
    module.update()
    updated = now()
    stats.examples += lines.num_lines
    stats.batches += 1
    _update_stats(state, lines, batch, stats)
    end = now()
    seconds["feed"] += fed - start
    seconds["compute"] += computed - fed
    seconds["update"] += updated - computed
    seconds["fetch"] += end - updated
    return end


def limit_norms(module: Module) -> None:
    """Scale gradients to the limit of their norms, if the optimizer has one.

    Args:
        module: its optimizer may have the attribute ``norm_limit``: "global" or "each", and the largest norm.
    """
    kind, limit = getattr(module.optimizer, "norm_limit", None) or (None, 0.0)
    if kind == "global":
        module.clip_by_global_norm(limit)
    elif kind == "each":
        for name in module.store.names():
            gradient: Any = module.store.grad(name, 0)
            if gradient is None:
                continue
            values = gradient.values if is_sparse(gradient) else gradient.raw
            norm = float(values.norm())
            if norm > limit:
                values.mul_(limit / norm)


def _not_finite(what: str, lines: Any, stats: WorkerStats) -> NonFiniteError:
    error = NonFiniteError(
        f"{what} is not finite in batch {stats.batches} of worker {stats.worker}, which begins in line "
        f"{lines.first_line} of {lines.file}; the parameters are unchanged. Try a smaller learning rate or "
        "clip_gradient, or check the data"
    )
    error.file, error.batch = lines.file, stats.batches  # type: ignore[attr-defined]  # attributes for handlers
    return error


def _update_stats(state: WorkerState, lines: Any, batch: Any, stats: WorkerStats) -> None:
    """Add a batch to the sums of fetches and to the metric."""
    outputs = state.module.get_outputs() if state.fetches or stats.metric is not None else []
    for i, fetch in enumerate(state.fetches):
        if fetch.output is None:
            stats.fetched[i] += _mean(lines.slots[fetch.name].values)
        else:
            array = outputs[fetch.output]
            stats.fetched[i] += _mean(array.values if is_sparse(array) else array.raw)
    if stats.metric is not None:
        named = dict(zip(state.module.output_names, outputs))
        labels = dict(zip((desc.name for desc in state.feed.labels), batch.label))
        stats.metric.update_dict(labels, {name: named[name] for name in state.metric_outputs})


def _mean(values: torch.Tensor) -> float:
    return float(values.mean(dtype=torch.float64)) if values.numel() else 0.0
