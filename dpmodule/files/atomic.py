"""Saving a file so that a kill at any moment leaves either the old file or the new one."""

from __future__ import annotations

import importlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

from ..base import FileError

fcntl: Any
try:
    fcntl = importlib.import_module("fcntl")
except ImportError:  # not a POSIX system: left-overs of a killed process stay
    fcntl = None

Writer = Callable[[IO[bytes]], object]

_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{8}\.tmp", re.DOTALL)


def write_atomically(path: str | os.PathLike[str], data: bytes | Writer) -> None:
    """Replace the file at `path` by `data` in one step.

    The data go to a temporary file in the same folder, which is flushed to the disk and then renamed over
    `path`; the folder is flushed last. If anything fails the former file is untouched. Temporary files that a
    killed process left behind are removed first. A `path` that is no regular file (a pipe, ``/dev/null``) is
    written directly.

    Args:
        path: file to replace; its permissions are kept, and a symbolic link stays one.
        data: the content, or a function that writes it to the open file it is given.

    Example:
        >>> write_atomically("weights.bin", b"1234")
    """
    target = os.path.realpath(os.fspath(path))
    writer: Writer = (lambda file: file.write(data)) if isinstance(data, bytes) else data
    with naming_errors(target):
        if os.path.exists(target) and not os.path.isfile(target):
            with open(target, "wb") as file:
                writer(file)
            return
        folder, name = os.path.split(target)
        remove_leftovers(folder, lambda other: other == name)
        _replace(target, writer)


def sync_folder(folder: str) -> None:
    """Flush a folder's entries to the disk, so that a rename survives a power cut (not on Windows)."""
    if os.name == "nt":
        return
    number = os.open(folder or ".", os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _replace(target: str, writer: Writer) -> None:
    """Write a temporary file beside `target` and rename it."""
    temporary, file = open_temporary(target)
    try:
        writer(file)
        file.flush()
        os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
        # Windows does not rename open files; elsewhere the lock is kept until the name is final
        if os.name == "nt":
            file.close()
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        with suppress(OSError):  # the first error, if any, is the one to report
            file.close()
    sync_folder(os.path.dirname(target))


def open_temporary(target: str) -> tuple[str, IO[bytes]]:
    """Create a locked temporary file whose name says what it belongs to."""
    folder, name = os.path.split(target)
    while True:
        temporary = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.tmp")
        try:
            number = os.open(
                temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o666
            )
        except FileExistsError:
            continue
        file = os.fdopen(number, "wb")
        if fcntl is not None:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(number, fcntl.LOCK_EX)
        if os.path.exists(temporary):  # else another process took it for a left-over before it was locked
            return temporary, file
        file.close()


def remove_leftovers(folder: str, wanted: Callable[[str], bool]) -> None:
    """Remove temporary files of wanted targets (base names) without a lock: their writer is dead."""
    if fcntl is None:
        return
    for name in os.listdir(folder or "."):
        match = _TEMPORARY.fullmatch(name)
        if match is not None and wanted(match[1]):
            with suppress(OSError), open(os.path.join(folder, name), "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(file.name)


@contextmanager
def naming_errors(target: str) -> Iterator[None]:
    """Turn an OSError into a FileError that names the file."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        reason = f"cannot save: {error.strerror or error}"
        raise FileError(error.errno or 0, reason, target) from error
