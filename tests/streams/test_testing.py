"""The conformance checks: all our streams and pools pass them, and each wrong one is found."""

import asyncio
import gc
import time

import pytest

from dpmodule import streams
from dpmodule.streams.testing import ConformanceError
from helpers.loops import KINDS, ByHooks, Pool, Worker
from helpers.programs import again_without_native

pytestmark = pytest.mark.timeout(120)


def eager():
    loop = asyncio.new_event_loop()
    loop.set_task_factory(asyncio.eager_task_factory)
    return loop


LOOPS = {**KINDS, **({"eager": eager} if hasattr(asyncio, "eager_task_factory") else {})}
every_loop = pytest.mark.parametrize("new_loop", list(LOOPS.values()), ids=list(LOOPS))
NUMBERS = [3, 1, 4, 1, 5, 9, 2, 6]


def futures():
    loop = asyncio.get_running_loop()
    made = [loop.create_future() for _ in range(6)]
    for number, future in enumerate(made):
        loop.call_later(0.002 * number, lambda f=future, n=number: f.done() or f.set_result(n))
    return made


@every_loop
def test_our_streams_pass(new_loop):
    for kind, items, expected in (
        (streams.SortedExtendableStream, NUMBERS, NUMBERS),
        (streams.PriorityExtendableStream, NUMBERS, sorted(NUMBERS)),
        (streams.CompletionExtendableStream, futures, list(range(6))),
        (ByHooks, NUMBERS, None),
        (ByHooks, NUMBERS, NUMBERS),
    ):
        assert isinstance(kind(), streams.Stream)
        assert len(streams.check_stream(kind, items, expected, new_loop=new_loop)) == 12


class Sleeper(Worker):
    async def _do_job(self, seconds):
        await asyncio.sleep(seconds)
        return seconds / (seconds != -1)


class Sleepers(Pool):
    def __init__(self, workers_count):
        super().__init__(workers_count, Sleeper)


def sleep(seconds):
    time.sleep(abs(seconds))
    return seconds / (seconds != -0.001)


def processes(count):
    return streams.ProcessWorkerPool(count, sleep, start_method="fork")


DATA = bytes(range(256)) * 2**15
POOLS = {
    "coroutines": (Sleepers, (0,), (-1,), (0.05,)),
    "threads": (lambda count: streams.ThreadWorkerPool(count, sleep), (0,), (-0.001,), (0.05,)),
    "processes": (processes, (0,), (-0.001,), (0.3,)),  # so that a busy machine starts the bad job in time
    "functors": (
        streams.CppWorkerPool,
        lambda: (streams.CompressFunctor(b""),),
        lambda: (streams.DecompressFunctor(b"not compressed"),),
        lambda: (streams.CompressFunctor(DATA, level=9),),
    ),
}


@every_loop
@pytest.mark.parametrize("kind", POOLS)
def test_our_pools_pass(kind, new_loop):
    def check(result):
        return len(result) > 0 if kind == "functors" else result == 0

    assert isinstance(POOLS[kind][0](1), streams.WorkerPool)
    assert len(streams.check_worker_pool(*POOLS[kind], check=check, new_loop=new_loop)) == 10


def test_the_pool_of_functors_passes_without_the_extension():
    again_without_native(__file__, "-k", "our_pools_pass and functors and asyncio")


def test_what_the_caller_has_frozen_stays_frozen():
    """So that the garbage collector does not look at it, for the rest of the program."""
    gc.freeze()
    streams.check_stream(streams.SortedExtendableStream, NUMBERS)
    assert gc.get_freeze_count() > 0


# --- wrong ones


def wrong(base, **methods):
    return type("Wrong", (base,), methods)


DROPS_ON_STOP = wrong(ByHooks, stop=lambda self: (self.queue.clear(), ByHooks.stop(self)))
TAKES_AFTER_STOP = wrong(ByHooks, put=lambda self, data: self._stopped or ByHooks.put(self, data))
REVERSED = wrong(ByHooks, _async_iterator_next_impl=lambda self: asyncio.sleep(0, self.queue.pop()))
TWICE = wrong(ByHooks, __aiter__=lambda self: self)
LOSES_THREADS = wrong(ByHooks, put_threadsafe=lambda self, data: None)
LEAVES_EARLY = wrong(Sleepers, _wait_for_jobs=lambda self: asyncio.sleep(0))
OTHER_RESULT = wrong(Sleepers, assign_job=lambda self, each: Sleepers.assign_job(self, each + 0.001))


class ErrorLast(ByHooks):
    async def __anext__(self):
        return self.queue.popleft() if self.queue else await super().__anext__()


class SleepsOn(ByHooks):
    """Does not tell a waiting consumer of errors and the end."""

    def throw(self, error):
        waiter, self._waiter = self._waiter, None
        super().throw(error)
        self._waiter = waiter


class Loses(ByHooks):
    async def __anext__(self):
        item = await super().__anext__()
        await asyncio.sleep(0)
        return item


def test_a_wrong_stream_is_found():
    for kind, trial in (
        (DROPS_ON_STOP, "gives_all_items_and_then_ends: lost 3"),
        (TAKES_AFTER_STOP, "refuses_items_after_stop: put after stop did not raise"),
        (ErrorLast, "a_thrown_error_comes_first_and_stays: raised None"),
        (SleepsOn, "a_thrown_error_wakes_a_waiting_consumer: it hangs: it was not done within 0.2 s"),
        (TWICE, "is_its_own_iterator_and_iterated_once: a second iteration did not raise"),
        (Loses, "a_cancelled_consumer_loses_nothing: lost"),
        (LOSES_THREADS, "takes_items_of_other_threads: "),
        (REVERSED, "gives_all_items_and_then_ends: gave"),
    ):
        with pytest.raises(ConformanceError, match="of 12 trials failed") as error:
            streams.check_stream(kind, NUMBERS, NUMBERS if kind is REVERSED else None, timeout_s=0.2)
        assert trial in str(error.value)


class Forgets(Sleepers):
    """Tells nobody but the job's future that it failed."""

    def _die(self, error, *futures):
        for future in futures:
            future.set_exception(error)
            future.exception()


class Prints(Sleepers):
    def _ended(self, task):
        super()._ended(task)
        asyncio.get_running_loop().create_future().set_exception(KeyError("not retrieved"))


class Copies(Sleepers):
    def _refuse(self):
        if self._error is not None:
            raise type(self._error)(*self._error.args)
        super()._refuse()


class Greedy(Sleepers):
    async def _wait_for_worker(self):
        return Sleeper([])


class Again(Sleepers):
    async def __aenter__(self):
        self._state = "new"
        return await super().__aenter__()


class LosesWorker(Sleepers):
    """Gives a worker to an assigner that has gone."""

    def _release(self, worker):
        if not self._assigners:
            super()._release(worker)
            return
        turn = self._assigners.popleft()
        if not turn.done():
            turn.set_result(worker)


@pytest.mark.filterwarnings("ignore")
def test_a_wrong_pool_is_found():
    for kind, trial in (
        (Forgets, "an_unretrieved_failure_is_raised_on_leaving: "),
        (Forgets, "a_failure_is_raised_everywhere: "),
        (Prints, "printed: Future exception was never retrieved (KeyError('not retrieved'))"),
        (Copies, "a_failure_is_raised_everywhere: assign_job raised"),
        (Greedy, "waits_for_a_free_worker: assign_job returned while the only worker was busy"),
        (LEAVES_EARLY, "leaving_waits_for_running_jobs: "),
        (Again, "is_entered_once: entering it again raises None"),
        (LosesWorker, "a_cancelled_assigner_loses_no_worker: it hangs"),
        (OTHER_RESULT, "gives_results_inside_and_after_the_context: a good job gave 0.001"),
    ):
        with pytest.raises(ConformanceError) as error:
            streams.check_worker_pool(
                kind, (0,), (-1,), (0.02,), check=lambda result: result == 0, timeout_s=0.5
            )
        assert trial in str(error.value)
