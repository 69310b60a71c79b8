"""Threads of Python that run functors, where there is no extension: the same names and the same behaviour, slower.

A `queue.SimpleQueue` and one coalesced ``call_soon_threadsafe``: several times the rate of `loop.run_in_executor`.
"""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from ..base import ArgumentError, FileError, StateError
from .errors import LoopClosedError, PoolClosedError
from .functor import work_of
from .signal_bus import FunctorCall, SignalBus, fork_generation

_MOST_THREADS = 4096


def _work(jobs: SimpleQueue[FunctorCall | None]) -> None:
    while (job := jobs.get()) is not None:
        job.run()
        job.hand_back()
        del job  # or a thread that waits would keep the last future alive


class ThreadPool:
    """Threads that run functors.

    Args:
        name: they are called "<name>-<index>".
    """

    def __init__(self, threads: int, name: str) -> None:
        if not isinstance(threads, int):
            raise TypeError(f"'{type(threads).__name__}' object cannot be interpreted as an integer")
        if not 1 <= threads <= _MOST_THREADS:
            raise ArgumentError(f"ThreadPool: threads={threads}, expected 1 to {_MOST_THREADS}")
        self._name, self._size, self._closed = name, threads, False
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        self._generation = fork_generation()
        self._jobs: SimpleQueue[FunctorCall | None] = SimpleQueue()
        # a thread refers to the queue alone, so that a pool nobody refers to can end it
        self._threads = [
            threading.Thread(target=_work, args=(self._jobs,), name=f"{self._name}-{i}", daemon=True)
            for i in range(self._size)
        ]
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError as refusal:
            self._threads = [thread for thread in self._threads if thread.ident is not None]
            self.stop(False)
            raise FileError(
                errno.EAGAIN, f"{refusal}; {len(self._threads)} of {self._size} were started"
            ) from None

    def _refresh(self) -> None:
        if self._generation == fork_generation():
            return
        self._generation = fork_generation()
        self._lock = threading.Lock()
        self._threads = []  # the parent's; its queue may be locked for ever
        self._jobs = SimpleQueue()

    @property
    def threads(self) -> int:
        """Number of threads."""
        return self._size

    @property
    def closed(self) -> bool:
        """Whether the pool takes no more jobs."""
        return self._closed

    @property
    def alive(self) -> int:
        """Number of threads that have not ended."""
        self._refresh()
        return sum(thread.is_alive() for thread in self._threads)

    @property
    def queued(self) -> int:
        """Number of jobs that have not begun."""
        self._refresh()
        return 0 if self._closed else self._jobs.qsize()

    def submit(self, functor: Any, bus: SignalBus) -> asyncio.Future[Any]:
        """Send a functor to the pool and return the future that the bus will resolve."""
        self._refresh()
        with self._lock:
            if self._closed:
                raise PoolClosedError("the pool is closed; send jobs before close()")
            loop = bus.loop
            if loop is None or not bus.usable:
                raise LoopClosedError("the event loop's bus is closed")
            found, work = work_of(functor)
            if not self._threads:
                self._start()
            future: asyncio.Future[Any] = loop.create_future()
            self._jobs.put(FunctorCall(found, work, bus, future))
        bus.in_flight += 1
        return future

    def stop(self, finish: bool) -> None:
        """Take no more jobs; do those that have not begun if `finish`, else refuse them."""
        self._refresh()
        with self._lock:
            first, self._closed = not self._closed, True
        if not finish:
            self._refuse()
        if first or not finish:  # refusing has also taken what tells the threads to end
            for _ in self._threads:
                self._jobs.put(None)

    def _refuse(self) -> None:
        while True:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return
            if job is not None:
                job.refuse()
                job.hand_back()

    def wait(self, timeout_s: float) -> bool:
        """Wait so many seconds for the threads to end after `stop`; say whether they have."""
        self._refresh()
        end = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not self.alive

    def __del__(self) -> None:
        if "_threads" in self.__dict__ and not self._closed:
            self.stop(True)


class Worker:
    """Sends functors to a pool, for the event loop that is running."""

    def __init__(self, pool: ThreadPool, bus_of: Callable[[asyncio.AbstractEventLoop], SignalBus]) -> None:
        self.pool = pool
        self._bus_of = bus_of
        self._bus: SignalBus | None = None

    def __call__(self, functor: Any) -> asyncio.Future[Any]:
        """Send a functor and return its future."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise StateError(
                "a worker was called, but no event loop is running; call it in a coroutine"
            ) from None
        bus = self._bus
        if bus is None or bus.loop is not loop or not bus.usable:
            bus = self._bus = self._bus_of(loop)
        return self.pool.submit(functor, bus)
