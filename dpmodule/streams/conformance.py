"""Trials that every stream and every worker pool must pass; each runs in a new event loop."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from ..base import MXNetError
from .abc import Stream, WorkerPool
from .errors import PoolClosedError, StreamStopped

Trial = Callable[[], Coroutine[Any, Any, None]]
_CLEANING_S = 1.0


class ConformanceError(MXNetError, AssertionError):
    """A stream or pool does not conform; the message names each failed trial and the reason."""


class _Violation(Exception):
    """Failure of one trial."""


def expect(condition: object, text: str) -> None:
    """Fail the trial unless the condition holds."""
    if not condition:
        raise _Violation(text)


async def failure_of(awaitable: Awaitable[Any]) -> BaseException | None:
    """Return the exception that awaiting raises, None if it raises none."""
    try:
        await awaitable
    except BaseException as error:
        return error
    return None


async def expect_error(
    awaitable: Awaitable[Any], kind: type[BaseException], text: str, end: str = ""
) -> None:
    """Fail the trial unless awaiting raises an error of type `kind`; `text` precedes the error in the message."""
    error = await failure_of(awaitable)
    expect(isinstance(error, kind), f"{text}{error!r}")


def run_trials(
    owner: PoolTrials | StreamTrials, new_loop: Callable[[], asyncio.AbstractEventLoop], timeout_s: float
) -> list[str]:
    """Run all trials of `owner` and return their names."""
    trials = {name[5:]: getattr(owner, name) for name in dir(owner) if name.startswith("_try_")}
    problems = []
    # if the caller has frozen objects, they must stay frozen; counting them is slow
    is_frozen = gc.get_freeze_count() > 0
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
        gc.freeze()  # the collection below skips objects that exist already
    loop = new_loop()
    reports: list[str] = []
    loop.set_exception_handler(lambda _, report: reports.append(_text(report)))
    try:
        problem = loop.run_until_complete(_within(trial, timeout_s))
        gc.collect()  # asyncio reports exceptions that were never retrieved when their futures are collected
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
        return f"it hangs: it was not done within {timeout_s:g} s"
    if task.cancelled():
        return "it raised CancelledError"
    error = task.exception()
    if error is None:
        return ""
    return str(error) if isinstance(error, _Violation) else f"unexpected {type(error).__name__}: {error}"


def _text(report: Mapping[str, Any]) -> str:
    error = report.get("exception")
    return str(report.get("message")) + (f" ({error!r})" if error is not None else "")


Arguments = Callable[[], tuple[Any, ...]]


class PoolTrials:
    """Trials of a pool class: the methods that begin with ``_try_``, each run in a new event loop.

    Args:
        check: returns True if its argument is a correct result of a good job.
    """

    def __init__(
        self,
        factory: Callable[[int], WorkerPool],
        good: Arguments,
        bad: Arguments,
        slow: Arguments,
        check: Callable[[Any], object],
    ) -> None:
        self._factory, self._good, self._bad, self._slow, self._check = factory, good, bad, slow, check

    async def _expect_good(self, pool: WorkerPool) -> None:
        result = await (await pool.assign_job(*self._good()))
        expect(self._check(result), f"a good job gave {result!r}")

    async def _try_gives_results_inside_and_after_the_context(self) -> None:
        async with self._factory(2) as pool:
            futures = [await pool.assign_job(*self._good()) for _ in range(8)]
            await self._expect_good(pool)
        for future in futures:
            expect(future.done(), "the context was left before its jobs were done")
            expect(self._check(await future), f"a good job gave {future.result()!r}")

    async def _try_refuses_jobs_outside_the_context(self) -> None:
        pool = self._factory(1)
        await expect_error(
            pool.assign_job(*self._good()), PoolClosedError, "before the context assign_job raises "
        )
        async with pool:
            await self._expect_good(pool)
        await expect_error(
            pool.assign_job(*self._good()), PoolClosedError, "after the context assign_job raises "
        )

    async def _try_is_entered_once(self) -> None:
        pool = self._factory(1)
        async with pool:
            pass
        await expect_error(pool.__aenter__(), MXNetError, "entering it again raises ")

    async def _try_waits_for_a_free_worker(self) -> None:
        async with self._factory(1) as pool:
            slow = await pool.assign_job(*self._slow())
            waiting = asyncio.ensure_future(pool.assign_job(*self._good()))
            await asyncio.sleep(0)
            expect(not waiting.done(), "assign_job returned while the only worker was busy")
            future = await waiting
            expect(slow.done(), "a worker took a second job while it was running one")
            expect(self._check(await future), f"a good job gave {future.result()!r}")

    async def _try_leaving_waits_for_running_jobs(self) -> None:
        async with self._factory(1) as pool:
            slow = await pool.assign_job(*self._slow())
        expect(slow.done() and slow.exception() is None, "the context was left while a job ran")

    async def _try_a_failure_is_raised_everywhere(self) -> None:
        seen: list[BaseException | None] = []

        async def use() -> None:
            async with self._factory(2) as pool:
                slow = await pool.assign_job(*self._slow())
                bad = await pool.assign_job(*self._bad())
                waiting = asyncio.ensure_future(pool.assign_job(*self._good()))
                calls = (bad, slow, waiting, pool.assign_job(*self._good()), pool.assign_job(*self._good()))
                seen.extend([await failure_of(call) for call in calls])
                expect(pool.die_mode, "die_mode is not set")

        seen.append(await failure_of(use()))
        names = [
            "its future",
            "a running job",
            "a waiting assign_job",
            "assign_job",
            "assign_job again",
            "leaving",
        ]
        expect(len(seen) == len(names), f"the pool was left with {seen[-1]!r}")
        for name, error in zip(names, seen, strict=True):
            expect(error is not None and error is seen[0], f"{name} raised {error!r} instead of {seen[0]!r}")

    async def _try_an_unretrieved_failure_is_raised_on_leaving(self) -> None:
        async def use() -> None:
            async with self._factory(2) as pool:
                await pool.assign_job(*self._bad())
                futures.append(await pool.assign_job(*self._slow()))

        futures: list[asyncio.Future[Any]] = []
        error = await failure_of(use())
        expect(error is not None, "a job failed and the context was left without an error")

    async def _try_an_error_of_the_body_leaves(self) -> None:
        raised = KeyError("body")

        async def use() -> None:
            async with self._factory(1) as pool:
                futures.append(await pool.assign_job(*self._slow()))
                raise raised

        futures: list[asyncio.Future[Any]] = []
        error = await failure_of(use())
        expect(error is raised, f"the context raised {error!r} instead of the body's error")
        expect(futures[0].done(), "the context was left while a job ran")
        await failure_of(futures[0])

    async def _try_a_cancelled_assigner_loses_no_worker(self) -> None:
        async with self._factory(1) as pool:
            await pool.assign_job(*self._slow())
            first = asyncio.ensure_future(pool.assign_job(*self._good()))
            second = asyncio.ensure_future(pool.assign_job(*self._good()))
            await asyncio.sleep(0)
            first.cancel()
            expect(self._check(await (await second)), "a good job gave a wrong result")
            await expect_error(first, asyncio.CancelledError, "a cancelled assign_job raised ")

    async def _try_cancelling_a_job_is_not_a_failure(self) -> None:
        async with self._factory(1) as pool:
            slow = await pool.assign_job(*self._slow())
            await asyncio.sleep(0)
            slow.cancel()
            await expect_error(slow, asyncio.CancelledError, "a cancelled job raised ")
            await self._expect_good(pool)
            expect(not pool.die_mode, "cancelling a job's future put the pool in die mode")


class StreamTrials:
    """Trials of a stream class: the methods that begin with ``_try_``, each run in a new event loop.

    Args:
        items: returns new items to put; called while the loop runs.
        expected: output, in this order, if all items are put before they are read; None for the items in any order.
    """

    def __init__(
        self,
        factory: Callable[[], Stream[Any]],
        items: Callable[[], Sequence[Any]],
        expected: Sequence[Any] | None,
    ) -> None:
        self._factory, self._items, self._expected = factory, items, expected

    def _filled(self) -> tuple[Stream[Any], Sequence[Any]]:
        stream, items = self._factory(), self._items()
        for item in items:
            stream.put(item)
        return stream, items

    def _compare(self, got: Sequence[Any], items: Sequence[Any], ordered: bool = False) -> None:
        expected = list(items if self._expected is None else self._expected)
        if ordered and self._expected is not None:
            expect(list(got) == expected, f"gave {list(got)!r}, expected {expected!r}")
            return
        rest = list(got)
        for item in expected:
            expect(item in rest, f"lost {item!r}; gave {list(got)!r}")
            rest.remove(item)
        expect(not rest, f"gave additional items: {rest!r}")

    async def _try_gives_all_items_and_then_ends(self) -> None:
        stream, items = self._filled()
        stream.stop()
        self._compare([item async for item in stream], items, ordered=True)
        for _ in range(2):
            await expect_error(stream.__anext__(), StopAsyncIteration, "after its end it raises ")

    async def _try_wakes_a_waiting_consumer(self) -> None:
        stream, items = self._factory(), self._items()
        got = []
        for item in items:
            consumer = asyncio.ensure_future(stream.__anext__())
            await asyncio.sleep(0)
            expect(not consumer.done(), "gave an item before one was put")
            stream.put(item)
            got.append(await consumer)
        self._compare(got, items)

    async def _try_stop_wakes_a_waiting_consumer(self) -> None:
        stream = self._factory()
        consumer = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)
        stream.stop()
        await expect_error(consumer, StopAsyncIteration, "a waiting consumer of a stopped stream got ")

    async def _try_refuses_items_after_stop(self) -> None:
        stream, items = self._factory(), self._items()
        stream.stop()
        stream.stop()
        expect(_refuses(stream, items[0]), "put after stop did not raise StreamStopped")

    async def _try_a_thrown_error_comes_first_and_stays(self) -> None:
        stream, items = self._filled()
        thrown = KeyError("thrown")
        stream.throw(thrown)
        for _ in range(2):
            error = await failure_of(stream.__anext__())
            expect(error is thrown, f"raised {error!r} instead of the error that was thrown")
        expect(_refuses(stream, items[0]), "put after throw did not raise StreamStopped")

    async def _try_a_thrown_error_wakes_a_waiting_consumer(self) -> None:
        stream = self._factory()
        thrown = KeyError("thrown")
        consumer = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)
        stream.throw(thrown)
        error = await failure_of(consumer)
        expect(error is thrown, f"raised {error!r} instead of the error that was thrown")

    async def _try_cancel_raises_cancelled_error(self) -> None:
        stream, _ = self._filled()
        stream.cancel()
        consumer = asyncio.ensure_future(stream.__anext__())
        await expect_error(consumer, asyncio.CancelledError, "after cancel it raises ")

    async def _try_is_its_own_iterator_and_iterated_once(self) -> None:
        stream = self._factory()
        expect(stream.__aiter__() is stream, "__aiter__ did not return the stream itself")
        try:
            stream.__aiter__()
        except StreamStopped:
            return
        expect(False, "a second iteration did not raise StreamStopped")

    async def _try_refuses_a_second_consumer(self) -> None:
        stream, items = self._factory(), self._items()
        first = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)
        error = await failure_of(stream.__anext__())
        expect(
            isinstance(error, StreamStopped),
            f"a second waiting consumer got {error!r} instead of StreamStopped",
        )
        for item in items:
            stream.put(item)
        stream.stop()
        self._compare([await first, *[item async for item in stream]], items)

    async def _try_a_cancelled_consumer_loses_nothing(self) -> None:
        stream, items = self._factory(), self._items()
        got = []
        for number, item in enumerate(items):
            consumer = asyncio.ensure_future(stream.__anext__())
            await asyncio.sleep(0)
            if number % 2:
                stream.put(item)
                consumer.cancel()
            else:
                consumer.cancel()
                stream.put(item)
            if await failure_of(consumer) is None:
                got.append(consumer.result())
        stream.stop()
        got.extend([item async for item in stream])
        self._compare(got, items)

    async def _try_can_be_continued_after_its_loop_was_left(self) -> None:
        stream, items = self._filled()
        stream.stop()
        got = []
        async for item in stream:
            got.append(item)
            break
        got.extend([await stream.__anext__() for _ in items[1:]])
        self._compare(got, items, ordered=True)

    async def _try_takes_items_of_other_threads(self) -> None:
        stream, items = self._factory(), self._items()
        put, stop = getattr(stream, "put_threadsafe", None), getattr(stream, "stop_threadsafe", None)
        if put is None or stop is None:  # these methods are optional
            return

        def produce() -> None:
            for item in items:
                put(item)
            stop()

        thread = threading.Thread(target=produce)
        consumer = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)
        thread.start()
        got = [await consumer, *[item async for item in stream]]
        thread.join()
        self._compare(got, items)


def _refuses(stream: Stream[Any], item: Any) -> bool:
    try:
        stream.put(item)
    except StreamStopped:
        return True
    return False
