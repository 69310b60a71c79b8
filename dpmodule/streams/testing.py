"""Conformance checks for streams and pools of your own: the same that ours pass."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from .._core import lazy
from .abc import Stream, WorkerPool
from .conformance import ConformanceError, PoolTrials, StreamTrials, run_trials

__all__ = ["ConformanceError", "check_stream", "check_worker_pool"]

lazy.publish(__name__, __all__)


def check_stream(
    factory: Callable[[], Stream[Any]],
    items: Sequence[Any] | Callable[[], Sequence[Any]] = tuple(range(10)),
    expected: Sequence[Any] | None = None,
    *,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    timeout_s: float = 5.0,
) -> list[str]:
    """Check that a kind of stream does what all streams do: the end, errors, one consumer, cancellation, threads.

    Args:
        factory: returns a new stream, such as its class.
        items: what to put, at least two; or a function that returns new ones and is called where the loop runs.
        expected: what comes out, in this order, when all items are put before they are read. None: the items
            themselves, in any order.
        new_loop: returns the event loop to check with, such as `uvloop.new_event_loop`.
        timeout_s: most seconds for one trial.

    Returns:
        The names of the trials, all of which passed.

    Raises:
        ConformanceError: trials failed, hang, or left something for asyncio to print; the text names each.

    Example:
        >>> from dpmodule.streams import SortedExtendableStream
        >>> "a_cancelled_consumer_loses_nothing" in check_stream(SortedExtendableStream, "abc", "abc")
        True
    """
    make = items if callable(items) else lambda: items
    return run_trials(StreamTrials(factory, make, expected), new_loop, timeout_s)


def check_worker_pool(
    factory: Callable[[int], WorkerPool],
    good: tuple[Any, ...] | Callable[[], tuple[Any, ...]],
    bad: tuple[Any, ...] | Callable[[], tuple[Any, ...]],
    slow: tuple[Any, ...] | Callable[[], tuple[Any, ...]],
    *,
    check: Callable[[Any], object] = lambda result: True,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    timeout_s: float = 10.0,
) -> list[str]:
    """Check that a kind of pool does what all pools do: when jobs run, who waits, what a failure raises, silence.

    Args:
        factory: returns a new pool of so many workers.
        good: arguments of a job that ends at once; or a function that returns them, here and below.
        bad: arguments of a job that raises an exception at once.
        slow: arguments of a job that succeeds after about 0.05 to 0.5 seconds.
        check: looks at the result of a good job and says whether it is right.
        new_loop: returns the event loop to check with.
        timeout_s: most seconds for one trial.

    Returns:
        The names of the trials, all of which passed.

    Raises:
        ConformanceError: trials failed, hang, or left something for asyncio to print; the text names each.

    Example:
        >>> import time
        >>> from dpmodule.streams import ThreadWorkerPool
        >>> names = check_worker_pool(lambda count: ThreadWorkerPool(count, time.sleep), (0,), (-1,), (0.05,))
    """
    trials = PoolTrials(factory, _maker(good), _maker(bad), _maker(slow), check)
    return run_trials(trials, new_loop, timeout_s)


def _maker(arguments: tuple[Any, ...] | Callable[[], tuple[Any, ...]]) -> Callable[[], tuple[Any, ...]]:
    return arguments if callable(arguments) else lambda: arguments
