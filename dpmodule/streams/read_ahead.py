"""Reading an iterator ahead of its consumer in a thread."""

from __future__ import annotations

import atexit
import os
import threading
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Generic, NamedTuple, TypeVar, cast
from weakref import WeakSet

import torch

from .._core.closing import Closing
from ..base import StateError
from ..context import Context, current_context
from .checks import check_count

JOIN_TIMEOUT_S = 5.0
"""Most seconds that `join` waits for the current read."""

_EXIT_TIMEOUT_S = 1.0
"""Most seconds that the end of the process waits for the current reads."""

T = TypeVar("T")
E = TypeVar("E")


class _Outcome(NamedTuple):
    """Result of one read: an item, or the end, which may be an error."""

    item: Any = None
    final: bool = False
    error: BaseException | None = None
    trace: TracebackType | None = None


class ReadAhead(Closing, Generic[T]):
    """An iterator that reads another one in a thread, at most `depth` items ahead.

    After the end or an error, every further call raises it again, until `release`. The thread uses the device context
    and the gradient mode of the constructor's caller. It is a daemon; `close`, or leaving a ``with`` block, ends it.

    Args:
        source: iterable to read.
        owner: name of the object in error messages.

    Raises:
        ArgumentError: `depth` is below 1.

    Example:
        >>> with ReadAhead((n * n for n in range(4)), depth=2) as squares:
        ...     list(squares)
        [0, 1, 4, 9]
    """

    def __init__(
        self, source: Iterable[T], depth: int = 1, name: str = "ReadAhead", owner: str = "ReadAhead"
    ) -> None:
        check_count(owner, "depth", depth)
        # an iterator need not be iterable
        self._source: Iterator[T] = (
            cast("Iterator[T]", source) if hasattr(source, "__next__") else iter(source)
        )
        self._depth = depth
        self._name = name
        self._owner = owner
        self._changed = threading.Condition()
        self._ready: deque[_Outcome] = deque()
        self._held = False  # another object uses the source: read nothing
        self._reading = False
        self._stopped = False
        self._pid = os.getpid()
        self._context = current_context()
        self._grad_mode = torch.is_grad_enabled()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        _alive.add(self)

    def peek(self, end: E | None = None) -> T | E | None:
        """Wait for the next item and return it without taking it.

        Args:
            end: value returned at the end of the source.

        Raises:
            StateError: the object is closed, or in a forked child, which has no thread.
            BaseException: an exception of the source, with its traceback.
        """
        outcome = self._next_outcome()
        if outcome.final:
            return end
        item: T = outcome.item
        return item

    def num_ready(self) -> int:
        """Return the number of items that are read already."""
        with self._changed:
            return sum(not outcome.final for outcome in self._ready)

    def advance(self) -> None:
        """Take the item that `peek` returned."""
        with self._changed:
            if not self._ready[0].final:
                self._ready.popleft()
                self._changed.notify_all()

    def __iter__(self) -> ReadAhead[T]:
        return self

    def __next__(self) -> T:
        outcome = self._next_outcome()
        if outcome.final:
            raise StopIteration
        self.advance()
        item: T = outcome.item
        return item

    def hold(self) -> None:
        """Finish the current read, drop the items read ahead, and read nothing until `release`."""
        self._check_process()
        with self._changed:
            self._held = True
            self._changed.wait_for(lambda: not self._reading)
            self._ready.clear()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Read nothing inside the block; keep the items read ahead."""
        self._check_process()
        with self._changed:
            self._held = True
            self._changed.wait_for(lambda: not self._reading)
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Resume reading after `hold`, also after the end or an error."""
        with self._changed:
            self._held = False
            self._changed.notify_all()

    def stop(self) -> None:
        """Ask the thread to end, without waiting; safe in finalizers."""
        if os.getpid() == self._pid:
            with self._changed:
                self._stopped = True
                self._changed.notify_all()

    def join(self) -> None:
        """Wait for the thread to end; warn if the current read takes more than 5 seconds."""
        if os.getpid() != self._pid or self._thread is threading.current_thread():
            return
        self._thread.join(JOIN_TIMEOUT_S)
        if self._thread.is_alive():
            warnings.warn(
                f"{self._name} still waits for {type(self._source).__name__} after {JOIN_TIMEOUT_S:g} s; "
                "the thread ends with the process",
                RuntimeWarning,
                stacklevel=3,
            )

    def close(self) -> None:
        self.stop()
        self.join()

    def _next_outcome(self) -> _Outcome:
        self._check_process()
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._stopped)
            if self._stopped:
                raise StateError(f"{self._owner} is closed; make a new one")
            outcome = self._ready[0]
        if outcome.error is not None:
            raise outcome.error.with_traceback(outcome.trace)
        return outcome

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise StateError(f"a {self._owner} cannot be used in a forked child; make a new one there")

    def _run(self) -> None:
        torch.set_grad_enabled(self._grad_mode)
        with Context(self._context):  # a copy: a context keeps a stack of enclosing contexts
            while self._wait_for_work():
                outcome = self._read()
                with self._changed:
                    self._reading = False
                    self._ready.append(outcome)
                    self._changed.notify_all()
                del outcome  # only the consumer holds the item

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
            return _Outcome(final=True)
        except BaseException as error:  # raised in the consumer
            return _Outcome(final=True, error=error, trace=error.__traceback__)


_alive: WeakSet[ReadAhead[Any]] = WeakSet()


@atexit.register
def _end_all() -> None:
    """End all threads with the process: Python ends them anywhere, even in C++ code, which then aborts."""
    readers = list(_alive)
    for reader in readers:
        reader.stop()
    for reader in readers:
        if os.getpid() == reader._pid:
            reader._thread.join(_EXIT_TIMEOUT_S)
