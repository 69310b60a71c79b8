"""`BatchBoundary`: Ctrl-C between batches instead of within one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["BatchBoundary"]


class BatchBoundary:
    """Puts Ctrl-C off to the end of a batch, so that no update is left half done; a second one acts at once.

    Args:
        on_ask: called when Ctrl-C comes, between any two steps of the thread: it only sets a mark for others.

    Attributes:
        asked: whether Ctrl-C came.
    """

    def __init__(self, on_ask: Callable[[], None] | None = None) -> None:
        self.asked = False
        self._on_ask = on_ask
        self._previous: Any = None

    def __enter__(self) -> BatchBoundary:
        if threading.current_thread() is threading.main_thread():
            current = signal.getsignal(signal.SIGINT)
            if current is signal.default_int_handler:
                self._previous = current
                signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        if self._on_ask is not None:
            self._on_ask()

    def __exit__(self, *error: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
