"""Worker pools: when jobs run, who waits for whom, and the first failure that is raised everywhere."""

import asyncio
import contextvars
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import pytest

from dpmodule.base import ArgumentError, MXNetError, StateError
from dpmodule.streams import (
    BaseAsyncWorker,
    BaseAsyncWorkerPool,
    CppWorkerPool,
    LoopClosedError,
    PoolClosedError,
    ThreadWorkerPool,
)
from helpers.loops import every_loop, raised, run, soon
from helpers.programs import run_program

pytestmark = pytest.mark.timeout(20)


class Worker(BaseAsyncWorker):
    """Sleeps, then doubles, raises, or calls what it is given."""

    def __init__(self, log):
        self.log = log
        self.jobs = 0

    async def __aenter__(self):
        self.log.append("enter")
        return self

    async def __aexit__(self, kind, error, trace):
        self.log.append("exit")
        self.error = error

    async def _do_job(self, value, seconds=0.0):
        self.jobs += 1
        if seconds:
            await asyncio.sleep(seconds)
        if isinstance(value, BaseException):
            raise value
        if callable(value):
            return await value()
        return value * 2


class Pool(BaseAsyncWorkerPool):
    def __init__(self, workers_count):
        super().__init__(workers_count)
        self.log, self.workers = [], []

    def create_new_worker(self):
        self.workers.append(Worker(self.log))
        return self.workers[-1]


def double(value, seconds=0.0):
    if seconds:
        time.sleep(seconds)
    if isinstance(value, BaseException):
        raise value
    return value * 2


class Threads(ThreadWorkerPool):
    def __init__(self, workers_count):
        super().__init__(workers_count, double)


every_pool = pytest.mark.parametrize("kind", [Pool, Threads])


@pytest.fixture(autouse=True)
def leaves_no_thread():
    yield
    assert not [each for each in threading.enumerate() if each.name.startswith("ThreadWorker")]


# ---- promises 18 to 20


@every_loop
@every_pool
def test_results_arrive(kind, new_loop):
    async def main():
        async with kind(2) as pool:
            futures = [await pool.assign_job(number) for number in range(50)]
            results = [await future for future in futures]
        assert results == [2 * number for number in range(50)]
        assert [await future for future in futures] == results  # and stay after the context

    run(main(), new_loop)


@every_loop
@every_pool
def test_assign_job_waits_until_a_worker_is_free(kind, new_loop):
    async def main():
        async with kind(2) as pool:
            await pool.assign_job(1, 0.05)
            await pool.assign_job(2, 0.05)
            third = asyncio.ensure_future(pool.assign_job(3))
            await asyncio.sleep(0.01)
            assert not third.done()
            assert await (await third) == 6

    run(main(), new_loop)


@every_loop
@every_pool
def test_the_context_waits_for_its_jobs_and_nothing_runs_outside(kind, new_loop):
    async def main():
        pool = kind(2)
        with pytest.raises(PoolClosedError, match="is new"):
            await pool.assign_job(1)
        async with pool:
            future = await pool.assign_job(4, 0.03)
            cut = await pool.assign_job(5, 0.03)
        assert future.done()
        assert future.result() == 8
        assert cut.result() == 10
        with pytest.raises(PoolClosedError, match="is closed"):
            await pool.assign_job(1)
        assert not pool.die_mode

    run(main(), new_loop)


def test_no_more_jobs_run_at_a_time_than_there_are_workers():
    running, most = 0, 0

    async def job():
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    async def main():
        async with Pool(3) as pool:
            await asyncio.gather(*[pool.assign_job(job) for _ in range(30)])
        assert sum(worker.jobs for worker in pool.workers) == 30
        assert all(worker.jobs for worker in pool.workers)

    run(main())
    assert most == 3


def test_workers_keep_their_state_and_are_entered_and_left_in_order():
    async def main():
        async with Pool(2) as pool:
            assert pool.log == ["enter", "enter"]
            assert len({id(worker) for worker in pool.workers}) == 2
        assert pool.log == ["enter", "enter", "exit", "exit"]
        assert [worker.error for worker in pool.workers] == [None, None]

    run(main())


def test_enter_and_exit_are_optional():
    class Bare:
        async def _do_job(self):
            return 5

    class Bares(BaseAsyncWorkerPool):
        def create_new_worker(self):
            return Bare()

    async def main():
        async with Bares(1) as pool:
            return await (await pool.assign_job())

    assert run(main()) == 5


@every_loop
def test_assigners_are_served_in_their_order(new_loop):
    order = []

    async def main():
        async with Pool(1) as pool:
            await pool.assign_job(0, 0.01)

            async def assign(number):
                await pool.assign_job(number)
                order.append(number)

            waiting = [asyncio.ensure_future(assign(number)) for number in range(10)]
            await asyncio.sleep(0)
            await soon(lambda: len(order) > 3)
            await assign(99)  # who comes later does not get in between
            await asyncio.gather(*waiting)

    run(main(), new_loop)
    assert order == [*range(10), 99]


@every_pool
def test_jobs_see_the_context_variables_of_who_assigned_them(kind):
    variable = contextvars.ContextVar("variable", default=0)

    class Reader:
        def __mul__(self, two):
            return variable.get()

    async def main():
        async with kind(1) as pool:
            variable.set(7)
            return await (await pool.assign_job(Reader()))

    assert run(main()) == 7


@pytest.mark.parametrize("count", [0, -1, 1.5, "2", None, True])
def test_the_number_of_workers_is_checked(count):
    with pytest.raises(ArgumentError, match="workers_count"):
        Pool(count)


def test_a_thread_pool_needs_a_function():
    with pytest.raises(ArgumentError, match="function"):
        ThreadWorkerPool(2, 5)


# ---- promise 21


@every_loop
@every_pool
def test_the_same_exception_everywhere(kind, new_loop):
    error = ValueError("boom")
    seen = []

    async def main():
        try:
            async with kind(2) as pool:
                slow = await pool.assign_job(1, 0.2)
                bad = await pool.assign_job(error, 0.01)
                waiting = [asyncio.ensure_future(pool.assign_job(7)) for _ in range(3)]
                calls = (*waiting, bad, slow, slow, pool.assign_job(1), pool.assign_job(2))
                seen.extend([await raised(each) for each in calls])
                assert pool.die_mode
        except ValueError as left:
            seen.append(left)
        seen.extend([await raised(each) for each in (bad, slow, pool.assign_job(3))])

    run(main(), new_loop)
    assert len(seen) == 12
    assert all(each is error for each in seen)


@every_loop
@every_pool
def test_nobody_asks_for_the_failed_job(kind, new_loop):
    """The context raises it alone, and asyncio reports no exception that nobody has retrieved."""
    error = ValueError("boom")

    async def main():
        async with kind(3) as pool:
            await pool.assign_job(error)
            await pool.assign_job(KeyError("a second one"), 0.01)
            await pool.assign_job(1, 0.02)

    assert run(raised(main()), new_loop) is error


def test_the_traceback_of_the_failure_does_not_grow():
    async def main():
        async with Pool(1) as pool:
            future = await pool.assign_job(ValueError("boom"))
            await raised(future)
            for _ in range(5):
                error = await raised(pool.assign_job(1))
                lengths.append(len(traceback.extract_tb(error.__traceback__)))

    lengths = []
    left = run(raised(main()))
    assert str(left) == "boom"
    assert len(set(lengths)) == 1
    assert "_do_job" in [frame.name for frame in traceback.extract_tb(left.__traceback__)]


def test_a_running_job_is_cancelled_and_awaited():
    log = []

    async def careful():
        try:
            await asyncio.sleep(10)
        finally:
            await asyncio.sleep(0.01)
            log.append("cleaned")

    async def main():
        async with Pool(3) as pool:
            await pool.assign_job(careful)
            await pool.assign_job(ValueError("first"), 0.005)
            await pool.assign_job(ValueError("second"), 0.01)  # does not disturb the cleaning
            await asyncio.sleep(0.2)

    began = time.monotonic()
    error = run(raised(main()))
    assert (
        time.monotonic() - began >= 0.2
    )  # the body is not interrupted: it meets the error in the pool's calls
    assert str(error) == "first"
    assert log == ["cleaned"]


def test_the_workers_are_told_the_error():
    error = ValueError("boom")

    async def main():
        pool = Pool(2)
        with pytest.raises(ValueError, match="boom"):
            async with pool:
                await pool.assign_job(error)
        assert [worker.error for worker in pool.workers] == [error, error]

    run(main())


def test_a_call_that_does_not_fit_the_worker_is_a_failure():
    async def main():
        async with Pool(2) as pool:
            error = await raised(pool.assign_job(1, unknown=2))
            assert await raised(pool.assign_job(1)) is error

    error = run(raised(main()))
    assert isinstance(error, TypeError)
    assert "unexpected keyword" in str(error)


def test_a_worker_may_return_any_awaitable_and_nothing_else():
    class Odd(BaseAsyncWorker):
        def _do_job(self, value):
            return value

    class Odds(BaseAsyncWorkerPool):
        def create_new_worker(self):
            return Odd()

    async def main():
        future = asyncio.get_running_loop().create_future()
        future.set_result(3)
        async with Odds(1) as pool:
            assert await (await pool.assign_job(future)) == 3
        with pytest.raises(TypeError):
            async with Odds(1) as pool:
                await raised(await pool.assign_job(5))

    run(main())


# ---- the body, entering and leaving


@every_loop
@every_pool
def test_an_error_of_the_body_leaves_and_jobs_are_cancelled(kind, new_loop):
    error = KeyError("body")

    async def main():
        pool = kind(2)
        try:
            async with pool:
                future = await pool.assign_job(1, 0.05)
                assigner = asyncio.ensure_future(pool.assign_job(1, 0.05))
                await asyncio.sleep(0)
                waiting = asyncio.ensure_future(pool.assign_job(2))
                await asyncio.sleep(0)
                raise error
        except KeyError as found:
            left = found
        assert left is error
        assert await raised(future) is error
        assert await raised(waiting) is error
        assert await raised(await assigner) is error
        assert await raised(pool.assign_job(1)) is error

    run(main(), new_loop)


def test_the_failure_of_a_job_before_that_of_the_body_leaves():
    error = ValueError("job")

    async def main():
        async with Pool(1) as pool:
            await raised(await pool.assign_job(error))
            raise KeyError("because of it")

    assert run(raised(main())) is error


@every_loop
def test_leaving_refuses_assigners_that_wait(new_loop):
    async def main():
        async with Pool(1) as pool:
            done = await pool.assign_job(1, 0.02)
            waiting = [asyncio.ensure_future(pool.assign_job(2)) for _ in range(3)]
            await asyncio.sleep(0)
        assert done.result() == 2
        for each in waiting:
            assert isinstance(await raised(each), PoolClosedError)

    run(main(), new_loop)


def test_a_job_may_assign_jobs():
    async def main():
        async with Pool(2) as pool:

            async def parent():
                return await (await pool.assign_job(4))

            return await (await pool.assign_job(parent))

    assert run(main()) == 8


@every_pool
def test_a_pool_is_entered_once(kind):
    async def main():
        pool = kind(1)
        async with pool:
            with pytest.raises(StateError, match="entered once"):
                await pool.__aenter__()
        with pytest.raises(StateError, match="entered once"):
            async with pool:
                pass
        with pytest.raises(StateError, match="only an open pool can be left"):
            await pool.__aexit__(None, None, None)

    run(main())


@pytest.mark.parametrize("where", ["create", "enter", "wrong"])
def test_entered_workers_are_left_when_one_cannot_be_entered(where):
    class Fails(Pool):
        def create_new_worker(self):
            worker = super().create_new_worker()
            if len(self.workers) < 3:
                return worker
            if where == "create":
                raise OSError("third")
            if where == "wrong":
                return 5
            worker.__class__ = FailsToEnter
            return worker

    class FailsToEnter(Worker):
        async def __aenter__(self):
            raise OSError("third")

    async def main():
        pool = Fails(4)
        with pytest.raises(ArgumentError if where == "wrong" else OSError) as error:
            async with pool:
                pytest.fail("the body must not run")
        assert pool.log == ["enter", "enter", "exit", "exit"]
        assert await raised(pool.assign_job(1)) is error.value

    run(main())


def test_cancelled_while_entering():
    class Slow(Worker):
        async def __aenter__(self):
            if len(self.log) == 1:
                await asyncio.sleep(10)
            return await super().__aenter__()

    class Slows(Pool):
        def create_new_worker(self):
            return Slow(self.log)

    async def main():
        pool = Slows(2)
        entering = asyncio.ensure_future(pool.__aenter__())
        await asyncio.sleep(0.01)
        entering.cancel()
        assert isinstance(await raised(entering), asyncio.CancelledError)
        assert pool.log == ["enter", "exit"]

    run(main())


@pytest.mark.parametrize("failed_before", [False, True])
def test_all_workers_are_left_although_one_fails_to_leave(failed_before):
    error = OSError("exit")

    class Fails(Worker):
        async def __aexit__(self, kind, found, trace):
            await super().__aexit__(kind, found, trace)
            if len(self.log) == 4:
                raise error

    class FailingPool(Pool):
        def create_new_worker(self):
            return Fails(self.log)

    async def main():
        first = ValueError("job")
        pool = FailingPool(3)

        async def use():
            async with pool:
                if failed_before:
                    await pool.assign_job(first)

        assert await raised(use()) is (first if failed_before else error)
        assert pool.log == ["enter"] * 3 + ["exit"] * 3

    run(main())


@every_loop
def test_another_loop_may_not_use_it(new_loop):
    pool = Pool(1)
    errors = []

    async def elsewhere():
        errors.append(await raised(pool.assign_job(1)))
        errors.append(await raised(pool.__aexit__(None, None, None)))

    async def main():
        async with pool:
            thread = threading.Thread(target=lambda: run(elsewhere(), new_loop))
            thread.start()
            await soon(lambda: not thread.is_alive())

    run(main(), new_loop)
    assert [type(error) for error in errors] == [StateError, StateError]
    assert "another event loop" in str(errors[0])

    abandoned = Pool(1)
    run(abandoned.__aenter__(), new_loop)

    async def later():
        return await raised(abandoned.assign_job(1))

    assert isinstance(run(later(), new_loop), LoopClosedError)


# ---- cancellation


@every_loop
@every_pool
def test_a_cancelled_assigner_loses_no_worker(kind, new_loop):
    async def main():
        async with kind(1) as pool:
            for delay in (0.0, 0.005, 0.011):
                await pool.assign_job(1, 0.01)
                first = asyncio.ensure_future(pool.assign_job(2))
                second = asyncio.ensure_future(pool.assign_job(3))
                await asyncio.sleep(delay)
                first.cancel()
                assert await (await asyncio.wait_for(second, 10)) == 6
                await raised(first)

    run(main(), new_loop)


def test_an_assigner_cancelled_after_it_was_given_a_worker():
    async def main():
        async with Pool(1) as pool:
            gate = asyncio.get_running_loop().create_future()
            running = await pool.assign_job(lambda: gate)
            first = asyncio.ensure_future(pool.assign_job(2))
            second = asyncio.ensure_future(pool.assign_job(3))
            await asyncio.sleep(0)
            running.add_done_callback(lambda _: first.cancel())  # just before `first` goes on
            gate.set_result(None)
            assert isinstance(await raised(first), asyncio.CancelledError)
            assert await (await second) == 6

    run(main())


@every_loop
@every_pool
@pytest.mark.parametrize("delay", [None, 0.0, 0.01])
def test_cancelling_a_jobs_future_is_no_failure(kind, delay, new_loop):
    async def main():
        async with kind(1) as pool:
            future = await pool.assign_job(1, 0.03)
            if delay is not None:
                await asyncio.sleep(delay)
            assert future.cancel()
            assert isinstance(await raised(future), asyncio.CancelledError)
            assert await (await pool.assign_job(2)) == 4
            assert not pool.die_mode
        assert future.cancelled()

    run(main(), new_loop)


def test_awaiting_in_a_task_that_is_cancelled_cancels_the_job():
    log = []

    async def job():
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            log.append("cancelled")
            raise

    async def main():
        async with Pool(1) as pool:

            async def holder():
                await (await pool.assign_job(job))

            task = asyncio.ensure_future(holder())
            await asyncio.sleep(0.01)
            task.cancel()
            assert isinstance(await raised(task), asyncio.CancelledError)
            assert await (await pool.assign_job(2)) == 4

    run(main())
    assert log == ["cancelled"]


@every_loop
def test_a_job_that_fails_while_it_is_cancelled_is_a_failure(new_loop):
    error = ValueError("in the clean-up")

    async def job():
        try:
            await asyncio.sleep(10)
        finally:
            raise error

    async def main():
        async with Pool(1) as pool:
            future = await pool.assign_job(job)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            future.cancel()
            assert isinstance(await raised(future), asyncio.CancelledError)

    assert run(raised(main()), new_loop) is error


@every_loop
def test_a_job_that_swallows_its_cancellation_keeps_its_worker(new_loop):
    async def stubborn():
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            await asyncio.sleep(0.02)
        return 5

    async def main():
        async with Pool(1) as pool:
            future = await pool.assign_job(stubborn)
            await asyncio.sleep(0.001)
            future.cancel()
            next_one = asyncio.ensure_future(pool.assign_job(1))
            await asyncio.sleep(0.005)
            assert not next_one.done()
            assert await (await next_one) == 2
            assert isinstance(await raised(future), asyncio.CancelledError)

    run(main(), new_loop)


def test_leaving_is_cancelled_again_and_again_until_the_job_gives_in():
    tries = []

    async def stubborn():
        while len(tries) < 3:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                tries.append(1)

    async def main():
        async with Pool(2) as pool:
            await pool.assign_job(stubborn)
            await asyncio.sleep(0)

    async def outside():
        task = asyncio.ensure_future(main())
        for _ in range(3):
            await asyncio.sleep(0.01)
            assert not task.done()
            task.cancel()
        assert isinstance(await raised(task), asyncio.CancelledError)

    run(outside())
    assert len(tries) == 3


@every_loop
@every_pool
def test_the_body_is_cancelled(kind, new_loop):
    async def main():
        async with kind(2) as pool:
            await pool.assign_job(1, 0.05)
            await asyncio.sleep(10)

    async def outside():
        task = asyncio.ensure_future(main())
        await asyncio.sleep(0.02)
        task.cancel()
        assert isinstance(await raised(task), asyncio.CancelledError)
        assert task.cancelled()

    run(outside(), new_loop)


@every_loop
def test_a_job_that_raises_cancelled_error_by_itself_is_a_failure(new_loop):
    error = asyncio.CancelledError("own")

    async def main():
        async with Pool(1) as pool:
            future = await pool.assign_job(error)
            assert isinstance(await raised(future), asyncio.CancelledError)
            first = await raised(pool.assign_job(1))
            assert isinstance(first, asyncio.CancelledError)
            assert await raised(pool.assign_job(1)) is first

    assert isinstance(run(raised(main()), new_loop), asyncio.CancelledError)


@every_loop
@pytest.mark.parametrize("kind_of", [KeyboardInterrupt, SystemExit])
@every_pool
def test_an_interrupt_in_a_job_leaves_the_loop_at_once(kind, kind_of, new_loop):
    error = kind_of("job")
    left = []

    async def main():
        try:
            async with kind(2) as pool:
                await pool.assign_job(error)
                await asyncio.sleep(0.2)
        except BaseException as found:
            left.append(found)

    loop = new_loop()
    reports = []
    loop.set_exception_handler(lambda _, report: reports.append(report))
    task = loop.create_task(main())
    try:
        with pytest.raises(kind_of) as found:
            loop.run_until_complete(task)
        assert found.value is error
        loop.run_until_complete(task)
        assert left == [error]
        assert not reports
    finally:
        loop.close()


@every_pool
def test_a_body_that_raises_what_no_future_can_hold(kind):
    async def main():
        async with kind(2) as pool:
            future = await pool.assign_job(1, 0.01)
            try:
                raise StopIteration(5)
            finally:
                main.future = future

    error = run(raised(main()))
    assert isinstance(error, RuntimeError)  # Python's own: a coroutine cannot raise StopIteration
    assert isinstance(error.__cause__, StopIteration)
    assert isinstance(main.future.exception(), MXNetError)


def test_a_function_that_raises_stop_iteration():
    async def main():
        async with ThreadWorkerPool(1, next) as pool:
            assert isinstance(await raised(await pool.assign_job(iter(()))), MXNetError)

    error = run(raised(main()))
    assert isinstance(error.__cause__, StopIteration)


@pytest.mark.parametrize("kind", [Pool, Threads, CppWorkerPool])
def test_a_coroutine_that_nobody_runs_any_more_lets_go_of_the_pool(kind):
    left = []

    async def main():
        async with kind(2) as pool:
            left.append(pool)
            await asyncio.get_running_loop().create_future()

    async def outside():
        coroutine = main()
        coroutine.send(None)
        if kind is Pool:
            left.append(await left[0].assign_job(1, 10))
        coroutine.close()
        assert isinstance(await raised(left[0].assign_job(1)), GeneratorExit)
        await soon(
            lambda: not [each for each in threading.enumerate() if each.name.startswith("ThreadWorker")]
        )

    run(outside())
    if kind is Pool:
        assert isinstance(left[1].exception(), GeneratorExit)


# ---- threads


def test_functions_run_in_threads_of_their_own():
    both = threading.Barrier(2, timeout=5)

    def meet():
        both.wait()
        return threading.current_thread().name

    async def main():
        async with ThreadWorkerPool(2, meet) as pool:
            names = await asyncio.gather(*[await pool.assign_job() for _ in range(2)])
        assert len(set(names)) == 2
        assert all(name.startswith("ThreadWorker-") for name in names)

    run(main())


def test_the_context_waits_for_a_function_whose_job_was_cancelled():
    ended = []

    def slow():
        time.sleep(0.03)
        ended.append(True)

    async def main():
        async with ThreadWorkerPool(1, slow) as pool:
            future = await pool.assign_job()
            await asyncio.sleep(0.005)
            future.cancel()
        assert ended

    run(main())


# ---- nothing on stderr

PROGRAM = """
import asyncio, gc, sys
import dpmodule.streams as streams
from dpmodule.streams import BaseAsyncWorker, BaseAsyncWorkerPool, CppWorkerPool, DecompressFunctor, ThreadWorkerPool
class Worker(BaseAsyncWorker):
    async def _do_job(self, error, seconds):
        await asyncio.sleep(seconds)
        if error is not None:
            raise error
class Pool(BaseAsyncWorkerPool):
    def create_new_worker(self):
        return Worker()
async def fails():
    async with Pool(3) as pool:
        await pool.assign_job(None, 5)
        await pool.assign_job(ValueError("one"), 0.01)
        await pool.assign_job(ValueError("two"), 0.01)
        await pool.assign_job(None, 0)
async def body():
    async with Pool(2) as pool:
        await pool.assign_job(None, 5)
        await pool.assign_job(None, 5)
        raise ValueError("body")
async def thread():
    async with ThreadWorkerPool(2, int) as pool:
        await pool.assign_job("x")
        await pool.assign_job("y")
async def functors():
    async with CppWorkerPool(2) as pool:
        await pool.assign_job(DecompressFunctor(b"x"))
        await pool.assign_job(DecompressFunctor(b"y"))
async def cancelled():
    async with Pool(2) as pool:
        await pool.assign_job(asyncio.CancelledError(), 0)
        await pool.assign_job(None, 5)
async def abandoned():
    pool = Pool(2)
    await pool.__aenter__()
    await pool.assign_job(ValueError("never left"), 0)
    await asyncio.sleep(0.01)
async def suspended():
    async with Pool(2) as pool:
        await pool.assign_job(None, 0)
        await asyncio.get_running_loop().create_future()
for main in () if sys.argv[1:] else (fails, body, thread, functors, cancelled, abandoned):
    try:
        asyncio.run(main())
    except (ValueError, asyncio.CancelledError) as error:
        print(main.__name__, type(error).__name__)
    gc.collect()
coroutine = suspended()
async def drop():
    iterator = coroutine.__await__()
    for _ in range(1):
        next(iterator)
    await asyncio.sleep(0.01)
    coroutine.close()
asyncio.run(drop())
gc.collect()
if sys.argv[1:]:
    async def interrupted():
        async with Pool(2) as pool:
            await pool.assign_job(None, 5)
            await pool.assign_job(KeyboardInterrupt(), 0.01)
            await asyncio.sleep(5)
    asyncio.run(interrupted())
"""


def errors_of(done):
    """Return the lines of standard error; asyncio's debug mode reports callbacks that took long on a busy machine."""
    return [line for line in done.stderr.splitlines() if not line.startswith("Executing <")]


@pytest.mark.timeout(120)  # a program that imports torch, on a busy machine
def test_nothing_is_printed():
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", PROGRAM],
        cwd=tempfile.gettempdir(),  # not where the sources are, which have no extension
        capture_output=True,
        text=True,
        timeout=80,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "fails ValueError",
        "body ValueError",
        "thread ValueError",
        "functors FileFormatError",
        "cancelled CancelledError",
    ]
    assert errors_of(done) == []


@pytest.mark.timeout(120)
def test_an_interrupt_prints_what_python_prints_for_it():
    done = run_program(PROGRAM, "interrupt", seconds=80, PYTHONASYNCIODEBUG="1", PYTHONWARNINGS="default")
    assert done.returncode != 0
    assert errors_of(done)[-1] == "KeyboardInterrupt"
    assert "never retrieved" not in done.stderr
    assert "destroyed" not in done.stderr
