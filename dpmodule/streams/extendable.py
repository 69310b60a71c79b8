"""Base class of streams that are filled while they are read; subclasses store the items."""

from __future__ import annotations

import asyncio
import dataclasses
import dis
import functools
import inspect
import types
from abc import ABC, abstractmethod
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Generator
from threading import get_ident
from types import TracebackType
from typing import Any, ClassVar, Generic, NoReturn, TypeVar

from ..base import ArgumentError, MXNetError, StateError
from .errors import LoopClosedError, StreamStopped
from .signal_bus import Mailbox

WAITING = frozenset({"SEND", "YIELD_FROM", "YIELD_VALUE"})
"""Bytecode instructions of Python 3.10 to 3.14 with which a coroutine waits."""


@functools.lru_cache(maxsize=256)
def never_waits(hook: Any) -> bool:
    """Return True if a hook is an ``async def`` without an ``await``, so that it cannot be interrupted."""
    if type(hook) is not types.FunctionType or not hook.__code__.co_flags & inspect.CO_COROUTINE:
        return False
    return WAITING.isdisjoint(instruction.opname for instruction in dis.get_instructions(hook))


def steps(hook: Awaitable[Any]) -> Any:
    """Return the coroutine or iterator of an awaitable, with ``send`` and ``throw``."""
    return hook if isinstance(hook, types.CoroutineType) else hook.__await__()


def woken_by(awaited: asyncio.Future[Any], waiter: asyncio.Future[Any]) -> Generator[Any, None, None]:
    """Wait for `waiter`, and end it when `awaited` is done."""
    wake = _setter(waiter)
    awaited.add_done_callback(wake)
    try:
        yield from waiter
    finally:
        awaited.remove_done_callback(wake)


def _setter(waiter: asyncio.Future[Any]) -> Callable[[object], None]:
    def wake(_: object) -> None:
        if not waiter.done():
            waiter.set_result(None)

    return wake


T = TypeVar("T")
Self = TypeVar("Self", bound="BaseAsyncExtendableStream[Any]")
Class = TypeVar("Class", bound="type[BaseAsyncExtendableStream[Any]]")
HOOKS = ("_async_iterator_put_impl", "_async_iterator_next_impl", "_empty_impl")


@dataclasses.dataclass(eq=False)
class BaseAsyncExtendableStream(ABC, Generic[T]):
    """An asynchronous iterator that producers extend with `put` and end with `stop`, `throw` or `cancel`.

    ::

        open ──stop()──> stopped ──all items read──> ended: StopAsyncIteration
          └──────┴──throw(error), cancel()──> failed: the error, before items that are still queued

    A subclass stores the items with three hooks, which are called only in the loop's thread. One consumer reads the
    stream once: a second ``async for`` raises `StreamStopped`. A consumer that left its loop early or was cancelled
    continues with ``await anext(stream)``; no item is lost.

    Call `put`, `stop`, `throw` and `cancel` in the thread of the consumer's event loop. Other threads call
    `put_threadsafe`, `stop_threadsafe` and `throw_threadsafe`; the calls of all threads take effect in their order.

    Args:
        *args: fields of the subclass, a dataclass.
        **kwargs: fields by name.

    Example:
        >>> @dataclasses.dataclass
        ... class LastFirst(BaseAsyncExtendableStream):
        ...     stack: list = dataclasses.field(default_factory=list)
        ...     def _async_iterator_put_impl(self, data):
        ...         self.stack.append(data)
        ...     async def _async_iterator_next_impl(self):
        ...         return self.stack.pop()
        ...     def _empty_impl(self):
        ...         return not self.stack
        >>> async def read():
        ...     stream = LastFirst()
        ...     stream.put(1)
        ...     stream.put(2)
        ...     stream.stop()
        ...     return [item async for item in stream]
        >>> asyncio.run(read())
        [2, 1]
    """

    # hooks that `put` and `__anext__` of a class inline; see `inlines`
    _inlined_hooks: ClassVar[tuple[Any, ...]] = ()

    # not in __init__: a subclass may define an __init__ that does not call this one
    def __new__(cls: type[Self], *args: object, **kwargs: object) -> Self:
        self = super().__new__(cls)
        self._begin()
        return self

    def _begin(self) -> None:
        self._waiter: asyncio.Future[None] | None = None  # not None while a consumer waits in __anext__;
        self._sleeper: asyncio.Future[None] | None = None  # the same, until `put` wakes it
        self._waiter_thread = 0  # thread of the waiter
        self._error: BaseException | None = None
        self._trace: TracebackType | None = None
        self._stopped = False
        self._iterated = False
        self._closing = False  # another thread has called stop or throw
        self._mailbox: Mailbox[tuple[str, Any]] = Mailbox(self._deliver, type(self).__name__)
        self._inlined = _hooks(type(self)) == self._inlined_hooks
        # flags that `put` and `__anext__` check, also for classes that inline hooks
        self._accepts, self._yields = True, True
        self._quick_put, self._quick_next = self._inlined, self._inlined
        self._simple_next = never_waits(type(self)._async_iterator_next_impl)

    @abstractmethod
    def _async_iterator_put_impl(self, data: T) -> None:
        """Store an item."""

    @abstractmethod
    async def _async_iterator_next_impl(self) -> T:
        """Return the next item; called when there is one.

        It may wait. If an error is thrown into the stream meanwhile, it is raised where the hook waits; if the consumer
        is cancelled, a CancelledError is, and the hook must put back an item it has taken.
        """

    @abstractmethod
    def _empty_impl(self) -> bool:
        """Return True if there is no item now."""

    def _expecting_impl(self) -> bool:
        """Return True if a stopped stream still receives items, such as results of tasks (optional)."""
        return False

    def _failed_impl(self) -> None:
        """Release the stored items after an error was thrown into the stream (optional)."""

    def put(self, data: T) -> None:
        """Add an item and wake the consumer.

        Raises:
            StreamStopped: the stream has been stopped or has an error, which is the cause.
            StateError: the consumer waits in the event loop of another thread; the item was not added.
            LoopClosedError: the consumer's event loop is closed.
        """
        if self._sleeper is not None and get_ident() != self._waiter_thread:
            self._check_thread("put")
        if not self._accepts:
            self._settle()
        self._async_iterator_put_impl(data)
        if self._sleeper is not None:
            self._wake()

    def stop(self) -> None:
        """Declare that no more items follow; the consumer's loop ends after the queued items.

        Raises:
            StateError: as in `put`, and LoopClosedError.
        """
        self._check_thread("stop")
        with self._mailbox.lock:  # deliver the items put before, refuse later ones
            self._deliver()
            self._stopped = True
            self._shut()
        self._wake()

    def throw(self, error: BaseException | type[BaseException]) -> None:
        """Raise an error in the consumer's loop, before items that it has not read yet.

        The first error stays, and later ones have no effect. An error after the end is raised by the next read.

        Args:
            error: the exception, or its class.

        Raises:
            ArgumentError: `error` is not an exception.
            StateError: as in `put`, and LoopClosedError.
        """
        failure = _exception(error, self)
        self._check_thread("throw")
        self._fail(failure)

    def cancel(self) -> None:
        """Throw `asyncio.CancelledError` into the stream."""
        self.throw(asyncio.CancelledError)

    def put_threadsafe(self, data: T) -> None:
        """Add an item from any thread.

        Many calls wake the loop only once. If the subclass rejects the item, its error is thrown into the stream.

        Raises:
            StreamStopped: the stream has been stopped or has an error.
            LoopClosedError: the consumer's event loop is closed; the item was not added.
        """
        with self._mailbox.lock:
            if self._closing or self._stopped or self._error is not None:
                self._refuse_put()
            self._mailbox.post(("put", data))
            self._shut()  # until `put` has read the mailbox

    def stop_threadsafe(self) -> None:
        """Call `stop` from any thread.

        Raises:
            LoopClosedError: the consumer's event loop is closed.
        """
        self._post_end("stop", None)

    def throw_threadsafe(self, error: BaseException | type[BaseException]) -> None:
        """Call `throw` from any thread.

        Args:
            error: the exception, or its class.

        Raises:
            LoopClosedError: the consumer's event loop is closed.
        """
        self._post_end("throw", _exception(error, self))

    def _post_end(self, kind: str, content: BaseException | None) -> None:
        with self._mailbox.lock:
            self._mailbox.post((kind, content))
            self._closing = True
            self._shut()

    def __aiter__(self: Self) -> Self:
        if self._iterated:
            raise StreamStopped(
                f"{type(self).__name__} is being iterated already or has been; a stream is read once, by one "
                "consumer: give each consumer its own stream, or continue with `await anext(stream)`"
            )
        self._iterated = True
        return self

    async def __anext__(self) -> T:
        while True:
            if not self._yields or self._waiter is not None:
                self._refuse_next()
            if not self._empty_impl():
                break
            waiter = self._new_waiter()
            if waiter is not None:
                try:
                    await waiter
                finally:
                    self._waiter = None
        if self._simple_next:
            return await self._async_iterator_next_impl()
        hook = steps(self._async_iterator_next_impl())
        try:
            awaited = hook.send(None)
        except StopIteration as done:
            item: T = done.value
            return item
        try:
            item = await self._drive(hook, awaited)
        finally:
            if self._error is not None:
                self._refuse_next()
        return item

    @types.coroutine
    def _drive(self, hook: Any, awaited: Any) -> Generator[Any, None, Any]:
        """Run a hook that waits for `awaited` to its end, and return its result.

        A plain `await` does not work: once the producer has failed, `awaited` may never be done, and the producer's
        error has to be raised in the hook.
        """
        error_raised = False
        while True:
            failure: BaseException | None = None
            try:
                yield from self._pause(awaited, error_raised)
            except BaseException as error:  # the consumer is cancelled or closed
                failure = error
            if failure is None and not error_raised and self._error is not None:
                failure, error_raised = self._error, True
            try:
                awaited = hook.send(None) if failure is None else hook.throw(failure)
            except StopIteration as done:
                return done.value

    def _pause(self, awaited: Any, error_raised: bool) -> Generator[Any, None, None]:
        """Wait for `awaited`, or for an error of the stream that has not been raised in the hook."""
        loop = get_running_loop()
        self._waiter = loop.create_future()
        try:
            if not getattr(awaited, "_asyncio_future_blocking", False):
                yield awaited  # None: a bare yield, as in asyncio.sleep(0)
                return
            awaited._asyncio_future_blocking = False  # the task will wait for the waiter instead
            cancelled = False
            while not awaited.done() and (cancelled or error_raised or self._error is None):
                self._waiter = loop.create_future()
                try:
                    yield from woken_by(awaited, self._waiter)
                except asyncio.CancelledError:
                    # as if the consumer's task awaited it: cancel it and let it end
                    cancelled = awaited.cancel()
                    if not cancelled:
                        raise
        finally:
            self._waiter = None

    def _new_waiter(self) -> asyncio.Future[None] | None:
        """Return the future that the consumer of an empty stream awaits; None if there is an item now."""
        loop = get_running_loop()
        if self._mailbox.loop is not loop:
            self._mailbox.bind(loop)
        if not self._accepts:
            if self._mailbox:
                self._deliver()
                return None
            if self._stopped and not self._expecting_impl():
                raise StopAsyncIteration
        self._waiter = self._sleeper = waiter = loop.create_future()
        self._waiter_thread = get_ident()
        return waiter

    def _check_thread(self, call: str) -> None:
        """Raise StateError if the consumer waits in the event loop of another thread."""
        loop = None if self._waiter is None else self._waiter.get_loop()
        if loop is None or not loop.is_running():
            return
        try:
            is_here = get_running_loop() is loop
        except RuntimeError:
            is_here = False
        if not is_here:
            name = type(self).__name__
            raise StateError(
                f"{name}.{call} was called in another thread than the event loop that reads the stream; "
                f"call {call}_threadsafe there"
            )

    def _wake(self) -> None:
        """Wake the consumer if it waits for an item or the end."""
        sleeper, self._sleeper = self._sleeper, None
        if sleeper is not None and not sleeper.done():
            try:
                sleeper.set_result(None)
            except RuntimeError as error:
                if not sleeper.get_loop().is_closed():
                    raise
                raise LoopClosedError(
                    f"{type(self).__name__}: the event loop that reads it is closed"
                ) from error

    def _fail(self, error: BaseException) -> None:
        if self._error is not None:
            return
        self._trace = error.__traceback__
        self._error = error
        self._yields = self._quick_next = False
        self._shut()
        try:
            self._failed_impl()
        finally:
            self._sleeper = self._waiter  # also while it waits in a hook
            self._wake()

    def _deliver(self) -> None:
        """Execute the calls of other threads."""
        with self._mailbox.lock:
            messages = self._mailbox.take()
            self._accepts = not self._stopped and self._error is None
            self._quick_put = self._accepts and self._inlined
        for kind, content in messages:
            if kind == "throw":
                self._fail(content)
            elif kind == "stop":
                self._stopped = True
                self._shut()
            elif self._error is None:
                try:
                    self._async_iterator_put_impl(content)
                except BaseException as error:  # the producer is elsewhere, so the consumer gets the error
                    self._fail(_exception(error, self))
        self._wake()

    def _shut(self) -> None:
        self._accepts = self._quick_put = False

    def _settle(self) -> None:
        """Execute the calls of other threads, and raise if the stream no longer accepts items."""
        self._deliver()
        if self._stopped or self._error is not None:
            self._refuse_put()

    def _refuse_put(self) -> NoReturn:
        name = type(self).__name__
        if self._error is not None:
            raise StreamStopped(f"put into a {name} that has failed with an error") from self._error
        raise StreamStopped(f"put into a {name} after stop")

    def _refuse_next(self) -> NoReturn:
        if self._error is not None:
            # with the original traceback, which each raise would extend
            raise self._error.with_traceback(self._trace)
        raise StreamStopped(f"another task waits for this {type(self).__name__}; a stream has one consumer")


def inlines(cls: Class) -> Class:
    """Declare that `put` and `__anext__` of a class inline its hooks; subclasses with other hooks do not use them."""
    cls._inlined_hooks = _hooks(cls)
    return cls


def _hooks(cls: type) -> tuple[Any, ...]:
    return tuple(getattr(cls, name) for name in HOOKS)


def _exception(error: Any, stream: object) -> BaseException:
    if isinstance(error, type) and issubclass(error, BaseException):
        error = error()
    if not isinstance(error, BaseException):
        raise ArgumentError(
            f"{type(stream).__name__}.throw: {error!r} is neither an exception nor an exception class"
        )
    if isinstance(error, (StopIteration, StopAsyncIteration)):
        # in the consumer's loop it would look like the end of the stream
        wrapped = MXNetError(f"a producer of {type(stream).__name__} raised {type(error).__name__}")
        wrapped.__cause__ = error
        return wrapped
    return error
