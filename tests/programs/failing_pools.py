"""Use pools that fail, are cancelled or abandoned; with an argument, one that Ctrl-C ends. Nothing is to be printed."""

import asyncio
import gc
import sys

from dpmodule.streams import (
    BaseAsyncWorker,
    BaseAsyncWorkerPool,
    CppWorkerPool,
    DecompressFunctor,
    ThreadWorkerPool,
)


class Worker(BaseAsyncWorker):
    async def _do_job(self, error, seconds):
        await asyncio.sleep(seconds)
        if error is not None:
            raise error


class Pool(BaseAsyncWorkerPool):
    def create_new_worker(self):
        return Worker()


async def use(pool, *jobs, error=None):
    async with pool:
        for job in jobs:
            await pool.assign_job(*job)
        if error is not None:
            raise error


async def abandoned():
    pool = Pool(2)
    await pool.__aenter__()
    await pool.assign_job(ValueError("never left"), 0)
    await asyncio.sleep(0.01)


async def suspended():
    async with Pool(2) as pool:
        await pool.assign_job(None, 0)
        await asyncio.get_running_loop().create_future()


async def drop(coroutine):
    next(coroutine.__await__())
    await asyncio.sleep(0.01)
    coroutine.close()


CASES = {
    "fails": lambda: use(
        Pool(3), (None, 5), (ValueError(1), 0.01), (ValueError(2), 0.01), (None, 0), (None, 0)
    ),
    "body": lambda: use(Pool(2), (None, 5), (None, 5), error=ValueError("body")),
    "thread": lambda: use(ThreadWorkerPool(2, int), "x", "y"),
    "functors": lambda: use(CppWorkerPool(2), [DecompressFunctor(b"x")], [DecompressFunctor(b"y")]),
    "cancelled": lambda: use(Pool(2), (asyncio.CancelledError(), 0), (None, 5)),
    "abandoned": abandoned,
}
for name, case in {}.items() if sys.argv[1:] else CASES.items():
    try:
        asyncio.run(case())
    except (ValueError, asyncio.CancelledError) as error:
        print(name, type(error).__name__)
    gc.collect()
asyncio.run(drop(suspended()))
gc.collect()
if sys.argv[1:]:
    asyncio.run(use(Pool(2), (None, 5), (KeyboardInterrupt(), 0.01), (None, 5)))
