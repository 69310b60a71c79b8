"""Jobs for threads of C++ from coroutines; the whole file runs again without the extension."""

import asyncio
import gc
import os
import random
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest

from dpmodule import native, streams
from dpmodule.base import ArgumentError, StateError
from dpmodule.streams import FunctorError, PoolClosedError, SignalSocketBus, ThreadPool, cpp_threaded_worker
from helpers import jobs
from helpers.loops import raised, run, soon
from helpers.programs import again_without_native

only_native = pytest.mark.skipif(native.core is None, reason="the stand-in's threads are Python's")


@pytest.fixture
def worker():
    with ThreadPool(2) as pool:
        yield cpp_threaded_worker(pool)
    jobs.JOBS.set_gate(True)


# --- results and exceptions


async def test_a_job_gives_its_result(worker):
    marker = object()
    assert await worker(streams.NoopFunctor()) is None
    assert await worker(jobs.value(marker)) is marker
    assert await asyncio.gather(*(worker(jobs.value(i)) for i in range(500))) == list(range(500))
    with jobs.opened():
        future = worker(jobs.wait())
        assert isinstance(future, asyncio.Future)
        assert not future.done()
    await future


FAULTS = [*enumerate(jobs.KINDS.values()), (-1, FunctorError), (-2, MemoryError), (-3, FunctorError)]


@pytest.mark.parametrize(("fault", "kind"), FAULTS, ids=[*jobs.KINDS, "std", "bad_alloc", "int"])
async def test_what_a_functor_throws_is_raised_by_the_await(worker, fault, kind):
    for text in ("record 7 is \u00e4 mess".encode(), *([b"bad \xff"] if native.core else [])):
        error = await raised(worker(jobs.fail(fault, text)))
        assert type(error) is kind
        if fault >= -1:
            assert str(error) == text.decode(errors="replace")
    assert await worker(jobs.value("still at work")) == "still at work"


async def test_a_result_that_fails_is_raised_by_the_await(worker):
    error = await raised(
        worker(jobs.value(mock.Mock(side_effect=StopIteration(3))))
    )  # which a future refuses
    assert type(error) in (TypeError, RuntimeError)  # since Python 3.12
    error = await raised(worker(jobs.value(mock.Mock(side_effect=KeyError("in result()")))))
    assert repr(error) == "KeyError('in result()')"
    assert error.__traceback__ is not None
    if native.core is not None:
        assert isinstance(await raised(worker(jobs.JOBS.no_result())), FunctorError)
        assert str(await raised(worker(jobs.JOBS.throwing_result()))) == "thrown by result"


async def test_what_is_no_functor_is_refused_and_an_object_may_convert_itself(worker):
    capsule = [jobs.JOBS.bytes_capsule(b"ab")] if native.core else []
    for wrong in (lambda: 1, object, "noop", *capsule):
        with pytest.raises(ArgumentError, match="expected a functor.*asyncio.to_thread"):
            worker(wrong)
    assert SignalSocketBus.of().in_flight == 0
    made = type("Wrapped", (), {"__dpmodule_functor__": lambda self: jobs.value("converted")})()
    assert await worker(made) == "converted"
    with pytest.raises(ZeroDivisionError):
        worker(type("Broken", (), {"__dpmodule_functor__": lambda self: 1 / 0})())


# --- threads


@only_native
def test_workers_have_names_and_never_the_gil(worker):
    async def main():
        return set(await asyncio.gather(*(worker(jobs.thread_name()) for _ in range(100))))

    assert run(main()) <= {"dpm-pool-0", "dpm-pool-1"}
    counts = jobs.counts()
    assert counts["run_with_gil"] == 0
    assert counts["destroyed_without_gil"] == 0


@pytest.mark.parametrize("long", [0, 1, 2])
def test_a_long_job_keeps_no_other_waiting(long):
    """Wherever it stands among short ones, the other thread does those behind it."""

    async def main():
        with ThreadPool(2) as pool, jobs.opened():
            worker = cpp_threaded_worker(pool)
            sent = [worker(jobs.wait() if i == long else jobs.noop()) for i in range(200)]
            stuck = sent.pop(long)
            await asyncio.wait_for(asyncio.gather(*sent), 8)
            assert not stuck.done()

    run(main())
    jobs.settle("living", 0)


def test_a_pool_has_a_thread_per_core_by_default():
    affinity = getattr(os, "sched_getaffinity", None)
    with ThreadPool() as pool:
        assert pool.threads == (len(affinity(0)) if affinity else os.cpu_count())


# --- one functor again


async def test_a_functor_is_in_one_thread_at_a_time(worker):
    """Whatever worker it is sent with, and whether somebody still waits for it or not."""
    functor, failing = jobs.wait(), jobs.fail(0, b"once")
    text = "is still running from an earlier call.*functor for each call"
    with jobs.opened(), ThreadPool(1) as other:
        future = worker(functor)
        for again in (worker, cpp_threaded_worker(other), worker):
            with pytest.raises(StateError, match=text):
                again(functor)
            future.cancel()
            await asyncio.sleep(0)
        assert SignalSocketBus.of().in_flight == 1
    await soon(lambda: SignalSocketBus.of().in_flight == 0)
    for _ in range(2):
        assert await worker(functor) is None
        assert type(await raised(worker(failing))) is FunctorError


# --- cancelling


async def test_a_cancelled_job_runs_on_and_lives_until_it_ended(worker):
    with jobs.opened():
        task = asyncio.ensure_future(raised(worker(jobs.wait())))
        await asyncio.sleep(0)  # it begins to wait
        await soon(lambda: jobs.counts()["running"] == 1)
        task.cancel()
        await task
        gc.collect()
        assert jobs.counts()["living"] == 1
    await soon(lambda: jobs.counts()["living"] == 0)
    assert SignalSocketBus.of().in_flight == 0
    assert await worker(jobs.value(1)) == 1


async def test_results_are_not_kept(worker):
    thing = threading.Event()
    gone = weakref.ref(thing)
    await worker(jobs.value(thing))
    del thing
    for _ in range(2):  # both threads may hold their last job until the next
        await worker(jobs.noop())
    gc.collect()
    assert gone() is None


# --- closing


async def test_close_refuses_jobs_that_have_not_begun_and_finishes_the_others():
    pool = ThreadPool(1)
    worker = cpp_threaded_worker(pool)
    with jobs.opened():
        running = worker(jobs.wait())
        await soon(lambda: jobs.counts()["running"] == 1)
        queued = [worker(jobs.noop()) for _ in range(3)]
        worker(jobs.wait())  # nobody awaits it, and nothing is reported
        assert not pool.close(0.0)
        assert (pool.closed, pool.alive) == (True, 1)
        for future in queued:
            assert "before this job began" in str(await raised(future))
        with pytest.raises(PoolClosedError, match="send jobs before close"):
            worker(jobs.noop())
    await running
    assert [pool.close(), pool.close(), pool.alive] == [True, True, 0]


@pytest.mark.filterwarnings("error::ResourceWarning")
async def test_a_pool_that_is_dropped_warns_and_does_what_is_queued():
    worker = cpp_threaded_worker(ThreadPool(1))
    futures = [worker(jobs.value(i)) for i in range(100)]
    held = [worker]
    del worker
    with pytest.warns(ResourceWarning, match="ThreadPool of 1 threads.*was not closed"):
        held.clear()
    assert await asyncio.gather(*futures) == list(range(100))


# --- faults anywhere


def any_job(draw):
    kind = draw.randrange(8)
    if kind < 3:
        return jobs.value(kind)
    return jobs.sleep(draw.random() / 2000) if kind < 5 else jobs.fail(draw.randrange(-3, 9), b"fault")


async def episode(draw, pool):
    """Send jobs of all sorts, cancel some, perhaps close the pool; every future must come to an end."""
    worker = cpp_threaded_worker(pool)
    futures = [worker(jobs.noop())]
    for _ in range(40):
        if not pool.closed:
            futures.append(worker(any_job(draw)))
        chance = draw.random()
        if chance < 0.1:
            draw.choice(futures).cancel()
        elif chance < 0.2:
            await asyncio.sleep(0)
        elif chance < 0.21:
            pool.close(draw.choice([0.0, 1.0]))
    done, late = await asyncio.wait(futures, timeout=5)
    assert not late
    errors = {None if future.cancelled() else type(future.exception()) for future in done}
    assert errors <= {None, type(None), PoolClosedError, *jobs.KINDS.values()}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [40, pytest.param(10_000, marks=pytest.mark.slow)])
def test_faults_anywhere_end_every_future(count):
    draw = random.Random(count)

    async def main():
        for _ in range(count):
            with ThreadPool(draw.randrange(1, 4)) as pool:
                await episode(draw, pool)
        await soon(lambda: SignalSocketBus.of().in_flight == 0)

    before = threading.active_count()
    run(main(), seconds=580)
    jobs.settle("living", 0)
    assert jobs.counts()["destroyed_without_gil"] == 0
    assert threading.active_count() <= before


@pytest.mark.timeout(120)
def test_the_same_without_the_extension():
    again_without_native(__file__)


def test_one_pool_serves_several_loops_at_once(worker):
    async def main(number):
        bus = SignalSocketBus.of()
        for _ in range(30):
            assert await worker(jobs.value(number)) == number
        assert SignalSocketBus.of() is bus
        return bus

    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(lambda number: asyncio.run(main(number)), range(4)))) == 4
