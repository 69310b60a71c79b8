"""The engine whose workers are processes over one store in shared memory."""

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
"""Places of the board: whether to stop after the batch, whether to wait after it, the round, what each worker does.

A round ends when all workers have done their part of the batches between two averages with other processes.
"""

_ROUNDS = 256

_IDLE, _RUNNING, _PAUSED = 0, 1, 2
_COUNTERS = ("num_update", "begin_num_update", "_index_update_count", "_all_index_update_counts")
"""What an optimizer's state has that changes with every update."""

_MIN_RANGES = 1024
"""How many parts of jobs there is room to mark at least."""

_POLL_S = 0.5
_PAUSE_POLL_S = 0.001
_GRACE_S = 0.5


def _default_method() -> str:
    """Return the way to start workers: forked from a process that has imported torch, where the system has that."""
    import multiprocessing

    known = multiprocessing.get_all_start_methods()
    return next(method for method in ("forkserver", *START_METHODS) if method in known)


@dataclass(frozen=True, slots=True)
class _WorkerSetup:
    """What a worker process is made of, on its way there."""

    heads: Symbol
    feed: SlotFeed
    metric_outputs: Sequence[str]
    store: ParamStore
    optimizer: Any
    fixed: Sequence[str]
    control: torch.Tensor
    lines_done: torch.Tensor
    counter: SharedCounter
    """Number of the next part of a job."""

    def worker_state(self) -> WorkerState:
        """Return a module of this process over the store, with what belongs to it."""
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
    """Let a module go on with the shared states of an optimizer; what was to be said of that, the parent has said."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module.init_optimizer(None, optimizer, force_init=module.optimizer_initialized)


def _desc_names(descs: Sequence[DataDesc]) -> list[str]:
    return [desc.name for desc in descs]


@dataclass(frozen=True, slots=True)
class _WorkerJob:
    """One job, as a worker gets it.

    Args:
        optimizer: another one than before, None if it is as it was.
        generator: state of the generator of random numbers that the worker goes on with, and hands back; None: it has
            one of its own.
    """

    job: Job
    fetches: Sequence[Fetch]
    optimizer: Any
    generator: torch.Tensor | None
    share: int


class _ProcessMonitor:
    """Looks on in a worker process: notes where it is, reports to the parent, and does what the board says."""

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
        """Note the file."""
        self._note(file, 0)

    def on_batch(self, stats: WorkerStats) -> bool:
        """Note the batch, report if it is time to, wait if asked to, and say whether to go on."""
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
        place = _FIRST + self._channel.index
        # looked at once more after RUNNING: the parent may have seen HELD and hold again
        while self._must_wait():
            self._control[place] = _PAUSED
            while self._must_wait():
                time.sleep(_PAUSE_POLL_S)
            self._control[place] = _RUNNING


def _serve(channel: Channel, setup: _WorkerSetup) -> None:
    """Be a worker: do one job after the other, until the parent closes the channel."""
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
        state = None if message.generator is None else generators.generator(cpu()).get_state()
        channel.send(("done", (stats, state)))


def _infer(channel: Channel, worker_state: WorkerState, job: Job) -> None:
    """Send what the batches of every n-th part give; the parent reads the parts in turn, so that none runs ahead."""
    for part in job.parts[channel.index :: job.workers]:
        channel.note(f"{part.path}, batch", 0)
        for number, found in enumerate(infer(worker_state, job, part)):
            channel.send(("batch", found))
            channel.note(f"{part.path}, batch", number + 1)
        channel.send(("part", None))


class _WorkerPool:
    """Workers that have one program.

    Args:
        timeout_s: how long a worker may be without progress, in seconds.
    """

    def __init__(
        self, prepared: BoundProgram, workers: int, count: int, timeout_s: float, start_method: str
    ) -> None:
        self._key = prepared.key
        self._is_idle = True
        self._timeout_s = timeout_s
        self._module = prepared.module
        self._control_memory = shared_bytes("the board of the workers", _FIRST + workers)
        self._control: np.ndarray[Any, Any] = self._control_memory.numpy()
        memory = shared_bytes("the marks of the workers", 8 * max(count, _MIN_RANGES))
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
        """Whether all workers are."""
        return all(child.alive for child in self._supervisor.children)

    def serves(self, prepared: BoundProgram, workers: int, count: int) -> bool:
        """Say whether these workers, and enough of them, have a program, wait for a job, and can mark its parts."""
        is_known = self._key == prepared.key and self._is_idle and len(self._lines_done) >= count
        return is_known and len(self._supervisor.children) >= workers and self.is_alive

    def run(self, job: Job, fetches: Sequence[Fetch]) -> tuple[list[WorkerStats], DeferredInterrupt]:
        """Do a job with its number of workers; the others wait.

        Returns:
            What each worker did, and whether Ctrl-C or SIGTERM has ended the job.
        """
        self._is_idle = False
        self._control[:] = 0
        self._control[_FIRST : _FIRST + job.workers] = _RUNNING
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
        finally:
            self._copy_lines_done()
        self._is_idle = True
        return self._latest, interrupt

    def _await_end(self, job: Job) -> None:
        """Wait for the end of all workers' parts of a job."""
        report_s = job.report_s if job.report is not None else float("inf")
        next_report = time.monotonic() + report_s
        while self._pending:
            left = next_report - time.monotonic()
            for child in self._supervisor.wait(max(0.0, min(left, _POLL_S, self._timeout_s / 4))):
                if child not in self._pending and not child.alive:  # one that waits for a later job
                    self._supervisor.drop(child)
            for child in list(self._pending):
                self._receive(child, job)
            if job.report is not None and time.monotonic() >= next_report:
                job.report(self._latest)
                next_report = time.monotonic() + report_s
            self._end_round(job)

    def _end_round(self, job: Job) -> None:
        """Average if it is time to, or all workers have done their part of a round."""
        if job.averaging is None or not self._pending:
            return
        if job.averaging.is_late or self._waiting.issuperset(child.index for child in self._pending):
            if not self._control[_STOP]:
                with self.paused():
                    job.averaging()
                    self._control[_ROUND] = (int(self._control[_ROUND]) + 1) % _ROUNDS
            self._waiting.clear()
            self._progress.restart()  # the others may have taken long

    def _receive(self, child: ChildProcess, job: Job) -> None:
        """Take what has come from a worker; look whether it makes progress if nothing has."""
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
        """Note in the job's own marks what the workers have marked."""
        if self._job is not None and self._job.lines_done is not None:
            self._job.lines_done.copy_(self._lines_done[: len(self._job.lines_done)])

    def infer(self, job: Job, fetches: Sequence[Fetch]) -> Iterator[Inferred]:
        """Yield what the workers infer, in the order of the parts."""
        self._is_idle = False
        self._control[:] = 0
        self._send(job, fetches)
        for number, part in enumerate(job.parts):
            child = self._supervisor.children[number % job.workers]
            while True:
                try:
                    kind, found = child.recv(self._timeout_s)
                except MXNetError as error:
                    _set_file(error, part.path)
                    raise
                if kind == "part":
                    break
                yield found
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
        if state is None and job.train:  # the next run draws other numbers, however many these workers draw
            torch.rand(1, generator=generator)
        for child in self._supervisor.children:
            if child.index < job.workers:
                child.send(_WorkerJob(plain, fetches, changed, state, share), self._timeout_s)
            elif changed is not None:
                self._optimizer_settings = None  # those that wait do not know of it

    def stop(self) -> None:
        """Have the workers stop after their batches."""
        self._control[_STOP] = 1

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Have the workers wait after their batches."""
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
        """End the workers, after their batches if these do not take long."""
        self._control[_PAUSE], self._control[_STOP] = 0, 1
        self._supervisor.close()


def _optimizer_settings(optimizer: Any) -> bytes | None:
    """Return what an optimizer has been set to, without what it counts."""
    if optimizer is None:
        return None
    state = {key: value for key, value in optimizer.__getstate__().items() if key not in _COUNTERS}
    return pickle.dumps(state)


def _noted_file(child: ChildProcess, job: Job) -> str | None:
    """Return the path of the file that a worker noted last, None if it had none yet."""
    noted = child.working_on.rpartition(", batch ")[0]
    return next((part.path for part in job.parts if noted and os.fspath(part.path).startswith(noted)), None)


def _set_file(error: Any, path: str | None) -> None:
    """Note the file that was being worked on beside an error's text, for handlers, unless it has one."""
    if not hasattr(error, "file"):
        error.file = path


class ProcessEngine:
    """Trains with processes that share parameters, the optimizer's states and its counts; kept between jobs.

    Args:
        timeout_s: how long a worker may be without progress, in seconds.
        start_method: how processes are started, see `Supervisor`; None: "forkserver" where the system has it.
    """

    def __init__(self, timeout_s: float, start_method: str | None = None) -> None:
        self._timeout_s = timeout_s
        self._start_method = _default_method() if start_method is None else check_start_method(start_method)
        self._pools: dict[bool, _WorkerPool] = {}

    def run(self, prepared: BoundProgram, job: Job) -> list[WorkerStats]:
        """Do a job."""
        try:
            stats, interrupt = self._pool_for(prepared, job).run(job, prepared.fetches.items)
        except BaseException as error:
            if isinstance(error, MXNetError):
                _set_file(error, None)  # of those that end while they start
            self.close()
            raise
        if interrupt.requested:
            interrupt.raise_now()
        return stats

    def infer(self, prepared: BoundProgram, job: Job) -> Iterator[Inferred]:
        """Yield what each batch of each part gives; see `worker.infer`."""
        pool = self._pool_for(prepared, job)
        try:
            yield from pool.infer(job, prepared.fetches.items)
        except BaseException:  # also where the caller has had enough
            self._drop(pool)
            raise

    def paused(self) -> AbstractContextManager[None]:
        """Return a context in which all workers that train wait between two batches."""
        pool = self._pools.get(True)
        return nullcontext() if pool is None else pool.paused()

    def _pool_for(self, prepared: BoundProgram, job: Job) -> _WorkerPool:
        """Return workers that have the program: those that there are, or new ones."""
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
        self._pools = {train: each for train, each in self._pools.items() if each is not pool}
        pool.close()

    def close(self) -> None:
        """End the workers; further calls do nothing."""
        for pool in list(self._pools.values()):
            self._drop(pool)
