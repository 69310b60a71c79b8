"""Event loops of all kinds that are installed, a run in one that must leave nothing behind, and what runs in loops."""

import asyncio
import collections
import dataclasses
import gc
import importlib.util

from dpmodule.streams import BaseAsyncExtendableStream, BaseAsyncWorker, BaseAsyncWorkerPool


def _kinds():
    kinds = {"asyncio": asyncio.new_event_loop}
    if importlib.util.find_spec("uvloop"):
        import uvloop

        kinds["uvloop"] = uvloop.new_event_loop
    return kinds


KINDS = _kinds()


def run(coroutine, new_loop=asyncio.new_event_loop, seconds=10.0):
    """Run to the end within `seconds`; fail if asyncio reports anything or a task is left over."""
    loop = new_loop()
    reports = []
    loop.set_exception_handler(lambda _, report: reports.append(report))
    asyncio.set_event_loop(loop)
    try:
        result = loop.run_until_complete(asyncio.wait_for(coroutine, seconds))
        left = [task for task in asyncio.all_tasks(loop) if not task.done()]
        gc.collect()
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    assert not reports, reports
    assert not left, left
    return result


async def soon(condition, seconds=10.0):
    """Wait until `condition()` holds."""
    end = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < end, "it never came to that"
        await asyncio.sleep(0.001)


async def raised(awaitable):
    """Return what awaiting raises, whatever it is."""
    try:
        await awaitable
    except BaseException as error:
        return error
    return None


@dataclasses.dataclass
class ByHooks(BaseAsyncExtendableStream):
    queue: collections.deque = dataclasses.field(init=False, default_factory=collections.deque)

    def _async_iterator_put_impl(self, data):
        self.queue.append(data)

    async def _async_iterator_next_impl(self):
        return self.queue.popleft()

    def _empty_impl(self):
        return not self.queue


class Worker(BaseAsyncWorker):
    """Sleeps, then doubles, raises, or calls what it is given; a pool's log has its comings and goings."""

    def __init__(self, log):
        self.log, self.jobs = log, 0

    async def __aenter__(self):
        self.log.append("enter")
        return self

    async def __aexit__(self, kind, error, trace):
        self.log.append("exit")
        self.error = error

    async def _do_job(self, value, seconds=0.0):
        self.jobs += 1
        if seconds:
            await asyncio.sleep(seconds)
        if isinstance(value, BaseException):
            raise value
        return await value() if callable(value) else value * 2


class Pool(BaseAsyncWorkerPool):
    """A pool of such workers, or of another kind of them."""

    def __init__(self, workers_count, worker=Worker):
        super().__init__(workers_count)
        self.log, self.workers, self.worker = [], [], worker

    def create_new_worker(self):
        self.workers.append(self.worker(self.log))
        return self.workers[-1]
