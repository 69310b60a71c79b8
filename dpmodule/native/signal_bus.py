"""The way from threads to one event loop, without the extension: one wake-up for all jobs that have ended."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from ..base import StateError
from .errors import PoolClosedError

_forks = 0


def _count_fork() -> None:
    global _forks, _flights
    _forks += 1
    _flights = Flights()  # what is on its way is the parent's


os.register_at_fork(after_in_child=_count_fork)


def fork_generation() -> int:
    """Return how often this process has been forked off since the first of its ancestors loaded this module."""
    return _forks


class Flights:
    """The functors that are on their way, so that none is in two threads at once unless it is `reentrant`.

    A job that nobody holds any more, since its loop was closed, has ended.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: weakref.WeakValueDictionary[int, FunctorCall] = weakref.WeakValueDictionary()

    def add(self, job: FunctorCall) -> None:
        """Enter a job."""
        if getattr(job.functor, "reentrant", False):
            return
        with self._lock:
            other = self._jobs.get(id(job.functor))
            if other is not None and not other.ended:
                raise StateError(
                    "this functor is still running from an earlier call; await its future first, or make a functor "
                    "for each call"
                )
            self._jobs[id(job.functor)] = job


_flights = Flights()


class FunctorCall:
    """One call of a functor on its way from the loop's thread to a worker and back."""

    __slots__ = ("__weakref__", "bus", "ended", "error", "functor", "future", "refused", "result", "work")

    def __init__(
        self, functor: Any, work: Callable[[], Any], bus: SignalBus, future: asyncio.Future[Any]
    ) -> None:
        self.functor, self.work, self.future = functor, work, future
        self.bus: SignalBus | None = bus
        self.refused = self.ended = False
        self.result: Any = None
        self.error: BaseException | None = None
        _flights.add(self)

    def run(self) -> None:
        """Do the work and keep how it ended."""
        try:
            self.result = self.work()
        except BaseException as error:  # it belongs to whoever awaits the job
            self.error = error

    def refuse(self) -> None:
        """End the job without having begun it."""
        self.refused = True
        self.error = PoolClosedError("the pool was closed before this job began")

    def hand_back(self) -> None:
        """Give the job to its bus, and forget the bus, which now holds the job."""
        bus, self.bus = self.bus, None
        if bus is not None:
            bus.complete(self)

    def resolve(self) -> None:
        """Give the future what came out; in the loop's thread."""
        self.ended = True
        if self.future.done():  # cancelled meanwhile
            return
        if self.error is None:
            self.future.set_result(self.result)
            return
        try:
            self.future.set_exception(self.error)
        except TypeError as refusal:  # a future takes no StopIteration
            self.future.set_exception(refusal)
        if self.refused:
            # whoever closed the pool knows: if nobody awaits the job, asyncio need not report it
            self.future.exception()


class SignalBus:
    """Tells an event loop that jobs have ended.

    Args:
        create_future: unused here, as is `pipe`; the loop's own way to be woken is taken.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, create_future: Callable[[], Any], pipe: bool = False
    ) -> None:
        self._loop = weakref.ref(loop)
        self._finished: deque[FunctorCall] = deque()
        self._told = self._closed = False
        self._generation = _forks
        self.in_flight = 0

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop, None once closed."""
        return None if self._closed else self._loop()

    @property
    def closed(self) -> bool:
        """Whether the bus or its loop has been closed."""
        loop = self.loop
        return loop is None or loop.is_closed()

    @property
    def usable(self) -> bool:
        """Whether jobs may be sent: neither closed nor made before a fork."""
        return self._generation == _forks and not self.closed

    def fileno(self) -> int:
        """Return the descriptor that becomes readable: -1, there is none."""
        return -1

    def complete(self, job: FunctorCall) -> None:
        """Hand a job back, in any thread; the loop is woken only if it has not been told yet."""
        loop = self.loop
        if loop is None:  # nobody waits any more
            return
        self._finished.append(job)
        if self._told:
            return
        self._told = True
        try:
            loop.call_soon_threadsafe(self.drain)
        except RuntimeError:  # the loop has been closed
            self.close()

    def drain(self) -> None:
        """Resolve the futures of all jobs that have ended."""
        self._told = False
        while self._finished:
            job = self._finished.popleft()
            self.in_flight -= 1
            job.resolve()

    def close(self) -> None:
        """Drop jobs that end later."""
        self._closed = True
        self._finished.clear()
