"""Run trials, each in an event loop of its own, and report all that failed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from ...base import MXNetError

Trial = Callable[[], Coroutine[Any, Any, None]]
_CLEANING_S = 1.0


class ConformanceError(MXNetError, AssertionError):
    """A stream or pool that does not do what all of them do; the text names each trial that failed, and why."""


class _Violation(Exception):
    """What one trial found."""


def expect(condition: object, text: str) -> None:
    """Go on if the condition holds; else the trial has failed."""
    if not condition:
        raise _Violation(text)


async def failure_of(awaitable: Awaitable[Any]) -> BaseException | None:
    """Return what awaiting raises, None if it raises nothing."""
    try:
        await awaitable
    except BaseException as error:
        return error
    return None


def run_trials(
    trials: Mapping[str, Trial], new_loop: Callable[[], asyncio.AbstractEventLoop], timeout_s: float
) -> list[str]:
    """Run all trials and return their names."""
    problems = []
    is_frozen = (
        gc.get_freeze_count() > 0
    )  # by the caller, for whom it stays so; counting looks at each object
    for name, trial in trials.items():
        problem = _run(trial, new_loop, timeout_s, is_frozen)
        if problem:
            problems.append(f"{name}: {problem}")
    if problems:
        raise ConformanceError(f"{len(problems)} of {len(trials)} trials failed:\n  " + "\n  ".join(problems))
    return list(trials)


def _run(
    trial: Trial, new_loop: Callable[[], asyncio.AbstractEventLoop], timeout_s: float, is_frozen: bool
) -> str:
    if not is_frozen:
        gc.freeze()  # what was there before need not be looked at
    loop = new_loop()
    reports: list[str] = []
    loop.set_exception_handler(lambda _, report: reports.append(_text(report)))
    try:
        problem = loop.run_until_complete(_within(trial, timeout_s))
        gc.collect()  # asyncio reports exceptions that nobody has retrieved when their futures go
    finally:
        if not is_frozen:
            gc.unfreeze()
        loop.close()
    if problem or not reports:
        return problem
    return "asyncio would have printed: " + "; ".join(reports)


async def _within(trial: Trial, timeout_s: float) -> str:
    task = asyncio.ensure_future(trial())
    await asyncio.wait({task}, timeout=timeout_s)
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_CLEANING_S)
        if task.done() and not task.cancelled():
            task.exception()
        return f"it hangs; not done within {timeout_s:g} s"
    if task.cancelled():
        return "CancelledError left it"
    error = task.exception()
    if error is None:
        return ""
    return str(error) if isinstance(error, _Violation) else f"unexpected {type(error).__name__}: {error}"


def _text(report: Mapping[str, Any]) -> str:
    error = report.get("exception")
    return str(report.get("message")) + (f" ({error!r})" if error is not None else "")
