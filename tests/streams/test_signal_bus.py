"""The bus of an event loop: one per loop, made anew when needed, closed with the loop."""

import array
import asyncio
import fcntl
import gc
import os
import sys
import termios
import time
import weakref

import pytest

from dpmodule import native
from dpmodule.streams import LoopClosedError, SignalSocketBus, ThreadPool, cpp_threaded_worker
from helpers import jobs
from helpers.loops import KINDS, every_loop, run, soon
from helpers.programs import again_without_native

only_native = pytest.mark.skipif(native.core is None, reason="the stand-in has no descriptor")


def is_open(descriptor):
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@every_loop
def test_there_is_one_for_each_loop(new_loop):
    async def main():
        bus = SignalSocketBus.of()
        with ThreadPool(1) as one, ThreadPool(1) as two:
            workers = [cpp_threaded_worker(pool) for pool in (one, two)]
            await asyncio.gather(*(worker(jobs.noop()) for worker in workers))
        assert SignalSocketBus.of(asyncio.get_running_loop()) is bus
        assert bus.loop is asyncio.get_running_loop()
        assert bus.usable
        return bus

    one = run(main(), new_loop)
    assert run(main(), new_loop) is not one


@only_native
@every_loop
def test_it_is_closed_with_its_loop(new_loop):
    async def main():
        bus = SignalSocketBus.of()
        descriptor = bus.fileno()
        assert is_open(descriptor)
        return weakref.ref(bus), descriptor

    bus, descriptor = run(main(), new_loop)
    gc.collect()  # uvloop's handles are in cycles
    assert bus() is None
    assert not is_open(descriptor)


def test_a_closed_loop_is_refused():
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(LoopClosedError, match="is closed"):
        SignalSocketBus.of(loop)


def test_a_loop_must_run():
    with pytest.raises(RuntimeError, match="no running event loop"):
        SignalSocketBus.of()


@every_loop
def test_it_may_be_closed_and_is_made_anew(new_loop):
    async def main():
        with ThreadPool(1) as pool:
            worker = cpp_threaded_worker(pool)
            await worker(jobs.noop())
            bus = SignalSocketBus.of()
            bus.close()
            bus.close()
            assert bus.closed
            assert not bus.usable
            assert bus.fileno() == -1
            assert bus.loop is None
            with pytest.raises(LoopClosedError):
                pool.submit(jobs.noop(), bus)
            assert await worker(jobs.value(1)) == 1
            assert SignalSocketBus.of() is not bus

    run(main(), new_loop)


def test_jobs_that_end_after_their_loop_are_dropped():
    pool = ThreadPool(1)
    worker = cpp_threaded_worker(pool)

    async def leave():
        for _ in range(3):
            worker(jobs.wait())
        await soon(lambda: jobs.counts()["running"] == 1)

    with jobs.opened():
        run(leave())
    jobs.settle("running", 0)

    async def after():
        assert await worker(jobs.value("another loop")) == "another loop"

    run(after())
    assert pool.close()
    run(after_drain())
    jobs.settle("living", 0)
    assert jobs.counts()["destroyed_without_gil"] == 0


async def after_drain():
    with ThreadPool(1) as pool:
        await cpp_threaded_worker(pool)(jobs.noop())


@only_native
@pytest.mark.filterwarnings("ignore:unclosed event loop:ResourceWarning")
def test_a_loop_that_nobody_closes_is_collected_with_it():
    loop = asyncio.new_event_loop()

    async def main():
        return weakref.ref(SignalSocketBus.of()), SignalSocketBus.of().fileno()

    bus, descriptor = loop.run_until_complete(main())
    del loop
    gc.collect()
    assert bus() is None
    assert not is_open(descriptor)


@only_native
@pytest.mark.parametrize("pipe", [False, True], ids=["eventfd", "pipe"])
@every_loop
def test_every_job_comes_back_by_either_descriptor(new_loop, pipe):
    async def main():
        bus = SignalSocketBus(asyncio.get_running_loop(), pipe=pipe)
        with ThreadPool(2) as pool:
            for _ in range(100):
                futures = [pool.submit(jobs.value(i), bus) for i in range(20)]
                assert await asyncio.gather(*futures) == list(range(20))
            assert bus.in_flight == 0
        bus.close()

    run(main(), new_loop)


@only_native
def test_a_thousand_ends_are_told_once():
    async def main():
        bus = SignalSocketBus(asyncio.get_running_loop(), pipe=True)
        with ThreadPool(2) as pool:
            futures = [pool.submit(jobs.noop(), bus) for _ in range(1000)]
            while pool.queued or jobs.counts()["running"]:
                time.sleep(0.001)  # not a coroutine's: the loop must not fetch them  # noqa: ASYNC251
            waiting = array.array("i", [0])
            fcntl.ioctl(bus.fileno(), termios.FIONREAD, waiting)
            assert waiting[0] == 1
            await asyncio.gather(*futures)
        bus.close()

    run(main())


@only_native
def test_closing_while_workers_complete_harms_no_other_descriptor():
    """The number of a closed descriptor is soon another file's, into which no worker may write."""

    async def main():
        with ThreadPool(2) as pool:
            for _ in range(200):
                bus = SignalSocketBus(asyncio.get_running_loop(), pipe=True)
                for _ in range(5):
                    pool.submit(jobs.noop(), bus)
                bus.close()
                ends = os.pipe()
                os.set_blocking(ends[0], False)
                await asyncio.sleep(0)
                with pytest.raises(BlockingIOError):
                    os.read(ends[0], 1)
                for end in ends:
                    os.close(end)

    run(main())


def test_the_loop_may_be_in_debug_mode():
    async def main():
        asyncio.get_running_loop().set_debug(True)
        with ThreadPool(1) as pool:
            assert await cpp_threaded_worker(pool)(jobs.value(5)) == 5

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks are never eager before Python 3.12")
def test_tasks_may_be_eager():
    async def main():
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        with ThreadPool(1) as pool:
            worker = cpp_threaded_worker(pool)

            async def one(i):
                return await worker(jobs.value(i))

            assert await asyncio.gather(*(one(i) for i in range(10))) == list(range(10))

    run(main())


def test_all_kinds_of_loops_are_tried():
    assert "asyncio" in KINDS


@pytest.mark.timeout(120)
def test_the_same_without_the_extension():
    again_without_native(__file__)
