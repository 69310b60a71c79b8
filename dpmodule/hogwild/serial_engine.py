"""The engine of one worker, which works in the calling thread."""

from __future__ import annotations

import time
from collections.abc import Iterator
from copy import deepcopy

from ..context import cpu
from ..module import Module
from ..module.boundary import BatchBoundary
from .job import Job, WorkerStats
from .program import Prepared, metric_outputs
from .worker import Work, run

__all__ = ["SerialEngine", "local_module"]


class _Looker:
    """Looks on in the calling thread: reports now and then, and ends the run after a batch when Ctrl-C came."""

    def __init__(self, job: Job, boundary: BatchBoundary) -> None:
        self._job = job
        self._boundary = boundary
        self._next = time.monotonic() + job.report_s

    def begins(self, file: str) -> None:
        """Hear that the reader has opened its first file; nobody else needs to know."""

    def after(self, stats: WorkerStats) -> bool:
        """Report if it is time to, and say whether to go on."""
        if self._job.report is not None and time.monotonic() >= self._next:
            self._job.report([stats])
            self._next = time.monotonic() + self._job.report_s
        return not self._boundary.asked


class SerialEngine:
    """Trains with one worker, in the calling thread; a second one reads files ahead."""

    name = "serial"

    def __init__(self) -> None:
        self._work: Work | None = None
        self._key: object = None

    def run(self, prepared: Prepared, job: Job) -> list[WorkerStats]:
        """Do a job.

        Raises:
            KeyboardInterrupt: Ctrl-C, raised after the batch that was running.
        """
        work = self._work_for(prepared)
        parts = iter(job.parts)
        with BatchBoundary() as boundary:
            stats = run(work, job, 0, lambda: next(parts, None), _Looker(job, boundary), deepcopy(job.metric))
        if boundary.asked:
            raise KeyboardInterrupt
        return [stats]

    def _work_for(self, prepared: Prepared) -> Work:
        if self._work is None or self._key != prepared.key:
            module = local_module(prepared)
            outputs = metric_outputs(prepared.module.symbol, len(prepared.feed.labels))
            self._work = Work(module, prepared.feed, prepared.fetches.items, outputs)
            self._key = prepared.key
        self._work.fetches = prepared.fetches.items
        return self._work

    def close(self) -> None:
        """Let go of the module."""
        self._work = self._key = None


def local_module(prepared: Prepared) -> Module:
    """Return a module of this process over a program's store and optimizer, which has all fetches as outputs."""
    host, feed = prepared.module, prepared.feed
    data, labels = [d.name for d in feed.data], [d.name for d in feed.labels]
    group = host.group
    module = Module(prepared.fetches.heads, data, labels, host.logger, cpu(), None, group.fixed_param_names)
    module.bind(list(feed.data), list(feed.labels) or None, prepared.train, shared_module=host)
    return module
