"""What wakes an event loop: jobs in C++ that have ended, and what other threads hand to it.

::

    loop's thread                                    a thread of the pool (no GIL)
    -------------                                    -----------------------------
    worker(functor): make a future, queue the job -> run the functor
    the future is awaited                            put the job into the bus's list
    the descriptor is readable     <- eventfd <-     write, if the loop has not been told yet
    drain: resolve the futures of all jobs listed

Source: the signal socket bus of ads_pytorch; there every job writes to the socket, here a job does only if the loop
does not know yet that there is something to fetch, so a worker never waits for a full socket.
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


def _maker(loop: asyncio.AbstractEventLoop) -> Callable[[], asyncio.Future[Any]]:
    if type(loop).create_future is asyncio.BaseEventLoop.create_future:
        return functools.partial(asyncio.Future, loop=loop)  # what it does, without a call in Python
    return loop.create_future


class SignalSocketBus(SignalBus):
    """Resolves the futures of one event loop when jobs have ended; `SignalSocketBus.of` gives the loop's.

    Workers call it by themselves. There is one for each loop: made when the loop first sends a job, made anew in a
    forked child, and closed with the loop, to which it belongs as the callback of its descriptor. Jobs that end after
    that are dropped. Without the extension it has no descriptor and uses ``loop.call_soon_threadsafe``.

    Args:
        loop: an event loop of asyncio or uvloop.
        pipe: use a pipe where an eventfd would do.

    Attributes:
        loop: the event loop, None once closed.
        closed: whether the bus has been closed, by itself or with its loop.
        usable: whether jobs may be sent: not closed, and made by this process.
        in_flight: number of jobs that were sent and have not come back.

    Raises:
        LoopClosedError: the loop is closed.
        FileError: the system has no descriptor left.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, pipe: bool = False) -> None:
        if loop.is_closed():
            raise LoopClosedError(f"{loop!r} is closed; jobs are sent by a loop that is running")
        super().__init__(loop, _maker(loop), pipe)
        if self.fileno() >= 0:
            loop.add_reader(self.fileno(), super().drain)

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop | None = None) -> SignalSocketBus:
        """Return the bus of an event loop, by default the one that is running; make it if there is none.

        Args:
            loop: the event loop; None for the one that is running.

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
        found = _buses.get(loop, _nothing)()
        if found is None or not found.usable:
            native.report()
            found = cls(loop)
            _buses[loop] = weakref.ref(found)
        return found

    def close(self) -> None:
        """Close the descriptor and drop what ends later; a second call does nothing.

        There is seldom a reason to: closing the loop does the same, and a loop that goes on makes a new bus.
        """
        loop = self.loop
        # in a forked child the loop's selector is still the parent's, which goes on listening
        if loop is not None and self.usable and self.fileno() >= 0 and not loop.is_closed():
            loop.remove_reader(self.fileno())
        super().close()


def _nothing() -> None:
    return None


T = TypeVar("T")


class Mailbox(Generic[T]):
    """A queue that any thread fills and one event loop empties.

    `deliver` is called in the loop's thread once for everything that was posted since its last call, so that a
    thousand letters cost one wake-up. Before `bind`, letters wait and nobody is woken.

    Args:
        deliver: called without arguments in the loop's thread; it calls `take`.
    """

    def __init__(self, deliver: Callable[[], object], owner: str) -> None:
        # re-entrant: a signal handler or finalizer may post while its own thread is posting
        self.lock = threading.RLock()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._deliver = deliver
        self._owner = owner
        self._letters: deque[T] = deque()
        self._called = False  # the loop will call `deliver`

    def __bool__(self) -> bool:
        return bool(self._letters)

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Deliver to `loop` from now on; call it in that loop's thread."""
        with self.lock:
            self.loop, self._called = loop, False

    def post(self, letter: T) -> None:
        """Leave a letter, from any thread."""
        with self.lock:
            self._letters.append(letter)
            try:
                self._wake()
            except LoopClosedError:
                self._letters.pop()
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
        """Return all letters and forget them."""
        with self.lock:
            self._called = False
            letters, self._letters = self._letters, deque()
            return letters
