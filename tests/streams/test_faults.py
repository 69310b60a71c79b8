"""Faults at random places of a pipeline of streams and pools: it ends, and the error that arrives is the one raised."""

import asyncio
import collections
import itertools
import random
import threading
import time

import pytest

from dpmodule.streams import (
    CompletionExtendableStream,
    PriorityExtendableStream,
    SortedExtendableStream,
    StreamStopped,
    ThreadWorkerPool,
)
from helpers.loops import KINDS, ByHooks, Pool, raised, run

ITEMS = 12
DEADLINE_S = 4.0  # a second on a machine that does nothing else
POINTS = ["producer", "thread", "consumer", "job", "collector"]
ACTS = ["stop", "cancel source", "cancel results", "cancel job", "cancel consumer", "throw"]


class Fault(Exception):
    pass


class Pipeline:
    """Producers in the loop and in a thread, a stream, a pool, a stream of results, and planned errors."""

    def __init__(self, rng):
        self.rng, self.counts, self.met = rng, collections.defaultdict(itertools.count), []
        self.plan = {
            (point, rng.randrange(ITEMS)): Fault(point)
            for point in rng.choices(POINTS, k=rng.choice([0, 1, 1, 1, 1, 2, 3]))
        }
        self.acts = {rng.randrange(ITEMS): rng.choice(ACTS)} if rng.random() < 0.4 else {}
        self.source = rng.choice([SortedExtendableStream, PriorityExtendableStream, ByHooks])()
        self.results, self.threads = CompletionExtendableStream(), rng.random() < 0.4
        self.cancelled, self.got = False, []

    def point(self, name):
        error = self.plan.get((name, next(self.counts[name])))
        if error is not None:
            self.met.append(error)
            raise error

    async def pause(self):
        for _ in range(self.rng.randrange(3)):
            await asyncio.sleep(0)

    async def produce(self):
        try:
            for number in range(ITEMS):
                self.point("producer")
                self.act(self.acts.get(number))
                self.source.put(number)
                await self.pause()
        except StreamStopped:
            pass
        except Fault as error:
            self.source.throw(error)

    def produce_in_thread(self):
        try:
            for number in range(ITEMS):
                self.point("thread")
                self.source.put_threadsafe(ITEMS + number)
        except StreamStopped:
            pass
        except Fault as error:
            self.source.throw_threadsafe(error)

    def act(self, what):
        if what == "stop":
            self.source.stop()
        elif what == "throw":
            self.met.append(Fault("thrown"))
            self.source.throw(self.met[-1])
        elif what is not None:
            self.cancelled = True
            jobs = list(self.results.pending)[:1] if what == "cancel job" else []
            target = {"cancel source": self.source, "cancel results": self.results}.get(what, self.consumer)
            for each in jobs if what == "cancel job" else [target]:
                each.cancel()

    async def end_source(self, producer, thread):
        await producer
        while thread.is_alive():  # noqa: ASYNC110  # it is a thread's end
            await asyncio.sleep(0.0005)
        self.source.stop()

    def job(self, number):
        self.point("job")
        if number % 3 == 0:
            time.sleep(0.0002)
        return number

    async def paused_job(self, number):
        await self.pause()
        self.point("job")
        await self.pause()
        return number

    async def consume(self):
        count = self.rng.randint(1, 3)
        try:
            async with ThreadWorkerPool(count, self.job) if self.threads else Pool(count) as pool:
                async for number in self.source:
                    self.point("consumer")
                    given = number if self.threads else (lambda number=number: self.paused_job(number))
                    self.results.put(await pool.assign_job(given))
                    await self.pause()
        except StreamStopped:  # the results were cancelled meanwhile
            pass
        except BaseException as error:
            self.results.throw(error)
        else:
            self.results.stop()

    async def collect(self):
        async for number in self.results:
            self.point("collector")
            self.got.append(number)

    async def main(self):
        self.consumer = asyncio.ensure_future(self.consume())
        thread = threading.Thread(target=self.produce_in_thread)
        ending = asyncio.ensure_future(self.end_source(asyncio.ensure_future(self.produce()), thread))
        thread.start()
        collector = asyncio.ensure_future(self.collect())  # a task of its own may be left by CancelledError
        error = await raised(collector)
        self.results.cancel()
        await asyncio.gather(ending, self.consumer, return_exceptions=True)
        await asyncio.sleep(0)
        return error


def one_placement(seed, new_loop):
    pipeline, began = Pipeline(random.Random(seed)), time.monotonic()
    error = run(pipeline.main(), new_loop, DEADLINE_S)
    assert time.monotonic() - began < DEADLINE_S
    was_left = pipeline.cancelled or "stop" in pipeline.acts.values()
    if error is None:
        # complete, unless it was stopped before its end, or a fault came too late for anybody
        if not was_left and not pipeline.met:
            assert sorted(pipeline.got) == list(range(2 * ITEMS))
    elif isinstance(error, asyncio.CancelledError):
        assert pipeline.cancelled
    else:
        assert any(error is each for each in pipeline.met), (error, pipeline.met)
    if len(pipeline.met) == 1 and not was_left:
        assert error is pipeline.met[0]
    return error


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("loop", KINDS)
@pytest.mark.parametrize("count", [200, pytest.param(5000, marks=pytest.mark.slow)])
def test_random_placements(loop, count):
    errors = [one_placement(seed + count // 1000, KINDS[loop]) for seed in range(count)]
    assert {type(error) for error in errors} == {type(None), Fault, asyncio.CancelledError}
    assert {str(error) for error in errors if isinstance(error, Fault)} == {*POINTS, "thrown"}
