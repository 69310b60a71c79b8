"""Faults at random places of a pipeline of streams and pools: it ends, and the error that arrives is the one raised."""

import asyncio
import collections
import dataclasses
import itertools
import random
import threading
import time

import pytest

from dpmodule.streams import (
    BaseAsyncExtendableStream,
    BaseAsyncWorker,
    BaseAsyncWorkerPool,
    CompletionExtendableStream,
    PriorityExtendableStream,
    SortedExtendableStream,
    StreamStopped,
    ThreadWorkerPool,
)
from helpers.loops import KINDS, raised, run

ITEMS = 12
DEADLINE_S = 4.0  # a second on a machine that does nothing else


@dataclasses.dataclass
class ByHooks(BaseAsyncExtendableStream):
    queue: collections.deque = dataclasses.field(init=False, default_factory=collections.deque)

    def _async_iterator_put_impl(self, data):
        self.queue.append(data)

    async def _async_iterator_next_impl(self):
        await asyncio.sleep(0)
        return self.queue.popleft()

    def _empty_impl(self):
        return not self.queue


class Fault(Exception):
    pass


class Faults:
    """Raises planned errors at planned passes of named points, and remembers which it has raised."""

    def __init__(self, rng):
        self.rng = rng
        self.counts = collections.defaultdict(itertools.count)
        self.plan, self.met = {}, []
        for _ in range(rng.choice([0, 1, 1, 1, 1, 2, 3])):
            point = rng.choice(["producer", "thread", "consumer", "job", "collector"])
            self.plan[point, rng.randrange(ITEMS)] = Fault(point)
        self.acts = {}
        if rng.random() < 0.4:
            act = rng.choice(
                ["stop", "cancel source", "cancel results", "cancel job", "cancel consumer", "throw"]
            )
            self.acts[rng.randrange(ITEMS)] = act

    def point(self, name):
        error = self.plan.get((name, next(self.counts[name])))
        if error is not None:
            self.met.append(error)
            raise error

    async def pause(self):
        for _ in range(self.rng.randrange(3)):
            await asyncio.sleep(0)


class Pipeline:
    def __init__(self, rng):
        self.rng, self.faults = rng, Faults(rng)
        self.source = rng.choice([SortedExtendableStream, PriorityExtendableStream, ByHooks])()
        self.results = CompletionExtendableStream()
        self.threads = rng.random() < 0.4
        self.cancelled = False
        self.consumer = None
        self.got = []

    async def produce(self):
        try:
            for number in range(ITEMS):
                self.faults.point("producer")
                self.act(self.faults.acts.get(number))
                self.source.put(number)
                await self.faults.pause()
        except StreamStopped:
            pass
        except Fault as error:
            self.source.throw(error)

    def produce_in_thread(self):
        try:
            for number in range(ITEMS):
                self.faults.point("thread")
                self.source.put_threadsafe(ITEMS + number)
        except StreamStopped:
            pass
        except Fault as error:
            self.source.throw_threadsafe(error)

    def act(self, what):
        if what == "stop":
            self.source.stop()
        elif what == "throw":
            self.faults.met.append(Fault("thrown"))
            self.source.throw(self.faults.met[-1])
        elif what is not None:
            self.cancelled = True
            if what == "cancel source":
                self.source.cancel()
            elif what == "cancel results":
                self.results.cancel()
            elif what == "cancel job":
                for future in list(self.results.pending)[:1]:
                    future.cancel()
            else:
                self.consumer.cancel()

    async def end_source(self, producers, thread):
        await asyncio.gather(*producers)
        while thread.is_alive():  # noqa: ASYNC110  # it is a thread's end
            await asyncio.sleep(0.0005)
        self.source.stop()

    def pool(self):
        if self.threads:
            return ThreadWorkerPool(self.rng.randint(1, 3), self.job)
        return Pool(self.rng.randint(1, 3), self)

    def job(self, number):
        self.faults.point("job")
        if number % 3 == 0:
            time.sleep(0.0002)
        return number

    async def consume(self):
        try:
            async with self.pool() as pool:
                async for number in self.source:
                    self.faults.point("consumer")
                    self.results.put(await pool.assign_job(number))
                    await self.faults.pause()
        except StreamStopped:  # the results were cancelled meanwhile
            pass
        except BaseException as error:
            self.results.throw(error)
        else:
            self.results.stop()

    async def collect(self):
        async for number in self.results:
            self.faults.point("collector")
            self.got.append(number)

    async def main(self):
        self.consumer = asyncio.ensure_future(self.consume())
        thread = threading.Thread(target=self.produce_in_thread)
        producer = asyncio.ensure_future(self.produce())
        ending = asyncio.ensure_future(self.end_source([producer], thread))
        thread.start()
        collector = asyncio.ensure_future(self.collect())  # a task of its own may be left by CancelledError
        error = await raised(collector)
        self.results.cancel()
        await asyncio.gather(ending, self.consumer, return_exceptions=True)
        await asyncio.sleep(0)
        return error


class Pool(BaseAsyncWorkerPool):
    def __init__(self, workers_count, pipeline):
        super().__init__(workers_count)
        self.pipeline = pipeline

    def create_new_worker(self):
        return Worker(self.pipeline)


class Worker(BaseAsyncWorker):
    def __init__(self, pipeline):
        self.pipeline = pipeline

    async def _do_job(self, number):
        await self.pipeline.faults.pause()
        self.pipeline.faults.point("job")
        await self.pipeline.faults.pause()
        return number


def one_placement(seed, new_loop):
    pipeline = Pipeline(random.Random(seed))
    faults = pipeline.faults
    began = time.monotonic()
    error = run(pipeline.main(), new_loop, DEADLINE_S)
    assert time.monotonic() - began < DEADLINE_S
    if error is None:
        # complete, unless it was stopped before its end, or a fault came too late for anybody
        if not pipeline.cancelled and "stop" not in faults.acts.values() and not faults.met:
            assert sorted(pipeline.got) == list(range(2 * ITEMS))
    elif isinstance(error, asyncio.CancelledError):
        assert pipeline.cancelled
    else:
        assert any(error is each for each in faults.met), (error, faults.met)
    if len(faults.met) == 1 and not pipeline.cancelled and "stop" not in faults.acts.values():
        assert error is faults.met[0]
    return error


@pytest.mark.timeout(120)
@pytest.mark.parametrize("loop", KINDS)
def test_200_random_placements(loop):
    errors = [one_placement(seed, KINDS[loop]) for seed in range(200)]
    kinds = {type(error) for error in errors}
    assert kinds == {type(None), Fault, asyncio.CancelledError}
    assert {str(error) for error in errors if isinstance(error, Fault)} >= {
        "producer",
        "thread",
        "consumer",
        "job",
        "collector",
        "thrown",
    }


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("loop", KINDS)
def test_10000_random_placements(loop):
    for seed in range(1000, 6000):
        one_placement(seed, KINDS[loop])
