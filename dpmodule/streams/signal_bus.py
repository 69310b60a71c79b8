"""Wake-ups of an event loop by finished C++ jobs and by messages of other threads.

::

    loop's thread                                    a thread of the pool (no GIL)
    -------------                                    -----------------------------
    worker(functor): make a future, queue the job -> run the functor
    the future is awaited                            put the job into the bus's list
    the descriptor is readable     <- eventfd <-     write, if the loop has not been woken yet
    drain: resolve the futures of all jobs listed

Source: the signal socket bus of ads_pytorch. There every job writes to the socket; here a job writes only if the loop
has not been woken yet, so a worker never waits for a full socket.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .. import native
from .errors import LoopClosedError

if TYPE_CHECKING or native.core is None:
    from ..native.threads import SignalBus
else:
    SignalBus = native.core.SignalBus

_buses: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[SignalSocketBus]]
_buses = weakref.WeakKeyDictionary()


def _future_factory(loop: asyncio.AbstractEventLoop) -> Callable[[], asyncio.Future[Any]]:
    if type(loop).create_future is asyncio.BaseEventLoop.create_future:
        return functools.partial(asyncio.Future, loop=loop)  # the same, without a call in Python
    return loop.create_future


class SignalSocketBus(SignalBus):
    """Resolves the futures of an event loop when jobs end; `SignalSocketBus.of` returns the bus of a loop.

    Workers use it automatically. Each loop has one: it is made with the loop's first job, made again in a forked child,
    and closed with the loop. Jobs that end later are dropped. Without the extension the bus has no descriptor and uses
    ``loop.call_soon_threadsafe``.

    Args:
        loop: an event loop of asyncio or uvloop.
        pipe: use a pipe instead of an eventfd.

    Attributes:
        loop: the event loop; None once the bus is closed.
        closed: True if the bus or its loop has been closed.
        usable: True if jobs may be sent: the bus is not closed and was made by this process.
        in_flight: number of jobs that were sent and have not been resolved.

    Raises:
        LoopClosedError: the loop is closed.
        FileError: the system has no descriptor left.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, pipe: bool = False) -> None:
        if loop.is_closed():
            raise LoopClosedError(f"{loop!r} is closed; jobs are sent by a loop that is running")
        super().__init__(loop, _future_factory(loop), pipe)
        if self.fileno() >= 0:
            loop.add_reader(self.fileno(), super().drain)

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop | None = None) -> SignalSocketBus:
        """Return the bus of an event loop, and make it if there is none.

        Args:
            loop: the event loop; None for the running one.

        Raises:
            LoopClosedError: the loop is closed.
            RuntimeError: no loop was given and none is running.

        Example:
            >>> async def main():
            ...     return SignalSocketBus.of() is SignalSocketBus.of(asyncio.get_running_loop())
            >>> asyncio.run(main())
            True
        """
        loop = loop or asyncio.get_running_loop()
        bus = _buses.get(loop, _nothing)()
        if bus is None or not bus.usable:
            native.report()
            bus = cls(loop)
            _buses[loop] = weakref.ref(bus)
        return bus

    def close(self) -> None:
        """Close the descriptor and drop jobs that end later; a second call does nothing.

        It is rarely needed: closing the loop does the same, and a running loop makes a new bus.
        """
        loop = self.loop
        # a forked child shares the selector of the parent, which still needs the descriptor
        if loop is not None and self.usable and self.fileno() >= 0 and not loop.is_closed():
            loop.remove_reader(self.fileno())
        super().close()


def _nothing() -> None:
    return None


T = TypeVar("T")


class Mailbox(Generic[T]):
    """A queue from any threads to one event loop.

    `deliver` is called in the loop's thread once for all messages posted since its last call, so that a thousand
    messages cost one wake-up. Before `bind`, messages wait and nothing is woken.

    Args:
        deliver: function without arguments that calls `take`.
    """

    def __init__(self, deliver: Callable[[], object], owner: str) -> None:
        # re-entrant: a signal handler or finalizer may post while its own thread is posting
        self.lock = threading.RLock()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._deliver = deliver
        self._owner = owner
        self._messages: deque[T] = deque()
        self._called = False  # the loop will call `deliver`

    def __bool__(self) -> bool:
        return bool(self._messages)

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the loop that receives the messages; call it in that loop's thread."""
        with self.lock:
            self.loop, self._called = loop, False

    def post(self, message: T) -> None:
        """Add a message, from any thread."""
        with self.lock:
            self._messages.append(message)
            try:
                self._wake()
            except LoopClosedError:
                self._messages.pop()
                raise

    def _wake(self) -> None:
        if self.loop is None or self._called and not self.loop.is_closed():
            return
        try:
            self._called = True
            self.loop.call_soon_threadsafe(self._deliver)
        except RuntimeError as error:
            self._called = False
            raise LoopClosedError(f"{self._owner}: the event loop that reads it is closed") from error

    def take(self) -> deque[T]:
        """Remove and return all messages."""
        with self.lock:
            self._called = False
            messages, self._messages = self._messages, deque()
            return messages
