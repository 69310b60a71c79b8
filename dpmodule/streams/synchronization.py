"""Synchronization between processes: anonymous files, a signal, a lock, and a counter."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from multiprocessing import reduction
from typing import Any

try:
    import fcntl
except ImportError:  # Windows: workers are threads there
    fcntl = None  # type: ignore[assignment]

_ONE = (1).to_bytes(8, "little")


def anonymous_file(name: str) -> int:
    """Return the descriptor of a new, empty file, in memory if possible; it is deleted when all processes close it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name, os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Signal:
    """A descriptor that becomes readable when the other side signals: an eventfd, or a pipe where there is no eventfd.

    A signal that is passed to a child as an argument is the same signal there.

    Args:
        write: descriptor to write to; the same as `read` for an eventfd.
    """

    __slots__ = ("__weakref__", "read", "write")

    def __init__(self, read: int, write: int) -> None:
        self.read, self.write = read, write

    @classmethod
    def create(cls) -> Signal:
        """Open a new signal."""
        if hasattr(os, "eventfd"):
            fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            return cls(fd, fd)
        read, write = os.pipe()
        os.set_blocking(read, False)
        os.set_blocking(write, False)
        return cls(read, write)

    def copy(self) -> Signal:
        """Return a copy with duplicated descriptors."""
        read = os.dup(self.read)
        return Signal(read, read if self.read == self.write else os.dup(self.write))

    def give(self) -> None:
        """Wake the present or next watcher; do nothing if the signal is closed."""
        if self.write >= 0:
            with contextlib.suppress(BlockingIOError):  # it is readable already
                os.write(self.write, _ONE)

    def drain(self) -> None:
        """Reset the signal until the next wake-up."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.read, 4096)

    def close(self) -> None:
        """Close the descriptors; later calls do nothing."""
        fds = {self.read, self.write} - {-1}
        self.read = self.write = -1
        for fd in fds:
            os.close(fd)

    def __reduce__(self) -> tuple[Any, ...]:
        return _received_signal, tuple(reduction.DupFd(fd) for fd in dict.fromkeys((self.read, self.write)))

    def __del__(self) -> None:
        self.close()


def _received_signal(*fds: Any) -> Signal:
    detached = [fd.detach() for fd in fds]
    return Signal(detached[0], detached[-1])


class ProcessLock:
    """A reentrant lock between processes, and between the threads of each; it locks an anonymous file.

    A lock that is passed to a child as an argument is the same lock there.
    """

    def __init__(self) -> None:
        # `SharedCounter` needs a file whose position Linux updates atomically: one in the temporary folder. With
        # memfd_create, two concurrent processes sometimes got the same number
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
        return _received_lock, (type(self), reduction.DupFd(self._fd))

    def __del__(self) -> None:
        os.close(self._fd)


def _received_lock(kind: type[ProcessLock], fd: Any) -> ProcessLock:
    lock = kind.__new__(kind)
    lock._fd, lock._own, lock._depth = fd.detach(), threading.RLock(), 0
    return lock


class SharedCounter(ProcessLock):
    """Counter from 0 for processes and threads; each number goes to one worker.

    The next number is the position in an anonymous file that all processes share. Linux updates it atomically in one
    system call, so that no process can die while it holds a lock.
    """

    def take(self) -> int:
        """Return the next number and advance the counter."""
        return os.lseek(self._fd, 1, os.SEEK_CUR) - 1

    def peek(self) -> int:
        """Return the next number without advancing the counter."""
        return os.lseek(self._fd, 0, os.SEEK_CUR)

    def reset(self, number: int = 0) -> None:
        """Restart at a number; no worker may call `take` meanwhile."""
        os.lseek(self._fd, number, os.SEEK_SET)

    @property
    def value(self) -> int:
        """The last number taken, -1 before the first; set it while holding `get_lock()`."""
        return self.peek() - 1

    @value.setter
    def value(self, number: int) -> None:
        self.reset(number + 1)

    def get_lock(self) -> SharedCounter:
        """Return the lock to hold while `value` is read and set; `take` needs none."""
        return self

    def __deepcopy__(self, memo: Any) -> SharedCounter:
        return self
