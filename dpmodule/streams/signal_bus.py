"""What wakes an event loop when jobs in C++ have ended.

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
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import native
from .errors import LoopClosedError

if TYPE_CHECKING or native.core is None:
    from ..native.signal_bus import SignalBus
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
