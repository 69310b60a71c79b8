"""What other threads hand to an event loop: many hand-overs wake the loop once."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from .errors import LoopClosedError

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
