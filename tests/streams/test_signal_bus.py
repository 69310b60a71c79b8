"""The bus of an event loop: one per loop, made anew when needed, closed with the loop."""

import array
import asyncio
import fcntl
import gc
import os
import termios
import time
import weakref

import pytest

from dpmodule import native
from dpmodule.streams import LoopClosedError, SignalSocketBus, ThreadPool, cpp_threaded_worker
from helpers import jobs
from helpers.loops import run, soon
from helpers.programs import again_without_native

only_native = pytest.mark.skipif(native.core is None, reason="the stand-in has no descriptor")


@only_native
@pytest.mark.filterwarnings("ignore:unclosed event loop:ResourceWarning")
@pytest.mark.parametrize("closed", [True, False])
def test_it_is_closed_with_its_loop_and_collected_with_it(new_loop, closed):
    if not closed and new_loop is not asyncio.new_event_loop:
        pytest.skip("uvloop keeps a loop that nobody closes")
    loop = new_loop()

    async def main():
        bus = SignalSocketBus.of()
        os.fstat(bus.fileno())
        return weakref.ref(bus), bus.fileno()

    bus, descriptor = loop.run_until_complete(main())
    if closed:
        loop.close()
    del loop
    gc.collect()  # uvloop's handles are in cycles
    assert bus() is None
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)


def test_a_loop_must_run_and_be_open():
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(LoopClosedError, match="is closed"):
        SignalSocketBus.of(loop)
    with pytest.raises(RuntimeError, match="no running event loop"):
        SignalSocketBus.of()


async def test_it_may_be_closed_and_is_made_anew():
    with ThreadPool(1) as pool:
        worker = cpp_threaded_worker(pool)
        await worker(jobs.noop())
        bus = SignalSocketBus.of()
        bus.close()
        bus.close()
        assert (bus.closed, bus.usable, bus.fileno(), bus.loop) == (True, False, -1, None)
        with pytest.raises(LoopClosedError):
            pool.submit(jobs.noop(), bus)
        assert await worker(jobs.value(1)) == 1
        assert SignalSocketBus.of() is not bus


def test_jobs_that_end_after_their_loop_are_dropped():
    async def leave(worker):
        for _ in range(3):
            worker(jobs.wait())
        await soon(lambda: jobs.counts()["running"] == 1)

    async def after(worker):
        assert await worker(jobs.value("another loop")) == "another loop"

    with ThreadPool(1) as pool:
        with jobs.opened():
            run(leave(cpp_threaded_worker(pool)))
        jobs.settle("running", 0)
        run(after(cpp_threaded_worker(pool)))
    jobs.settle("living", 0)
    assert jobs.counts()["destroyed_without_gil"] == 0


@only_native
@pytest.mark.parametrize("pipe", [False, True], ids=["eventfd", "pipe"])
async def test_every_job_comes_back_by_either_descriptor(pipe):
    bus = SignalSocketBus(asyncio.get_running_loop(), pipe=pipe)
    with ThreadPool(2) as pool:
        for _ in range(30):
            futures = [pool.submit(jobs.value(i), bus) for i in range(20)]
            assert await asyncio.gather(*futures) == list(range(20))
        assert bus.in_flight == 0
    bus.close()


@only_native
async def test_a_thousand_ends_are_told_once():
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


@only_native
async def test_closing_while_workers_complete_harms_no_other_descriptor():
    """The number of a closed descriptor is soon another file's, into which no worker may write."""
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


@pytest.mark.timeout(120)
def test_the_same_without_the_extension():
    again_without_native(__file__)
