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
    """The end of something that cannot be stopped: a task that waits for it is cancelled when it has come."""

    def cancel(self, msg: Any | None = None) -> bool:
        """Do nothing and say so; asyncio then cancels the waiting task when this is done."""
        return False


class _FunctionCall:
    """One call of the function, and what came of it."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._args, self._kwargs = args, kwargs
        self._context = contextvars.copy_context()
        self._result: Any = None
        self._error: BaseException | None = None
        self.ended = Unstoppable()

    def run(self, function: Callable[..., Any]) -> None:
        try:
            self._result = self._context.run(function, *self._args, **self._kwargs)
        except BaseException as error:  # raised again in the event loop, whatever it is
            self._error = error

    def outcome(self) -> Any:
        error, self._error = self._error, None
        if isinstance(error, StopIteration):  # it cannot leave a coroutine as it is
            raise MXNetError(f"the function raised {error!r}") from error
        if error is not None:
            try:
                raise error
            finally:
                del error  # else its traceback would hold it, and whatever callers have
        return self._result


def _new_results() -> Mailbox[_FunctionCall]:
    """Return what brings the calls that threads have done to the event loop."""

    def deliver() -> None:
        for call in results.take():
            call.ended.set_result(None)

    results: Mailbox[_FunctionCall] = Mailbox(deliver, "ThreadWorkerPool")
    return results


class ThreadWorker(BaseAsyncWorker):
    """One thread that calls `function` for each job.

    A function cannot be interrupted: a cancelled job ends when its function has returned. The thread is a daemon, so
    that a function which never returns does not keep the process alive.

    Args:
        function: an ordinary function; it runs in the context variables of whoever assigned the job.
        results: brings results to the event loop; workers that share one wake it less often.
    """

    def __init__(self, function: Callable[..., Any], results: Mailbox[_FunctionCall] | None = None) -> None:
        if not callable(function):
            raise ArgumentError(
                f"ThreadWorker: function is {function!r}, expected something that can be called"
            )
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
        """End the thread, which has no job any longer, and join it."""
        self.end()
        self._thread.join()

    def end(self) -> None:
        """Tell the thread to end after the call it is in."""
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
            except LoopClosedError:  # no one waits
                return
            del call  # its arguments are not to live on while the thread waits


class ThreadWorkerPool(BaseAsyncWorkerPool):
    """Call an ordinary function in threads.

    Use it for functions that wait or that let other threads run (release the GIL). The pool is left when all calls
    have returned, cancelled ones too.

    Args:
        function: what to call with the arguments of each job.

    Raises:
        ArgumentError: `workers_count` is not a positive integer, or `function` cannot be called.

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
            raise ArgumentError(
                f"{type(self).__name__}: function is {function!r}, expected something that can be called"
            )
        self.function = function
        self._results = _new_results()

    def create_new_worker(self) -> ThreadWorker:
        return ThreadWorker(self.function, self._results)

    def _abandon(self, error: BaseException) -> None:
        super()._abandon(error)
        for worker in self._workers:
            worker.end()
