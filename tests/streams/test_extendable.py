"""Extendable streams: order, the end, errors, one consumer, cancellation, other threads."""

import asyncio
import collections
import concurrent.futures
import dataclasses
import threading
import traceback

import pytest

from dpmodule.base import ArgumentError, MXNetError, StateError
from dpmodule.streams import (
    BaseAsyncExtendableStream,
    CompletionExtendableStream,
    LoopClosedError,
    PriorityExtendableStream,
    SortedExtendableStream,
    StreamStopped,
)
from helpers.loops import every_loop, raised, run, soon
from helpers.programs import run_program

pytestmark = pytest.mark.timeout(20)


@dataclasses.dataclass
class ByHooks(BaseAsyncExtendableStream):
    queue: collections.deque = dataclasses.field(init=False, default_factory=collections.deque)

    def _async_iterator_put_impl(self, data):
        self.queue.append(data)

    async def _async_iterator_next_impl(self):
        return self.queue.popleft()

    def _empty_impl(self) -> bool:
        return len(self.queue) == 0


@dataclasses.dataclass
class WaitingHook(ByHooks):
    """Its hook pauses before it takes an item."""

    async def _async_iterator_next_impl(self):
        await asyncio.sleep(0)
        return self.queue.popleft()


class OwnInit(ByHooks):
    def __init__(self):
        self.queue = collections.deque()


@dataclasses.dataclass
class OverridesBuiltIn(SortedExtendableStream):
    """Its own hooks must be used although the class above works without them."""

    calls: list = dataclasses.field(init=False, default_factory=list)

    def _async_iterator_put_impl(self, data):
        self.calls.append("put")
        super()._async_iterator_put_impl(data)

    async def _async_iterator_next_impl(self):
        self.calls.append("next")
        return await super()._async_iterator_next_impl()

    def _empty_impl(self):
        self.calls.append("empty")
        return super()._empty_impl()

    def put(self, data):
        super().put(data)


IN_ORDER = [SortedExtendableStream, PriorityExtendableStream, ByHooks, WaitingHook, OwnInit, OverridesBuiltIn]
every_stream = pytest.mark.parametrize("kind", IN_ORDER)

SEED = """
import asyncio
import dataclasses
import collections
from dpmodule.streams import BaseAsyncExtendableStream

async def main():
    @dataclasses.dataclass
    class SortedExtendableStream(BaseAsyncExtendableStream):
        queue: collections.deque = dataclasses.field(init=False, default_factory=collections.deque)
        def _async_iterator_put_impl(self, data):
            self.queue.append(data)

        async def _async_iterator_next_impl(self):
            return self.queue.popleft()

        def _empty_impl(self) -> bool:
            return len(self.queue) == 0


    stream = SortedExtendableStream()


    async def producer(stream):
        try:
            for i in range(10):
                stream.put(i)
        except Exception as ex:
            stream.throw(ex)
            raise
        else:
            stream.stop()

    loop = asyncio.get_running_loop()
    loop.create_task(producer(stream))
    async for x in stream:
        print(x)
asyncio.run(main())
"""


@pytest.mark.timeout(120)
def test_the_example_of_the_description_runs_as_printed():
    done = run_program(SEED, seconds=80, PYTHONWARNINGS="always")
    assert done.stdout.split() == [str(i) for i in range(10)]
    assert done.stderr == ""


@every_loop
@every_stream
@pytest.mark.parametrize("burst", [1, 3, 100])
def test_items_come_in_order_and_then_the_end(kind, burst, new_loop):
    async def main():
        stream = kind()

        async def produce():
            for number in range(20):
                stream.put(number)
                if number % burst == 0:
                    await asyncio.sleep(0)
            stream.stop()

        producer = asyncio.ensure_future(produce())
        items = [item async for item in stream]
        await producer
        assert isinstance(await raised(stream.__anext__()), StopAsyncIteration)  # the end stays
        return items

    assert run(main(), new_loop) == list(range(20))


@every_stream
def test_put_after_stop_raises(kind):
    async def main():
        stream = kind()
        stream.put(1)
        stream.stop()
        stream.stop()
        with pytest.raises(StreamStopped, match="after stop"):
            stream.put(2)
        with pytest.raises(StreamStopped, match="after stop"):
            stream.put_threadsafe(2)
        return [item async for item in stream]

    assert run(main()) == [1]


@every_loop
@every_stream
def test_a_thrown_error_overtakes_and_stays(kind, new_loop):
    error = KeyError("producer")

    async def main():
        stream = kind()
        stream.put(1)
        stream.put(2)
        assert await stream.__anext__() == 1
        stream.throw(error)
        stream.throw(ValueError("a later one has no effect"))
        for _ in range(3):
            assert await raised(stream.__anext__()) is error
        with pytest.raises(StreamStopped, match="failed with an error") as refused:
            stream.put(3)
        assert refused.value.__cause__ is error

    run(main(), new_loop)


@every_stream
def test_a_thrown_error_wakes_the_consumer_after_stop_too(kind):
    error = OSError("late")

    async def main():
        stream = kind()
        consumer = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)
        stream.throw(error)
        assert await raised(consumer) is error
        stream = kind()
        stream.put(1)
        stream.stop()
        stream.throw(error)
        assert await raised(stream.__anext__()) is error

    run(main())


@every_stream
def test_the_traceback_does_not_grow(kind):
    async def main():
        stream = kind()
        try:
            raise KeyError("where it happened")
        except KeyError as error:
            stream.throw(error)
        lengths = set()
        for _ in range(5):
            error = await raised(stream.__anext__())
            lengths.add(len(traceback.extract_tb(error.__traceback__)))
        assert len(lengths) == 1
        names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        assert names[-1] == "main"  # with the traceback it was thrown with

    run(main())


@every_stream
@pytest.mark.parametrize("waiting", [False, True])
def test_cancel_raises_cancelled_error(kind, waiting):
    async def main():
        stream = kind()
        if not waiting:
            stream.cancel()
        consumer = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)
        if waiting:
            stream.cancel()
        assert isinstance(await raised(consumer), asyncio.CancelledError)

    run(main())


@every_stream
@pytest.mark.parametrize("error", [StopIteration(5), StopAsyncIteration, StopAsyncIteration("x")])
def test_an_error_that_would_look_like_the_end_is_wrapped(kind, error):
    async def main():
        stream = kind()
        stream.throw(error)
        found = await raised(stream.__anext__())
        assert type(found) is MXNetError
        assert isinstance(found.__cause__, (StopIteration, StopAsyncIteration))

    run(main())


@every_stream
def test_throw_takes_classes_and_refuses_what_is_no_exception(kind):
    async def main():
        stream = kind()
        for wrong in ("text", 5, int, None):
            with pytest.raises(ArgumentError, match="throw"):
                stream.throw(wrong)
        stream.throw(ZeroDivisionError)
        assert isinstance(await raised(stream.__anext__()), ZeroDivisionError)

    run(main())


@every_loop
@every_stream
def test_a_second_iteration_raises_at_once(kind, new_loop):
    async def main():
        stream = kind()
        items = []

        async def read():
            items.extend([item async for item in stream])

        first = asyncio.ensure_future(read())
        await asyncio.sleep(0)
        assert isinstance(await raised(read()), StreamStopped)
        assert isinstance(await raised(stream.__anext__()), StreamStopped)  # while the first waits
        for number in range(3):
            stream.put(number)
        assert isinstance(
            await raised(stream.__anext__()), StreamStopped
        )  # the first has been woken, nothing more
        stream.stop()
        await first
        assert items == [0, 1, 2]
        assert isinstance(await raised(read()), StreamStopped)
        assert await raised(asyncio.gather(read(), read())) is not None

    run(main(), new_loop)


@every_loop
@every_stream
def test_a_cancelled_consumer_loses_nothing(kind, new_loop):
    async def main():
        stream = kind()
        for number in range(50):
            consumer = asyncio.ensure_future(stream.__anext__())
            await asyncio.sleep(0)
            if number % 2:
                stream.put(number)  # woken and cancelled before it runs again
                consumer.cancel()
            else:
                consumer.cancel()
                stream.put(number)
            got = await raised(consumer)
            if got is None:  # a hook that waits may have got so far before it was cancelled
                assert consumer.result() == number
                continue
            assert isinstance(got, asyncio.CancelledError)
            assert await stream.__anext__() == number
        stream.stop()
        return [item async for item in stream]

    assert run(main(), new_loop) == []


@every_stream
def test_a_loop_left_early_can_be_continued(kind):
    async def main():
        stream = kind()
        for number in range(4):
            stream.put(number)
        stream.stop()
        async for number in stream:
            if number == 1:
                break
        rest = [await stream.__anext__(), await stream.__anext__()]
        assert isinstance(await raised(stream.__anext__()), StopAsyncIteration)
        return rest

    assert run(main()) == [2, 3]


def test_hooks_of_a_subclass_of_a_built_in_one_are_called():
    async def main():
        stream = OverridesBuiltIn()
        stream.put(1)
        stream.stop()
        assert [item async for item in stream] == [1]
        assert stream.calls[:3] == ["put", "empty", "next"]

    run(main())


def test_a_stream_without_hooks_cannot_be_made():
    with pytest.raises(TypeError, match="abstract"):
        BaseAsyncExtendableStream()


@dataclasses.dataclass
class OfFutures(ByHooks):
    """Futures are put to express waiting; the hook awaits the oldest."""

    cleaned: list = dataclasses.field(init=False, default_factory=list)

    async def _async_iterator_next_impl(self):
        future = self.queue[0]
        try:
            result = await future
        except BaseException as error:
            self.cleaned.append(error)
            raise
        self.queue.popleft()
        return result


@every_loop
def test_a_hook_may_wait(new_loop):
    async def main():
        stream = OfFutures()
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in range(3)]
        for future in futures:
            stream.put(future)
        stream.stop()
        for delay, number in ((0.02, 0), (0.01, 1), (0.0, 2)):
            loop.call_later(delay, futures[number].set_result, number)
        return [item async for item in stream]

    assert run(main(), new_loop) == [0, 1, 2]


@every_loop
def test_other_calls_do_not_disturb_a_hook_that_waits(new_loop):
    async def main():
        stream = OfFutures()
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in range(3)]
        stream.put(futures[0])
        consumer = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)
        stream.put(futures[1])
        await asyncio.sleep(0)
        stream.put_threadsafe(futures[2])
        await asyncio.sleep(0.001)
        stream.stop()
        await asyncio.sleep(0)
        assert not consumer.done()
        for number, future in enumerate(futures):
            future.set_result(number)
        return [await consumer] + [item async for item in stream]

    assert run(main(), new_loop) == [0, 1, 2]


@every_loop
def test_an_error_reaches_a_hook_that_waits(new_loop):
    error = KeyError("the producer will never set the future")

    async def main():
        stream = OfFutures()
        future = asyncio.get_running_loop().create_future()
        stream.put(future)
        consumer = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)
        assert isinstance(await raised(stream.__anext__()), StreamStopped)
        stream.throw(error)
        assert await raised(consumer) is error
        assert stream.cleaned == [error]
        assert not future.cancelled()

    run(main(), new_loop)


@every_loop
def test_cancelling_the_consumer_cancels_what_the_hook_waits_for(new_loop):
    ended = []

    async def slow():
        try:
            await asyncio.sleep(10)
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    async def main():
        stream = OfFutures()
        task = asyncio.ensure_future(slow())
        stream.put(task)
        consumer = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0.01)
        consumer.cancel()
        assert isinstance(await raised(consumer), asyncio.CancelledError)
        assert ended
        assert task.cancelled()
        assert len(stream.queue) == 1
        assert isinstance(stream.cleaned[0], asyncio.CancelledError)

    run(main(), new_loop)


def test_a_hook_that_survives_the_error_does_not_hide_it():
    class Stubborn(ByHooks):
        async def _async_iterator_next_impl(self):
            try:
                await asyncio.sleep(10)
            except KeyError:
                await asyncio.sleep(0)
            return 5

    async def main():
        stream = Stubborn()
        error = KeyError()
        stream.put(1)
        consumer = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)
        stream.throw(error)
        assert await raised(consumer) is error

    run(main())


@pytest.mark.parametrize("hook", ["_async_iterator_put_impl", "_async_iterator_next_impl", "_empty_impl"])
def test_an_error_in_a_hook_arrives(hook):
    error = KeyError(hook)

    def fail(self, *args):
        raise error

    async def main():
        stream = type("Bad", (ByHooks,), {hook: fail})()
        if hook == "_async_iterator_put_impl":
            with pytest.raises(KeyError):
                stream.put(1)
            stream.put_threadsafe(1)
        else:
            stream.put(1)
        assert await raised(stream.__anext__()) is error

    run(main())


def test_an_error_while_giving_up_does_not_leave_the_consumer_waiting():
    class Bad(ByHooks):
        def _failed_impl(self):
            raise OSError("disk")

    async def main():
        stream = Bad()
        thrown = KeyError("thrown")
        consumer = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)
        with pytest.raises(OSError, match="disk"):
            stream.throw(thrown)
        assert await raised(consumer) is thrown

    run(main())


# ---- other threads


@every_loop
@every_stream
def test_items_of_other_threads_arrive_in_each_threads_order(kind, new_loop):
    async def main():
        stream = kind()
        count, threads = 500, 4

        def produce(first):
            for number in range(first, first + count):
                stream.put_threadsafe(number)

        def all_of_them():
            workers = [threading.Thread(target=produce, args=(each * count,)) for each in range(threads)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            stream.stop_threadsafe()

        threading.Thread(target=all_of_them).start()
        items = [item async for item in stream]
        assert sorted(items) == list(range(count * threads))
        if kind is not PriorityExtendableStream:
            for each in range(threads):
                mine = [item for item in items if item // count == each]
                assert mine == sorted(mine)

    run(main(), new_loop)


@every_stream
def test_an_item_that_a_thread_was_allowed_to_put_is_not_lost(kind):
    for _ in range(30):
        accepted = []
        stream = kind()

        def produce(stream=stream, accepted=accepted):
            for number in range(10000):
                try:
                    stream.put_threadsafe(number)
                except StreamStopped:
                    return
                accepted.append(number)

        async def main(stream=stream, produce=produce):
            thread = threading.Thread(target=produce)
            thread.start()
            asyncio.get_running_loop().call_later(0.001, stream.stop)
            items = [item async for item in stream]
            thread.join()
            return items

        assert run(main()) == accepted


@every_stream
def test_calls_of_all_threads_take_effect_in_their_order(kind):
    async def main():
        stream = kind()
        consumer = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)
        stream.put_threadsafe(0)
        stream.put(1)
        stream.put_threadsafe(2)
        stream.put(3)
        stream.put_threadsafe(4)
        stream.stop()
        return [await consumer] + [item async for item in stream]

    assert run(main()) == [0, 1, 2, 3, 4]


@every_stream
def test_what_other_threads_put_before_there_is_a_loop_is_kept(kind):
    stream = kind()
    thread = threading.Thread(
        target=lambda: (stream.put_threadsafe(1), stream.put_threadsafe(2), stream.stop_threadsafe())
    )
    thread.start()
    thread.join()
    with pytest.raises(StreamStopped):
        stream.put_threadsafe(3)

    async def main():
        return [item async for item in stream]

    assert run(main()) == [1, 2]


@every_loop
@every_stream
def test_throw_from_another_thread(kind, new_loop):
    error = OSError("in the thread")

    async def main():
        stream = kind()
        stream.put(1)
        thread = threading.Thread(target=lambda: (stream.put_threadsafe(2), stream.throw_threadsafe(error)))
        thread.start()
        thread.join()
        with pytest.raises(StreamStopped):
            stream.put_threadsafe(3)
        assert await stream.__anext__() == 1
        assert await raised(stream.__anext__()) is error

    run(main(), new_loop)


@every_loop
def test_many_items_of_a_thread_wake_the_loop_once(new_loop):
    async def main():
        stream = SortedExtendableStream()
        consumer = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)
        loop, calls = asyncio.get_running_loop(), []

        class Counting:
            def call_soon_threadsafe(self, *args):
                calls.append(args)
                return loop.call_soon_threadsafe(*args)

            def is_closed(self):
                return False

        stream._mailbox.loop = Counting()
        for number in range(1000):
            stream.put_threadsafe(number)
        assert len(calls) == 1
        assert await consumer == 0

    run(main(), new_loop)


@every_loop
@every_stream
def test_a_closed_loop_is_an_error(kind, new_loop):
    stream = kind()

    async def main():
        assert await raised(asyncio.wait_for(stream.__anext__(), 0.01)) is not None

    run(main(), new_loop)
    for call in (
        lambda: stream.put_threadsafe(1),
        stream.stop_threadsafe,
        lambda: stream.throw_threadsafe(KeyError),
    ):
        with pytest.raises(LoopClosedError, match=kind.__name__):
            call()

    async def again():  # and another loop may take it over; what was refused is not there
        consumer = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)
        stream.put_threadsafe(2)
        return await consumer

    assert run(again(), new_loop) == 2


@every_loop
@pytest.mark.parametrize("kind", [*IN_ORDER, CompletionExtendableStream])
def test_a_call_of_another_thread_that_cannot_wake_the_loop_says_so(kind, new_loop):
    """In asyncio's debug mode as without, and the stream is as before."""

    async def main(debug):
        asyncio.get_running_loop().set_debug(debug)
        stream = kind()
        consumer = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)
        for name, call in (
            ("put", lambda: stream.put(done(1))),
            ("stop", stream.stop),
            ("throw", lambda: stream.throw(KeyError)),
            ("throw", stream.cancel),
        ):
            says = rf"{kind.__name__}\.{name} was called in another thread.* call {name}_threadsafe there"
            with pytest.raises(StateError, match=says):
                await asyncio.to_thread(call)
        stream.put(done(2))
        return await consumer

    def done(value):
        if kind is not CompletionExtendableStream:
            return value
        future = concurrent.futures.Future()
        future.set_result(value)
        return future

    for debug in (False, True):
        assert run(main(debug), new_loop) == 2


@pytest.mark.filterwarnings("ignore:coroutine")
def test_put_for_a_consumer_whose_loop_is_closed():
    stream = SortedExtendableStream()
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    task = loop.create_task(stream.__anext__())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    with pytest.raises(LoopClosedError):
        stream.put(1)
    del task


def test_a_refused_item_of_a_thread_fails_the_stream():
    async def main():
        stream = PriorityExtendableStream()
        stream.put(1)
        stream.put_threadsafe("not comparable with 1")
        stream.put_threadsafe(2)
        await asyncio.sleep(0)
        with pytest.raises(StreamStopped) as refused:
            stream.put(3)
        assert isinstance(refused.value.__cause__, TypeError)
        assert await raised(stream.__anext__()) is refused.value.__cause__

    run(main())


# ---- priority


def test_priority_gives_the_smallest_and_keeps_the_order_of_equals():
    async def main():
        stream = PriorityExtendableStream(key=lambda pair: pair[0])
        pairs = [(number * 7 % 5, object()) for number in range(40)]
        for pair in pairs:
            stream.put(pair)
        stream.stop()
        assert [pair async for pair in stream] == sorted(pairs, key=lambda pair: pair[0])

    run(main())


def test_priority_refuses_what_cannot_be_compared_and_goes_on():
    async def main():
        stream = PriorityExtendableStream()
        for number in (3, 1, 2):
            stream.put(number)
        with pytest.raises(TypeError):
            stream.put("text")
        stream.put(0)
        stream.stop()
        return [item async for item in stream]

    assert run(main()) == [0, 1, 2, 3]


def test_priority_takes_a_smaller_item_that_comes_later_first():
    async def main():
        stream = PriorityExtendableStream()
        stream.put(5)
        stream.put(9)
        assert await stream.__anext__() == 5
        stream.put(1)
        assert await stream.__anext__() == 1

    run(main())


# ---- completion


async def after(seconds, result):
    await asyncio.sleep(seconds)
    if isinstance(result, BaseException):
        raise result
    return result


@every_loop
def test_completion_gives_results_as_they_are_ready(new_loop):
    async def main():
        stream = CompletionExtendableStream()
        stream.put(after(0.04, "last"))
        stream.put(asyncio.ensure_future(after(0.0, "first")))
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            stream.put(executor.submit(lambda: "thread"))
            twice = asyncio.get_running_loop().create_future()
            stream.put(twice)
            stream.put(twice)
            stream.stop()
            twice.set_result("twice")
            items = [item async for item in stream]
        assert sorted(items) == ["first", "last", "thread", "twice", "twice"]
        assert items[-1] == "last"

    run(main(), new_loop)


@every_loop
def test_completion_takes_awaitables_while_it_is_read(new_loop):
    async def main():
        stream = CompletionExtendableStream()
        stream.put(after(0, 0))
        items = []
        async for item in stream:
            items.append(item)
            if item < 5:
                stream.put(after(0.001, item + 1))
            else:
                stream.stop()
        return items

    assert run(main(), new_loop) == [0, 1, 2, 3, 4, 5]


@every_loop
def test_completion_raises_a_failure_in_its_turn_and_cancels_the_rest(new_loop):
    error = KeyError("job")

    async def main():
        stream = CompletionExtendableStream()
        slow = asyncio.ensure_future(after(10, 0))
        stream.put(after(0, 1))
        stream.put(after(0.01, error))
        stream.put(after(0.01, ValueError("at the same time")))
        stream.put(slow)
        stream.put(after(0.02, ValueError("nobody asks any more")))
        assert await stream.__anext__() == 1
        assert await raised(stream.__anext__()) is error
        assert await raised(stream.__anext__()) is error
        await asyncio.sleep(0.03)
        assert slow.cancelled()
        assert not stream.pending

    run(main(), new_loop)


@every_loop
@pytest.mark.parametrize("how", ["cancel", "throw"])
def test_completion_cleans_up(how, new_loop):
    async def main():
        stream = CompletionExtendableStream()
        tasks = [asyncio.ensure_future(after(0.001 * number, ValueError(number))) for number in range(5)]
        tasks.append(asyncio.ensure_future(after(10, 0)))
        for task in tasks:
            stream.put(task)
        await asyncio.sleep(0.003)
        getattr(stream, how)(*([KeyError("x")] if how == "throw" else []))
        assert isinstance(
            await raised(stream.__anext__()), asyncio.CancelledError if how == "cancel" else KeyError
        )
        await soon(lambda: not stream.pending)
        assert tasks[-1].cancelled()

    run(main(), new_loop)


@every_loop
def test_completion_of_a_cancelled_future(new_loop):
    async def main():
        stream = CompletionExtendableStream()
        future = asyncio.get_running_loop().create_future()
        stream.put(future)
        future.cancel()
        assert isinstance(await raised(stream.__anext__()), asyncio.CancelledError)

    run(main(), new_loop)


def test_completion_of_an_error_that_would_look_like_the_end():
    async def main():
        stream = CompletionExtendableStream()
        stream.put(after(0, StopAsyncIteration("a stray one")))
        error = await raised(stream.__anext__())
        assert type(error) is MXNetError
        assert isinstance(error.__cause__, StopAsyncIteration)
        assert await raised(stream.__anext__()) is error

    run(main())


def test_completion_refuses_what_cannot_be_awaited():
    async def main():
        stream = CompletionExtendableStream()
        with pytest.raises(ArgumentError, match="int cannot be awaited"):
            stream.put(5)
        other = asyncio.new_event_loop()
        future = other.create_future()
        other.close()
        with pytest.raises(ArgumentError, match="another event loop"):
            stream.put(future)
        stream.stop()
        return [item async for item in stream]

    assert run(main()) == []


def test_completion_by_put_needs_the_loop_of_this_thread():
    with pytest.raises(StateError, match="no event loop is running in this thread.*put_threadsafe in others"):
        CompletionExtendableStream().put(concurrent.futures.Future())


def test_completion_from_a_thread():
    async def main():
        stream = CompletionExtendableStream()
        consumer = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)
        done = concurrent.futures.Future()
        thread = threading.Thread(
            target=lambda: (stream.put_threadsafe(done), stream.stop_threadsafe(), done.set_result(7))
        )
        thread.start()
        assert await consumer == 7
        thread.join()
        assert isinstance(await raised(stream.__anext__()), StopAsyncIteration)

    run(main())
