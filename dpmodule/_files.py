"""File types, and atomic writing of one or several files: a kill at any moment leaves the old or the new ones.

Several files switch together as follows. Every new file is first written completely under a temporary name in the
folder of its target and synced to the disk. Then a small journal, ``.<name>.<token>.commit``, which lists temporaries
and targets, appears by a rename: from that moment the new set is valid. Finally the temporaries are renamed to their
targets, and the journal is removed.

A kill before the journal appears leaves the old set untouched. A kill after it leaves a complete set, partly under
temporary names; `finish_commit`, which every reader calls first, finishes the renames. The targets are plain files:
other programs read them as usual.

The next `write_set` of the same family of files removes the leftovers of killed saves.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Any

from .base import ArgumentError, FileError, SignatureError

_LEAST = 4
"""Least number of bytes that must match."""

_MARKS = (
    (b"version https://git-lfs", "this is a Git LFS pointer; fetch the file itself with 'git lfs pull'"),
    (b"<!doctype", "this is an HTML page, perhaps a failed download"),
    (b"<html", "this is an HTML page, perhaps a failed download"),
    (b"<?xml", "this is an XML page, perhaps a failed download"),
    (
        b"pk\x03\x04",
        "this is a zip archive, perhaps of NumPy or torch; use numpy.load or interop.load_torch_state",
    ),
    (b"\x1f\x8b", "this is gzip-compressed; decompress it first"),
    (b"\x93numpy", "this is a NumPy file; use numpy.load"),
    (b"{", "this looks like JSON, perhaps the symbol file"),
    (b"\x80", "this is a Python pickle, which is not read here"),
    (b"\x12\x01" + bytes(6), "these are arrays or parameters; use nd.load"),
    # version of the format, then the name of the writer
    *((bytes((8, version, 18)), "this is an ONNX file; use onnx.import_model") for version in range(3, 16)),
)


def likely_kind(head: bytes) -> str:
    """Return a description of a file from its first bytes, "" if they are unknown.

    Args:
        head: beginning of the file; 64 bytes are enough.
    """
    if not head:
        return "the file is empty"
    start = head[:64].lstrip(b"\xef\xbb\xbf \r\n\t").lower()
    for mark, meaning in _MARKS:
        if start.startswith(mark) or (len(start) >= _LEAST and mark.startswith(start)):
            return meaning
    return ""


def regular_file(path: str, flags: int) -> int:
    """Open a regular file; an `opener` for `open`.

    Opening a named pipe without a writer blocks, and some devices, such as ``/dev/zero``, never end.

    Returns:
        The descriptor.

    Example:
        >>> with open("weights.bin", "wb") as file:
        ...     _ = file.write(b"1234")
        >>> with open("weights.bin", "rb", opener=regular_file) as file:
        ...     file.read()
        b'1234'
    """
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # `open` itself refuses folders
        kind = "a named pipe" if stat.S_ISFIFO(mode) else "a device" if _is_device(mode) else "a socket"
        raise FileError(errno.EINVAL, f"this is {kind}, expected a regular file", path)
    return os.open(path, flags)


def refuse_device(path: str) -> None:
    """Raise if a path is a device; data may come from a pipe, which ends."""
    if _is_device(os.stat(path).st_mode):
        raise FileError(errno.EINVAL, "this is a device, expected a file or a pipe", path)


def _is_device(mode: int) -> bool:
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


fcntl: Any
try:
    fcntl = importlib.import_module("fcntl")
except (
    ImportError
):  # Windows: leftovers of killed processes stay, and saves into one folder do not exclude each other
    fcntl = None

Writer = Callable[[IO[bytes]], object]

_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{8}\.tmp", re.DOTALL)


def path_text(path: Any, argument: str) -> str:
    """Return a path as a string.

    Args:
        argument: name of the argument, for the error.

    Raises:
        SignatureError: `path` is neither a string nor a path.
    """
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise SignatureError(f"{argument} is {path!r}, expected a path, such as 'folder/name'")
    return text


def write_atomically(path: str | os.PathLike[str], data: bytes | Writer) -> None:
    """Replace the file at `path` by `data` atomically.

    The data are written to a temporary file in the same folder, which is flushed to the disk and then renamed to
    `path`; the folder is flushed last. After an error the old file is untouched. Temporary files of killed processes
    are removed first. A `path` that is not a regular file (a pipe, ``/dev/null``) is written directly.

    Args:
        path: file to replace; its permissions are kept, and a symbolic link stays one.
        data: the content, or a function that writes it to an open file.

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
    """Write a temporary file in the folder of `target` and rename it."""
    temporary, file = open_temporary(target)
    try:
        writer(file)
        file.flush()
        os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
        # Windows cannot rename open files; elsewhere the lock is held until the rename
        if os.name == "nt":
            file.close()
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        with suppress(OSError):  # report the first error, if any
            file.close()
    sync_folder(os.path.dirname(target))


def open_temporary(target: str) -> tuple[str, IO[bytes]]:
    """Create a locked temporary file whose name contains its target's."""
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
        if os.path.exists(temporary):  # else another process removed it as a leftover before it was locked
            return temporary, file
        file.close()


def remove_leftovers(folder: str, wanted: Callable[[str], bool]) -> None:
    """Remove unlocked temporary files of wanted targets (base names): their writers are dead."""
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


_JOURNAL = re.compile(r"\..+\.[0-9a-f]{8}\.commit", re.DOTALL)
_JOURNAL_BYTES = 1 << 20


def write_set(
    files: Mapping[str, bytes | Writer], name: str, is_family: Callable[[str], bool] = lambda name: False
) -> None:
    """Write files that replace their old versions together.

    Args:
        files: path -> content, or a function that writes it to an open file; all in one folder.
        name: base name for the journal, such as "net-0001".
        is_family: True for further base names whose leftovers of killed saves are removed, in addition to
            `files` and `name`.
    """
    folders = {os.path.dirname(path) for path in files}
    if len(folders) != 1:
        raise ArgumentError(f"files is {sorted(files)}, expected at least one path, all in one folder")
    folder = folders.pop()
    contents = {os.path.basename(path): content for path, content in files.items()}
    with ExitStack() as opened:
        if fcntl is not None:
            opened.enter_context(_locked(folder))
        _finish_all(folder, set(contents))
        remove_leftovers(folder, lambda other: other in contents or other == name or is_family(other))
        temporaries: list[str] = []
        try:
            moves = {
                target: _write(folder, target, contents[target], temporaries, opened) for target in contents
            }
            if os.name == "nt":  # Windows cannot rename open files; elsewhere they stay open, for their locks
                opened.close()
            journal = _write_journal(folder, name, moves, temporaries)
        except BaseException:
            # the journal, if written, is last and must go before the files it lists
            for path in reversed(temporaries):
                with suppress(OSError):
                    os.unlink(path)
            raise
        _finish_twice(journal, moves)


def finish_commit(path: str | os.PathLike[str]) -> None:
    """Finish a save of `path` that was killed after it became valid; call it before reading.

    Without such a save it does nothing.
    """
    folder, name = os.path.split(os.fspath(path))
    _finish_all(folder, {name})


def read_committed(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file after the last valid save (see `finish_commit`)."""
    finish_commit(path)
    try:
        with open(path, "rb", opener=regular_file) as file:
            return file.read()
    except OSError as error:
        reason = f"cannot read: {error.strerror or error}"
        raise FileError(error.errno or 0, reason, os.fspath(path)) from error


def _write(
    folder: str, target: str, content: bytes | Writer, temporaries: list[str], opened: ExitStack
) -> str:
    """Write a new file to the disk under a temporary name; return its base name."""
    with naming_errors(os.path.join(folder, target)):
        temporary, file = open_temporary(os.path.join(folder, target))
        temporaries.append(temporary)
        opened.push(lambda *_: _close(file))
        if callable(content):
            content(file)
        else:
            file.write(content)
        file.flush()
        os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            os.chmod(temporary, stat.S_IMODE(os.stat(os.path.join(folder, target)).st_mode))
    return os.path.basename(temporary)


def _close(file: IO[bytes]) -> None:
    # close retries a failed write, whose error has been raised already
    with suppress(OSError):
        file.close()


def _write_journal(folder: str, name: str, moves: dict[str, str], temporaries: list[str]) -> str:
    """Make the new set valid; return the journal's path."""
    text = json.dumps({"version": 1, "moves": moves}).encode()
    with ExitStack() as opened:
        temporary = os.path.join(folder, _write(folder, name, text, temporaries, opened))
    journal = temporary.removesuffix(".tmp") + ".commit"
    with naming_errors(os.path.join(folder, name)):
        temporaries.append(journal)
        os.replace(temporary, journal)
        sync_folder(folder)
    return journal


def _finish_twice(journal: str, moves: dict[str, str]) -> None:
    """Finish a save, whose set is valid already; retry once on failure."""
    try:
        _finish(journal, moves)
    except OSError:
        _finish(journal, moves)


def _finish(journal: str, moves: dict[str, str]) -> None:
    """Do the renames that a journal lists, then remove it. Safe to repeat, interrupt and run in parallel."""
    folder = os.path.dirname(journal)
    for target, temporary in moves.items():
        path = os.path.join(folder, target)
        # a missing temporary was renamed by the killed save or by another reader
        with naming_errors(path), suppress(FileNotFoundError):
            os.replace(os.path.join(folder, temporary), path)
    # a remaining journal does no harm; removing it before the renames are on the disk would
    with suppress(OSError):
        sync_folder(folder)
        os.unlink(journal)


def _read_journal(path: str) -> dict[str, str] | None:
    """Return target -> temporary, both base names; None if the journal is gone or foreign."""
    try:
        with open(path, "rb") as file:
            moves = json.loads(file.read(_JOURNAL_BYTES))["moves"]
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None
    if not isinstance(moves, dict):
        return None
    names = [*moves, *moves.values()]
    return moves if all(isinstance(n, str) and n == os.path.basename(n) for n in names) else None


def _finish_all(folder: str, targets: set[str]) -> None:
    """Finish every valid but unfinished save in `folder` that concerns one of `targets`."""
    try:
        names = os.listdir(folder or ".")
    except OSError:  # the next access to the file reports it
        return
    for name in sorted(names):
        if _JOURNAL.fullmatch(name):
            journal = os.path.join(folder, name)
            moves = _read_journal(journal) if os.path.isfile(journal) else None
            if moves and not targets.isdisjoint(moves):
                with naming_errors(journal):
                    sync_folder(folder)  # the journal must be on the disk before the renames
                _finish(journal, moves)


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Lock a folder against other saves; the lock ends with the process."""
    with naming_errors(folder or "."):
        number = os.open(folder or ".", os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems cannot lock folders
            fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        with suppress(OSError):  # closing does not suffice: a process forked meanwhile shares the lock
            fcntl.flock(number, fcntl.LOCK_UN)
        os.close(number)
