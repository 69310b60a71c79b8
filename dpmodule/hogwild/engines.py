"""Choosing the engine of a program; the serial engine."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass

import torch

from .._devices import generators
from ..base import ArgumentError, StateError
from ..context import cpu
from ..module import Module
from ..module.interrupts import DeferredInterrupt
from .job import Job, WorkerStats
from .native_engine import NativeEngine
from .process_engine import ProcessEngine
from .program import BoundProgram, metric_outputs
from .worker import Inferred, WorkerState, infer, run

_POLL_S = 0.001


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """An engine and the reason for its choice; printable as a sentence."""

    mode: str
    why: str

    def __str__(self) -> str:
        return f"{self.mode}: {self.why}"


class Engines:
    """The engines of an executor; each of them runs jobs, pauses between two batches, and closes.

    Args:
        timeout_s: longest time without progress of a worker, in seconds.
        start_method: start method of worker processes; None: the fastest one.
    """

    def __init__(self, timeout_s: float, start_method: str | None) -> None:
        self.serial = SerialEngine(timeout_s)
        self.process = ProcessEngine(timeout_s, start_method)
        self._native = NativeEngine()
        self._engines: dict[str, NativeEngine | SerialEngine | ProcessEngine] = {
            "native": self._native,
            "serial": self.serial,
            "process": self.process,
        }
        self._current: NativeEngine | SerialEngine | ProcessEngine | None = None

    def choose(self, prepared: BoundProgram, mode: str, workers: int) -> EngineChoice:
        """Return the engine to train a program."""
        if mode in ("process", "serial"):
            return EngineChoice(mode, "set by mode")
        reason = self._native.why_not(prepared)
        if reason is None:
            return EngineChoice("native", "the native engine supports the whole network")
        if mode == "native":
            raise ArgumentError(f"mode is 'native', but {reason}; mode='auto' chooses another engine")
        if workers == 1:
            return EngineChoice("serial", f"there is one worker, and {reason}")
        return EngineChoice("process", reason)

    def run(self, mode: str, prepared: BoundProgram, job: Job) -> list[WorkerStats]:
        """Run a job with the engine of a mode."""
        self._current = self._engines[mode]
        try:
            return self._current.run(prepared, job)
        finally:
            self._current = None
            if mode == "native":  # the other engines draw from this generator themselves
                torch.rand(1, generator=generators.generator(cpu()))

    def paused(self) -> AbstractContextManager[None]:
        """Return a context in which all workers wait between two batches."""
        return nullcontext() if self._current is None else self._current.paused()

    def close(self) -> None:
        """End all workers; the next job starts new ones."""
        for engine in self._engines.values():
            engine.close()


class _PauseGate:
    """Lets other threads pause training between two batches.

    Args:
        timeout_s: longest time to wait for the end of a batch, in seconds.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._waiting = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hold the gate during training."""
        with self._lock:
            yield

    def open(self) -> None:
        """Let waiting threads pass between two batches."""
        self._lock.release()
        try:
            while self._waiting:
                time.sleep(_POLL_S)
        finally:
            self._lock.acquire()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hold training between two batches."""
        self._waiting += 1
        try:
            if not self._lock.acquire(timeout=self._timeout_s):
                raise StateError(f"the running batch has not ended within {self._timeout_s:g} s")
            try:
                yield
            finally:
                self._lock.release()
        finally:
            self._waiting -= 1


class _SerialMonitor:
    """Monitor in the calling thread: reports, averages, and stops the run after a batch on Ctrl-C."""

    def __init__(self, job: Job, interrupt: DeferredInterrupt, gate: _PauseGate) -> None:
        self._job = job
        self._interrupt = interrupt
        self._gate = gate
        self._next = time.monotonic() + job.report_s
        self._averaged = 0

    def on_file(self, file: str) -> None:
        """Called when the reader opens its first file; does nothing."""

    def on_batch(self, stats: WorkerStats) -> bool:
        """Report and average if it is time; return True to continue."""
        self._gate.open()
        if self._job.report is not None and time.monotonic() >= self._next:
            self._job.report([stats])
            self._next = time.monotonic() + self._job.report_s
        averaging = self._job.averaging
        if averaging is not None:
            since = stats.batches - self._averaged
            if averaging.is_late or since == averaging.batches:
                averaging()
                self._averaged = stats.batches
        return not self._interrupt.requested


class SerialEngine:
    """Trains with one worker in the calling thread; a second thread reads files ahead.

    Args:
        timeout_s: longest time that `paused` waits for the end of a batch, in seconds.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._states: dict[bool, tuple[object, WorkerState]] = {}
        self._gate = _PauseGate(timeout_s)
        self._thread: int | None = None

    def run(self, prepared: BoundProgram, job: Job) -> list[WorkerStats]:
        """Run a job."""
        state = self._state_for(prepared)
        parts = iter(job.parts)
        self._thread = threading.get_ident()
        with DeferredInterrupt() as interrupt, self._gate.running():
            monitor = _SerialMonitor(job, interrupt, self._gate)
            stats = run(state, job, 0, lambda: next(parts, None), monitor, deepcopy(job.metric))
        if interrupt.requested:
            interrupt.raise_now()
        return [stats]

    def infer(self, prepared: BoundProgram, job: Job) -> Iterator[Inferred]:
        """Yield the outputs of each batch; see `worker.infer`."""
        state = self._state_for(prepared)
        for part in job.parts:
            yield from infer(state, job, part)

    def paused(self) -> AbstractContextManager[None]:
        """Return a context in which the worker is between two batches."""
        return nullcontext() if self._thread == threading.get_ident() else self._gate.paused()

    def _state_for(self, prepared: BoundProgram) -> WorkerState:
        key, state = self._states.get(prepared.train, (None, None))
        if state is None or key != prepared.key:
            outputs = metric_outputs(prepared.module.symbol, len(prepared.feed.labels))
            state = WorkerState(_local_module(prepared), prepared.feed, (), outputs)
            self._states[prepared.train] = prepared.key, state
        state.fetches = prepared.fetches.items
        return state

    def close(self) -> None:
        """Release the modules."""
        self._states.clear()


def _local_module(prepared: BoundProgram) -> Module:
    """Return a local module over a program's store and optimizer, with all fetches as outputs."""
    host, feed = prepared.module, prepared.feed
    data, labels = [d.name for d in feed.data], [d.name for d in feed.labels]
    group = host.group
    module = Module(prepared.fetches.heads, data, labels, host.logger, cpu(), None, group.fixed_param_names)
    # not with `shared_module`, which also shares memory of inputs, whose types may differ
    module.bind(list(feed.data), list(feed.labels) or None, prepared.train, store=host.store)
    if prepared.train:
        module.borrow_optimizer(host)
    return module
