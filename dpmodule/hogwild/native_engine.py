"""The native engine: whole networks, files and all, in C++ threads without the GIL."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy as np
import torch

from .. import native
from ..base import NonFiniteError, StateError
from ..context import cpu
from ..module.boundary import BatchBoundary
from ..ndarray import NDArray
from ..ops.exposure import written
from .job import Job, WorkerStats
from .native_plan import NativePlan, Reason, plan
from .program import BoundProgram

_LOOK_S = 0.02
"""How often the calling thread looks at the workers, in seconds: for Ctrl-C, reports and metrics."""

_STAGES = ("read", "parse", "forward", "backward", "update")


class NativeEngine:
    """Trains with threads of C++, each of which reads files, parses, and updates the parameters in place."""

    name = "native"

    def __init__(self) -> None:
        self._running: Any = None

    def why_not(self, prepared: BoundProgram) -> str | None:
        """Return why a program is not one for this engine, None if it is."""
        made = plan(prepared)
        return made.text if isinstance(made, Reason) else None

    def run(self, prepared: BoundProgram, job: Job) -> list[WorkerStats]:
        """Do a job."""
        made = plan(prepared, job.metric is not None)
        if isinstance(made, Reason):
            raise StateError(f"the native engine cannot run this program: {made}")
        run = _NativeRun(prepared, job, made)
        self._running = run
        try:
            return run.wait()
        finally:
            self._running = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Return a context in which no worker is within a batch."""
        run = self._running
        if run is None:
            yield
            return
        run.pause()
        try:
            yield
        finally:
            run.resume()

    def close(self) -> None:
        """Do nothing: threads end with their job."""


class _NativeRun:
    """One job, as long as its threads live."""

    def __init__(self, prepared: BoundProgram, job: Job, made: NativePlan) -> None:
        self._prepared, self._job, self._plan = prepared, job, made
        self._optimizer = prepared.module.optimizer if prepared.train and job.train else None
        self._updates = 0
        rate, schedule = 0.0, None
        if self._optimizer is not None and made.trained:
            self._updates = max(self._optimizer.count_of(index) for index in made.trained)
            if self._optimizer.lr_scheduler is None:
                rate = self._optimizer.learning_rate
            else:
                schedule = self._optimizer.lr_scheduler
        core: Any = native.core
        parts = [
            (os.fsencode(p.path), p.begin, -1 if p.end is None else p.end, p.skip, p.number)
            for p in job.parts
        ]
        self._marks = torch.zeros(len(parts), dtype=torch.int64) if job.marks is None else job.marks
        self._native = core.HogwildRun(
            made.description,
            parts,
            job.workers,
            job.train,
            job.on_bad_line == "skip",
            job.seed % 2**64,
            self._updates,
            rate,
            schedule,
            self._marks.data_ptr(),
            job.averaging.batches or -1 if job.averaging is not None else -1,
        )
        self._looker = _NativeLooker(self._native, job, made)

    def wait(self) -> list[WorkerStats]:
        """Return what each worker did, once all have ended."""
        run = self._native
        next_report = time.monotonic() + self._job.report_s
        try:
            with BatchBoundary(run.stop) as boundary:
                while not run.wait(_LOOK_S):
                    self._looker.look()
                    if self._job.report is not None and time.monotonic() >= next_report:
                        self._job.report(self._looker.stats())
                        next_report = time.monotonic() + self._job.report_s
                    self._average(boundary)
        finally:
            run.stop()
            run.wait(float("inf"))
            self._count()
        self._looker.look()
        try:
            run.raise_failure()
        except NonFiniteError as error:
            file, batch = run.failed_at()
            error.file, error.batch = os.fsdecode(file), batch  # type: ignore[attr-defined]  # for handlers
            raise
        if boundary.asked:
            boundary.end()
        return self._looker.stats()

    def _average(self, boundary: BatchBoundary) -> None:
        """Average with other processes if it is time to, and let the workers go on."""
        averaging = self._job.averaging
        if averaging is None or boundary.asked or not (averaging.is_late or self._native.is_spent()):
            return
        self.pause()
        try:
            averaging()
        finally:
            self.resume()
        if not boundary.asked:
            self._native.allow(averaging.batches or -1)

    def _count(self) -> None:
        """Let the optimizer and the arrays know of what has been done since the last call."""
        done = self._native.updates() - self._updates
        self._updates += done
        if done:
            written(list(self._plan.tensors))
            if self._optimizer is not None:
                self._optimizer.add_updates(self._plan.trained, done)

    def pause(self) -> None:
        """Return when every worker waits between two batches."""
        self._native.pause()
        self._count()

    def resume(self) -> None:
        """Let the workers go on."""
        self._native.resume()


class _NativeLooker:
    """Looks at workers from the calling thread: what they have done, and what metrics see."""

    def __init__(self, run: Any, job: Job, made: NativePlan) -> None:
        self._run, self._job, self._plan = run, job, made
        self._metrics = [deepcopy(job.metric) for _ in range(job.workers)]

    def look(self) -> None:
        """Show the metrics what has come since the last call."""
        for worker, metric in enumerate(self._metrics):
            if metric is None:
                continue
            lines, *columns = self._run.take(worker)
            for rows in _by_batch(np.frombuffer(lines, np.int32), columns, self._plan.metric):
                labels, outputs = rows[: self._plan.labels], rows[self._plan.labels :]
                metric.update_dict(dict(labels), dict(outputs))

    def stats(self) -> list[WorkerStats]:
        """Return what the workers have done so far."""
        found = []
        for worker, (examples, batches, skipped, part, seconds, sums) in enumerate(self._run.stats()):
            file = self._job.parts[part].path if part >= 0 else ""
            times = dict(zip(_STAGES, seconds))
            metric = self._metrics[worker]
            found.append(WorkerStats(worker, examples, batches, skipped, times, list(sums), metric, file))
        return found


def _by_batch(
    lines: np.ndarray[Any, Any],
    columns: Sequence[bytes],
    watched: Sequence[tuple[str, tuple[int, ...] | None]],
) -> Iterator[list[tuple[str, NDArray]]]:
    """Yield for each batch what was watched, by name."""
    if not lines.size:
        return
    counts = lines.tolist()
    columns_by_batch: list[Sequence[torch.Tensor]] = []
    for column, (_, tail) in zip(columns, watched, strict=True):
        numbers = torch.frombuffer(bytearray(column), dtype=torch.float32)
        rows = torch.split(numbers, 1) if tail is None else torch.split(numbers.view(-1, *tail), counts)
        columns_by_batch.append(rows)
    for batch in zip(*columns_by_batch):
        yield [(name, NDArray(each, cpu())) for (name, _), each in zip(watched, batch)]
