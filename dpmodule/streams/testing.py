"""Conformance checks for your own streams and pools; the built-in ones pass them too."""

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
    """Check that a stream class behaves as all streams do: end, errors, single consumer, cancellation, threads.

    Args:
        factory: returns a new stream; usually the class.
        items: at least two items to put, or a function that returns new ones and is called while the loop runs.
        expected: output, in this order, if all items are put before they are read; None for the items themselves in
            any order.
        new_loop: returns the event loop to use, such as `uvloop.new_event_loop`.
        timeout_s: most seconds per trial.

    Returns:
        Names of the trials, all of which passed.

    Raises:
        ConformanceError: a trial failed, hung, or caused asyncio to report an error; the message names each one.

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
    """Check that a pool class behaves as all pools do: when jobs run, waiting, failures, no reports by asyncio.

    Args:
        factory: returns a new pool with the given number of workers.
        good: arguments of a job that returns immediately, or a function that returns them; likewise for the next two.
        bad: arguments of a job that raises an exception immediately.
        slow: arguments of a job that succeeds after about 0.05 to 0.5 seconds.
        check: returns True if its argument is a correct result of a good job.
        new_loop: returns the event loop to use.
        timeout_s: most seconds per trial.

    Returns:
        Names of the trials, all of which passed.

    Raises:
        ConformanceError: a trial failed, hung, or caused asyncio to report an error; the message names each one.

    Example:
        >>> import time
        >>> from dpmodule.streams import ThreadWorkerPool
        >>> names = check_worker_pool(lambda count: ThreadWorkerPool(count, time.sleep), (0,), (-1,), (0.05,))
    """
    trials = PoolTrials(factory, _maker(good), _maker(bad), _maker(slow), check)
    return run_trials(trials, new_loop, timeout_s)


def _maker(arguments: tuple[Any, ...] | Callable[[], tuple[Any, ...]]) -> Callable[[], tuple[Any, ...]]:
    return arguments if callable(arguments) else lambda: arguments
