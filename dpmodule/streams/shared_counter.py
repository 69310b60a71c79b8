"""What several processes share without a lock that one of them could die with: a lock of the system, and a counter."""

from __future__ import annotations

import os
import tempfile
import threading
from multiprocessing import reduction
from typing import Any

try:
    import fcntl
except ImportError:  # Windows: workers are threads there
    fcntl = None  # type: ignore[assignment]


class ProcessLock:
    """A lock between processes, and between the threads of each: of a file without a name.

    Its holder may take it again inside. An argument of a child, it is the same lock there.
    """

    def __init__(self) -> None:
        # Linux guards the position, which `SharedCounter` uses, in a file of the temporary folder; that of a file of
        # memfd_create it does not, and two processes that came together got the same number now and then
        with tempfile.TemporaryFile() as file:
            self._fd = os.dup(file.fileno())
        self._own = threading.RLock()
        self._depth = 0

    def __enter__(self) -> None:
        self._own.acquire()
        self._depth += 1
        if self._depth == 1 and fcntl is not None:
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX)
            except BaseException:  # Ctrl-C
                self._leave()
                raise

    def __exit__(self, *error: object) -> None:
        if self._depth == 1 and fcntl is not None:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)
        self._leave()

    def _leave(self) -> None:
        self._depth -= 1
        self._own.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (type(self), reduction.DupFd(self._fd))

    def __del__(self) -> None:
        os.close(self._fd)


def _received(kind: type[ProcessLock], fd: Any) -> ProcessLock:
    lock = kind.__new__(kind)
    lock._fd, lock._own, lock._depth = fd.detach(), threading.RLock(), 0
    return lock


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
