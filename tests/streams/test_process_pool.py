"""Jobs in child processes: results, failures everywhere the same, and that the processes always end."""

import asyncio
import functools
import importlib.util
import os
import random
import signal
import time
from multiprocessing import forkserver, resource_tracker

import numpy as np
import pytest
import torch

from dpmodule.base import ArgumentError, MXNetError
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
from helpers.processes import SOON_S, mostly_within, resources, running, until

# Python 3.12 warns of what these tests do on purpose
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

pool_of = functools.partial(ProcessWorkerPool, start_method="fork")


def uvloop_run(main):
    uvloop = pytest.importorskip("uvloop")
    loop = uvloop.new_event_loop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


@pytest.fixture(params=[asyncio.run, uvloop_run], ids=["asyncio", "uvloop"])
def run(request):
    return request.param


@pytest.fixture(scope="module", autouse=True)
def nothing_stays():
    resource_tracker.ensure_running()  # Python starts these once, and keeps them
    forkserver.ensure_running()
    if importlib.util.find_spec("uvloop"):
        uvloop_run(asyncio.sleep(0))
    before = resources()
    yield
    # asyncio's own executor threads end with their loop, uvloop's with the process
    assert {**resources(), "threads": 0} == {**before, "threads": 0}


def test_results_come_from_all_workers(run):
    async def main():
        async with pool_of(3, worker_job) as pool:
            futures = [await pool.assign_job(0.02, "sleep") for _ in range(6)]
            assert [await future for future in futures] == [0.02] * 6
            pids = {await (await pool.assign_job(0, how="pid")) for _ in range(9)}
            assert pids <= set(pool.pids)
            return pool.pids

    pids = run(main())
    assert len(set(pids)) == 3
    assert not any(running(pid) for pid in pids)


def test_tensors_and_arrays_there_and_back(run):
    async def main():
        async with pool_of(2, worker_job) as pool:
            for value in (torch.arange(6).view(2, 3).t(), torch.zeros(0), torch.rand(2_000_000)):
                got = await (await pool.assign_job(value, "double"))
                assert torch.equal(got, value * 2)
            array = np.arange(100_000.0)
            np.testing.assert_array_equal(await (await pool.assign_job(array, "double")), array * 2)
            assert await (await pool.assign_job({"a": [b"x" * 500_000]})) == {"a": [b"x" * 500_000]}

    run(main())


def test_workers_keep_their_state(run):
    async def main():
        async with pool_of(1, child_targets.Counter()) as pool:
            assert [await (await pool.assign_job(2)) for _ in range(3)] == [2, 4, 6]

    run(main())


@pytest.mark.timeout(120)  # starts an interpreter, which takes its time on a busy machine
def test_spawned_workers_with_an_initializer():
    async def main():
        async with ProcessWorkerPool(1, os.getenv, initializer=os.putenv, initargs=("A", "B")) as pool:
            return await (await pool.assign_job("HOME"))

    assert asyncio.run(main()) == os.getenv("HOME")


@pytest.mark.timeout(120)  # starts an interpreter, which takes its time on a busy machine
def test_workers_of_a_server():
    async def main():
        async with ProcessWorkerPool(2, worker_job, start_method="forkserver") as pool:
            futures = [await pool.assign_job(i, "double") for i in range(4)]
            return [await future for future in futures]

    assert asyncio.run(main()) == [0, 2, 4, 6]


def test_a_failed_job_fails_the_pool_with_that_exception(run, capfd):
    raised, pids = [], []

    async def main():
        async with pool_of(2, worker_job) as pool:
            pids.extend(pool.pids)
            slow = await pool.assign_job(30, "sleep")
            failed = await pool.assign_job(2, "fail")
            for awaitable in (failed, slow, pool.assign_job(1)):
                with pytest.raises(LookupError) as caught:
                    await awaitable
                raised.append(caught.value)

    begin = time.monotonic()
    with pytest.raises(LookupError) as left:
        run(main())
    assert len(raised) == 3
    assert all(error is left.value for error in raised)
    assert isinstance(left.value.__cause__, RemoteTraceback)
    assert left.value.__cause__.text.count("in deep") == 3
    assert "process_pool.py" not in left.value.__cause__.text
    assert not any(running(pid) for pid in pids)
    assert time.monotonic() - begin < SOON_S  # the slow one was not waited for
    assert capfd.readouterr() == ("", "")


def test_a_result_that_cannot_be_pickled(run):
    async def main():
        async with pool_of(1, worker_job) as pool:
            await (await pool.assign_job(0, "unpicklable"))

    with pytest.raises(TypeError, match="pickle"):
        run(main())


def test_a_function_that_cannot_be_pickled():
    async def main():
        async with ProcessWorkerPool(2, lambda: 1):
            pass

    with pytest.raises(UnpicklableError, match="lambda"):
        asyncio.run(main())


@pytest.mark.parametrize("moment", ["busy", "idle", "waiting"])
def test_a_killed_worker_fails_the_pool(run, moment):
    pids, kills = [], []

    def kill(pid):
        os.kill(pid, signal.SIGKILL)
        kills.append(time.monotonic())

    async def main():
        async with pool_of(2, worker_job) as pool:
            pids.extend(pool.pids)
            await (await pool.assign_job(1))
            if moment == "idle":
                kill(pids[0])
                await asyncio.to_thread(until, lambda: pool.die_mode)
                await pool.assign_job(2)
            futures = [await pool.assign_job(30, "sleep") for _ in range(2)]
            await asyncio.sleep(0.1)
            kill(pids[1])
            if moment == "busy":
                await asyncio.gather(*futures)
            else:
                await pool.assign_job(3)

    with pytest.raises(WorkerDied, match=r"\(pid \d+\) was killed by SIGKILL") as left:
        run(main())
    assert time.monotonic() - kills[0] < SOON_S
    assert ("working on job" in str(left.value)) == (moment != "idle")
    assert not any(running(pid) for pid in pids)


def test_a_worker_that_takes_too_long(run):
    async def main():
        async with pool_of(2, worker_job, timeout_s=0.2) as pool:
            await (await pool.assign_job(1))
            await (await pool.assign_job(0, "loop"))

    begin = time.monotonic()
    with pytest.raises(WorkerStuck, match="did not finish within 0.2 s, working on job 1") as caught:
        run(main())
    assert time.monotonic() - begin < SOON_S
    assert "in worker_job" in str(caught.value)


def test_an_exit_of_a_job(run):
    async def main():
        async with pool_of(1, worker_job) as pool:
            await (await pool.assign_job(3, "exit"))

    with pytest.raises(WorkerDied, match="exit code 3 while working on job 0"):
        run(main())


def test_a_cancelled_job_frees_its_worker_when_it_has_ended(run):
    async def main():
        async with pool_of(1, worker_job, timeout_s=10) as pool:
            cancelled = await pool.assign_job(0.1, "sleep")
            await asyncio.sleep(0.02)
            cancelled.cancel()
            begin = time.monotonic()
            assert await (await pool.assign_job(5, "double")) == 10
            assert time.monotonic() - begin > 0.04
            with pytest.raises(asyncio.CancelledError):
                await cancelled

    run(main())


def test_leaving_with_an_exception_kills_the_workers(run):
    async def main():
        async with pool_of(2, worker_job) as pool:
            await pool.assign_job(30, "sleep")
            raise ZeroDivisionError

    begin = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        run(main())
    assert time.monotonic() - begin < SOON_S


def test_leaving_waits_for_jobs(run):
    async def main():
        async with pool_of(2, worker_job) as pool:
            future = await pool.assign_job(0.2, "sleep")
        assert future.done()
        with pytest.raises(PoolClosedError):
            await pool.assign_job(1)

    run(main())


def test_a_cancelled_body_ends_the_workers(run):
    async def main():
        pids = []

        async def use():
            async with pool_of(2, worker_job) as pool:
                pids.extend(pool.pids)
                await (await pool.assign_job(30, "sleep"))

        task = asyncio.ensure_future(use())
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(pids) == 2
        assert not any(running(pid) for pid in pids)

    begin = time.monotonic()
    run(main())
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


def cycles(count):
    async def main():
        async with pool_of(1, worker_job) as pool:
            assert await (await pool.assign_job(2, "double")) == 4

    for _ in range(count):
        asyncio.run(main())


@pytest.mark.timeout(120)  # many processes, which take their time on a busy machine
def test_cycles_leave_nothing():
    cycles(3)
    before = resources()
    cycles(10)
    assert resources() == before


@pytest.mark.slow
@pytest.mark.timeout(1800)  # thousands of processes
def test_two_thousand_cycles_leave_nothing():
    cycles(100)
    before = resources()
    cycles(2000)
    assert resources() == before


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        ((0, worker_job), {}, "workers_count is 0"),
        ((1, 5), {}, "function is 5"),
        ((1, worker_job), {"start_method": "thread"}, "start_method"),
        ((1, worker_job), {"timeout_s": -1}, "timeout_s is -1"),
    ],
)
def test_arguments_that_make_no_sense(arguments, options, text):
    with pytest.raises(ArgumentError, match=text):
        ProcessWorkerPool(*arguments, **options)
    assert issubclass(ArgumentError, MXNetError)
