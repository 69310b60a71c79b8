"""C++ jobs for coroutines: a pool of threads that do not need Python or the GIL, and an awaitable call.

Source: the C++ threads of ads_pytorch. Functors are passed as shared pointers, and the event loop watches a descriptor
for completed jobs. So Ctrl-C works while jobs run or hang, no job waits for the GIL, and profilers show the C++ threads
by name.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import sys
import time
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Protocol

from .. import native
from ..base import ArgumentError
from .signal_bus import SignalSocketBus
from .thread_pool import Unstoppable
from .worker_pool import BaseAsyncWorker, BaseAsyncWorkerPool

if TYPE_CHECKING or native.core is None:
    from ..native.threads import NoopFunctor as NoopFunctor
    from ..native.threads import ThreadPool as Threads
    from ..native.threads import Worker
else:
    NoopFunctor = native.core.NoopFunctor
    Threads = native.core.ThreadPool
    Worker = native.core.Worker

_open: weakref.WeakSet[ThreadPool] = weakref.WeakSet()
_EXIT_WAIT_S = 1.0
"""Most seconds that the exit of the program waits for the running jobs of all pools together."""


class FunctorLike(Protocol):
    """Object that a worker accepts in place of a functor's capsule."""

    def __dpmodule_functor__(self) -> Any:
        """Return the capsule; without the extension, an object with a method `run`."""
        ...


class ThreadPool(Threads):
    """Threads in C++ that run functors; a context manager.

    Several event loops, in several threads, may use one pool, and one loop several pools. A forked child starts its own
    threads when it first sends a job; it does not run the jobs of its parent.

    Args:
        threads: number of threads; None for one per core that this process may use.
        name: prefix of the thread names ``<name>-0`` and so on, which ``top -H``, perf and py-spy show; the system
            keeps 15 characters.

    Attributes:
        threads: number of threads.
        alive: number of threads that have not ended.
        queued: number of jobs that have not started.
        closed: True if the pool accepts no more jobs.

    Raises:
        ArgumentError: `threads` is not an integer from 1 to 4096.
        FileError: the system cannot start a thread.

    Example:
        >>> async def main():
        ...     with ThreadPool(2) as pool:
        ...         worker = cpp_threaded_worker(pool)
        ...         return await worker(NoopFunctor())
        >>> asyncio.run(main())
    """

    def __init__(self, threads: int | None = None, name: str = "dpm-pool") -> None:
        if threads is not None and (not isinstance(threads, int) or isinstance(threads, bool)):
            raise ArgumentError(
                f"ThreadPool: threads is {threads!r}, expected an integer, or None for all cores"
            )
        native.report()
        super().__init__(_cores() if threads is None else threads, name)
        _open.add(self)

    def close(self, timeout_s: float = 10.0) -> bool:
        """Accept no more jobs, and wait for the running ones; a second call only waits.

        Jobs that have not started are not run: their futures get PoolClosedError. Running jobs continue, and their
        futures are resolved if their loop still runs. Ctrl-C ends the wait.

        Args:
            timeout_s: most seconds to wait. Threads that are busy for longer end after their job.

        Returns:
            True if all threads have ended.
        """
        self.stop(False)
        _open.discard(self)
        return bool(self.wait(timeout_s))

    def __enter__(self) -> ThreadPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # after an exception, above all Ctrl-C, do not wait for jobs
        if not self.close(10.0 if kind is None else 0.0) and kind is None:
            logging.getLogger("dpmodule").warning(
                "%r is closed while %d of its threads are busy; they end after their jobs", self, self.alive
            )

    def __del__(self) -> None:
        if not getattr(self, "closed", True) and not sys.is_finalizing():
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)
            self.stop(True)

    def __repr__(self) -> str:
        return f"<ThreadPool of {self.threads} threads{', closed' if self.closed else ''}>"


def cpp_threaded_worker(pool: ThreadPool) -> Worker:
    """Return a worker of a pool: ``await worker(functor)`` returns the functor's result or raises its exception.

    Calling the worker queues the functor immediately and returns an `asyncio.Future` of the running event loop. If the
    future, or the task that awaits it, is cancelled, the functor still runs; it stays alive until it ends, and its
    result is dropped. A functor may be sent again only after it has ended, because it runs in one thread at a time.
    (The built-in functors are `reentrant` and may be sent several times, see ``dpmodule/functor.h``.)

    The call raises ArgumentError if its argument is not a functor, PoolClosedError if the pool is closed, and
    StateError if no event loop is running or the functor has been sent and has not ended. The future raises the
    functor's exception: `std::bad_alloc` as MemoryError, `dpmodule::Error` as the exception of its kind, any other as
    FunctorError with its text; it raises PoolClosedError if the pool was closed before the job started.

    Args:
        pool: the threads to use; the worker keeps the pool alive.

    Raises:
        ArgumentError: `pool` is not a ThreadPool.

    Example:
        >>> async def main(blobs):
        ...     with ThreadPool() as pool:
        ...         worker = cpp_threaded_worker(pool)
        ...         return await asyncio.gather(*(worker(Decompress(blob)) for blob in blobs))
    """
    if not isinstance(pool, Threads):
        raise ArgumentError(f"cpp_threaded_worker: pool is {pool!r}, expected a ThreadPool")
    return Worker(pool, SignalSocketBus.of)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@atexit.register
def _close_all() -> None:
    """Wait a moment for running jobs; a job that hangs does not keep the program from ending."""
    for pool in list(_open):
        pool.stop(False)
    end = time.monotonic() + _EXIT_WAIT_S
    for pool in list(_open):
        pool.close(max(0.0, end - time.monotonic()))


class CppWorker(BaseAsyncWorker):
    """Worker that runs one functor at a time.

    Args:
        threads: pool in which the functors run.
    """

    def __init__(self, threads: ThreadPool) -> None:
        self._call = cpp_threaded_worker(threads)

    async def _do_job(self, functor: FunctorLike) -> Any:
        future = self._call(functor)
        ended = Unstoppable()  # a functor runs to its end even if its job is cancelled
        future.add_done_callback(ended.set_result)
        try:
            await ended
        except BaseException:
            _mark_seen(future)
            raise
        return future.result()


class CppWorkerPool(BaseAsyncWorkerPool):
    """Pool that runs functors in C++ threads, at most `workers_count` at a time.

    ``await pool.assign_job(functor)`` waits for a free worker and returns the future of the functor's result, so that
    the number of functors that exist at a time, and their memory, stay bounded. Leaving the pool waits until all
    functors have ended, including those of cancelled jobs.

    Args:
        workers_count: number of jobs at a time.
        threads: pool in which the functors run; None for one thread per worker, which ends with the context.

    Raises:
        ArgumentError: `workers_count` is not a positive integer.

    Example:
        >>> async def main(blobs):
        ...     async with CppWorkerPool(4) as pool:
        ...         futures = [await pool.assign_job(DecompressFunctor(blob)) for blob in blobs]
        ...     return [await future for future in futures]
    """

    def __init__(self, workers_count: int, threads: ThreadPool | None = None) -> None:
        super().__init__(workers_count)
        self._threads = threads
        self._own: ThreadPool | None = None

    def create_new_worker(self) -> CppWorker:
        if self._threads is not None:
            return CppWorker(self._threads)
        if self._own is None:
            self._own = ThreadPool(self.workers_count)
        return CppWorker(self._own)

    async def _leave_workers(self) -> None:
        try:
            await super()._leave_workers()
        finally:
            self._close_threads()

    def _abandon(self, error: BaseException) -> None:
        super()._abandon(error)
        self._close_threads()

    def _close_threads(self) -> None:
        if self._own is not None:
            self._own.close(timeout_s=0.0 if self._running else 10.0)


def _mark_seen(future: asyncio.Future[Any]) -> None:
    if future.done() and not future.cancelled():
        future.exception()
