"""Streams that return items in the order of `put`, smallest first, or in the order of completion."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import heapq
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import count
from threading import get_ident
from typing import Any, TypeVar

from ..base import ArgumentError, StateError
from .extendable import BaseAsyncExtendableStream, inlines

T = TypeVar("T")


@inlines
@dataclasses.dataclass(eq=False)
class SortedExtendableStream(BaseAsyncExtendableStream[T]):
    """A stream that returns its items in the order of `put`.

    Example:
        >>> import asyncio
        >>> async def produce(stream):
        ...     for number in range(3):
        ...         stream.put(number)
        ...         await asyncio.sleep(0.01)
        ...     stream.stop()
        >>> async def consume():
        ...     stream = SortedExtendableStream()
        ...     producer = asyncio.ensure_future(produce(stream))
        ...     return [number async for number in stream]
        >>> asyncio.run(consume())
        [0, 1, 2]
    """

    queue: deque[T] = dataclasses.field(init=False, default_factory=deque)

    def _async_iterator_put_impl(self, data: T) -> None:
        self.queue.append(data)

    async def _async_iterator_next_impl(self) -> T:
        return self.queue.popleft()

    def _empty_impl(self) -> bool:
        return not self.queue

    # as in the base class, with the hooks inlined

    def put(self, data: T) -> None:
        if not self._quick_put:
            BaseAsyncExtendableStream.put(self, data)
        elif self._sleeper is None:
            self.queue.append(data)
        else:
            if get_ident() != self._waiter_thread:
                self._check_thread("put")
            self.queue.append(data)
            self._wake()

    async def __anext__(self) -> T:
        while self._quick_next:
            if self.queue:
                return self.queue.popleft()
            waiter = self._new_waiter()
            if waiter is not None:
                self._quick_next = False  # a second consumer gets an error
                try:
                    await waiter
                finally:
                    self._waiter = None
                    self._quick_next = self._yields
        return await BaseAsyncExtendableStream.__anext__(self)


@inlines
@dataclasses.dataclass(eq=False)
class PriorityExtendableStream(BaseAsyncExtendableStream[T]):
    """A stream that returns its smallest item first; equal items in the order of `put`.

    Args:
        key: function of an item whose results are compared; None to compare the items.

    Example:
        >>> import asyncio
        >>> async def longest_first():
        ...     stream = PriorityExtendableStream(key=lambda text: -len(text))
        ...     for text in ("a", "bbb", "cc", "ddd"):
        ...         stream.put(text)
        ...     stream.stop()
        ...     return [text async for text in stream]
        >>> asyncio.run(longest_first())
        ['bbb', 'ddd', 'cc', 'a']
    """

    key: Callable[[T], Any] | None = None
    heap: list[tuple[Any, int, T]] = dataclasses.field(init=False, default_factory=list)
    _order: count[int] = dataclasses.field(init=False, default_factory=count, repr=False)

    def _async_iterator_put_impl(self, data: T) -> None:
        key = data if self.key is None else self.key(data)
        entry = (key, next(self._order), data)
        try:
            heapq.heappush(self.heap, entry)
        except BaseException:
            # the key cannot be compared; the heap already has the item
            self.heap[:] = [item for item in self.heap if item is not entry]
            heapq.heapify(self.heap)
            raise

    async def _async_iterator_next_impl(self) -> T:
        return heapq.heappop(self.heap)[2]

    def _empty_impl(self) -> bool:
        return not self.heap

    async def __anext__(self) -> T:
        while self._quick_next:
            if self.heap:
                return heapq.heappop(self.heap)[2]
            waiter = self._new_waiter()
            if waiter is not None:
                self._quick_next = False  # a second consumer gets an error
                try:
                    await waiter
                finally:
                    self._waiter = None
                    self._quick_next = self._yields
        return await BaseAsyncExtendableStream.__anext__(self)


@dataclasses.dataclass(eq=False)
class CompletionExtendableStream(BaseAsyncExtendableStream[Any]):
    """A stream of futures, tasks and coroutines that returns their results in the order of completion.

    A failed future raises its exception in the consumer when its turn comes, and fails the stream. A stream that has
    failed or been cancelled cancels all pending futures. After `stop` the consumer's loop ends when all results have
    been read.

    `put` also accepts futures of `concurrent.futures`. It starts coroutines immediately, so a loop must be running.

    Example:
        >>> async def after(seconds):
        ...     await asyncio.sleep(seconds)
        ...     return seconds
        >>> async def shortest_first():
        ...     stream = CompletionExtendableStream()
        ...     for seconds in (0.1, 0.01, 0.05):
        ...         stream.put(after(seconds))
        ...     stream.stop()
        ...     return [seconds async for seconds in stream]
        >>> asyncio.run(shortest_first())
        [0.01, 0.05, 0.1]
    """

    ready: deque[asyncio.Future[Any]] = dataclasses.field(init=False, default_factory=deque, repr=False)
    pending: dict[asyncio.Future[Any], int] = dataclasses.field(init=False, default_factory=dict, repr=False)

    def _async_iterator_put_impl(self, data: Awaitable[Any] | concurrent.futures.Future[Any]) -> None:
        future = self._future(data)
        self.pending[future] = self.pending.get(future, 0) + 1  # a future may be put twice
        future.add_done_callback(self._completed)

    async def _async_iterator_next_impl(self) -> Any:
        future = self.ready.popleft()
        try:
            return future.result()
        except BaseException as error:
            self.throw(error)
        self._refuse_next()

    def _empty_impl(self) -> bool:
        return not self.ready

    def _expecting_impl(self) -> bool:
        return bool(self.pending)

    def _failed_impl(self) -> None:
        for future in [*self.ready, *self.pending]:
            if not future.cancel():
                _mark_seen(future)
        self.ready.clear()

    def _future(self, data: Any) -> asyncio.Future[Any]:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError as error:
            raise StateError(
                "CompletionExtendableStream.put: no event loop is running in this thread; call it in the thread of the "
                "loop that reads the stream, or put_threadsafe in others"
            ) from error
        if isinstance(data, concurrent.futures.Future):
            return asyncio.wrap_future(data)
        if not inspect.isawaitable(data):
            raise ArgumentError(
                f"CompletionExtendableStream.put: {type(data).__name__} cannot be awaited; expected a future"
            )
        future = asyncio.ensure_future(data)
        if future.get_loop() is not loop:
            raise ArgumentError("CompletionExtendableStream.put: the future belongs to another event loop")
        return future

    def _completed(self, future: asyncio.Future[Any]) -> None:
        count = self.pending.pop(future)
        if count > 1:
            self.pending[future] = count - 1
        if self._error is not None:
            _mark_seen(future)  # no one reads it, and asyncio must not log that
            return
        self.ready.append(future)
        self._wake()


def _mark_seen(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
