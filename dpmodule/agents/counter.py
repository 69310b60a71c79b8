"""Numbers that copies of a teacher take in turn: which episode or batch comes next."""

from __future__ import annotations

import os
import tempfile
from multiprocessing import reduction
from typing import Any

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

    def __deepcopy__(self, memo: Any) -> LocalCounter:
        return self


class SharedCounter:
    """Numbers from 0 on, each of which one worker gets, for processes and threads.

    The next number is the position in a file without a name, which all processes have in common and which Linux guards
    while it moves it: a single call to the system, and no lock that a process could die with.
    """

    __slots__ = ("__weakref__", "_fd")

    def __init__(self) -> None:
        # not memfd_create's, whose position Linux guards less; see streams.tickets
        with tempfile.TemporaryFile() as file:
            self._fd = os.dup(file.fileno())

    def take(self) -> int:
        """Return the next number, and go on to the one behind it."""
        return os.lseek(self._fd, 1, os.SEEK_CUR) - 1

    def peek(self) -> int:
        """Return the next number."""
        return os.lseek(self._fd, 0, os.SEEK_CUR)

    def reset(self, number: int = 0) -> None:
        """Begin at 0 again, or at another number, while nobody takes any."""
        os.lseek(self._fd, number, os.SEEK_SET)

    def __deepcopy__(self, memo: Any) -> SharedCounter:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (reduction.DupFd(self._fd),)

    def __del__(self) -> None:
        os.close(self._fd)


def _received(fd: Any) -> SharedCounter:
    made = SharedCounter.__new__(SharedCounter)
    made._fd = fd.detach()
    return made


def counter_for(workers: int) -> LocalCounter | SharedCounter:
    """Return a counter for a number of workers."""
    return SharedCounter() if workers > 1 else LocalCounter()
