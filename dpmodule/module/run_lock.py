"""`RunLock`: one prefix, one run at a time."""

from __future__ import annotations

import importlib
import os
import platform
from contextlib import suppress
from typing import Any

from ..base import StateError

fcntl: Any
try:
    fcntl = importlib.import_module("fcntl")
except ImportError:  # not a POSIX system: runs are not kept apart
    fcntl = None

_descriptors: dict[tuple[int, str], int] = {}
"""Locked files by process and path: the system's locks hold between processes only."""


class RunLock:
    """Keeps other runs from saving under the same prefix, as long as it is taken.

    The file ``.<name>.lock`` beside the checkpoints is locked by the system, which lets go when the process ends,
    however that is; what is left of it then is taken over by the next run. Where files cannot be locked, nothing is.
    Forked children do not share the lock, so that none of them keeps it longer than the run.
    """

    def __init__(self, prefix: str) -> None:
        folder, name = os.path.split(os.path.abspath(prefix))
        self._prefix = prefix
        self._path = os.path.join(os.path.realpath(folder), f".{name}.lock")
        self._key = (0, "")
        self._descriptor = -1

    def take(self) -> None:
        """Take the lock."""
        if fcntl is None:
            return
        key = os.getpid(), self._path
        if key in _descriptors:
            raise StateError(self._message("this process"))
        number = self._open_locked()
        if number >= 0:
            self._key, self._descriptor = key, number
            _descriptors[key] = number
            with suppress(OSError):  # the text is only for messages
                os.ftruncate(number, 0)
                os.pwrite(number, f"process {key[0]} on {platform.node()}".encode(), 0)

    def release(self) -> None:
        """Give the lock back, and remove its file; does nothing without the lock, or in a forked child."""
        if self._key[0] != os.getpid() or _descriptors.pop(self._key, -1) < 0:
            return
        with suppress(OSError):
            os.unlink(self._path)
        os.close(self._descriptor)

    def _open_locked(self) -> int:
        """Return the descriptor of the locked file; -1 if there can be none."""
        while True:
            try:
                number = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except OSError:  # saving reports what is wrong with the folder
                return -1
            try:
                fcntl.lockf(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_file(number, self._path):
                    return number
            except (BlockingIOError, PermissionError):
                with open(number, "rb") as file:
                    other = file.read(200).decode(errors="replace")
                raise StateError(self._message(other or "another process")) from None
            except OSError:  # a file system without locks
                os.close(number)
                with suppress(OSError):
                    os.unlink(self._path)
                return -1
            os.close(number)  # removed by the run that had it; begin with the new file

    def _message(self, other: str) -> str:
        return (
            f"fit: {other} saves a run under the prefix {self._prefix!r} right now; wait for its end, end it, or give "
            "this run another prefix"
        )


def _is_file(number: int, path: str) -> bool:
    """Say whether a descriptor is of the file that has a name now."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(number), os.stat(path))
    return False
