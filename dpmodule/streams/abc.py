"""Protocols of streams and worker pools, which pipelines and conformance checks use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Protocol, TypeVar, runtime_checkable

from .._core import lazy

__all__ = ["Stream", "Worker", "WorkerPool"]

lazy.publish(__name__, __all__)

T = TypeVar("T")
Self = TypeVar("Self")


@runtime_checkable
class Stream(Protocol[T]):
    """An asynchronous iterator that producers fill while one consumer reads it, once."""

    def put(self, data: T) -> None:
        """Add an item.

        Raises:
            StreamStopped: after `stop` or `throw`.
        """

    def stop(self) -> None:
        """End the consumer's loop after the queued items."""

    def throw(self, error: BaseException | type[BaseException]) -> None:
        """Raise an error in the consumer's loop, before the queued items.

        Args:
            error: the exception, or its class.
        """

    def cancel(self) -> None:
        """Throw `asyncio.CancelledError`."""

    def __aiter__(self) -> AsyncIterator[T]:
        """Return the stream itself."""

    async def __anext__(self) -> T:
        """Wait for the next item and return it."""


@runtime_checkable
class Worker(Protocol):
    """A worker that does one job at a time; ``__aenter__`` and ``__aexit__`` are optional."""

    async def _do_job(self, *args: Any, **kwargs: Any) -> Any:
        """Do a job and return its result."""


@runtime_checkable
class WorkerPool(Protocol):
    """A pool that gives jobs to workers inside ``async with`` and raises the first failure everywhere."""

    @property
    def die_mode(self) -> bool:
        """True if a job has failed."""

    async def assign_job(self, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        """Return the future of a job as soon as a free worker has taken it.

        Args:
            *args: arguments of the pool's function.
            **kwargs: keyword arguments of the pool's function.

        Raises:
            PoolClosedError: outside ``async with``.
            BaseException: the first failure of a job, the same object each time.
        """

    async def __aenter__(self: Self) -> Self:
        """Enter the contexts of the workers."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the jobs and leave the contexts of the workers."""
