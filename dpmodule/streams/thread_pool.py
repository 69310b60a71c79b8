"""A pool whose workers are Python threads that call ordinary functions."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from ..base import ArgumentError, MXNetError
from .errors import LoopClosedError
from .signal_bus import Mailbox
from .worker_pool import BaseAsyncWorker, BaseAsyncWorkerPool

_NUMBERS = itertools.count()


class Unstoppable(asyncio.Future[Any]):
    """Future of an operation that cannot be interrupted: a cancelled task that awaits it ends when it is done."""

    def cancel(self, msg: Any | None = None) -> bool:
        """Return False and do nothing; asyncio then cancels the waiting task when this future is done."""
        return False


class _FunctionCall:
    """One call of the function, and its result or error."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._args, self._kwargs = args, kwargs
        self._context = contextvars.copy_context()
        self._result: Any = None
        self._error: BaseException | None = None
        self.ended = Unstoppable()

    def run(self, function: Callable[..., Any]) -> None:
        try:
            self._result = self._context.run(function, *self._args, **self._kwargs)
        except BaseException as error:  # `outcome` raises it in the event loop
            self._error = error

    def outcome(self) -> Any:
        error, self._error = self._error, None
        if isinstance(error, StopIteration):  # a coroutine cannot raise StopIteration
            raise MXNetError(f"the function raised {error!r}") from error
        if error is not None:
            try:
                raise error
            finally:
                del error  # otherwise its traceback would refer to it and to the locals of the callers
        return self._result


def _new_results() -> Mailbox[_FunctionCall]:
    """Return the mailbox that delivers finished calls from threads to the event loop."""

    def deliver() -> None:
        for call in results.take():
            call.ended.set_result(None)

    results: Mailbox[_FunctionCall] = Mailbox(deliver, "ThreadWorkerPool")
    return results


class ThreadWorker(BaseAsyncWorker):
    """One thread that calls `function` for each job.

    A function cannot be interrupted: a cancelled job ends when its function returns. The thread is a daemon, so that a
    function that never returns does not keep the process alive.

    Args:
        function: an ordinary function; it runs with the context variables of the caller of `assign_job`.
        results: delivers results to the event loop; workers that share it wake the loop less often.
    """

    def __init__(self, function: Callable[..., Any], results: Mailbox[_FunctionCall] | None = None) -> None:
        if not callable(function):
            raise ArgumentError(f"ThreadWorker: function is {function!r}, expected a callable")
        self._function = function
        self._results = _new_results() if results is None else results
        self._calls: SimpleQueue[_FunctionCall | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"ThreadWorker-{next(_NUMBERS)}", daemon=True)

    async def __aenter__(self) -> ThreadWorker:
        """Start the thread."""
        if self._results.loop is None:
            self._results.bind(asyncio.get_running_loop())
        self._thread.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        """End the thread, which has no jobs left, and join it."""
        self.end()
        self._thread.join()

    def end(self) -> None:
        """Make the thread end after its current call."""
        self._calls.put(None)

    async def _do_job(self, *args: Any, **kwargs: Any) -> Any:
        call = _FunctionCall(args, kwargs)
        self._calls.put(call)
        await call.ended
        return call.outcome()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run(self._function)
            try:
                self._results.post(call)
            except LoopClosedError:  # no task awaits the result
                return
            del call  # release its arguments while the thread waits


class ThreadWorkerPool(BaseAsyncWorkerPool):
    """Pool of threads that call an ordinary function.

    Use it for functions that wait or release the GIL. Leaving the pool waits until all calls have returned, including
    cancelled ones.

    Args:
        function: called with the arguments of each job.

    Raises:
        ArgumentError: `workers_count` is not a positive integer, or `function` is not callable.

    Example:
        >>> import zlib
        >>> async def main():
        ...     async with ThreadWorkerPool(2, zlib.crc32) as pool:
        ...         return await (await pool.assign_job(b"a record"))
        >>> asyncio.run(main())
        2619898082
    """

    def __init__(self, workers_count: int, function: Callable[..., Any]) -> None:
        super().__init__(workers_count)
        if not callable(function):
            raise ArgumentError(f"{type(self).__name__}: function is {function!r}, expected a callable")
        self.function = function
        self._results = _new_results()

    def create_new_worker(self) -> ThreadWorker:
        return ThreadWorker(self.function, self._results)

    def _abandon(self, error: BaseException) -> None:
        super()._abandon(error)
        for worker in self._workers:
            worker.end()
