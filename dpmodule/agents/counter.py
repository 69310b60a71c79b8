"""Numbers that copies of a teacher take in turn: which episode or batch comes next."""

from __future__ import annotations

import os
import struct
import tempfile
import threading
from multiprocessing import reduction
from typing import Any

try:
    import fcntl
except ImportError:  # Windows: workers are threads there
    fcntl = None  # type: ignore[assignment]

__all__ = ["Counter", "SharedCounter", "counter_for"]

_NUMBER = struct.Struct("<q")


class Counter:
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

    def reset(self) -> None:
        """Begin at 0 again."""
        self._next = 0

    def __deepcopy__(self, memo: Any) -> Counter:
        return self


class SharedCounter:
    """Numbers from 0 on, each of which one worker gets, for processes and threads.

    The number lies in a file without a name. A worker locks it while it reads and writes these eight bytes: a lock that
    the system takes from a process that dies, so that nobody waits for it.
    """

    __slots__ = ("__weakref__", "_fd", "_lock")

    def __init__(self) -> None:
        with tempfile.TemporaryFile() as file:
            self._fd = os.dup(file.fileno())
        self._lock = threading.Lock()
        self.reset()

    def take(self) -> int:
        """Return the next number, and go on to the one behind it."""
        with self._lock:
            self._hold()
            try:
                number = self.peek()
                os.pwrite(self._fd, _NUMBER.pack(number + 1), 0)
            finally:
                self._release()
        return number

    def _hold(self) -> None:
        if fcntl is not None:
            fcntl.lockf(self._fd, fcntl.LOCK_EX, _NUMBER.size)

    def _release(self) -> None:
        if fcntl is not None:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, _NUMBER.size)

    def peek(self) -> int:
        """Return the next number."""
        return int(_NUMBER.unpack(os.pread(self._fd, _NUMBER.size, 0))[0])

    def reset(self) -> None:
        """Begin at 0 again, while nobody takes any."""
        os.pwrite(self._fd, _NUMBER.pack(0), 0)

    def __deepcopy__(self, memo: Any) -> SharedCounter:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (reduction.DupFd(self._fd),)

    def __del__(self) -> None:
        os.close(self._fd)


def _received(fd: Any) -> SharedCounter:
    made = SharedCounter.__new__(SharedCounter)
    made._fd, made._lock = fd.detach(), threading.Lock()
    return made


def counter_for(workers: int) -> Counter | SharedCounter:
    """Return a counter for a number of workers."""
    return SharedCounter() if workers > 1 else Counter()
