"""Thread pool and event-loop bus in Python, used when the extension is missing: same names and results, slower."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from ..base import ArgumentError, FileError, StateError
from .errors import LoopClosedError, PoolClosedError

_MAX_THREADS = 4096

_forks = 0
_calls: weakref.WeakValueDictionary[int, FunctorCall] = weakref.WeakValueDictionary()
"""Latest call of each functor, by the functor's id."""
_CALLS_LOCK = threading.Lock()


def _after_fork() -> None:
    global _forks, _calls, _CALLS_LOCK
    _forks += 1
    _calls, _CALLS_LOCK = weakref.WeakValueDictionary(), threading.Lock()  # pending calls are the parent's


os.register_at_fork(after_in_child=_after_fork)


class NoopFunctor:
    """A job that does nothing and returns None, for measuring."""

    reentrant = True

    def run(self) -> None:
        """Do nothing."""

    def __dpmodule_functor__(self) -> NoopFunctor:
        return self


def functor_and_function(functor: Any) -> tuple[Any, Callable[[], Any]]:
    """Return the Python functor of an object, and the function that a thread calls for it.

    Args:
        functor: an object whose method ``__dpmodule_functor__()`` returns one with a method `run`.
    """
    convert = getattr(type(functor), "__dpmodule_functor__", None)
    converted = functor if convert is None else convert(functor)
    run = getattr(converted, "run", None)
    if callable(run):
        return converted, run
    if convert is not None and callable(converted):
        return converted, converted
    if type(converted).__name__ == "PyCapsule":
        raise ArgumentError(
            f"{functor!r} is a functor in C++, which runs only with the native extension; "
            "`dpmodule info` says why it is not active"
        )
    raise ArgumentError(
        "expected a functor, that is an object whose __dpmodule_functor__() returns one, "
        f"got {type(functor).__name__}; for a Python function use asyncio.to_thread"
    )


class FunctorCall:
    """One call of a functor: it runs in a thread and resolves its future in the event loop."""

    def __init__(
        self, functor: Any, function: Callable[[], Any], bus: SignalBus, future: asyncio.Future[Any]
    ) -> None:
        self._function, self._future = function, future
        self._bus: SignalBus | None = bus
        self._ended = self._refused = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._functor = functor  # keeps its id from being used again
        if getattr(functor, "reentrant", False):
            return
        with _CALLS_LOCK:
            previous = _calls.get(id(functor))
            if previous is not None and not previous._ended:
                raise StateError(
                    "this functor is still running from an earlier call; await its future first, or make a functor "
                    "for each call"
                )
            _calls[id(functor)] = self

    def run(self) -> None:
        """Run the functor and send the result to the event loop."""
        try:
            self._result = self._function()
        except BaseException as error:  # raised from the future
            self._error = error
        self._complete()

    def refuse(self) -> None:
        """End the call without running the functor."""
        self._refused = True
        self._error = PoolClosedError("the pool was closed before this job began")
        self._complete()

    def _complete(self) -> None:
        bus, self._bus = self._bus, None
        if bus is not None:
            bus.complete(self)

    def resolve(self) -> None:
        """Set the future's result or exception; called in the loop's thread."""
        self._ended = True
        if self._future.done():  # cancelled meanwhile
            return
        if self._error is None:
            self._future.set_result(self._result)
            return
        try:
            self._future.set_exception(self._error)
        except TypeError as refusal:  # a future does not accept StopIteration
            self._future.set_exception(refusal)
        if self._refused:
            self._future.exception()  # asyncio need not log it: the caller closed the pool


class SignalBus:
    """Resolves the futures of an event loop, through ``loop.call_soon_threadsafe``.

    Args:
        create_future: unused, as is `pipe`; the extension's bus needs them.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, create_future: Callable[[], Any], pipe: bool = False
    ) -> None:
        self._loop = weakref.ref(loop)
        self._closed = False
        self._generation = _forks
        self.in_flight = 0

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop; None after `close`."""
        return None if self._closed else self._loop()

    @property
    def closed(self) -> bool:
        """True if the bus or its loop is closed."""
        loop = self.loop
        return loop is None or loop.is_closed()

    @property
    def usable(self) -> bool:
        """True if jobs may be sent: the bus is not closed and was made by this process."""
        return self._generation == _forks and not self.closed

    def fileno(self) -> int:
        """Return -1: there is no descriptor."""
        return -1

    def complete(self, call: FunctorCall) -> None:
        """Have the loop resolve the future of a call, from any thread."""
        loop = self.loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(self._resolve, call)
        except RuntimeError:  # the loop is closed
            self.close()

    def _resolve(self, call: FunctorCall) -> None:
        if not self._closed:
            self.in_flight -= 1
            call.resolve()

    def drain(self) -> None:
        """Do nothing: the loop resolves each future on its own."""

    def close(self) -> None:
        """Drop jobs that end later."""
        self._closed = True


def _work(calls: SimpleQueue[FunctorCall | None]) -> None:
    while (call := calls.get()) is not None:
        call.run()
        del call  # a waiting thread would keep the last future alive


class ThreadPool:
    """Threads that run functors.

    Args:
        name: the threads are called "<name>-<index>".
    """

    def __init__(self, threads: int, name: str) -> None:
        if not isinstance(threads, int):
            raise TypeError(f"'{type(threads).__name__}' object cannot be interpreted as an integer")
        if not 1 <= threads <= _MAX_THREADS:
            raise ArgumentError(f"ThreadPool: threads={threads}, expected 1 to {_MAX_THREADS}")
        self._name, self._size, self._closed = name, threads, False
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        self._generation = _forks
        self._calls: SimpleQueue[FunctorCall | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        for i in range(self._size):
            # a thread refers to the queue alone, so that an unreferenced pool can end it
            thread = threading.Thread(
                target=_work, args=(self._calls,), name=f"{self._name}-{i}", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as refusal:
                self.stop(False)
                raise FileError(errno.EAGAIN, f"{refusal}; {i} of {self._size} were started") from None
            self._threads.append(thread)

    def _reset_after_fork(self) -> None:
        if self._generation != _forks:
            self._generation = _forks
            self._lock = threading.Lock()
            self._threads = []  # the parent's; its queue may be locked for ever
            self._calls = SimpleQueue()

    @property
    def threads(self) -> int:
        """Number of threads."""
        return self._size

    @property
    def closed(self) -> bool:
        """True if the pool no longer accepts jobs."""
        return self._closed

    @property
    def alive(self) -> int:
        """Number of threads that have not ended."""
        self._reset_after_fork()
        return sum(thread.is_alive() for thread in self._threads)

    @property
    def queued(self) -> int:
        """Number of jobs that have not begun."""
        self._reset_after_fork()
        return 0 if self._closed else self._calls.qsize()

    def submit(self, functor: Any, bus: SignalBus) -> asyncio.Future[Any]:
        """Queue a functor and return the future that the bus will resolve."""
        self._reset_after_fork()
        with self._lock:
            if self._closed:
                raise PoolClosedError("the pool is closed; send jobs before close()")
            loop = bus.loop
            if loop is None or not bus.usable:
                raise LoopClosedError("the event loop's bus is closed")
            converted, function = functor_and_function(functor)
            if not self._threads:
                self._start()
            future: asyncio.Future[Any] = loop.create_future()
            self._calls.put(FunctorCall(converted, function, bus, future))
        bus.in_flight += 1
        return future

    def stop(self, finish: bool) -> None:
        """Accept no more jobs; run those that have not begun if `finish`, else refuse them."""
        self._reset_after_fork()
        with self._lock:
            first, self._closed = not self._closed, True
        if not finish:
            try:
                while True:
                    call = self._calls.get_nowait()
                    if call is not None:
                        call.refuse()
            except Empty:
                pass
        if first or not finish:  # the loop above has also taken the ends of the threads
            for _ in self._threads:
                self._calls.put(None)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the threads to end after `stop`; return True if they have."""
        self._reset_after_fork()
        end = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not self.alive

    def __del__(self) -> None:
        if "_threads" in self.__dict__ and not self._closed:
            self.stop(True)


class Worker:
    """Sends functors to a pool from the running event loop."""

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
