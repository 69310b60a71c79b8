"""Empty jobs that a coroutine hands to threads, two of them, by several systems.

Run as ``python -m benchmarks.sides.jobs SYSTEM``, one of `SYSTEMS`.
"""

from __future__ import annotations

import asyncio
import gc
import queue
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .serve import Clock, serve

__all__ = ["SYSTEMS", "prepare"]

THREADS = 2
IN_FLIGHT = 1000

Call = Callable[[], Awaitable[Any]]


def nothing() -> None:
    """Do the job of all systems but ours, whose job is in C++."""


def ours() -> Call:
    """Return a call that runs a job by `cpp_threaded_worker`."""
    from dpmodule.streams import NoopFunctor, ThreadPool, cpp_threaded_worker

    worker, functor = cpp_threaded_worker(ThreadPool(THREADS)), NoopFunctor()
    return lambda: worker(functor)


def executor() -> Call:
    """Return a call that runs a job by `run_in_executor`."""
    threads = ThreadPoolExecutor(THREADS)
    return lambda: asyncio.get_running_loop().run_in_executor(threads, nothing)


class Handmade:
    """Threads that take jobs from a queue and call the event loop for each that is done."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Any, Any]] = queue.SimpleQueue()
        for _ in range(THREADS):
            threading.Thread(target=self._work, daemon=True).start()

    def __call__(self) -> Awaitable[Any]:
        """Queue a job and return its future."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._jobs.put((nothing, loop, future))
        return future

    def _work(self) -> None:
        while True:
            job, loop, future = self._jobs.get()
            try:
                found, error = job(), None
            except Exception as caught:
                found, error = None, caught
            self._tell(loop, future, found, error)

    def _tell(self, loop: Any, future: Any, found: Any, error: Exception | None) -> None:
        loop.call_soon_threadsafe(self._finish, future, found, error)

    @staticmethod
    def _finish(future: Any, found: Any, error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(found)
        else:
            future.set_exception(error)


class Batched(Handmade):
    """The same with one call of the event loop for all jobs that are done by the time it comes to them."""

    def __init__(self) -> None:
        self._lock, self._done = threading.Lock(), list[tuple[Any, Any, Any]]()
        super().__init__()

    def _tell(self, loop: Any, future: Any, found: Any, error: Exception | None) -> None:
        with self._lock:
            first = not self._done
            self._done.append((future, found, error))
        if first:
            loop.call_soon_threadsafe(self._finish_all)

    def _finish_all(self) -> None:
        with self._lock:
            done, self._done = self._done, []
        for each in done:
            self._finish(*each)


SYSTEMS: dict[str, Callable[[], Call]] = {
    "ours": ours,
    "executor": executor,
    "threads": Handmade,
    "batched": Batched,
}


async def one(call: Call, count: int) -> dict[str, float]:
    """Return the median time from a job's call to its result, and the CPU time of each."""
    for _ in range(100):
        await call()
    clock, times = Clock(), []
    for _ in range(count):
        begin = time.perf_counter()
        await call()
        times.append(time.perf_counter() - begin)
    return {"wall": statistics.median(times) * 1e3, "cpu": clock.read(count)["cpu"]}


async def many(call: Call, count: int) -> dict[str, float]:
    """Return the time of a job when a thousand are called together, `count` times."""
    await asyncio.gather(*[call() for _ in range(IN_FLIGHT)])
    clock = Clock()
    for _ in range(count):
        for future in [call() for _ in range(IN_FLIGHT)]:
            await future
    return clock.read(count * IN_FLIGHT)


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    call = SYSTEMS[sys.argv[1]]()
    # ours alone has imported torch, which the collections that a thousand futures set off would go through
    gc.collect()
    gc.freeze()

    def run(loop: str, work: Coroutine[Any, Any, dict[str, float]]) -> dict[str, float]:
        if loop == "asyncio":
            return asyncio.run(work)
        import uvloop

        return uvloop.run(work)

    return {
        "one": lambda loop, count: run(loop, one(call, count)),
        "many": lambda loop, count: run(loop, many(call, count)),
    }


if __name__ == "__main__":
    serve(prepare)
