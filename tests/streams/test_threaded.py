"""Jobs for threads of C++ from coroutines; the whole file runs again without the extension."""

import asyncio
import gc
import os
import random
import threading
import time
import weakref

import pytest

from dpmodule import native, streams
from dpmodule.base import ArgumentError, StateError
from dpmodule.streams import FunctorError, PoolClosedError, SignalSocketBus, ThreadPool, cpp_threaded_worker
from helpers import jobs
from helpers.loops import every_loop, raised, run, soon
from helpers.processes import resident_bytes, resources
from helpers.programs import again_without_native

only_native = pytest.mark.skipif(native.core is None, reason="the stand-in's threads are Python's")


@pytest.fixture
def pool():
    with ThreadPool(2) as made:
        yield made
    jobs.JOBS.set_gate(True)


@pytest.fixture
def worker(pool):
    return cpp_threaded_worker(pool)


# --- results and exceptions


@every_loop
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


def fails_with(error):
    def fail():
        raise error

    return jobs.value(fail)


async def test_a_result_that_fails_is_raised_by_the_await(worker):
    error = await raised(worker(fails_with(StopIteration(3))))  # which a future refuses
    assert type(error) in (TypeError, RuntimeError)  # since Python 3.12
    if native.core is None:
        return
    assert isinstance(await raised(worker(jobs.JOBS.no_result())), FunctorError)
    assert str(await raised(worker(jobs.JOBS.throwing_result()))) == "thrown by result"
    error = await raised(worker(fails_with(KeyError("in result()"))))
    assert repr(error) == "KeyError('in result()')"
    assert error.__traceback__ is not None


async def test_what_is_no_functor_is_refused_and_an_object_may_convert_itself(worker):
    capsule = [jobs.JOBS.bytes_capsule(b"ab")] if native.core else []
    for wrong in (lambda: 1, len, 3, None, object, "noop", *capsule):
        with pytest.raises(ArgumentError, match="expected a functor.*asyncio.to_thread"):
            worker(wrong)
    assert SignalSocketBus.of().in_flight == 0
    made = type("Wrapped", (), {"__dpmodule_functor__": lambda self: jobs.value("converted")})()
    assert await worker(made) == "converted"
    with pytest.raises(ZeroDivisionError):
        worker(type("Broken", (), {"__dpmodule_functor__": lambda self: 1 / 0})())


def test_a_call_without_a_loop_is_refused(worker):
    with pytest.raises(StateError, match="no event loop is running"):
        worker(streams.NoopFunctor())


# --- threads


@only_native
def test_workers_have_names_and_never_the_gil(worker):
    async def main():
        return set(await asyncio.gather(*(worker(jobs.thread_name()) for _ in range(100))))

    assert run(main()) <= {"dpm-pool-0", "dpm-pool-1"}
    counts = jobs.counts()
    assert counts["run_with_gil"] == 0
    assert counts["destroyed_without_gil"] == 0


@every_loop
async def test_jobs_run_side_by_side_and_the_loop_goes_on(pool, worker):
    with jobs.opened():
        both = [worker(jobs.wait()) for _ in range(2)]
        await soon(lambda: jobs.counts()["running"] == 2)
        third = worker(jobs.noop())
        await soon(lambda: pool.queued == 1)
        assert not any(future.done() for future in both)
    await asyncio.gather(*both, third)


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


async def test_several_pools_serve_one_loop():
    with ThreadPool(1, "first") as first, ThreadPool(3, "second") as second:
        for pool, prefix in ((first, "first"), (second, "second")):
            worker = cpp_threaded_worker(pool)
            names = await asyncio.gather(*(worker(jobs.thread_name()) for _ in range(50)))
            assert {name.rsplit("-", 1)[0] for name in names} == {prefix}


def test_one_pool_serves_loops_one_after_the_other_and_at_once(worker):
    async def main(number):
        for _ in range(30):
            assert await worker(jobs.value(number)) == number
        return SignalSocketBus.of()

    assert run(main(1)) is not run(main(2))
    seen = []

    def in_thread(number):
        loop = asyncio.new_event_loop()
        seen.append(loop.run_until_complete(main(number)))
        loop.close()

    threads = [threading.Thread(target=in_thread, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(set(map(id, seen))) == 4


def test_a_pool_has_a_thread_per_core_by_default():
    affinity = getattr(os, "sched_getaffinity", None)
    with ThreadPool() as pool:
        assert pool.threads == (len(affinity(0)) if affinity else os.cpu_count())


# --- one functor again


@every_loop
async def test_a_functor_is_in_one_thread_at_a_time(worker):
    """Whatever worker it is sent with, and whether somebody still waits for it or not."""
    functor, failing = jobs.wait(), jobs.fail(0, b"once")
    text = "is still running from an earlier call.*functor for each call"
    with jobs.opened(), ThreadPool(1) as other:
        future = worker(functor)
        for again in (worker, cpp_threaded_worker(other)):
            with pytest.raises(StateError, match=text):
                again(functor)
        future.cancel()
        await asyncio.sleep(0)
        with pytest.raises(StateError, match=text):
            worker(functor)
        assert SignalSocketBus.of().in_flight == 1
    await soon(lambda: SignalSocketBus.of().in_flight == 0)
    for _ in range(2):
        assert await worker(functor) is None
        assert type(await raised(worker(failing))) is FunctorError


def test_a_functor_that_was_refused_or_outlived_its_loop_may_be_sent_again(worker):
    waiting, refused = jobs.wait(), jobs.noop()

    async def leave():
        with ThreadPool(1) as pool:
            closed = cpp_threaded_worker(pool)
            closed(waiting)
            await soon(lambda: jobs.counts()["running"] == 1)
            future = closed(refused)
            pool.close(0.0)
            assert isinstance(await raised(future), PoolClosedError)
            assert await worker(refused) is None
            raise KeyError  # does not wait for the job

    async def send():
        assert await worker(waiting) is None

    with jobs.opened():
        assert isinstance(run(raised(leave())), KeyError)
        assert jobs.counts()["running"] == 1
    jobs.settle("running", 0)
    run(send())


# --- cancelling


@every_loop
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


@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [10_000, pytest.param(400_000, marks=pytest.mark.slow)])
def test_many_cancels_leave_nothing(worker, count):
    async def main():
        draw = random.Random(0)
        for number in range(count // 50):
            if number == count // 200:
                before = resources(), resident_bytes()
            futures = [worker(jobs.value(object())) for _ in range(50)]
            for future in futures:
                if draw.random() < 0.9:
                    future.cancel()
            if draw.random() < 0.5:
                await asyncio.sleep(0)
            await asyncio.gather(*futures, return_exceptions=True)
        await soon(lambda: SignalSocketBus.of().in_flight == 0)
        assert resources() == before[0]
        assert count < 100_000 or resident_bytes() < before[1] * 1.01 + 2**20

    run(main(), seconds=300)
    jobs.settle("living", 0)
    assert jobs.counts()["destroyed_without_gil"] == 0


async def test_results_are_not_kept(worker):
    class Thing:
        pass

    thing = Thing()
    gone = weakref.ref(thing)
    await worker(jobs.value(thing))
    del thing
    await worker(jobs.noop())
    await worker(jobs.noop())  # both threads may hold their last job until the next
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
            assert type(future.exception()) is PoolClosedError
        with pytest.raises(PoolClosedError, match="send jobs before close"):
            worker(jobs.noop())
    await running
    assert pool.close()
    assert pool.close()
    assert pool.alive == 0


@pytest.mark.filterwarnings("error::ResourceWarning")
async def test_a_pool_that_is_dropped_warns_and_does_what_is_queued():
    worker = cpp_threaded_worker(ThreadPool(1))
    futures = [worker(jobs.value(i)) for i in range(100)]
    held = [worker]
    del worker
    with pytest.warns(ResourceWarning, match="ThreadPool of 1 threads.*was not closed"):
        held.clear()
    assert await asyncio.gather(*futures) == list(range(100))


def entries(folder):
    """Return what is in a folder of /proc, where there is one."""
    return set(os.listdir(folder)) if os.path.isdir(folder) else set()


def settled(value, expected):
    """Wait for a value: the system counts a thread for a moment after Python has joined it."""
    end = time.monotonic() + 2
    while value() != expected and time.monotonic() < end:
        time.sleep(0.001)
    assert value() == expected


def test_threads_are_gone_after_close():
    before = entries("/proc/self/task")
    pool = ThreadPool(3)
    if before and native.core:
        assert len(entries("/proc/self/task") - before) == 3
    assert pool.close()
    settled(lambda: entries("/proc/self/task") - before, set())  # threads of others may end


@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [30, pytest.param(10_000, marks=pytest.mark.slow)])
def test_pools_come_and_go(count):
    async def main():
        with ThreadPool(2) as pool:
            await cpp_threaded_worker(pool)(jobs.noop())

    def held():
        return len(entries("/proc/self/fd")), len(entries("/proc/self/task")), threading.active_count()

    extra = len(entries("/proc/self/task")) - threading.active_count()  # threads of others
    for number in range(count + 5):
        run(main()) if count < 1000 else asyncio.run(main())
        if number == 4:
            settled(lambda: len(entries("/proc/self/task")) - threading.active_count() <= extra, True)
            before = held()
    settled(lambda: all(now <= then for now, then in zip(held(), before)), True)  # threads of others may end


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
@pytest.mark.parametrize("count", [60, pytest.param(10_000, marks=pytest.mark.slow)])
def test_faults_anywhere_end_every_future(count):
    draw = random.Random(count)

    async def main():
        for _ in range(count):
            with ThreadPool(draw.randrange(1, 4)) as pool:
                await episode(draw, pool)

    run(main(), seconds=580)
    jobs.settle("living", 0)


@pytest.mark.timeout(120)
def test_the_same_without_the_extension():
    again_without_native(__file__)
