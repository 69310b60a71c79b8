"""Streams that give items in the order of `put`, or the smallest first."""

from __future__ import annotations

import dataclasses
import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from threading import get_ident
from typing import Any, TypeVar

from .extendable import BaseAsyncExtendableStream, inlines

T = TypeVar("T")


@inlines
@dataclasses.dataclass(eq=False)
class SortedExtendableStream(BaseAsyncExtendableStream[T]):
    """A stream that gives its items in the order in which they were put.

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

    # the same as the base class does with these hooks, without calling them

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
                self._quick_next = False  # another consumer has to be refused
                try:
                    await waiter
                finally:
                    self._waiter = None
                    self._quick_next = self._yields
        return await BaseAsyncExtendableStream.__anext__(self)


@inlines
@dataclasses.dataclass(eq=False)
class PriorityExtendableStream(BaseAsyncExtendableStream[T]):
    """A stream that gives the smallest of the items it holds; equal ones in the order in which they were put.

    Args:
        key: what to compare instead of the items themselves.

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
            # a key that cannot be compared; the heap has taken the item before it noticed
            self.heap[:] = [each for each in self.heap if each is not entry]
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
                self._quick_next = False  # another consumer has to be refused
                try:
                    await waiter
                finally:
                    self._waiter = None
                    self._quick_next = self._yields
        return await BaseAsyncExtendableStream.__anext__(self)
