"""Worker pools: any order of calls beside a model, the first failure raised everywhere, cancellation, interrupts."""

import asyncio
import contextvars
import dataclasses
import mmap
import os
import re
import signal
import threading
import time
import traceback

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dpmodule import streams
from dpmodule.base import ArgumentError, MXNetError, StateError
from helpers.loops import KINDS, Pool, Worker, raised, run, soon
from helpers.machines import examples, play
from helpers.processes import running

pytestmark = pytest.mark.timeout(20)


def double(value, seconds=0.0):
    time.sleep(seconds)
    if isinstance(value, BaseException):
        raise value
    return value * 2


class Threads(streams.ThreadWorkerPool):
    def __init__(self, workers_count):
        super().__init__(workers_count, double)


every_pool = pytest.mark.parametrize("kind", [Pool, Threads])


@pytest.fixture(autouse=True)
def leaves_no_thread():
    yield
    assert not [each for each in threading.enumerate() if each.name.startswith("ThreadWorker")]


# --- any order of calls

GATES = mmap.mmap(-1, 4096)
"""Of each job a byte: 0 as long as it runs, 1 when it is to return, 2 to fail; forked processes see it too."""


def gated(number):
    while not GATES[number]:
        time.sleep(0.0005)
    if GATES[number] == 2:
        raise KeyError(number)
    return number


class GatedWorker(Worker):
    async def _do_job(self, number):
        while not GATES[number]:  # noqa: ASYNC110  # other processes open it
            await asyncio.sleep(0.0005)
        return gated(number)


GATED = {
    "coroutines": lambda count: Pool(count, GatedWorker),
    "threads": lambda count: streams.ThreadWorkerPool(count, gated),
    "processes": lambda count: streams.ProcessWorkerPool(count, gated, start_method="fork"),
}


@dataclasses.dataclass(eq=False)
class Job:
    number: int
    task: asyncio.Task
    expected: str

    def seen(self, failure):
        if not self.task.done():
            return "waiting"
        future = self.task if self.task.cancelled() or self.task.exception() else self.task.result()
        if future.cancelled():
            return "cancelled"
        if not future.done():
            return "running"
        error = future.exception()
        if error is None:
            return "done" if future.result() == self.number else "another result"
        refused = "refused" if type(error) is streams.PoolClosedError else repr(error)
        return "failed" if error is failure else refused


class AnyOrder(RuleBasedStateMachine):
    """A pool, and beside it the state that each of its jobs should be in."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    @initialize(count=st.integers(1, 3), new_loop=st.sampled_from(list(KINDS.values())))
    def enter(self, count, new_loop):
        GATES[:] = bytes(len(GATES))
        self.jobs, self.busy, self.count, self.reports = [], [], count, []
        self.failure, self.leaving, self.loop = None, False, new_loop()
        self.loop.set_exception_handler(lambda _, report: self.reports.append(report))
        self.pool, self.end, self.is_open = GATED[self.kind](count), self.loop.create_future(), False
        self.body = self.loop.create_task(self.use())
        self.until(lambda: self.is_open)

    async def use(self):
        async with self.pool:
            self.is_open = True
            await self.end

    def until(self, condition):
        self.loop.run_until_complete(soon(condition))

    def named(self, expected):
        return [job for job in self.jobs if job.expected == expected]

    def start_waiting_jobs(self):
        for job in self.named("waiting")[: self.count - len(self.busy)]:
            job.expected = "running"
            self.busy.append(job)

    def die(self, error):
        self.failure = error
        for job in self.named("waiting") + self.named("running"):
            job.expected = "failed"
        if self.kind != "threads":  # which cannot be interrupted
            self.busy.clear()

    @rule()
    def assign(self):
        expected = "failed" if self.failure else "refused" if self.leaving else "waiting"
        task = self.loop.create_task(self.pool.assign_job(len(self.jobs)))
        self.jobs.append(Job(len(self.jobs), task, expected))
        self.start_waiting_jobs()

    @precondition(lambda self: self.busy)
    @rule(data=st.data())
    def let_one_return(self, data):
        job = data.draw(st.sampled_from(self.busy))
        GATES[job.number] = 1
        self.busy.remove(job)
        job.expected = "done" if job.expected == "running" else job.expected
        self.start_waiting_jobs()

    @precondition(lambda self: self.named("running"))
    @rule(data=st.data())
    def let_one_fail(self, data):
        job = data.draw(st.sampled_from(self.named("running")))
        GATES[job.number] = 2
        self.busy.remove(job)
        future = job.task.result()
        self.until(future.done)
        assert (type(future.exception()), future.exception().args) == (KeyError, (job.number,))
        self.die(future.exception())

    @precondition(lambda self: self.kind == "processes" and not (self.failure or self.body.done()))
    @rule(data=st.data())
    def kill_one(self, data):
        os.kill(data.draw(st.sampled_from(self.pool.pids)), signal.SIGKILL)
        self.until(lambda: self.pool.die_mode)
        error = self.loop.run_until_complete(raised(self.pool.assign_job(0)))
        assert type(error) is streams.WorkerDied
        assert re.search(r"\(pid \d+\) was killed by SIGKILL", str(error))
        self.die(error)

    @precondition(lambda self: self.named("running") or self.named("waiting"))
    @rule(data=st.data())
    def cancel(self, data):
        job = data.draw(st.sampled_from(self.named("running") + self.named("waiting")))
        if job.expected == "waiting":
            job.task.cancel()
        else:
            assert job.task.result().cancel()
            if self.kind == "coroutines":
                self.busy.remove(job)
        job.expected = "cancelled"
        self.start_waiting_jobs()

    @precondition(lambda self: not self.leaving)
    @rule(error=st.sampled_from([None, ZeroDivisionError]))
    def leave(self, error):
        self.leaving = True
        if error is None:
            self.end.set_result(None)
            for job in self.named("waiting"):
                job.expected = "refused"
            return
        self.end.set_exception(error())
        if not self.failure:
            self.die(self.end.exception())

    @invariant()
    def all_is_as_expected(self):
        if not hasattr(self, "jobs"):
            return
        expected = [job.expected for job in self.jobs]
        self.until(lambda: [job.seen(self.failure) for job in self.jobs] == expected)
        if self.leaving and not self.busy:
            self.until(self.body.done)
        assert self.body.done() == (self.leaving and not self.busy)
        assert self.pool.die_mode == (self.failure is not None)

    def teardown(self):
        if not hasattr(self, "jobs"):
            return
        GATES[:] = b"\1" * len(GATES)
        if not self.leaving:
            self.end.set_result(None)
        error = self.loop.run_until_complete(asyncio.wait_for(raised(self.body), 10))
        for job in self.jobs:
            self.loop.run_until_complete(raised(job.task))
        self.loop.close()
        assert not any(map(running, getattr(self.pool, "pids", ())))
        assert error is self.failure
        assert not self.reports


@pytest.mark.parametrize(("kind", "part"), [("coroutines", 5), ("threads", 5), ("processes", 1)])
@examples(12, 400)
def test_any_order_of_calls(kind, part, examples):
    play(lambda: AnyOrder(kind), examples * part, steps=20)


# --- workers


@every_pool
async def test_jobs_see_the_context_variables_of_who_assigned_them(kind):
    variable = contextvars.ContextVar("variable", default=0)

    class Reader:
        def __mul__(self, two):
            return variable.get()

    async with kind(1) as pool:
        variable.set(7)
        assert await (await pool.assign_job(Reader())) == 7


async def test_a_worker_may_return_any_awaitable_and_nothing_else():
    """Nor need it have `__aenter__` and `__aexit__`."""
    bare = type("Bare", (), {"__init__": lambda self, log: None, "_do_job": lambda self, value: value})
    future = asyncio.get_running_loop().create_future()
    future.set_result(3)
    async with Pool(1, bare) as pool:
        assert await (await pool.assign_job(future)) == 3
    with pytest.raises(TypeError):
        async with Pool(1, bare) as pool:
            await raised(await pool.assign_job(5))


async def test_the_traceback_of_the_failure_does_not_grow():
    async def use():
        async with Pool(2) as pool:
            await raised(await pool.assign_job(ValueError("boom")))
            for _ in range(5):
                failure = await raised(pool.assign_job(1))
                traces.append(traceback.extract_tb(failure.__traceback__))

    traces = []
    left = await raised(use())
    assert len(set(map(len, traces))) == 1
    assert "_do_job" in [frame.name for frame in traceback.extract_tb(left.__traceback__)]


async def test_a_call_that_does_not_fit_the_worker_is_a_failure():
    async def use():
        async with Pool(2) as pool:
            error = await raised(pool.assign_job(1, unknown=2))
            assert await raised(pool.assign_job(1)) is error

    assert "unexpected keyword" in str(await raised(use()))


# --- entering and leaving


@every_pool
async def test_a_pool_is_entered_once(kind):
    pool = kind(1)
    with pytest.raises(streams.PoolClosedError, match="is new"):
        await pool.assign_job(1)
    async with pool:
        with pytest.raises(StateError, match="entered once"):
            await pool.__aenter__()
    with pytest.raises(StateError, match="entered once"):
        await pool.__aenter__()
    with pytest.raises(StateError, match="only an open pool can be left"):
        await pool.__aexit__(None, None, None)
    with pytest.raises(streams.PoolClosedError, match="is closed"):
        await pool.assign_job(1)


@pytest.mark.parametrize(
    ("error", "where"),
    [(OSError, "create"), (OSError, "enter"), (asyncio.CancelledError, "enter"), (ArgumentError, "wrong")],
)
async def test_entered_workers_are_left_when_one_cannot_be_entered(error, where):
    class FailsToEnter(Worker):
        async def __aenter__(self):
            raise error("third")

    class Fails(Pool):
        def create_new_worker(self):
            if len(self.workers) < 2:
                return super().create_new_worker()
            if where == "create":
                raise error("third")
            return FailsToEnter(self.log) if where == "enter" else 5

    pool = Fails(4)
    with pytest.raises(error) as left:
        async with pool:
            pytest.fail("the body must not run")
    assert pool.log == ["enter", "enter", "exit", "exit"]
    assert await raised(pool.assign_job(1)) is left.value


@pytest.mark.parametrize("failed_before", [False, True])
async def test_all_workers_are_left_although_one_fails_to_leave(failed_before):
    error, first = OSError("exit"), ValueError("job")

    class Fails(Worker):
        async def __aexit__(self, kind, found, trace):
            await super().__aexit__(kind, found, trace)
            assert self.error is (first if failed_before else None)
            if len(self.log) == 4:
                raise error

    pool = Pool(3, Fails)

    async def use():
        async with pool:
            if failed_before:
                await pool.assign_job(first)

    assert await raised(use()) is (first if failed_before else error)
    assert pool.log == ["enter"] * 3 + ["exit"] * 3


def test_another_loop_may_not_use_it(new_loop):
    pool, abandoned, errors = Pool(1), Pool(1), []

    async def elsewhere():
        errors.append(await raised(pool.assign_job(1)))
        errors.append(await raised(pool.__aexit__(None, None, None)))

    async def main():
        async with pool:
            await asyncio.to_thread(run, elsewhere(), new_loop)

    run(main(), new_loop)
    assert [type(error) for error in errors] == [StateError, StateError]
    assert "another event loop" in str(errors[0])
    run(abandoned.__aenter__(), new_loop)
    with pytest.raises(streams.LoopClosedError):
        run(abandoned.assign_job(1), new_loop)


# --- cancellation


async def test_an_assigner_cancelled_after_it_was_given_a_worker():
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


async def test_an_assigner_that_was_given_a_worker_when_the_pool_is_left():
    async with Pool(1) as pool:
        gate = asyncio.get_running_loop().create_future()
        running = await pool.assign_job(lambda: gate)
        late = asyncio.ensure_future(pool.assign_job(2))
        await asyncio.sleep(0)
        gate.set_result(None)
        await running
        assert not running.cancel()
    assert type(await raised(late)) is streams.PoolClosedError


async def test_a_job_that_fails_while_it_is_cancelled_is_a_failure():
    error = ValueError("in the clean-up")

    async def job():
        try:
            await asyncio.sleep(10)
        finally:
            raise error

    async def use():
        async with Pool(1) as pool:
            future = await pool.assign_job(job)
            await asyncio.sleep(0.001)
            future.cancel()
            assert isinstance(await raised(future), asyncio.CancelledError)

    assert await raised(use()) is error


async def test_a_job_that_swallows_its_cancellation_keeps_its_worker():
    async def stubborn():
        await raised(asyncio.sleep(10))
        await asyncio.sleep(0.02)

    async with Pool(1) as pool:
        future = await pool.assign_job(stubborn)
        await asyncio.sleep(0.001)
        future.cancel()
        next_one = asyncio.ensure_future(pool.assign_job(1))
        await asyncio.sleep(0.005)
        assert not next_one.done()
        assert await (await next_one) == 2
        assert isinstance(await raised(future), asyncio.CancelledError)


async def test_leaving_is_cancelled_again_and_again_until_the_job_gives_in():
    tries = []

    async def stubborn():
        while len(tries) < 3:
            tries.append(await raised(asyncio.sleep(10)))

    async def use():
        async with Pool(2) as pool:
            await pool.assign_job(stubborn)
            await asyncio.sleep(0)

    task = asyncio.ensure_future(use())
    for _ in range(3):
        await asyncio.sleep(0.01)
        assert not task.done()
        task.cancel()
    assert isinstance(await raised(task), asyncio.CancelledError)
    assert [type(each) for each in tries] == [asyncio.CancelledError] * 3


async def test_a_job_that_raises_cancelled_error_by_itself_is_a_failure():
    async def use():
        async with Pool(1) as pool:
            found.append(await raised(await pool.assign_job(asyncio.CancelledError("own"))))
            found.extend([await raised(pool.assign_job(1)) for _ in range(2)])

    found = []
    found.append(await raised(asyncio.ensure_future(use())))
    assert {type(each) for each in found} == {asyncio.CancelledError}
    assert found[1] is found[2]


# --- interrupts, and what no future can hold


@pytest.mark.parametrize("kind_of", [KeyboardInterrupt, SystemExit])
@every_pool
def test_an_interrupt_in_a_job_leaves_the_loop_at_once(kind, kind_of, new_loop):
    error, reports = kind_of("job"), []

    async def main():
        async with kind(2) as pool:
            await pool.assign_job(error)
            await asyncio.sleep(0.2)

    loop = new_loop()
    loop.set_exception_handler(lambda _, report: reports.append(report))
    task = loop.create_task(raised(main()))
    with pytest.raises(kind_of) as found:
        loop.run_until_complete(task)
    left = loop.run_until_complete(task)
    loop.close()
    assert (found.value, left, reports) == (error, error, [])


@every_pool
async def test_a_body_that_raises_what_no_future_can_hold(kind):
    futures = []

    async def use():
        async with kind(2) as pool:
            futures.append(await pool.assign_job(1, 0.01))
            raise StopIteration(5)

    error = await raised(use())
    assert isinstance(error, RuntimeError)  # Python's own: a coroutine cannot raise StopIteration
    assert isinstance(error.__cause__, StopIteration)
    assert isinstance(futures[0].exception(), MXNetError)


async def test_a_function_that_raises_stop_iteration():
    async def use():
        async with streams.ThreadWorkerPool(1, next) as pool:
            assert isinstance(await raised(await pool.assign_job(iter(()))), MXNetError)

    assert isinstance((await raised(use())).__cause__, StopIteration)


@pytest.mark.parametrize("kind", [Pool, Threads, streams.CppWorkerPool])
async def test_a_coroutine_that_nobody_runs_any_more_lets_go_of_the_pool(kind):
    left = []

    async def use():
        async with kind(2) as pool:
            left.append(pool)
            await asyncio.get_running_loop().create_future()

    coroutine = use()
    coroutine.send(None)
    job = await left[0].assign_job(1, 10) if kind is Pool else None
    coroutine.close()
    assert isinstance(await raised(left[0].assign_job(1)), GeneratorExit)
    await soon(lambda: not [each for each in threading.enumerate() if each.name.startswith("ThreadWorker")])
    assert job is None or isinstance(job.exception(), GeneratorExit)


# --- threads


# --- nothing on stderr
