"""A pool of stateful workers: jobs run inside ``async with``, and the first failure is raised everywhere."""

from __future__ import annotations

import asyncio
from asyncio import get_running_loop
from collections import deque
from collections.abc import Awaitable
from types import CoroutineType, TracebackType
from typing import Any, NoReturn, TypeVar

from ..base import ArgumentError, MXNetError, StateError
from .checks import check_count
from .errors import LoopClosedError, PoolClosedError

Self = TypeVar("Self", bound="BaseAsyncWorkerPool")
Kind = type[BaseException] | None


class BaseAsyncWorker:
    """One worker of a pool: it does one job at a time and may keep state between them."""

    async def __aenter__(self) -> Any:
        """Prepare for jobs (optional)."""
        return self

    async def __aexit__(self, kind: Kind, error: BaseException | None, trace: TracebackType | None) -> Any:
        """Clean up after the last job (optional); the arguments are the exception with which the pool failed."""

    async def _do_job(self, *args: Any, **kwargs: Any) -> Any:
        """Do one job and return its result."""
        raise NotImplementedError(f"{type(self).__name__} has no method _do_job")


class JobFuture(asyncio.Future[Any]):
    """The result of a job; cancelling it cancels the job."""

    __slots__ = ("task",)
    task: asyncio.Task[Any] | None

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the job; the pool stays open, and the worker is free when the job has ended."""
        cancelled = super().cancel(msg)
        if cancelled and self.task is not None:
            self.task.cancel()
        return cancelled


class BaseAsyncWorkerPool:
    """Pool that assigns jobs to a fixed number of workers.

    ::

        new ──async with──> open ──leave──> leaving: waits for all jobs, then for all workers ──> closed
                             │                ^
                             └─ a job fails ──┴─> die mode: running jobs are cancelled

    The first exception that a job does not catch puts the pool in *die mode*: the futures of all unfinished jobs, all
    waiting and later calls of `assign_job`, and leaving the context raise that same exception object. Nothing is
    printed or logged. An exception of the ``async with`` body also puts the pool in die mode, and leaves the context.

    Cancelling a job through its future is not a failure; a job that raises CancelledError on its own has failed. A job
    that does not stop when it is cancelled keeps its worker busy and the context waiting; its result is dropped.
    Cancelling the task that leaves the context cancels the jobs again.

    Args:
        workers_count: number of workers, and of jobs that run at a time.

    Raises:
        ArgumentError: `workers_count` is not a positive integer.

    Example:
        >>> class Doubler(BaseAsyncWorker):
        ...     async def _do_job(self, number):
        ...         return 2 * number
        >>> class Doublers(BaseAsyncWorkerPool):
        ...     def create_new_worker(self):
        ...         return Doubler()
        >>> async def main():
        ...     async with Doublers(2) as pool:
        ...         futures = [await pool.assign_job(number) for number in range(3)]
        ...     return [await future for future in futures]
        >>> asyncio.run(main())
        [0, 2, 4]
    """

    def __init__(self, workers_count: int) -> None:
        check_count(type(self).__name__, "workers_count", workers_count)
        self.workers_count = workers_count
        self._state = "new"
        self._error: BaseException | None = None
        self._trace: TracebackType | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._workers: list[Any] = []
        self._free: deque[Any] = deque()
        self._assigners: deque[asyncio.Future[Any]] = deque()  # first come, first served
        self._running: dict[asyncio.Task[Any], tuple[Any, JobFuture]] = {}
        self._quiet: asyncio.Future[None] | None = None  # resolved when no job is running

    @property
    def die_mode(self) -> bool:
        """True if the pool has failed."""
        return self._error is not None

    def create_new_worker(self) -> Any:
        """Return a new worker; a subclass defines this."""
        raise NotImplementedError(f"{type(self).__name__} has no method create_new_worker")

    async def __aenter__(self: Self) -> Self:
        if self._state != "new":
            raise StateError(
                f"{type(self).__name__} is {self._state}; a pool can be entered once, make a new one"
            )
        self._loop = get_running_loop()
        self._state = "entering"
        try:
            for _ in range(self.workers_count):
                await self._add_worker()
        except BaseException as error:
            self._die(error)
            await self._leave_workers()
            raise
        self._state = "open"
        return self

    async def _add_worker(self) -> None:
        worker = self.create_new_worker()
        if not hasattr(worker, "_do_job"):
            raise ArgumentError(
                f"{type(self).__name__}.create_new_worker returned {worker!r}, expected a BaseAsyncWorker"
            )
        enter = getattr(worker, "__aenter__", None)
        if enter is not None:
            await enter()
        self._workers.append(worker)
        self._free.append(worker)

    async def assign_job(self, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        """Give a job to a worker as soon as one is free, in the order of the calls.

        Args:
            args: passed to the worker's `_do_job`.

        Returns:
            The future of the job's result. Awaiting it in a task that is cancelled cancels the job, as with any
            asyncio future; `asyncio.shield` prevents that.

        Raises:
            PoolClosedError: the pool is not open.
            StateError: this is not the event loop in which the pool was entered.
            BaseException: the failure that put the pool in die mode.
        """
        if self._error is not None or self._state != "open" or get_running_loop() is not self._loop:
            self._refuse()
        if self._free and not self._assigners:
            worker = self._free.popleft()
        else:
            worker = await self._wait_for_worker()
        try:
            return self._start(worker, args, kwargs)
        except BaseException as error:  # a failed call counts as a failed job
            self._die(error)
            self._release(worker)
            raise

    def _refuse(self) -> NoReturn:
        """Raise the reason why the pool accepts no jobs."""
        if self._error is not None:
            # with the original traceback, which each raise would extend
            raise self._error.with_traceback(self._trace)
        if self._state != "open":
            raise PoolClosedError(
                f"{type(self).__name__} is {self._state}; jobs run only inside `async with pool`"
            )
        self._refuse_loop()

    def _refuse_loop(self) -> NoReturn:
        if self._loop is not None and self._loop.is_closed():
            raise LoopClosedError(f"{type(self).__name__}: the event loop in which it was entered is closed")
        raise StateError(f"{type(self).__name__} was entered in another event loop; use one pool per loop")

    async def _wait_for_worker(self) -> Any:
        turn = get_running_loop().create_future()
        self._assigners.append(turn)
        try:
            worker = await turn
        except BaseException:
            # cancelled: a worker that was already assigned goes to the next assigner
            if not turn.cancelled() and turn.done() and turn.exception() is None:
                self._release(turn.result())
            raise
        if self._error is not None or self._state != "open":  # the state changed before this task ran again
            self._release(worker)
            self._refuse()
        return worker

    def _start(self, worker: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> JobFuture:
        job = worker._do_job(*args, **kwargs)
        loop = get_running_loop()
        task = loop.create_task(job if isinstance(job, CoroutineType) else _awaited(job))
        future = JobFuture(loop=loop)
        future.task = task
        self._running[task] = worker, future
        task.add_done_callback(self._ended)
        return future

    def _ended(self, task: asyncio.Task[Any]) -> None:
        worker, future = self._running.pop(task)
        future.task = None
        error = _cancellation_of(task) if task.cancelled() else task.exception()
        if error is None:
            if not future.done():
                future.set_result(task.result())
        elif not (future.cancelled() and isinstance(error, asyncio.CancelledError)):
            self._die(error, future)
        self._release(worker)
        if self._quiet is not None and not self._running and not self._quiet.done():
            self._quiet.set_result(None)

    def _release(self, worker: Any) -> None:
        """Give a worker to the longest-waiting assigner, or add it to the free workers."""
        while self._assigners:
            turn = self._assigners.popleft()
            if not turn.done():
                turn.set_result(worker)
                return
        self._free.append(worker)

    def _die(self, error: BaseException, *futures: asyncio.Future[Any]) -> None:
        """Enter die mode and fail all waiting calls; in die mode, only set the error of `futures`."""
        first = self._error is None
        if self._error is None:
            self._error, self._trace = _raisable(error), error.__traceback__
        for future in futures:
            _fail(future, self._error)
        if first:
            self._refuse_assigners(self._error)
            for _, future in self._running.values():
                _fail(future, self._error)
            self._cancel_jobs()

    def _cancel_jobs(self) -> None:
        current = asyncio.current_task(self._loop)
        for task in list(self._running):
            if task is not current:
                task.cancel()

    def _refuse_assigners(self, error: BaseException) -> None:
        while self._assigners:
            _fail(self._assigners.popleft(), error)

    async def __aexit__(self, kind: Kind, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, GeneratorExit):  # the coroutine is being closed and must not wait
            self._abandon(error)
            return
        if self._state != "open":
            raise StateError(f"{type(self).__name__} is {self._state}; only an open pool can be left")
        if get_running_loop() is not self._loop:
            self._refuse_loop()
        self._state = "leaving"
        failed_before = self._error
        if error is not None:
            self._die(error)
        self._refuse_assigners(
            PoolClosedError(f"{type(self).__name__} is leaving its context; no job was started")
        )
        await self._wait_for_jobs()
        await self._leave_workers()
        if error is None or failed_before is not None and not _goes_first(error, failed_before):
            self._raise_error(error)

    def _abandon(self, error: BaseException) -> None:
        """Close without waiting."""
        self._state = "closed"
        if self._loop is not None and not self._loop.is_closed():
            self._die(error)

    def _raise_error(self, body_error: BaseException | None) -> None:
        if self._error is not None and self._error is not body_error:
            raise self._error.with_traceback(self._trace)

    async def _wait_for_jobs(self) -> None:
        while self._running:
            self._quiet = get_running_loop().create_future()
            try:
                await self._quiet
            except asyncio.CancelledError as error:
                if self._error is None:
                    self._die(error)
                else:
                    self._cancel_jobs()  # they did not stop after the first cancellation

    async def _leave_workers(self) -> None:
        """Exit the contexts of all workers, the last one first, even if some raise."""
        while self._workers:
            leave = getattr(self._workers.pop(), "__aexit__", None)
            if leave is None:
                continue
            error = self._error
            try:
                await leave(None if error is None else type(error), error, self._trace)
            except BaseException as failure:
                if failure is not error:
                    self._die(failure)
        self._free.clear()
        self._state = "closed"


def _goes_first(body: BaseException, pool: BaseException) -> bool:
    """Return True if the body's error takes precedence over an earlier failure of the pool."""
    if isinstance(body, (KeyboardInterrupt, SystemExit)):
        return True
    # the event loop has raised the job's interrupt, and therefore cancels the tasks
    return isinstance(body, asyncio.CancelledError) and isinstance(pool, (KeyboardInterrupt, SystemExit))


def _raisable(error: BaseException) -> BaseException:
    if not isinstance(error, StopIteration):
        return error
    # futures do not accept StopIteration
    wrapped = MXNetError(f"the body of the pool's context raised {error!r}")
    wrapped.__cause__ = error
    return wrapped


async def _awaited(job: Awaitable[Any]) -> Any:
    return await job


def _cancellation_of(task: asyncio.Task[Any]) -> BaseException:
    try:
        task.result()
    except asyncio.CancelledError as error:
        return error
    return asyncio.CancelledError()


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    """Set a future's exception and mark it as retrieved, so that asyncio does not log it; the pool raises it too."""
    if not future.done():
        future.set_exception(error)
        future.exception()
