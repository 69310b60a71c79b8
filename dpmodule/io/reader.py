"""A thread that reads one iterator ahead of its consumer."""

from __future__ import annotations

import os
import threading
import warnings
from collections import deque
from types import TracebackType
from typing import NamedTuple

import torch

from ..base import StateError
from ..context import Context, current_context
from .desc import DataBatch
from .iterator import DataIter

__all__ = ["Reader"]

JOIN_TIMEOUT_S = 5.0
"""How long `close` waits for a batch that is being read, in seconds."""


class _Outcome(NamedTuple):
    """What one read gave: a batch, an error, or neither at the end of the epoch."""

    batch: DataBatch | None = None
    error: BaseException | None = None
    trace: TracebackType | None = None

    @property
    def final(self) -> bool:
        return self.batch is None


class Reader:
    """Read batches of `source` in a thread, at most `depth` of them ahead.

    The end of the epoch and errors stay until `reset`: every further `peek` meets them again. The thread
    knows only its reader, so that whoever drops the reader's owner may stop it from a finalizer.

    Args:
        source: the iterator to read.
        depth: number of batches held ready.
        name: name of the thread.
    """

    def __init__(self, source: DataIter, depth: int, name: str) -> None:
        self._source = source
        self._depth = depth
        self._name = name
        self._changed = threading.Condition()
        self._ready: deque[_Outcome] = deque()
        self._held = False  # the owner is resetting: read nothing
        self._reading = False
        self._stopped = False
        self._pid = os.getpid()
        self._context = current_context()
        self._grad_mode = torch.is_grad_enabled()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def peek(self) -> DataBatch | None:
        """Return the next batch without taking it, None at the end of the epoch; wait for it if need be.

        Raises:
            StateError: the reader is closed, or this is a forked child, which has no thread.
            BaseException: whatever the source raised, with the traceback it had there.
        """
        self._check_process()
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._stopped)
            if self._stopped:
                raise StateError("PrefetchingIter is closed; make a new one")
            outcome = self._ready[0]
        if outcome.error is not None:
            raise outcome.error.with_traceback(outcome.trace)
        return outcome.batch

    def advance(self) -> None:
        """Take the batch that `peek` returned."""
        with self._changed:
            if not self._ready[0].final:
                self._ready.popleft()
                self._changed.notify_all()

    def hold(self) -> None:
        """Finish the read under way, drop what was read ahead and read nothing until `release`."""
        self._check_process()
        with self._changed:
            self._held = True
            self._changed.wait_for(lambda: not self._reading)
            self._ready.clear()

    def release(self) -> None:
        """Go on reading after `hold`."""
        with self._changed:
            self._held = False
            self._changed.notify_all()

    def stop(self) -> None:
        """Tell the thread to end, without waiting for it; safe in finalizers."""
        if os.getpid() == self._pid:
            with self._changed:
                self._stopped = True
                self._changed.notify_all()

    def join(self) -> None:
        """Wait for the thread to end; warn if the source does not come back from a read."""
        if os.getpid() != self._pid or self._thread is threading.current_thread():
            return
        self._thread.join(JOIN_TIMEOUT_S)
        if self._thread.is_alive():
            warnings.warn(
                f"{self._name} still waits for {type(self._source).__name__} after {JOIN_TIMEOUT_S:g} s; "
                "the thread is left to end with the process",
                RuntimeWarning,
                stacklevel=3,
            )

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise StateError("a PrefetchingIter cannot be used in a forked child; make a new one there")

    def _run(self) -> None:
        torch.set_grad_enabled(self._grad_mode)
        with Context(self._context):  # a copy: a context keeps its own stack of enclosing ones
            while self._wait_for_work():
                outcome = self._read()
                with self._changed:
                    self._reading = False
                    self._ready.append(outcome)
                    self._changed.notify_all()

    def _wait_for_work(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._wants_more())
            self._reading = not self._stopped
            return self._reading

    def _wants_more(self) -> bool:
        ended = bool(self._ready) and self._ready[-1].final
        return not self._held and not ended and len(self._ready) < self._depth

    def _read(self) -> _Outcome:
        try:
            return _Outcome(next(self._source))
        except StopIteration:
            return _Outcome()
        except BaseException as error:  # the consumer raises it, whatever it is
            return _Outcome(error=error, trace=error.__traceback__)
