"""Run a stream's asynchronous hook so that an error thrown into the stream reaches it while it waits."""

from __future__ import annotations

import asyncio
import dis
import functools
import inspect
import types
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    Future = asyncio.Future[Any]

__all__ = ["Watched", "drive", "never_waits", "steps"]

WAITING = frozenset({"SEND", "YIELD_FROM", "YIELD_VALUE"})
"""The instructions, of Python 3.10 to 3.13, by which a coroutine waits."""


class Watched(Protocol):
    """What `drive` needs of a stream."""

    _waiter: Future | None
    """What its consumer waits for."""
    _error: BaseException | None
    """What was thrown into it."""


@functools.lru_cache(maxsize=256)
def never_waits(hook: Any) -> bool:
    """Say whether a hook is an ``async def`` without an ``await``: then nothing can reach it while it waits."""
    if type(hook) is not types.FunctionType or not hook.__code__.co_flags & inspect.CO_COROUTINE:
        return False
    return WAITING.isdisjoint(each.opname for each in dis.get_instructions(hook))


def steps(hook: Awaitable[Any]) -> Any:
    """Return what runs an awaitable step by step, with ``send`` and ``throw``."""
    return hook if isinstance(hook, types.CoroutineType) else hook.__await__()


@types.coroutine
def drive(stream: Watched, hook: Any, awaited: Any) -> Generator[Any, None, Any]:
    """Go on with a hook that waits for `awaited`, and return its result.

    The hook cannot simply be awaited: what it waits for may never come once the producer has failed, and
    then the producer's error has to be raised in the hook.
    """
    told = False
    while True:
        failure: BaseException | None = None
        try:
            yield from _pause(stream, awaited, told)
        except BaseException as error:  # of the consumer: cancelled, or closed
            failure = error
        if failure is None and not told and stream._error is not None:
            failure, told = stream._error, True
        try:
            awaited = hook.send(None) if failure is None else hook.throw(failure)
        except StopIteration as done:
            return done.value


def _pause(stream: Watched, awaited: Any, told: bool) -> Generator[Any, None, None]:
    """Wait for `awaited`, or until an error is thrown into the stream, of which the hook has not been told."""
    loop = asyncio.get_running_loop()
    stream._waiter = loop.create_future()
    try:
        if not getattr(awaited, "_asyncio_future_blocking", False):
            yield awaited  # None: a bare pause, as of asyncio.sleep(0)
            return
        awaited._asyncio_future_blocking = False  # the task will wait for the waiter instead
        cancelled = False
        while not awaited.done() and (cancelled or told or stream._error is None):
            stream._waiter = loop.create_future()
            try:
                yield from _woken_by(awaited, stream._waiter)
            except asyncio.CancelledError:
                # as if the consumer's task had waited for it: cancel it, and let it end
                cancelled = awaited.cancel()
                if not cancelled:
                    raise
    finally:
        stream._waiter = None


def _woken_by(awaited: Future, waiter: Future) -> Generator[Any, None, None]:
    wake = _setter(waiter)
    awaited.add_done_callback(wake)
    try:
        yield from waiter
    finally:
        awaited.remove_done_callback(wake)


def _setter(waiter: Future) -> Callable[[object], None]:
    def wake(_: object) -> None:
        if not waiter.done():
            waiter.set_result(None)

    return wake
