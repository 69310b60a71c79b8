"""`BatchBoundary`: Ctrl-C and SIGTERM between batches instead of within one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class BatchBoundary:
    """Puts Ctrl-C and SIGTERM off to the end of a batch, so that no update is left half done; a second acts at once.

    Args:
        on_ask: called when one comes, between any two steps of the thread: it only sets a mark for others.
    """

    def __init__(self, on_ask: Callable[[], None] | None = None) -> None:
        self.asked = False
        self.number = 0
        self._on_ask = on_ask
        self._defers = True
        self._saves = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> BatchBoundary:
        if threading.current_thread() is threading.main_thread():
            for number, usual in (
                (signal.SIGINT, signal.default_int_handler),
                (signal.SIGTERM, signal.SIG_DFL),
            ):
                if signal.getsignal(number) is usual:
                    self._previous[number] = usual
                    signal.signal(number, self._ask)
        return self

    def end(self) -> None:
        """Do what was put off."""
        if self.number == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        raise KeyboardInterrupt

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Put nothing off within this context, nor what was put off before it."""
        self._defers = False
        try:
            if self.asked:
                self.end()
            yield
        finally:
            self._defers = True

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Put off a second signal, too, within this context: what is being saved is whole then."""
        self._saves = True
        try:
            yield
        finally:
            self._saves = False

    def ask(self, number: int) -> None:
        """Act as if a signal had come, as it did to a process that trains with this one."""
        self.number, self.asked = number, True

    def _ask(self, number: int, frame: FrameType | None) -> None:
        is_second = self.asked
        self.ask(number)
        if not self._saves and (is_second or not self._defers):
            self.end()
        if self._on_ask is not None:
            self._on_ask()

    def __exit__(self, *error: object) -> None:
        for number, usual in self._previous.items():
            signal.signal(number, usual)
