"""What every stream must do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ..abc import Stream
from ..errors import StreamStopped
from .trial import Trial, expect, failure_of


class StreamTrials:
    """The trials of one kind of stream; methods that begin with ``_try_`` are run, each in a loop of its own.

    Args:
        items: returns new items to put; called where the loop runs.
        expected: what comes out when all are put at once, in this order; None: the items, in any order.
    """

    def __init__(
        self,
        factory: Callable[[], Stream[Any]],
        items: Callable[[], Sequence[Any]],
        expected: Sequence[Any] | None,
    ) -> None:
        self._factory, self._items, self._expected = factory, items, expected

    def trials(self) -> dict[str, Trial]:
        """Return the trials by name."""
        return {name[5:]: getattr(self, name) for name in dir(self) if name.startswith("_try_")}

    def _filled(self) -> tuple[Stream[Any], Sequence[Any]]:
        stream, items = self._factory(), self._items()
        for item in items:
            stream.put(item)
        return stream, items

    def _compare(self, got: Sequence[Any], items: Sequence[Any], ordered: bool = False) -> None:
        expected = list(items if self._expected is None else self._expected)
        if ordered and self._expected is not None:
            expect(list(got) == expected, f"gave {list(got)!r}, expected {expected!r}")
            return
        rest = list(got)
        for item in expected:
            expect(item in rest, f"lost {item!r}; gave {list(got)!r}")
            rest.remove(item)
        expect(not rest, f"gave {rest!r} in addition")

    async def _try_gives_all_items_and_then_ends(self) -> None:
        stream, items = self._filled()
        stream.stop()
        self._compare([item async for item in stream], items, ordered=True)
        for _ in range(2):
            error = await failure_of(stream.__anext__())
            expect(isinstance(error, StopAsyncIteration), f"after its end it raises {error!r}")

    async def _try_wakes_a_waiting_consumer(self) -> None:
        stream, items = self._factory(), self._items()
        got = []
        for item in items:
            consumer = asyncio.ensure_future(stream.__anext__())
            await asyncio.sleep(0)
            expect(not consumer.done(), "gave an item before one was put")
            stream.put(item)
            got.append(await consumer)
        self._compare(got, items)

    async def _try_stop_wakes_a_waiting_consumer(self) -> None:
        stream = self._factory()
        consumer = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)
        stream.stop()
        error = await failure_of(consumer)
        expect(isinstance(error, StopAsyncIteration), f"a waiting consumer of a stopped stream got {error!r}")

    async def _try_refuses_items_after_stop(self) -> None:
        stream, items = self._factory(), self._items()
        stream.stop()
        stream.stop()
        expect(_refuses(stream, items[0]), "put after stop did not raise StreamStopped")

    async def _try_a_thrown_error_comes_first_and_stays(self) -> None:
        stream, items = self._filled()
        thrown = KeyError("thrown")
        stream.throw(thrown)
        for _ in range(2):
            error = await failure_of(stream.__anext__())
            expect(error is thrown, f"raised {error!r} instead of the error that was thrown")
        expect(_refuses(stream, items[0]), "put after throw did not raise StreamStopped")

    async def _try_a_thrown_error_wakes_a_waiting_consumer(self) -> None:
        stream = self._factory()
        thrown = KeyError("thrown")
        consumer = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)
        stream.throw(thrown)
        error = await failure_of(consumer)
        expect(error is thrown, f"raised {error!r} instead of the error that was thrown")

    async def _try_cancel_raises_cancelled_error(self) -> None:
        stream, _ = self._filled()
        stream.cancel()
        consumer = asyncio.ensure_future(stream.__anext__())
        error = await failure_of(consumer)
        expect(isinstance(error, asyncio.CancelledError), f"after cancel it raises {error!r}")

    async def _try_is_its_own_iterator_and_iterated_once(self) -> None:
        stream = self._factory()
        expect(stream.__aiter__() is stream, "__aiter__ did not return the stream itself")
        try:
            stream.__aiter__()
        except StreamStopped:
            return
        expect(False, "a second iteration did not raise StreamStopped")

    async def _try_refuses_a_second_consumer(self) -> None:
        stream, items = self._factory(), self._items()
        first = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)
        error = await failure_of(stream.__anext__())
        expect(
            isinstance(error, StreamStopped),
            f"a second waiting consumer got {error!r} instead of StreamStopped",
        )
        for item in items:
            stream.put(item)
        stream.stop()
        self._compare([await first, *[item async for item in stream]], items)

    async def _try_a_cancelled_consumer_loses_nothing(self) -> None:
        stream, items = self._factory(), self._items()
        got = []
        for number, item in enumerate(items):
            consumer = asyncio.ensure_future(stream.__anext__())
            await asyncio.sleep(0)
            if number % 2:
                stream.put(item)
                consumer.cancel()
            else:
                consumer.cancel()
                stream.put(item)
            if await failure_of(consumer) is None:
                got.append(consumer.result())
        stream.stop()
        got.extend([item async for item in stream])
        self._compare(got, items)

    async def _try_can_be_continued_after_its_loop_was_left(self) -> None:
        stream, items = self._filled()
        stream.stop()
        got = []
        async for item in stream:
            got.append(item)
            break
        got.extend([await stream.__anext__() for _ in items[1:]])
        self._compare(got, items, ordered=True)

    async def _try_takes_items_of_other_threads(self) -> None:
        stream, items = self._factory(), self._items()
        put, stop = getattr(stream, "put_threadsafe", None), getattr(stream, "stop_threadsafe", None)
        if put is None or stop is None:  # an optional part
            return

        def produce() -> None:
            for item in items:
                put(item)
            stop()

        thread = threading.Thread(target=produce)
        consumer = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)
        thread.start()
        got = [await consumer, *[item async for item in stream]]
        thread.join()
        self._compare(got, items)


def _refuses(stream: Stream[Any], item: Any) -> bool:
    try:
        stream.put(item)
    except StreamStopped:
        return True
    return False
