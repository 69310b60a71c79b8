"""Items between tasks of one event loop, and jobs of a limited number of tasks: ours or asyncio's own.

Run as ``python -m benchmarks.sides.items SYSTEM``, "ours" or "asyncio".
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from typing import Any

from dpmodule.streams import BaseAsyncWorker, BaseAsyncWorkerPool, SortedExtendableStream

from .serve import Clock, serve

__all__ = ["prepare"]

WORKERS = 4


async def _produce(put: Callable[[Any], Any], stop: Callable[[], Any], count: int, burst: int) -> None:
    """Put items in bursts, and yield after each."""
    for _ in range(count // burst):
        for item in range(burst):
            put(item)
        await asyncio.sleep(0)
    stop()


async def stream(count: int, burst: int) -> dict[str, float]:
    """Return the time of an item through a `SortedExtendableStream`."""
    found: Any = SortedExtendableStream()
    clock, received = Clock(), 0
    task = asyncio.ensure_future(_produce(found.put, found.stop, count, burst))
    async for _ in found:
        received += 1
    await task
    return _read(clock, received, count)


async def queue(count: int, burst: int) -> dict[str, float]:
    """Return the time of an item through an `asyncio.Queue`."""
    found: asyncio.Queue[int | None] = asyncio.Queue()
    clock, received = Clock(), 0
    task = asyncio.ensure_future(_produce(found.put_nowait, lambda: found.put_nowait(None), count, burst))
    while await found.get() is not None:
        received += 1
    await task
    return _read(clock, received, count)


def _read(clock: Clock, received: int, count: int) -> dict[str, float]:
    if received != count:
        raise SystemExit(f"{received} of {count} items came")
    return clock.read(count)


class Worker(BaseAsyncWorker):
    """Does nothing."""

    async def _do_job(self, number: int) -> int:
        return number


class Pool(BaseAsyncWorkerPool):
    """Workers that do nothing."""

    def create_new_worker(self) -> Worker:
        """Return a new worker."""
        return Worker()


async def job(number: int) -> int:
    """Do nothing, as a job."""
    return number


async def pool(count: int) -> dict[str, float]:
    """Return the time of a job of a `BaseAsyncWorkerPool`."""
    async with Pool(WORKERS) as workers:
        clock = Clock()
        futures = [await workers.assign_job(number) for number in range(count)]
        await asyncio.gather(*futures)
        return clock.read(count)


async def semaphore(count: int) -> dict[str, float]:
    """Return the time of a job of a task that is limited by a semaphore."""
    free = asyncio.Semaphore(WORKERS)

    def release(_: Any) -> None:
        free.release()

    clock, tasks = Clock(), []
    for number in range(count):
        await free.acquire()
        task = asyncio.ensure_future(job(number))
        task.add_done_callback(release)
        tasks.append(task)
    await asyncio.gather(*tasks)
    return clock.read(count)


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    items, jobs = {"ours": (stream, pool), "asyncio": (queue, semaphore)}[sys.argv[1]]
    # objects of the libraries are excluded from garbage collection
    gc.collect()
    gc.freeze()
    return {
        "items": lambda count, burst: asyncio.run(items(count, burst)),
        "jobs": lambda count: asyncio.run(jobs(count)),
    }


if __name__ == "__main__":
    serve(prepare)
