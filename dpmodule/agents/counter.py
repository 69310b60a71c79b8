"""Numbers that copies of a teacher take in turn: which episode or batch comes next."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from .process_lock import ProcessLock

__all__ = ["LocalCounter", "SharedCounter", "counter_for"]


class LocalCounter:
    """Numbers from 0 on, for the copies in one process and thread."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def take(self) -> int:
        """Return the next number, and go on to the one behind it."""
        number = self._next
        self._next = number + 1
        return number

    def peek(self) -> int:
        """Return the next number."""
        return self._next

    def reset(self, number: int = 0) -> None:
        """Begin at 0 again, or at another number."""
        self._next = number

    @property
    def value(self) -> int:
        """The number that was taken last, -1 before the first; ParlAI's teachers read and set it."""
        return self._next - 1

    @value.setter
    def value(self, number: int) -> None:
        self._next = number + 1

    def get_lock(self) -> AbstractContextManager[None]:
        """Return what a ``with`` statement holds while `value` is changed; nothing has to be locked here."""
        return nullcontext()

    def __deepcopy__(self, memo: Any) -> LocalCounter:
        return self


class SharedCounter(ProcessLock):
    """Numbers from 0 on, each of which one worker gets, for processes and threads.

    The next number is the position in a file without a name, which all processes have in common and which Linux guards
    while it moves it: a single call to the system, and no lock that a process could die with.
    """

    def take(self) -> int:
        """Return the next number, and go on to the one behind it."""
        return os.lseek(self._fd, 1, os.SEEK_CUR) - 1

    def peek(self) -> int:
        """Return the next number."""
        return os.lseek(self._fd, 0, os.SEEK_CUR)

    def reset(self, number: int = 0) -> None:
        """Begin at 0 again, or at another number, while nobody takes any."""
        os.lseek(self._fd, number, os.SEEK_SET)

    @property
    def value(self) -> int:
        """The number that was taken last, -1 before the first; it is changed under `get_lock`."""
        return self.peek() - 1

    @value.setter
    def value(self, number: int) -> None:
        self.reset(number + 1)

    def get_lock(self) -> SharedCounter:
        """Return what a ``with`` statement holds while `value` is read and set, as `take` needs no lock."""
        return self

    def __deepcopy__(self, memo: Any) -> SharedCounter:
        return self


def counter_for(workers: int) -> LocalCounter | SharedCounter:
    """Return a counter for a number of workers."""
    return SharedCounter() if workers > 1 else LocalCounter()
