"""`DeferredInterrupt`: Ctrl-C and SIGTERM take effect between batches instead of within one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class DeferredInterrupt:
    """Defers Ctrl-C and SIGTERM to the end of a batch, so that updates are complete; a second signal acts immediately.

    Args:
        on_request: called from the signal handler, between any two steps of the thread; it may only set a flag.

    Attributes:
        requested: True once a signal has arrived.
        signal_number: the number of that signal.
    """

    def __init__(self, on_request: Callable[[], None] | None = None) -> None:
        self.requested = False
        self.signal_number = 0
        self._on_request = on_request
        self._defers = True
        self._is_uninterrupted = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> DeferredInterrupt:
        if threading.current_thread() is threading.main_thread():
            for number, default in (
                (signal.SIGINT, signal.default_int_handler),
                (signal.SIGTERM, signal.SIG_DFL),
            ):
                if signal.getsignal(number) is default:
                    self._previous[number] = default
                    signal.signal(number, self._handle)
        return self

    def raise_now(self) -> None:
        """Raise the deferred KeyboardInterrupt or SystemExit."""
        if self.signal_number == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        raise KeyboardInterrupt

    @contextmanager
    def immediate(self) -> Iterator[None]:
        """Defer nothing within this context; raise what was deferred before it."""
        self._defers = False
        try:
            if self.requested:
                self.raise_now()
            yield
        finally:
            self._defers = True

    @contextmanager
    def uninterrupted(self) -> Iterator[None]:
        """Defer a second signal, too, within this context, so that a save is complete."""
        self._is_uninterrupted = True
        try:
            yield
        finally:
            self._is_uninterrupted = False

    def request(self, number: int) -> None:
        """Act as if a signal had arrived, because another process of the run received it."""
        self.signal_number, self.requested = number, True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        is_second = self.requested
        self.request(number)
        if not self._is_uninterrupted and (is_second or not self._defers):
            self.raise_now()
        if self._on_request is not None:
            self._on_request()

    def __exit__(self, *error: object) -> None:
        for number, default in self._previous.items():
            signal.signal(number, default)
