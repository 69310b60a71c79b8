"""Jobs in child processes: results, failures, and that the processes always end; any order in test_worker_pool.py."""

import asyncio
import functools
import os
import random
import signal
import time
from multiprocessing import forkserver, resource_tracker

import numpy as np
import pytest
import torch

from dpmodule.streams import ProcessWorkerPool
from dpmodule.streams.errors import UnpicklableError, WorkerDied, WorkerStuck
from helpers.child_targets import worker_job
from helpers.loops import KINDS
from helpers.processes import SOON_S, mostly_within, resources

# Python 3.12 warns of what these tests do on purpose
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

pool_of = functools.partial(ProcessWorkerPool, start_method="fork")


@pytest.fixture(scope="module", autouse=True)
def nothing_stays():
    resource_tracker.ensure_running()  # Python starts these once, and keeps them
    forkserver.ensure_running()
    for new_loop in KINDS.values():
        new_loop().close()
    before = resources()
    yield
    # asyncio's own executor threads end with their loop, uvloop's with the process
    assert {**resources(), "threads": 0} == {**before, "threads": 0}


async def test_tensors_and_arrays_there_and_back():
    async with pool_of(2, worker_job) as pool:
        for value in (torch.arange(6).view(2, 3).t(), torch.zeros(0), torch.rand(2_000_000)):
            got = await (await pool.assign_job(value, "double"))
            assert torch.equal(got, value * 2)
        array = np.arange(100_000.0)
        np.testing.assert_array_equal(await (await pool.assign_job(array, "double")), array * 2)
        assert await (await pool.assign_job({"a": [b"x" * 500_000]})) == {"a": [b"x" * 500_000]}


@pytest.mark.timeout(120)  # starts interpreters, which takes its time on a busy machine
def test_other_ways_to_start():
    async def main(given, *args, **options):
        async with ProcessWorkerPool(*args, **options) as pool:
            return [await future for future in [await pool.assign_job(*each) for each in given]]

    spawned = main([["HOME"]], 1, os.getenv, initializer=os.putenv, initargs=("A", "B"))
    assert asyncio.run(spawned) == [os.getenv("HOME")]
    served = main([(i, "double") for i in range(4)], 2, worker_job, start_method="forkserver")
    assert asyncio.run(served) == [0, 2, 4, 6]


@pytest.mark.parametrize(
    ("job", "options", "error", "text"),
    [
        (
            (0, "unpicklable"),
            {},
            UnpicklableError,
            "a result cannot be sent to another process: cannot pickle",
        ),
        ((lambda: 1,), {}, UnpicklableError, "an argument or a result cannot be sent to another process"),
        ((3, "exit"), {}, WorkerDied, "exit code 3 while working on job 1"),
        ((0, "loop"), {"timeout_s": 0.2}, WorkerStuck, "within 0.2 s, working on job 1.*in worker_job"),
        ((0,), {"function": lambda: 1, "start_method": "spawn"}, UnpicklableError, "lambda"),
    ],
)
async def test_jobs_that_cannot_be_done(job, options, error, text):
    async def use(function=worker_job, **options):
        async with pool_of(2, function, **options) as pool:
            await (await pool.assign_job(1))
            await (await pool.assign_job(*job))

    begin = time.monotonic()
    with pytest.raises(error, match=f"(?s){text}"):
        await use(**options)
    assert time.monotonic() - begin < SOON_S


@pytest.mark.timeout(120)  # many processes, which take their time on a busy machine
@pytest.mark.parametrize("count", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_kills_at_random_moments(count):
    rng, noticed = random.Random(2), []

    async def main():
        async with pool_of(2, worker_job) as pool:
            loop = asyncio.get_running_loop()
            loop.call_later(rng.uniform(0, 0.03), os.kill, rng.choice(pool.pids), signal.SIGKILL)
            while True:
                await (await pool.assign_job(bytes(rng.randrange(100_000))))

    for _ in range(count):
        begin = time.monotonic()
        with pytest.raises(WorkerDied, match="SIGKILL"):
            asyncio.run(main())
        noticed.append(time.monotonic() - begin)
    mostly_within(2, noticed)
