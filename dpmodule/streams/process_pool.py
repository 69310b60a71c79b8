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
    those of large ones are not copied again on arrival. An exception of the function is raised with its own type, as in
    every pool; a worker that is killed raises `WorkerDied`, which names it, its process, the signal and the job.

    Cancelling a job's future does not interrupt the function: its worker is free again when it returns, and what it
    returns is dropped. A pool in die mode does not wait: it kills the workers that are busy.

    Args:
        function: what they call; it is pickled once for each of them, unless `start_method` is "fork", so an object
            with a method ``__call__`` keeps its state there between jobs.
        initializer: called once in each process before the first job.
        initargs: what `initializer` is called with.
        start_method: "spawn", "fork" or "forkserver"; see `Supervisor`.
        timeout_s: how long a job may take, in seconds; a worker that takes longer is killed, and the pool fails with
            `WorkerStuck`, which shows the worker's stack. None: as long as it takes.
        grace_s: how long an idle worker may take to end when the pool is left, in seconds.
        num_threads: how many threads torch may use in each process.

    Raises:
        ArgumentError: a number of workers or a time that makes no sense, or no such start method.

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
            raise ArgumentError(f"ProcessWorkerPool: function is {function!r}, expected something to call")
        self.function = function
        self._setup = (initializer, initargs)
        self._supervisor = Supervisor(type(self).__name__, start_method, timeout_s, grace_s, num_threads)
        self._count = 0

    def create_new_worker(self) -> BaseAsyncWorker:
        return _ProcessWorker(self)

    @property
    def pids(self) -> list[int]:
        """The processes' numbers, in the order of the workers."""
        return [child.pid for child in self._supervisor.children]

    def start_child(self) -> ChildProcess:
        """Start the process of a worker."""
        return self._supervisor.start(_serve, self.function, *self._setup)

    def number_job(self) -> int:
        """Return the next job's number, from 0."""
        self._count += 1
        return self._count - 1

    def fail(self, error: BaseException) -> None:
        """Enter die mode because of a worker that had no job.

        Args:
            error: what happened to it.
        """
        self._die(error)

    @property
    def job_timeout_s(self) -> float | None:
        """How long a job may take, in seconds."""
        return self._supervisor.timeout_s

    @property
    def start_blocks(self) -> bool:
        """Whether starting a process may take so long that the event loop should go on meanwhile."""
        return self._supervisor.start_method == "forkserver"

    @property
    def grace_s(self) -> float:
        """How long a worker may take to end by itself, in seconds: next to nothing once the pool has failed."""
        return _FAILED_GRACE_S if self.die_mode else self._supervisor.grace_s

    async def _leave_workers(self) -> None:
        for worker in self._workers:
            worker.ask_to_end()  # all at once, since they are then awaited one after another
        try:
            await super()._leave_workers()
        finally:
            self._supervisor.grace_s = 0.0
            self._supervisor.close()


class _ProcessWorker(BaseAsyncWorker):
    """The parent's side of one worker process."""

    def __init__(self, pool: ProcessWorkerPool) -> None:
        self._pool = pool
        self._child: ChildProcess | None = None
        self._watched: list[int] = []
        self._answer: asyncio.Future[Any] | None = None
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
            loop.add_reader(fd, self._heard)
        return self

    async def _do_job(self, *args: Any, **kwargs: Any) -> Any:
        loop = asyncio.get_running_loop()
        answer = self._answer = loop.create_future()
        self._running().send((self._pool.number_job(), args, kwargs))
        self._start_timer()
        try:
            reply = await asyncio.shield(answer)
        except asyncio.CancelledError:
            reply = await self._until_free(answer)
            if not isinstance(reply, RemoteError):
                raise
        finally:
            self._stop_timer()
        if isinstance(reply, RemoteError):
            raise reply.restore(repr(self._child))
        return reply[0]

    async def _until_free(self, answer: asyncio.Future[Any]) -> Any:
        """After a cancellation: wait until the process is free again and return its reply; kill it if the pool ends."""
        while not answer.done():
            if self._pool.die_mode:
                self._unwatch()
                self._running().kill()
                return None
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(answer)
        return answer.result()

    def _start_timer(self) -> None:
        """Begin to count the job's time; what the process takes to start is not part of it."""
        self._stop_timer()
        seconds = self._pool.job_timeout_s
        if seconds is not None and self._answer is not None:
            seconds += 0.0 if self._ready else START_S
            self._timer = asyncio.get_running_loop().call_later(seconds, self._expire, self._answer)

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _expire(self, answer: asyncio.Future[Any]) -> None:
        """Kill the process, which has worked too long on its job."""
        if answer.done():
            return
        self._unwatch()  # the child is another thread's from here on: showing its stack may take half a second
        how = f"did not finish within {self._pool.job_timeout_s:g} s"
        ended = asyncio.get_running_loop().run_in_executor(None, self._running().stuck, how)
        ended.add_done_callback(partial(_fail_with, answer))

    def _heard(self) -> None:
        """Take what the process has sent, or find out that it has ended."""
        child = self._running()
        try:
            # all of it: the loop calls again only for what is still in the socket
            while self._watched and child.poll():
                self._got(child.recv())
        except BaseException as error:
            self._unwatch()
            self._lost(error)

    def _got(self, value: Any) -> None:
        if not self._ready:
            self._ready = True
            self._start_timer()
            return
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(value)

    def _lost(self, error: BaseException) -> None:
        answer, self._answer = self._answer, None
        if answer is None or answer.done():
            self._pool.fail(error)
        else:
            answer.set_exception(error)
            answer.exception()  # whoever awaits it gets it; nothing else is to report it

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
        """Let the process end by itself; it has no job."""
        self._unwatch()
        self._running().ask_to_end()

    async def __aexit__(self, *error: object) -> None:
        child = self._running()
        self._unwatch()
        try:
            if child.alive:
                await asyncio.get_running_loop().run_in_executor(None, child.close, self._pool.grace_s)
        finally:
            child.give_back()


def _fail_with(answer: asyncio.Future[Any], ended: asyncio.Future[BaseException]) -> None:
    if not answer.done():
        answer.set_exception(ended.result())
        answer.exception()


def _serve(
    channel: Channel,
    function: Callable[..., Any],
    initializer: Callable[..., object] | None,
    initargs: tuple[Any, ...],
) -> None:
    """Do jobs until the parent closes the channel."""
    if initializer is not None:
        initializer(*initargs)
    channel.send("ready")
    while True:
        number, args, kwargs = channel.recv()
        channel.note("job", number)
        reply = pack(MESSAGE, _attempt(function, args, kwargs))
        channel.note("")  # the parent may give the next job as soon as it has the reply
        channel.send_message(reply)
        del args, kwargs, reply


def _attempt(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    try:
        return (function(*args, **kwargs),)
    except SystemExit:
        raise
    except BaseException as error:
        return RemoteError.of(error, skip=1)
