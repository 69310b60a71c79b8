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
from dpmodule.streams.errors import (
    PoolClosedError,
    RemoteTraceback,
    UnpicklableError,
    WorkerDied,
    WorkerStuck,
)
from helpers import child_targets
from helpers.child_targets import worker_job
from helpers.loops import KINDS, every_loop
from helpers.processes import SOON_S, mostly_within, resources, running, until

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


@every_loop
async def test_results_come_from_all_workers_and_leaving_waits():
    async with pool_of(3, worker_job) as pool:
        futures = [await pool.assign_job(0.02, "sleep") for _ in range(6)]
        assert [await future for future in futures] == [0.02] * 6
        assert {await (await pool.assign_job(0, how="pid")) for _ in range(9)} <= set(pool.pids)
        last = await pool.assign_job(0.2, "sleep")
    assert last.done()
    with pytest.raises(PoolClosedError):
        await pool.assign_job(1)
    assert len(set(pool.pids)) == 3
    assert not any(running(pid) for pid in pool.pids)


@every_loop
async def test_tensors_and_arrays_there_and_back():
    async with pool_of(2, worker_job) as pool:
        for value in (torch.arange(6).view(2, 3).t(), torch.zeros(0), torch.rand(2_000_000)):
            got = await (await pool.assign_job(value, "double"))
            assert torch.equal(got, value * 2)
        array = np.arange(100_000.0)
        np.testing.assert_array_equal(await (await pool.assign_job(array, "double")), array * 2)
        assert await (await pool.assign_job({"a": [b"x" * 500_000]})) == {"a": [b"x" * 500_000]}


async def test_workers_keep_their_state():
    async with pool_of(1, child_targets.Counter()) as pool:
        assert [await (await pool.assign_job(2)) for _ in range(3)] == [2, 4, 6]


@pytest.mark.timeout(120)  # starts interpreters, which takes its time on a busy machine
def test_other_ways_to_start():
    async def main(given, *args, **options):
        async with ProcessWorkerPool(*args, **options) as pool:
            return [await future for future in [await pool.assign_job(*each) for each in given]]

    spawned = main([["HOME"]], 1, os.getenv, initializer=os.putenv, initargs=("A", "B"))
    assert asyncio.run(spawned) == [os.getenv("HOME")]
    served = main([(i, "double") for i in range(4)], 2, worker_job, start_method="forkserver")
    assert asyncio.run(served) == [0, 2, 4, 6]


@every_loop
def test_a_failed_job_fails_the_pool_with_that_exception(new_loop, capfd):
    errors, pids = [], []

    async def main():
        async with pool_of(2, worker_job) as pool:
            pids.extend(pool.pids)
            slow = await pool.assign_job(30, "sleep")
            failed = await pool.assign_job(2, "fail")
            for awaitable in (failed, slow, pool.assign_job(1)):
                with pytest.raises(LookupError) as caught:
                    await awaitable
                errors.append(caught.value)

    loop, begin = new_loop(), time.monotonic()
    with pytest.raises(LookupError) as left:
        loop.run_until_complete(main())
    loop.close()
    assert errors == [left.value] * 3
    assert isinstance(left.value.__cause__, RemoteTraceback)
    assert left.value.__cause__.text.count("in deep") == 3
    assert "process_pool.py" not in left.value.__cause__.text
    assert not any(running(pid) for pid in pids)
    assert time.monotonic() - begin < SOON_S  # the slow one was not waited for
    assert capfd.readouterr() == ("", "")


async def use(job, function=worker_job, **options):
    """Do a job, after another one."""
    async with pool_of(2, function, **options) as pool:
        await (await pool.assign_job(1))
        await (await pool.assign_job(*job))


@pytest.mark.parametrize(
    ("job", "options", "error", "text"),
    [
        ((0, "unpicklable"), {}, TypeError, "pickle"),
        ((3, "exit"), {}, WorkerDied, "exit code 3 while working on job 1"),
        (
            (0, "loop"),
            {"timeout_s": 0.2},
            WorkerStuck,
            "did not finish within 0.2 s, working on job 1.*in worker_job",
        ),
        ((0,), {"function": lambda: 1, "start_method": "spawn"}, UnpicklableError, "lambda"),
    ],
)
@every_loop
async def test_jobs_that_cannot_be_done(job, options, error, text):
    begin = time.monotonic()
    with pytest.raises(error, match=f"(?s){text}"):
        await use(job, **options)
    assert time.monotonic() - begin < SOON_S


@pytest.mark.parametrize("moment", ["busy", "idle", "waiting"])
@every_loop
async def test_a_killed_worker_fails_the_pool(moment):
    kills = []

    def kill(pid):
        os.kill(pid, signal.SIGKILL)
        kills.append(time.monotonic())

    async def body(pool):
        await (await pool.assign_job(1))
        if moment == "idle":
            kill(pool.pids[0])
            await asyncio.to_thread(until, lambda: pool.die_mode)
            await pool.assign_job(2)
        futures = [await pool.assign_job(30, "sleep") for _ in range(2)]
        await asyncio.sleep(0.1)
        kill(pool.pids[1])
        await (asyncio.gather(*futures) if moment == "busy" else pool.assign_job(3))

    with pytest.raises(WorkerDied, match=r"\(pid \d+\) was killed by SIGKILL") as left:
        async with pool_of(2, worker_job) as pool:
            await body(pool)
    assert time.monotonic() - kills[0] < SOON_S
    assert ("working on job" in str(left.value)) == (moment != "idle")
    assert not any(running(pid) for pid in pool.pids)


@every_loop
async def test_a_body_that_is_cancelled_kills_the_workers():
    pids, begin = [], time.monotonic()

    async def body():
        async with pool_of(2, worker_job) as pool:
            pids.extend(pool.pids)
            await (await pool.assign_job(30, "sleep"))

    task = asyncio.ensure_future(body())
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(pids) == 2
    assert not any(map(running, pids))
    assert time.monotonic() - begin < SOON_S


@pytest.mark.timeout(120)  # many processes, which take their time on a busy machine
@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_kills_at_random_moments(count):
    rng = random.Random(2)

    async def main():
        async with pool_of(2, worker_job) as pool:
            loop = asyncio.get_running_loop()
            loop.call_later(rng.uniform(0, 0.03), os.kill, rng.choice(pool.pids), signal.SIGKILL)
            while True:
                await (await pool.assign_job(bytes(rng.randrange(100_000))))

    noticed = []
    for _ in range(count):
        begin = time.monotonic()
        with pytest.raises(WorkerDied, match="SIGKILL"):
            asyncio.run(main())
        noticed.append(time.monotonic() - begin)
    mostly_within(2, noticed)


@pytest.mark.timeout(1800)  # thousands of processes
@pytest.mark.parametrize("count", [10, pytest.param(2000, marks=pytest.mark.slow)])
def test_pools_that_come_and_go_leave_nothing(count):
    def cycles(count):
        for _ in range(count):
            asyncio.run(use((2, "double")))

    cycles(3 if count == 10 else 100)
    before = resources()
    cycles(count)
    assert resources() == before
