"""Step through the asynchronous hook of a stream."""

from __future__ import annotations

import asyncio
import dis
import functools
import inspect
import types
from collections.abc import Awaitable, Callable, Generator
from typing import Any

WAITING = frozenset({"SEND", "YIELD_FROM", "YIELD_VALUE"})
"""The instructions, of Python 3.10 to 3.13, by which a coroutine waits."""


@functools.lru_cache(maxsize=256)
def never_waits(hook: Any) -> bool:
    """Say whether a hook is an ``async def`` without an ``await``: then nothing can reach it while it waits."""
    if type(hook) is not types.FunctionType or not hook.__code__.co_flags & inspect.CO_COROUTINE:
        return False
    return WAITING.isdisjoint(each.opname for each in dis.get_instructions(hook))


def steps(hook: Awaitable[Any]) -> Any:
    """Return what runs an awaitable step by step, with ``send`` and ``throw``."""
    return hook if isinstance(hook, types.CoroutineType) else hook.__await__()


def woken_by(awaited: asyncio.Future[Any], waiter: asyncio.Future[Any]) -> Generator[Any, None, None]:
    """Wait for `waiter`, which `awaited` ends when it is done."""
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
