"""What every pool of workers must do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ...base import MXNetError
from ..abc import WorkerPool
from ..errors import PoolClosedError
from .trial import Trial, expect, failure_of

Arguments = Callable[[], tuple[Any, ...]]


class PoolTrials:
    """The trials of one kind of pool; methods that begin with ``_try_`` are run, each in a loop of its own.

    Args:
        check: looks at the result of a good job and says whether it is right.
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

    def trials(self) -> dict[str, Trial]:
        """Return the trials by name."""
        return {name[5:]: getattr(self, name) for name in dir(self) if name.startswith("_try_")}

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
        error = await failure_of(pool.assign_job(*self._good()))
        expect(isinstance(error, PoolClosedError), f"before the context assign_job raises {error!r}")
        async with pool:
            await self._expect_good(pool)
        error = await failure_of(pool.assign_job(*self._good()))
        expect(isinstance(error, PoolClosedError), f"after the context assign_job raises {error!r}")

    async def _try_is_entered_once(self) -> None:
        pool = self._factory(1)
        async with pool:
            pass
        error = await failure_of(pool.__aenter__())
        expect(isinstance(error, MXNetError), f"entering it again raises {error!r}")

    async def _try_waits_for_a_free_worker(self) -> None:
        async with self._factory(1) as pool:
            slow = await pool.assign_job(*self._slow())
            waiting = asyncio.ensure_future(pool.assign_job(*self._good()))
            await asyncio.sleep(0)
            expect(not waiting.done(), "assign_job returned while the only worker was busy")
            future = await waiting
            expect(slow.done(), "a worker took a job while it did another")
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
                seen.extend([await failure_of(each) for each in calls])
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

    async def _try_a_failure_that_nobody_asks_for_is_raised_on_leaving(self) -> None:
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
        expect(error is raised, f"{error!r} left instead of the body's error")
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
            error = await failure_of(first)
            expect(isinstance(error, asyncio.CancelledError), f"a cancelled assign_job raised {error!r}")

    async def _try_cancelling_a_job_is_no_failure(self) -> None:
        async with self._factory(1) as pool:
            slow = await pool.assign_job(*self._slow())
            await asyncio.sleep(0)
            slow.cancel()
            error = await failure_of(slow)
            expect(isinstance(error, asyncio.CancelledError), f"a cancelled job raised {error!r}")
            await self._expect_good(pool)
            expect(not pool.die_mode, "cancelling a job's future put the pool in die mode")
