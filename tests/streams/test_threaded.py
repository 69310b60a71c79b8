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
def test_a_job_gives_its_result(worker, new_loop):
    async def main():
        marker = object()
        assert await worker(streams.NoopFunctor()) is None
        assert await worker(jobs.value(marker)) is marker
        assert await asyncio.gather(*(worker(jobs.value(i)) for i in range(500))) == list(range(500))

    run(main(), new_loop)


def test_the_call_returns_a_future_at_once(worker):
    async def main():
        with jobs.opened():
            future = worker(jobs.wait())
            assert isinstance(future, asyncio.Future)
            assert not future.done()
        await future

    run(main())


FAULTS = [(number, kind) for number, kind in enumerate(jobs.KINDS.values())]
FAULTS += [(-1, FunctorError), (-2, MemoryError), (-3, FunctorError)]


@pytest.mark.parametrize(("fault", "kind"), FAULTS, ids=[*jobs.KINDS, "std", "bad_alloc", "int"])
def test_what_a_functor_throws_is_raised_by_the_await(worker, fault, kind):
    async def main():
        error = await raised(worker(jobs.fail(fault, "record 7 is \u00e4 mess".encode())))
        assert type(error) is kind
        if fault >= -1:
            assert str(error) == "record 7 is \u00e4 mess"
        assert await worker(jobs.value("still at work")) == "still at work"

    run(main())


@only_native
def test_a_text_that_is_no_unicode_hides_nothing(worker):
    async def main():
        for kind in (-1, 1, 8):
            assert "bad \ufffd" in str(await raised(worker(jobs.fail(kind, b"bad \xff"))))

    run(main())


@only_native
def test_a_result_that_fails_is_raised_by_the_await(worker):
    async def main():
        assert isinstance(await raised(worker(jobs.JOBS.no_result())), FunctorError)
        assert str(await raised(worker(jobs.JOBS.throwing_result()))) == "thrown by result"

        def broken():
            raise KeyError("in result()")

        error = await raised(worker(jobs.value(broken)))
        assert repr(error) == "KeyError('in result()')"
        assert error.__traceback__ is not None

    run(main())


def test_a_result_may_raise_what_a_future_refuses(worker):
    def end():
        raise StopIteration(3)

    async def main():
        assert type(await raised(worker(jobs.value(end)))) in (TypeError, RuntimeError)  # since Python 3.12

    run(main())


@pytest.mark.parametrize(
    "wrong", [lambda: 1, len, 3, None, object, "noop"], ids=lambda wrong: type(wrong).__name__
)
def test_what_is_no_functor_is_refused(worker, wrong):
    async def main():
        with pytest.raises(ArgumentError, match="expected a functor.*asyncio.to_thread"):
            worker(wrong)
        assert SignalSocketBus.of().in_flight == 0

    run(main())


def test_an_object_may_convert_itself(worker):
    class Wrapped:
        def __dpmodule_functor__(self):
            return jobs.value("converted")

    class Broken:
        def __dpmodule_functor__(self):
            raise ZeroDivisionError

    async def main():
        assert await worker(Wrapped()) == "converted"
        with pytest.raises(ZeroDivisionError):
            worker(Broken())

    run(main())


@only_native
def test_capsules_of_another_name_are_refused(worker):
    async def main():
        with pytest.raises(ArgumentError, match="got PyCapsule"):
            worker(jobs.JOBS.bytes_capsule(b"ab"))

    run(main())


def test_a_call_without_a_loop_says_so(worker):
    with pytest.raises(StateError, match="no event loop is running"):
        worker(streams.NoopFunctor())


# --- threads


@only_native
def test_workers_have_names_and_never_the_gil(worker):
    async def main():
        names = set(await asyncio.gather(*(worker(jobs.thread_name()) for _ in range(100))))
        assert names <= {"dpm-pool-0", "dpm-pool-1"}

    run(main())
    counts = jobs.counts()
    assert counts["run_with_gil"] == 0
    assert counts["destroyed_without_gil"] == 0


def test_jobs_run_side_by_side(pool, worker):
    async def main():
        with jobs.opened():
            both = [worker(jobs.wait()) for _ in range(2)]
            await soon(lambda: jobs.counts()["running"] == 2)
            third = worker(jobs.noop())
            await soon(lambda: pool.queued == 1)
        await asyncio.gather(*both, third)

    run(main())


@pytest.mark.parametrize("long", [0, 1, 2])
def test_a_long_job_keeps_no_other_waiting(long):
    """Wherever it stands among short ones, the other thread does those behind it."""

    async def main():
        with ThreadPool(2) as pool, jobs.opened():
            worker = cpp_threaded_worker(pool)
            stuck, others = None, []
            for i in range(200):
                if i == long:
                    stuck = worker(jobs.wait())
                others.append(worker(jobs.noop()))
            await asyncio.wait_for(asyncio.gather(*others), 8)
            assert not stuck.done()

    run(main())
    jobs.settle("living", 0)


@every_loop
def test_the_loop_goes_on_while_jobs_hang(worker, new_loop):
    async def main():
        with jobs.opened():
            stuck = [worker(jobs.wait()) for _ in range(2)]
            for _ in range(50):
                await asyncio.sleep(0)
            assert not any(future.done() for future in stuck)
        await asyncio.gather(*stuck)

    run(main(), new_loop)


def test_several_pools_serve_one_loop():
    async def main():
        with ThreadPool(1, "first") as first, ThreadPool(3, "second") as second:
            names = await asyncio.gather(
                *(
                    cpp_threaded_worker(pool)(jobs.thread_name())
                    for pool in (first, second)
                    for _ in range(50)
                )
            )
            assert {name.rsplit("-", 1)[0] for name in names[:50]} == {"first"}
            assert {name.rsplit("-", 1)[0] for name in names[50:]} == {"second"}

    run(main())


def test_one_pool_serves_loops_one_after_the_other_and_at_once(worker):
    async def main(number):
        for _ in range(30):
            assert await worker(jobs.value(number)) == number
        return SignalSocketBus.of()

    assert run(main(1)) is not run(main(2))
    seen, failed = [], []

    def in_thread(number):
        try:
            loop = asyncio.new_event_loop()
            seen.append(loop.run_until_complete(main(number)))
            loop.close()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=in_thread, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert failed == []
    assert len(set(map(id, seen))) == 4


@pytest.mark.parametrize("wrong", [0, -1, 5000])
def test_the_number_of_threads_is_checked(wrong):
    with pytest.raises(ArgumentError, match=f"threads={wrong}, expected 1 to 4096"):
        ThreadPool(wrong)


def test_a_pool_has_a_thread_per_core_by_default():
    with ThreadPool() as pool:
        assert (
            pool.threads == len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count()
        )


# --- one functor again


@every_loop
def test_a_functor_is_in_one_thread_at_a_time(worker, new_loop):
    """Whatever worker it is sent with, and whether somebody still waits for it or not."""

    async def main():
        functor, failing = jobs.wait(), jobs.fail(0, b"once")
        with jobs.opened(), ThreadPool(1) as other:
            future = worker(functor)
            for again in (worker, worker, cpp_threaded_worker(other)):
                with pytest.raises(
                    StateError, match="is still running from an earlier call.*functor for each call"
                ):
                    again(functor)
            future.cancel()
            await asyncio.sleep(0)
            with pytest.raises(StateError, match="is still running"):
                worker(functor)
            assert SignalSocketBus.of().in_flight == 1
        await soon(lambda: SignalSocketBus.of().in_flight == 0)
        for _ in range(2):
            assert await worker(functor) is None
            assert type(await raised(worker(failing))) is FunctorError

    run(main(), new_loop)


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
    jobs.settle("running", 0)
    run(send())


# --- cancelling


@every_loop
def test_a_cancelled_job_runs_on_and_lives_until_it_ended(worker, new_loop):
    async def main():
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

    run(main(), new_loop)


def cancel_many(worker, count):
    async def main():
        draw = random.Random(0)
        for _ in range(count // 50):
            futures = [worker(jobs.value(object())) for _ in range(50)]
            for future in futures:
                if draw.random() < 0.9:
                    future.cancel()
            if draw.random() < 0.5:
                await asyncio.sleep(0)
            await asyncio.gather(*futures, return_exceptions=True)
        await soon(lambda: SignalSocketBus.of().in_flight == 0)

    run(main(), seconds=300)
    jobs.settle("living", 0)


def test_ten_thousand_cancels_leave_nothing(worker):
    cancel_many(worker, 10_000)
    assert jobs.counts()["destroyed_without_gil"] == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_memory_does_not_grow_with_cancels(worker):
    import psutil

    process = psutil.Process()
    cancel_many(worker, 100_000)
    before = process.memory_info().rss, process.num_fds(), process.num_threads()
    cancel_many(worker, 300_000)
    after = process.memory_info().rss, process.num_fds(), process.num_threads()
    assert after[0] < before[0] * 1.01 + 2**20
    assert after[1:] == before[1:]


def test_results_are_not_kept(worker):
    class Thing:
        pass

    async def main():
        thing = Thing()
        gone = weakref.ref(thing)
        await worker(jobs.value(thing))
        del thing
        await worker(jobs.noop())
        await worker(jobs.noop())  # both threads may hold their last job until the next
        gc.collect()
        assert gone() is None

    run(main())


# --- closing


def test_close_refuses_jobs_that_have_not_begun_and_finishes_the_others():
    async def main():
        pool = ThreadPool(1)
        worker = cpp_threaded_worker(pool)
        with jobs.opened():
            running = worker(jobs.wait())
            await soon(lambda: jobs.counts()["running"] == 1)
            queued = [worker(jobs.noop()) for _ in range(3)]
            assert not pool.close(0.0)
            assert pool.closed
            assert pool.alive == 1
            for future in queued:
                assert "before this job began" in str(await raised(future))
                assert type(future.exception()) is PoolClosedError
            with pytest.raises(PoolClosedError, match="send jobs before close"):
                worker(jobs.noop())
        await running
        assert pool.close()
        assert pool.close()
        assert pool.alive == 0

    run(main())


def test_refused_jobs_that_nobody_awaits_are_not_reported():
    async def main():
        with ThreadPool(1) as pool, jobs.opened():
            worker = cpp_threaded_worker(pool)
            for _ in range(5):
                worker(jobs.wait())
            pool.close(0.0)
        await soon(lambda: SignalSocketBus.of().in_flight == 0)

    run(main())  # fails on reports
    gc.collect()


def test_leaving_by_an_exception_does_not_wait():
    async def main():
        pool = ThreadPool(1)

        async def fail():
            with pool:
                stuck = cpp_threaded_worker(pool)(jobs.wait())
                await soon(lambda: jobs.counts()["running"] == 1)
                kept.append(stuck)
                raise ZeroDivisionError

        kept = []
        with jobs.opened():
            assert type(await raised(fail())) is ZeroDivisionError
            assert jobs.counts()["running"] == 1
        await kept[0]
        assert pool.close()

    run(main())


def test_threads_are_gone_after_close():
    before = entries("/proc/self/task")
    pool = ThreadPool(3)
    if before and native.core:
        assert len(entries("/proc/self/task") - before) == 3
    assert pool.close()
    settled(lambda: entries("/proc/self/task") - before, set())  # threads of others may end


@pytest.mark.filterwarnings("error::ResourceWarning")
def test_a_pool_that_is_dropped_warns_and_does_what_is_queued():
    async def main():
        worker = cpp_threaded_worker(ThreadPool(1))
        futures = [worker(jobs.value(i)) for i in range(100)]
        held = [worker]
        del worker
        with pytest.warns(ResourceWarning, match="ThreadPool of 1 threads.*was not closed"):
            held.clear()
        assert await asyncio.gather(*futures) == list(range(100))

    run(main())


def cycle(count):
    async def main():
        with ThreadPool(2) as pool:
            await cpp_threaded_worker(pool)(jobs.noop())

    for _ in range(count):
        run(main()) if count < 1000 else asyncio.run(main())


def entries(folder):
    """Return what is in a folder of /proc, where there is one."""
    return set(os.listdir(folder)) if os.path.isdir(folder) else set()


def settled(value, expected):
    """Wait for a value: the system counts a thread for a moment after Python has joined it."""
    end = time.monotonic() + 2
    while value() != expected and time.monotonic() < end:
        time.sleep(0.001)
    assert value() == expected


def check_cycles(count):
    def held():
        return len(entries("/proc/self/fd")), len(entries("/proc/self/task")), threading.active_count()

    extra = len(entries("/proc/self/task")) - threading.active_count()  # threads of others
    cycle(5)
    settled(lambda: len(entries("/proc/self/task")) - threading.active_count() <= extra, True)
    before = held()
    cycle(count)
    settled(lambda: all(now <= then for now, then in zip(held(), before)), True)  # threads of others may end


def test_pools_come_and_go():
    check_cycles(30)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_thousand_pools_come_and_go():
    check_cycles(10_000)


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


def faults(count, seed):
    draw = random.Random(seed)

    async def main():
        for _ in range(count):
            with ThreadPool(draw.randrange(1, 4)) as pool:
                await episode(draw, pool)

    run(main(), seconds=580)
    jobs.settle("living", 0)


def test_faults_anywhere_end_every_future():
    faults(60, 1)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_thousand_faults_end_every_future():
    faults(10_000, 2)


@pytest.mark.timeout(120)
def test_the_same_without_the_extension():
    again_without_native(__file__)


@pytest.mark.parametrize("threads", ["2", 2.0, True])
def test_threads_that_are_no_number_are_refused(threads):
    with pytest.raises(ArgumentError, match="threads is .*expected an integer"):
        ThreadPool(threads)


def test_a_worker_needs_a_pool():
    with pytest.raises(ArgumentError, match="pool is 3, expected a ThreadPool"):
        cpp_threaded_worker(3)
