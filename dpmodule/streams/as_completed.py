"""A stream of awaitables that gives their results in the order in which they are ready."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import inspect
from collections import deque
from collections.abc import Awaitable
from typing import Any, TypeVar

from ..base import ArgumentError, StateError
from .extendable import BaseAsyncExtendableStream

T = TypeVar("T")


@dataclasses.dataclass(eq=False)
class CompletionExtendableStream(BaseAsyncExtendableStream[Any]):
    """Take futures, tasks and coroutines; give their results in the order in which these are ready.

    A failed one raises its exception at the consumer when its turn comes, and fails the stream with it. A stream
    that has failed, been thrown an error or been cancelled cancels all that is still pending. After `stop` the
    consumer's loop ends when all results have been read.

    `put` also takes futures of `concurrent.futures`. It starts coroutines at once, so it needs the running loop.

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
        self.pending[future] = self.pending.get(future, 0) + 1  # the same may be put twice
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
                "loop that reads the stream, put_threadsafe in others"
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
            _mark_seen(future)  # nobody will read it, and asyncio must not print that
            return
        self.ready.append(future)
        self._wake()


def _mark_seen(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
