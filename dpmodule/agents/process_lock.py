"""`ProcessLock`: a lock between processes that the system takes from a process that dies."""

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

__all__ = ["ProcessLock"]


class ProcessLock:
    """A lock between processes, and between the threads of each: of a file without a name.

    Its holder may take it again inside. An argument of a child, it is the same lock there.
    """

    def __init__(self) -> None:
        # not memfd_create's, whose position, which `SharedCounter` uses, Linux guards less; see streams.tickets
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
