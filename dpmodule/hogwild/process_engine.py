"""The process engine: worker processes over a parameter store in shared memory."""

from __future__ import annotations

import os
import pickle
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from .._devices import generators
from .._devices.shared_memory import shared_bytes
from ..base import MXNetError, StateError
from ..context import cpu
from ..io import DataDesc
from ..module import Module
from ..module.interrupts import DeferredInterrupt
from ..params import ParamStore
from ..streams import Channel, ChildProcess, Supervisor
from ..streams.launch import START_METHODS, check_start_method, preload
from ..streams.supervisor import START_S, ProgressWatch
from ..streams.synchronization import SharedCounter
from ..symbol import Symbol
from .data_files import FileRange
from .job import Job, WorkerStats
from .program import BoundProgram, Fetch, metric_outputs
from .slot_feed import SlotFeed
from .worker import Inferred, WorkerState, infer, run

_STOP, _PAUSE, _ROUND, _FIRST = 0, 1, 2, 3
"""Indices of control bytes: stop after the batch, pause after it, number of the round, state of each worker.

A round ends when all workers have done their share of the batches between two averages with other processes.
"""

_ROUNDS = 256

_IDLE, _RUNNING, _PAUSED = 0, 1, 2
_COUNTERS = ("num_update", "begin_num_update", "_index_update_count", "_all_index_update_counts")
"""Attributes of an optimizer that change with every update."""

_MIN_RANGES = 1024
"""Smallest number of file ranges that workers can record progress of."""

_POLL_S = 0.5
_PAUSE_POLL_S = 0.001
_GRACE_S = 0.5


def _default_method() -> str:
    """Return the default start method: "forkserver" if the system supports it."""
    import multiprocessing

    known = multiprocessing.get_all_start_methods()
    return next(method for method in ("forkserver", *START_METHODS) if method in known)


@dataclass(frozen=True, slots=True)
class _WorkerSetup:
    """State that a worker process is created from."""

    heads: Symbol
    feed: SlotFeed
    metric_outputs: Sequence[str]
    store: ParamStore
    optimizer: Any
    fixed: Sequence[str]
    control: torch.Tensor
    lines_done: torch.Tensor
    counter: SharedCounter
    """Number of the next file range."""

    def worker_state(self) -> WorkerState:
        """Return the state of a worker, with a local module over the store."""
        data, labels = list(self.feed.data), list(self.feed.labels)
        module = Module(
            self.heads,
            _desc_names(data),
            _desc_names(labels),
            context=cpu(),
            fixed_param_names=list(self.fixed),
        )
        module.bind(data, labels or None, for_training=self.optimizer is not None, store=self.store)
        if self.optimizer is not None:
            _install_optimizer(module, self.optimizer)
        return WorkerState(module, self.feed, (), self.metric_outputs)


def _install_optimizer(module: Module, optimizer: Any) -> None:
    """Install an optimizer with its shared states; warnings were already shown in the parent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module.init_optimizer(None, optimizer, force_init=module.optimizer_initialized)


def _desc_names(descs: Sequence[DataDesc]) -> list[str]:
    return [desc.name for desc in descs]


@dataclass(frozen=True, slots=True)
class _WorkerJob:
    """A job for a worker.

    Args:
        optimizer: a changed optimizer, None if it is unchanged.
        generator: state of the random generator, which the worker returns at the end; None: the worker has its own.
    """

    job: Job
    fetches: Sequence[Fetch]
    optimizer: Any
    generator: torch.Tensor | None
    share: int


class _ProcessMonitor:
    """Monitor in a worker process: records its position, reports to the parent, and obeys the control bytes."""

    def __init__(
        self, channel: Channel, job: Job, control: np.ndarray[Any, Any], reports: bool, share: int
    ) -> None:
        self._channel = channel
        self._control = control
        self._file, self._what = "", ""
        self._report_s = job.report_s if reports else float("inf")
        self._next = time.monotonic() + self._report_s
        self._share, self._left, self._round = share, share, 0

    def on_file(self, file: str) -> None:
        """Record the file."""
        self._note(file, 0)

    def on_batch(self, stats: WorkerStats) -> bool:
        """Record the batch, report if it is time, pause if requested, and return True to continue."""
        self._note(stats.file, stats.batches)
        if time.monotonic() >= self._next:
            self._channel.send(("stats", stats))
            self._next = time.monotonic() + self._report_s
        self._left -= 1
        if self._left == 0:
            self._channel.send(("round", None))
        if self._must_wait():
            self._pause()
        return not self._control[_STOP]

    def _note(self, file: str, number: int) -> None:
        if file != self._file:
            self._file, self._what = file, f"{file}, batch"
        self._channel.note(self._what, number)

    def _must_wait(self) -> bool:
        if self._left == 0 and self._control[_ROUND] != self._round:
            self._left, self._round = self._share, self._control[_ROUND]
        return bool(self._control[_PAUSE] or (self._left == 0 and not self._control[_STOP]))

    def _pause(self) -> None:
        index = _FIRST + self._channel.index
        # checked again after RUNNING, since the parent may have seen PAUSED and pause again
        while self._must_wait():
            self._control[index] = _PAUSED
            while self._must_wait():
                time.sleep(_PAUSE_POLL_S)
            self._control[index] = _RUNNING


def _serve(channel: Channel, setup: _WorkerSetup) -> None:
    """Main loop of a worker process: run jobs until the parent closes the channel."""
    worker_state, control = setup.worker_state(), setup.control.numpy()
    channel.send(("ready", None))
    while True:
        message: _WorkerJob = channel.recv()
        job = replace(message.job, lines_done=setup.lines_done)
        if message.optimizer is not None:
            _install_optimizer(worker_state.module, message.optimizer)
        worker_state.fetches = message.fetches
        generators.seed_process((job.seed, channel.index))
        if message.generator is not None:
            generators.generator(cpu()).set_state(message.generator)

        def take(parts: Sequence[FileRange] = job.parts) -> FileRange | None:
            number = setup.counter.take()
            return parts[number] if number < len(parts) else None

        monitor = _ProcessMonitor(channel, job, control, job.report_s < float("inf"), message.share)
        if not job.train:
            _infer(channel, worker_state, job)
            continue
        stats = run(worker_state, job, channel.index, take, monitor, job.metric)
        control[_FIRST + channel.index] = _IDLE
        channel.note("")
        state = None if message.generator is None else generators.generator(cpu()).get_state()
        channel.send(("done", (stats, state)))


def _infer(channel: Channel, worker_state: WorkerState, job: Job) -> None:
    """Send the outputs of every n-th range; the parent receives the ranges in order, which limits reading ahead."""
    for part in job.parts[channel.index :: job.workers]:
        channel.note(f"{part.path}, batch", 0)
        for number, outputs in enumerate(infer(worker_state, job, part)):
            channel.send(("batch", outputs))
            channel.note(f"{part.path}, batch", number + 1)
        channel.note("")
        channel.send(("part", None))


class _WorkerPool:
    """Worker processes for one program.

    Args:
        timeout_s: longest time without progress of a worker, in seconds.
    """

    def __init__(
        self, prepared: BoundProgram, workers: int, count: int, timeout_s: float, start_method: str
    ) -> None:
        self._key = prepared.key
        self._is_idle = True
        self._timeout_s = timeout_s
        self._module = prepared.module
        self._control_memory = shared_bytes("the control bytes of the workers", _FIRST + workers)
        self._control: np.ndarray[Any, Any] = self._control_memory.numpy()
        memory = shared_bytes("the progress of the workers", 8 * max(count, _MIN_RANGES))
        self._lines_done = memory.view(torch.int64)
        self._counter = SharedCounter()
        self._job: Job | None = None
        self._pending: list[ChildProcess] = []
        self._waiting: set[int] = set()
        self._latest: list[WorkerStats] = []
        self._progress = ProgressWatch()
        self._optimizer_settings = _optimizer_settings(prepared.module.optimizer)
        self._supervisor = Supervisor(
            "hogwild", start_method, grace_s=_GRACE_S, start_timeout_s=START_S + timeout_s
        )
        try:
            self._start(prepared, workers)
        except BaseException:
            self.close()
            raise

    def _start(self, prepared: BoundProgram, workers: int) -> None:
        module = prepared.module
        setup = _WorkerSetup(
            prepared.fetches.heads,
            prepared.feed,
            metric_outputs(module.symbol, len(prepared.feed.labels)),
            module.store,
            module.optimizer if prepared.train else None,
            module.group.fixed_param_names,
            self._control_memory,
            self._lines_done,
            self._counter,
        )
        preload(__name__)
        for _ in range(workers):
            self._supervisor.start(_serve, setup)
        self._supervisor.await_ready(self._supervisor.start_timeout_s)

    @property
    def is_alive(self) -> bool:
        """True if all workers are alive."""
        return all(child.alive for child in self._supervisor.children)

    def serves(self, prepared: BoundProgram, workers: int, count: int) -> bool:
        """Return True if enough idle workers have this program, with room for the progress of its ranges."""
        is_known = self._key == prepared.key and self._is_idle and len(self._lines_done) >= count
        return is_known and len(self._supervisor.children) >= workers and self.is_alive

    def run(self, job: Job, fetches: Sequence[Fetch]) -> tuple[list[WorkerStats], DeferredInterrupt]:
        """Run a job with its number of workers; other workers stay idle.

        Returns:
            Stats of each worker, and the guard that records Ctrl-C and SIGTERM.
        """
        self._is_idle = False
        self._control[:] = 0
        self._counter.reset()
        children = self._supervisor.children[: job.workers]
        self._job, self._pending = job, list(children)
        self._waiting.clear()
        self._progress.restart()
        self._latest = [WorkerStats(child.index, fetched=[0.0] * len(job.fetch)) for child in children]
        if job.lines_done is not None:
            self._lines_done[: len(job.lines_done)] = job.lines_done
        try:
            self._send(job, fetches)
            with DeferredInterrupt(self.stop) as interrupt:
                self._await_end(job)
        except BaseException:
            self._finish_batches()
            raise
        finally:
            self._copy_lines_done()
        self._is_idle = True
        return self._latest, interrupt

    def _finish_batches(self) -> None:
        """Stop the workers, and wait until their progress includes all that the parameters have been trained on."""
        self.stop()
        while any(map(self._is_in_batch, self._pending)):
            time.sleep(_PAUSE_POLL_S)

    def _is_in_batch(self, child: ChildProcess) -> bool:
        return (
            child.alive
            and self._control[_FIRST + child.index] == _RUNNING
            and not self._progress.is_stuck(child.index, child.working_on, self._timeout_s)
        )

    def _await_end(self, job: Job) -> None:
        """Wait until all workers have finished the job."""
        report_s = job.report_s if job.report is not None else float("inf")
        next_report = time.monotonic() + report_s
        while self._pending:
            left = next_report - time.monotonic()
            for child in self._supervisor.wait(max(0.0, min(left, _POLL_S, self._timeout_s / 4))):
                if child not in self._pending and not child.alive:  # an idle worker
                    self._supervisor.drop(child)
            for child in list(self._pending):
                self._receive(child, job)
            if job.report is not None and time.monotonic() >= next_report:
                job.report(self._latest)
                next_report = time.monotonic() + report_s
            self._end_round(job)

    def _end_round(self, job: Job) -> None:
        """Average if it is time, or if all workers have finished a round."""
        if job.averaging is None or not self._pending:
            return
        if job.averaging.is_late or self._waiting.issuperset(child.index for child in self._pending):
            if not self._control[_STOP]:
                with self.paused():
                    job.averaging()
                    self._control[_ROUND] = (int(self._control[_ROUND]) + 1) % _ROUNDS
            self._waiting.clear()
            self._progress.restart()  # other processes may have been slow

    def _receive(self, child: ChildProcess, job: Job) -> None:
        """Handle messages of a worker; without messages, check that it makes progress."""
        try:
            while child in self._pending and child.poll():
                self._handle_message(child, *child.recv())
            if child not in self._pending or child.index in self._waiting:
                return
            if self._progress.is_stuck(child.index, child.working_on, self._timeout_s):
                raise child.stuck(f"has not finished a batch within {self._timeout_s:g} s")
        except MXNetError as error:
            _set_file(error, _noted_file(child, job))
            raise

    def _handle_message(self, child: ChildProcess, kind: str, value: Any) -> None:
        if kind == "done":
            self._latest[child.index], state = value
            if state is not None:
                generators.generator(cpu()).set_state(state)
            self._pending.remove(child)
        elif kind == "round":
            self._waiting.add(child.index)
        else:
            self._latest[child.index] = value

    def _copy_lines_done(self) -> None:
        """Copy the progress of the workers to the job."""
        if self._job is not None and self._job.lines_done is not None:
            self._job.lines_done.copy_(self._lines_done[: len(self._job.lines_done)])

    def infer(self, job: Job, fetches: Sequence[Fetch]) -> Iterator[Inferred]:
        """Yield the outputs of the workers in the order of the ranges."""
        self._is_idle = False
        self._control[:] = 0
        self._send(job, fetches)
        for number, file_range in enumerate(job.parts):
            child = self._supervisor.children[number % job.workers]
            while True:
                try:
                    kind, outputs = child.recv(self._timeout_s)
                except MXNetError as error:
                    _set_file(error, file_range.path)
                    raise
                if kind == "part":
                    break
                yield outputs
        self._is_idle = True

    def _send(self, job: Job, fetches: Sequence[Fetch]) -> None:
        optimizer = self._module.optimizer
        settings = _optimizer_settings(optimizer)
        changed = optimizer if settings != self._optimizer_settings else None
        self._optimizer_settings = settings
        report_s = job.report_s if job.report is not None else float("inf")
        plain = replace(job, report=None, report_s=report_s, lines_done=None, averaging=None)
        batches = 0 if job.averaging is None else job.averaging.batches
        share = -(-batches // job.workers)
        generator = generators.generator(cpu())
        state = generator.get_state() if job.workers == 1 and job.train else None
        if state is None and job.train:  # so that the next run draws other numbers
            torch.rand(1, generator=generator)
        for child in self._supervisor.children:
            if child.index < job.workers:
                self._control[_FIRST + child.index] = _RUNNING
                child.send(_WorkerJob(plain, fetches, changed, state, share), self._timeout_s)
            elif changed is not None:
                self._optimizer_settings = None  # idle workers do not have the change

    def stop(self) -> None:
        """Stop the workers after their batches."""
        self._control[_STOP] = 1

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the workers after their batches."""
        self._control[_PAUSE] = 1
        try:
            deadline = time.monotonic() + self._timeout_s
            while (self._control[_FIRST:] == _RUNNING).any() and self.is_alive:
                if time.monotonic() > deadline:
                    raise StateError(f"a worker has not finished its batch within {self._timeout_s:g} s")
                time.sleep(_PAUSE_POLL_S)
            self._copy_lines_done()
            yield
        finally:
            self._control[_PAUSE] = 0

    def close(self) -> None:
        """End the workers, after their batches if these are short."""
        self._control[_PAUSE], self._control[_STOP] = 0, 1
        self._supervisor.close()


def _optimizer_settings(optimizer: Any) -> bytes | None:
    """Return the settings of an optimizer without its counts."""
    if optimizer is None:
        return None
    state = {key: value for key, value in optimizer.__getstate__().items() if key not in _COUNTERS}
    return pickle.dumps(state)


def _noted_file(child: ChildProcess, job: Job) -> str | None:
    """Return the path of the last file that a worker recorded, None if there is none."""
    noted = child.working_on.rpartition(", batch ")[0]
    return next((part.path for part in job.parts if os.fspath(part.path) == noted), None)


def _set_file(error: Any, path: str | None) -> None:
    """Set the attribute `file` of an error, unless it has one."""
    if not hasattr(error, "file"):
        error.file = path


class ProcessEngine:
    """Trains with processes that share parameters and the optimizer's states; they are reused for later jobs.

    Args:
        timeout_s: longest time without progress of a worker, in seconds.
        start_method: start method, see `Supervisor`; None: "forkserver" if the system supports it.
    """

    def __init__(self, timeout_s: float, start_method: str | None = None) -> None:
        self._timeout_s = timeout_s
        self._start_method = _default_method() if start_method is None else check_start_method(start_method)
        self._pools: dict[bool, _WorkerPool] = {}

    def run(self, prepared: BoundProgram, job: Job) -> list[WorkerStats]:
        """Run a job."""
        try:
            stats, interrupt = self._pool_for(prepared, job).run(job, prepared.fetches.items)
        except BaseException as error:
            if isinstance(error, MXNetError):
                _set_file(error, None)  # of workers that end during their start
            self.close()
            raise
        if interrupt.requested:
            interrupt.raise_now()
        return stats

    def infer(self, prepared: BoundProgram, job: Job) -> Iterator[Inferred]:
        """Yield the outputs of each batch; see `worker.infer`."""
        pool = self._pool_for(prepared, job)
        try:
            yield from pool.infer(job, prepared.fetches.items)
        except BaseException:  # also when the caller closes the generator
            self._drop(pool)
            raise

    def paused(self) -> AbstractContextManager[None]:
        """Return a context in which all training workers wait between two batches."""
        pool = self._pools.get(True)
        return nullcontext() if pool is None else pool.paused()

    def _pool_for(self, prepared: BoundProgram, job: Job) -> _WorkerPool:
        """Return a pool of workers for a program: an existing or a new one."""
        pool = self._pools.get(prepared.train)
        count = 0 if job.lines_done is None else len(job.lines_done)
        if pool is None or not pool.serves(prepared, job.workers, count):
            if pool is not None:
                self._drop(pool)
            prepared.module.store.share_memory()
            pool = _WorkerPool(prepared, job.workers, count, self._timeout_s, self._start_method)
            self._pools[prepared.train] = pool
        return pool

    def _drop(self, pool: _WorkerPool) -> None:
        self._pools = {train: other for train, other in self._pools.items() if other is not pool}
        pool.close()

    def close(self) -> None:
        """End the workers; further calls do nothing."""
        for pool in list(self._pools.values()):
            self._drop(pool)
