"""A pool whose workers run functors in threads of C++."""

from __future__ import annotations

import asyncio
from typing import Any

from .thread_pool import Unstoppable
from .threaded import FunctorLike, ThreadPool, cpp_threaded_worker
from .worker_pool import BaseAsyncWorker, BaseAsyncWorkerPool


class CppWorker(BaseAsyncWorker):
    """Runs one functor at a time.

    Args:
        threads: where it runs them.
    """

    def __init__(self, threads: ThreadPool) -> None:
        self._call = cpp_threaded_worker(threads)

    async def _do_job(self, functor: FunctorLike) -> Any:
        future = self._call(functor)
        ended = Unstoppable()  # a functor runs to its end, though its job be cancelled
        future.add_done_callback(ended.set_result)
        try:
            await ended
        except BaseException:
            _mark_seen(future)
            raise
        return future.result()


class CppWorkerPool(BaseAsyncWorkerPool):
    """Run functors in threads of C++, at most `workers_count` at a time.

    ``await pool.assign_job(functor)`` returns the future of the functor's result once one of those before it has ended,
    so that the functors that exist at a time, and the memory they hold, stay bounded. The pool is left when all
    functors have ended, those of cancelled jobs too.

    Args:
        workers_count: number of jobs at a time.
        threads: where they run; None for as many threads as workers, which end with the context.

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
