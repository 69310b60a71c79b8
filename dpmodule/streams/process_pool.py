"""`ProcessWorkerPool`: an asynchronous pool whose jobs run in child processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ..base import ArgumentError, StateError
from .child import MESSAGE, Channel
from .messages import RemoteError, pack
from .process import GRACE_S, ChildProcess
from .supervisor import START_S, Supervisor
from .worker_pool import BaseAsyncWorker, BaseAsyncWorkerPool

_FAILED_GRACE_S = 0.1


class ProcessWorkerPool(BaseAsyncWorkerPool):
    """Run a function in child processes, one job at a time in each.

    ``await pool.assign_job(*args, **kwargs)`` sends the arguments to a free worker, which calls ``function(*args,
    **kwargs)``. Arguments and results are pickled; the contents of arrays and tensors travel in shared memory, and
    large ones are not copied again on arrival. An exception of the function is raised with its own type, as in
    every pool; a worker that is killed raises `WorkerDied`, which names it, its process, the signal and the job.

    Cancelling a job's future does not interrupt the function: its worker is free again when it returns, and the result
    is dropped. A pool in die mode does not wait: it kills the busy workers.

    Args:
        function: function to call; it is pickled once for each worker, unless `start_method` is "fork", so a callable
            object keeps its state between jobs.
        initializer: called once in each process before the first job.
        initargs: arguments of `initializer`.
        start_method: "spawn", "fork" or "forkserver"; see `Supervisor`.
        timeout_s: most seconds for a job; a worker that takes longer is killed, and the pool fails with `WorkerStuck`,
            which shows the worker's stack. None for no limit.
        grace_s: most seconds for an idle worker to end when the pool is left.
        num_threads: number of threads that torch may use in each process.

    Raises:
        ArgumentError: an invalid number of workers, time or start method.

    Example:
        >>> async def main():
        ...     async with ProcessWorkerPool(2, math.factorial, start_method="fork") as pool:
        ...         futures = [await pool.assign_job(number) for number in (3, 4)]
        ...     return [await future for future in futures]
        >>> asyncio.run(main())
        [6, 24]
    """

    def __init__(
        self,
        workers_count: int,
        function: Callable[..., Any],
        *,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        start_method: str = "spawn",
        timeout_s: float | None = None,
        grace_s: float = GRACE_S,
        num_threads: int = 1,
    ) -> None:
        super().__init__(workers_count)
        if not callable(function):
            raise ArgumentError(f"ProcessWorkerPool: function is {function!r}, expected a callable")
        self.function = function
        self._setup = (initializer, initargs)
        self._supervisor = Supervisor(type(self).__name__, start_method, timeout_s, grace_s, num_threads)
        self._count = 0

    def create_new_worker(self) -> BaseAsyncWorker:
        return _ProcessWorker(self)

    @property
    def pids(self) -> list[int]:
        """The process numbers, in the order of the workers."""
        return [child.pid for child in self._supervisor.children]

    def start_child(self) -> ChildProcess:
        """Start the process of a worker."""
        return self._supervisor.start(_serve, self.function, *self._setup)

    def number_job(self) -> int:
        """Return the next job's number, from 0."""
        self._count += 1
        return self._count - 1

    def fail(self, error: BaseException) -> None:
        """Enter die mode because an idle worker failed.

        Args:
            error: error of the worker.
        """
        self._die(error)

    @property
    def job_timeout_s(self) -> float | None:
        """Most seconds for a job; None for no limit."""
        return self._supervisor.timeout_s

    @property
    def start_blocks(self) -> bool:
        """True if starting a process may block for long, so that a thread should do it."""
        return self._supervisor.start_method == "forkserver"

    @property
    def grace_s(self) -> float:
        """Most seconds for a worker to end on its own; very few once the pool has failed."""
        return _FAILED_GRACE_S if self.die_mode else self._supervisor.grace_s

    async def _leave_workers(self) -> None:
        for worker in self._workers:
            worker.ask_to_end()  # all first, since they are then awaited one after another
        try:
            await super()._leave_workers()
        finally:
            self._supervisor.grace_s = 0.0
            self._supervisor.close()


class _ProcessWorker(BaseAsyncWorker):
    """The parent's side of a worker process."""

    def __init__(self, pool: ProcessWorkerPool) -> None:
        self._pool = pool
        self._child: ChildProcess | None = None
        self._watched: list[int] = []
        self._reply: asyncio.Future[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ready = False

    async def __aenter__(self) -> _ProcessWorker:
        loop = asyncio.get_running_loop()
        if self._pool.start_blocks:
            self._child = await loop.run_in_executor(None, self._pool.start_child)
        else:
            self._child = self._pool.start_child()
        self._watched = [self._child.fileno(), self._child.sentinel]
        for fd in self._watched:
            loop.add_reader(fd, self._on_readable)
        return self

    async def _do_job(self, *args: Any, **kwargs: Any) -> Any:
        loop = asyncio.get_running_loop()
        future = self._reply = loop.create_future()
        self._running().send((self._pool.number_job(), args, kwargs))
        self._start_timer()
        try:
            reply = await asyncio.shield(future)
        except asyncio.CancelledError:
            reply = await self._until_free(future)
            if not isinstance(reply, RemoteError):
                raise
        finally:
            self._stop_timer()
        if isinstance(reply, RemoteError):
            raise reply.restore(repr(self._child))
        return reply[0]

    async def _until_free(self, future: asyncio.Future[Any]) -> Any:
        """After a cancellation, wait for the process's reply and return it; kill the process if the pool fails."""
        while not future.done():
            if self._pool.die_mode:
                self._unwatch()
                self._running().kill()
                return None
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(future)
        return future.result()

    def _start_timer(self) -> None:
        """Start the job's timer; the start of the process does not count."""
        self._stop_timer()
        seconds = self._pool.job_timeout_s
        if seconds is not None and self._reply is not None:
            seconds += 0.0 if self._ready else START_S
            self._timer = asyncio.get_running_loop().call_later(seconds, self._expire, self._reply)

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _expire(self, future: asyncio.Future[Any]) -> None:
        """Kill the process because its job took too long."""
        if future.done():
            return
        self._unwatch()  # from here on the child belongs to another thread: its stack may take half a second
        how = f"did not finish within {self._pool.job_timeout_s:g} s"
        ended = asyncio.get_running_loop().run_in_executor(None, self._running().stuck, how)
        ended.add_done_callback(partial(_fail_with, future))

    def _on_readable(self) -> None:
        """Receive the messages of the process, or notice its end."""
        child = self._running()
        try:
            # all messages: the loop calls again only for data still in the socket
            while self._watched and child.poll():
                self._receive(child.recv())
        except BaseException as error:
            self._unwatch()
            self._fail_job(error)

    def _receive(self, value: Any) -> None:
        if not self._ready:
            self._ready = True
            self._start_timer()
            return
        future, self._reply = self._reply, None
        if future is not None and not future.done():
            future.set_result(value)

    def _fail_job(self, error: BaseException) -> None:
        future, self._reply = self._reply, None
        if future is None or future.done():
            self._pool.fail(error)
        else:
            future.set_exception(error)
            future.exception()  # asyncio need not log it

    def _running(self) -> ChildProcess:
        if self._child is None:
            raise StateError("the worker has no process")
        return self._child

    def _unwatch(self) -> None:
        loop = asyncio.get_running_loop()
        for fd in self._watched:
            loop.remove_reader(fd)
        self._watched.clear()

    def ask_to_end(self) -> None:
        """Ask the idle process to end."""
        self._unwatch()
        self._running().ask_to_end()

    async def __aexit__(self, *error: object) -> None:
        child = self._running()
        self._unwatch()
        try:
            if child.alive:
                await asyncio.get_running_loop().run_in_executor(None, child.close, self._pool.grace_s)
        finally:
            child.release()


def _fail_with(future: asyncio.Future[Any], ended: asyncio.Future[BaseException]) -> None:
    if not future.done():
        future.set_exception(ended.result())
        future.exception()


def _serve(
    channel: Channel,
    function: Callable[..., Any],
    initializer: Callable[..., object] | None,
    initargs: tuple[Any, ...],
) -> None:
    """Run jobs until the parent closes the channel."""
    if initializer is not None:
        initializer(*initargs)
    channel.send("ready")
    while True:
        number, args, kwargs = channel.recv()
        channel.note("job", number)
        reply = pack(MESSAGE, _call(function, args, kwargs))
        channel.note("")  # first: the parent may send the next job after the reply
        channel.send_message(reply)
        del args, kwargs, reply


def _call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    try:
        return (function(*args, **kwargs),)
    except SystemExit:
        raise
    except BaseException as error:
        return RemoteError.of(error, skip=1)
