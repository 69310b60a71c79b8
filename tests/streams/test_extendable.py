"""Extendable streams: any order of calls beside a list, hooks that wait, other threads, closed loops."""

import asyncio
import collections
import concurrent.futures
import traceback

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dpmodule import streams
from dpmodule.base import MXNetError, StateError
from helpers.loops import KINDS, ByHooks, raised, run
from helpers.machines import examples, play

pytestmark = pytest.mark.timeout(20)


class WaitingHook(ByHooks):
    """Its hook pauses before it takes an item."""

    async def _async_iterator_next_impl(self):
        await asyncio.sleep(0)
        return self.queue.popleft()


class PutsFirst(streams.SortedExtendableStream):
    """Its own hook must be used although the class above works without it."""

    def _async_iterator_put_impl(self, data):
        self.queue.appendleft(data)


class TakesLast(streams.SortedExtendableStream):
    def __init__(self):
        self.queue = collections.deque()

    async def _async_iterator_next_impl(self):
        return self.queue.pop()


LAST_FIRST = [PutsFirst, TakesLast]
IN_ORDER = [streams.SortedExtendableStream, ByHooks, WaitingHook]
KINDS_OF_STREAM = [*IN_ORDER, *LAST_FIRST, streams.PriorityExtendableStream]
PUTS = st.sampled_from(["put", "put_threadsafe"])
every_stream = pytest.mark.parametrize("kind", KINDS_OF_STREAM)


# --- any order of calls


class AnyOrder(RuleBasedStateMachine):
    """A stream, and beside it a list of its items, its end, and the task that reads it."""

    @initialize(kind=st.sampled_from(KINDS_OF_STREAM), new_loop=st.sampled_from(list(KINDS.values())))
    def begin(self, kind, new_loop):
        self.loop, self.stream = new_loop(), kind()
        self.items, self.stopped, self.error, self.reader, self.iterated = [], False, None, None, False
        self.read()  # from now on calls of other threads wake the loop
        self.within(self.reader.cancel)
        self.reader = None
        self.first = min if kind is streams.PriorityExtendableStream else (lambda items: items[0])

    def within(self, call):
        """Call a function in the loop, and let what it sets off come to rest."""

        async def main():
            try:
                return call()
            finally:
                for _ in range(8):
                    await asyncio.sleep(0)

        return self.loop.run_until_complete(main())

    def call(self, name, *args):
        if not name.endswith("_threadsafe"):
            return self.within(lambda: getattr(self.stream, name)(*args))
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            thread.submit(getattr(self.stream, name), *args).result()
        return self.within(lambda: None)

    def put_one(self, name, item):
        if not (self.stopped or self.error):
            getattr(self.stream, name)(item)
            self.items.insert(0 if type(self.stream) in LAST_FIRST else len(self.items), item)
            return
        text = "failed with" if self.error else "after stop"
        with pytest.raises(streams.StreamStopped, match=text) as refused:
            getattr(self.stream, name)(item)
        assert self.error is None or refused.value.__cause__ is self.error

    @rule(items=st.lists(st.tuples(PUTS, st.integers(0, 9)), min_size=1))
    def put(self, items):
        if (
            type(self.stream) in LAST_FIRST
        ):  # where it matters that the loop is told of those of threads later
            items = [("put", item) for _, item in items]
        self.within(lambda: [self.put_one(*each) for each in items])

    @rule(item=st.integers(0, 9))
    def put_in_a_thread(self, item):
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            thread.submit(self.put_one, "put_threadsafe", item).result()

    @rule(name=st.sampled_from(["stop", "stop_threadsafe"]))
    def stop(self, name):
        self.call(name)
        self.stopped = True

    @precondition(lambda self: self.items or not self.stopped)
    @rule(
        name=st.sampled_from(["throw", "throw_threadsafe", "cancel"]),
        error=st.sampled_from([KeyError("a"), OSError, StopIteration(5), StopAsyncIteration]),
    )
    def throw(self, name, error):
        self.call(name, *([] if name == "cancel" else [error]))
        if self.error is not None:
            return
        self.error = self.within_raised(self.reader or self.stream.__anext__())
        if name == "cancel":
            assert type(self.error) is asyncio.CancelledError
        elif error is StopAsyncIteration or isinstance(error, StopIteration):
            assert type(self.error) is MXNetError
            assert isinstance(self.error.__cause__, (StopIteration, StopAsyncIteration))
        else:
            assert self.error is error or type(self.error) is error

    def within_raised(self, awaitable):
        return self.loop.run_until_complete(raised(awaitable))

    @rule()
    def read(self):
        if self.reader is None:
            self.reader = self.within(lambda: asyncio.ensure_future(self.stream.__anext__()))
        else:
            assert isinstance(self.within_raised(self.stream.__anext__()), streams.StreamStopped)

    @precondition(lambda self: self.reader and not (self.stopped or self.error))
    @rule(item=st.integers(0, 9))
    def put_and_read_before_the_reader_runs_again(self, item):
        def both():
            self.put_one("put", item)
            with pytest.raises(streams.StreamStopped):
                self.stream.__anext__().send(None)

        self.within(both)

    @precondition(lambda self: self.reader)
    @rule(item=st.integers(0, 9), put=st.booleans())
    def cancel_the_reader(self, item, put):
        """Before or after an item has woken it; a hook that waits may have taken that already."""

        def both():
            if put and not self.stopped:
                self.put_one("put", item)
            self.reader.cancel()

        self.within(both)
        reader, self.reader = self.reader, None
        if not reader.cancelled():
            self.items.remove(reader.result())

    @rule()
    def iterate(self):
        if self.iterated:
            with pytest.raises(streams.StreamStopped, match="is read once"):
                self.stream.__aiter__()
        else:
            assert self.stream.__aiter__() is self.stream
        self.iterated = True

    @invariant()
    def the_reader_has_what_it_should(self):
        if getattr(self, "reader", None) is None:
            return
        self.within(lambda: None)
        assert self.reader.done() == bool(self.error or self.items or self.stopped)
        if not self.reader.done():
            return
        reader, self.reader = self.reader, None
        if self.error is not None or not self.items:
            error = self.within_raised(reader)
            assert type(error) is (type(self.error) if self.error else StopAsyncIteration)
            assert error is self.error or not self.error or reader.cancelled()
            return
        assert reader.result() == self.first(self.items)
        self.items.remove(reader.result())

    def teardown(self):
        if getattr(self, "reader", None) is not None:
            self.within(self.reader.cancel)
        if hasattr(self, "loop"):
            self.loop.close()


@examples(150, 5000)
def test_any_order_of_calls(examples):
    play(AnyOrder, examples)


@every_stream
async def test_the_traceback_does_not_grow(kind):
    stream = kind()
    try:
        raise KeyError("where it happened")
    except KeyError as error:
        stream.throw(error)
    errors = [await raised(stream.__anext__()) for _ in range(5)]
    frames = [traceback.extract_tb(error.__traceback__) for error in errors]
    assert len(set(map(len, frames))) == 1
    assert frames[0][-1].name == "test_the_traceback_does_not_grow"  # with the traceback it was thrown with


# --- hooks


class OfFutures(ByHooks):
    """Futures are put to express waiting; the hook awaits the oldest."""

    async def _async_iterator_next_impl(self):
        result = await self.queue[0]
        self.queue.popleft()
        return result


async def reading(stream, *items):
    """Put items, and return a task that waits for one."""
    for item in items:
        stream.put(item)
    task = asyncio.ensure_future(stream.__anext__())
    await asyncio.sleep(0)
    return task


async def test_other_calls_do_not_disturb_a_hook_that_waits():
    stream = OfFutures()
    futures = [asyncio.get_running_loop().create_future() for _ in range(3)]
    consumer = await reading(stream, futures[0])
    stream.put(futures[1])
    await asyncio.to_thread(stream.put_threadsafe, futures[2])
    stream.stop()
    await asyncio.sleep(0)
    assert not consumer.done()
    for number in (2, 0, 1):
        futures[number].set_result(number)
    assert [await consumer] + [item async for item in stream] == [0, 1, 2]


async def test_cancelling_the_consumer_cancels_what_the_hook_waits_for():
    stream, future = OfFutures(), asyncio.get_running_loop().create_future()
    consumer = await reading(stream, future)
    await asyncio.sleep(0.01)
    consumer.cancel()
    assert isinstance(await raised(consumer), asyncio.CancelledError)
    assert future.cancelled()
    assert len(stream.queue) == 1


async def test_a_consumer_that_is_cancelled_in_its_hook_loses_nothing():
    stream = WaitingHook()
    consumer = await reading(stream)
    stream.put(1)
    await asyncio.sleep(0)
    consumer.cancel()
    assert isinstance(await raised(consumer), asyncio.CancelledError)
    assert await stream.__anext__() == 1


async def test_a_hook_that_survives_the_error_does_not_hide_it():
    class Stubborn(ByHooks):
        async def _async_iterator_next_impl(self):
            try:
                await asyncio.sleep(10)
            except KeyError as met:
                found.append(met)
                await asyncio.sleep(0)
            return 5

    stream, error, found = Stubborn(), KeyError(), []
    consumer = await reading(stream, 1)
    stream.throw(error)
    assert await raised(consumer) is error
    assert found == [error]


@pytest.mark.parametrize("hook", ["_async_iterator_put_impl", "_async_iterator_next_impl", "_empty_impl"])
async def test_an_error_in_a_hook_arrives(hook):
    error = KeyError(hook)

    def fail(self, *args):
        raise error

    stream = type("Bad", (ByHooks,), {hook: fail})()
    if "put" in hook:
        with pytest.raises(KeyError):
            stream.put(1)
        stream.put_threadsafe(1)
    else:
        stream.put(1)
    assert await raised(stream.__anext__()) is error


# --- other threads


@every_stream
async def test_items_that_threads_were_allowed_to_put_arrive_in_their_order(kind):
    for round in range(8):
        stream, accepted = kind(), [[], [], []]

        def produce(number, stream=stream, accepted=accepted):
            for item in range(number, 6000, 3):
                try:
                    stream.put_threadsafe(item)
                except streams.StreamStopped:
                    return
                accepted[number].append(item)

        with concurrent.futures.ThreadPoolExecutor(3) as executor:
            producers = executor.map(produce, range(3))
            asyncio.get_running_loop().call_later(0.001 * round, stream.stop)
            items = [item async for item in stream]
            list(producers)
        assert sorted(items) == sorted(sum(accepted, []))
        if kind in IN_ORDER:
            assert [[item for item in items if item % 3 == number] for number in range(3)] == accepted


async def test_calls_of_threads_before_there_is_a_loop_are_kept():
    stream, error = streams.SortedExtendableStream(), OSError("in the thread")
    stream.put(1)
    await asyncio.to_thread(stream.put_threadsafe, 2)
    await asyncio.to_thread(stream.throw_threadsafe, error)
    with pytest.raises(streams.StreamStopped):
        stream.put_threadsafe(3)
    assert await stream.__anext__() == 1
    assert await raised(stream.__anext__()) is error


@every_stream
def test_a_closed_loop_is_an_error(kind, new_loop):
    stream = kind()

    async def main():
        assert await raised(asyncio.wait_for(stream.__anext__(), 0.01)) is not None

    run(main(), new_loop)
    for name, *args in (["put_threadsafe", 1], ["stop_threadsafe"], ["throw_threadsafe", KeyError]):
        with pytest.raises(streams.LoopClosedError, match=kind.__name__):
            getattr(stream, name)(*args)

    async def again():  # and another loop may take it over; what was refused is not there
        consumer = await reading(stream)
        stream.put_threadsafe(2)
        return await consumer

    assert run(again(), new_loop) == 2


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("kind", [*KINDS_OF_STREAM, streams.CompletionExtendableStream])
async def test_a_call_of_another_thread_that_cannot_wake_the_loop_changes_nothing(kind, debug):
    asyncio.get_running_loop().set_debug(debug)
    stream, item = kind(), 1
    if kind is streams.CompletionExtendableStream:
        item = concurrent.futures.Future()
        item.set_result(1)
    consumer = await reading(stream)
    for name, *args in (["put", item], ["stop"], ["throw", KeyError], ["cancel"]):
        told = "throw" if name == "cancel" else name
        says = rf"{kind.__name__}\.{told} was called in another thread.* call {told}_threadsafe there"
        with pytest.raises(StateError, match=says):
            await asyncio.to_thread(getattr(stream, name), *args)
    stream.put(item)
    assert await consumer == 1


@pytest.mark.filterwarnings("ignore:coroutine")
def test_put_for_a_consumer_whose_loop_is_closed():
    stream, loop = streams.SortedExtendableStream(), asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    task = loop.create_task(stream.__anext__())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    with pytest.raises(streams.LoopClosedError):
        stream.put(1)
    del task


# --- priority


async def test_a_refused_item_of_a_thread_fails_the_stream():
    stream = streams.PriorityExtendableStream()
    stream.put(1)
    with pytest.raises(TypeError):
        stream.put("not comparable with 1")
    stream.put_threadsafe("not comparable with 1")
    stream.put_threadsafe(2)
    await asyncio.sleep(0)
    with pytest.raises(streams.StreamStopped) as refused:
        stream.put(3)
    assert isinstance(refused.value.__cause__, TypeError)
    assert await raised(stream.__anext__()) is refused.value.__cause__


async def test_priority_keeps_the_order_of_equals():
    stream = streams.PriorityExtendableStream(key=lambda pair: pair[0])
    pairs = [(number * 7 % 5, object()) for number in range(40)]
    for pair in pairs:
        stream.put(pair)
    stream.stop()
    assert [pair async for pair in stream] == sorted(pairs, key=lambda pair: pair[0])


# --- completion


async def after(seconds, result):
    await asyncio.sleep(seconds)
    if isinstance(result, BaseException):
        raise result
    return result


async def test_completion_gives_results_as_they_are_ready():
    stream, twice = streams.CompletionExtendableStream(), asyncio.get_running_loop().create_future()
    stream.put(after(0.04, "last"))
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        stream.put(executor.submit(lambda: "thread"))
        await asyncio.to_thread(stream.put_threadsafe, executor.submit(lambda: "of a thread"))
        for each in (asyncio.ensure_future(after(0.0, "first")), twice, twice):
            stream.put(each)
        stream.stop()
        twice.set_result("twice")
        items = [item async for item in stream]
    assert sorted(items) == ["first", "last", "of a thread", "thread", "twice", "twice"]
    assert items[-1] == "last"


async def test_completion_raises_a_failure_in_its_turn_and_cancels_the_rest():
    error = KeyError("job")
    stream, slow = streams.CompletionExtendableStream(), asyncio.ensure_future(after(10, 0))
    late = [(0.01, error), (0.01, ValueError("at the same time")), (0.02, ValueError("unasked"))]
    for each in (after(0, 1), *(after(*each) for each in late), slow):
        stream.put(each)
    assert await stream.__anext__() == 1
    assert await raised(stream.__anext__()) is error
    assert await raised(stream.__anext__()) is error
    await asyncio.sleep(0.03)
    assert slow.cancelled()
    assert not stream.pending


async def test_completion_of_what_was_cancelled_and_of_what_looks_like_the_end():
    stream, future = streams.CompletionExtendableStream(), asyncio.get_running_loop().create_future()
    stream.put(future)
    future.cancel()
    assert isinstance(await raised(stream.__anext__()), asyncio.CancelledError)
    stream = streams.CompletionExtendableStream()
    stream.put(after(0, StopAsyncIteration("a stray one")))
    error = await raised(stream.__anext__())
    assert type(error) is MXNetError
    assert isinstance(error.__cause__, StopAsyncIteration)
    assert await raised(stream.__anext__()) is error
