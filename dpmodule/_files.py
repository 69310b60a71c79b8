"""Files: what one is, and writing one or several so that a kill at any moment leaves the old or the new.

How several switch together. Every new file is first written whole beside its target, under a temporary name, and synced
to the disk. Then a small journal, ``.<name>.<token>.commit``, which lists temporaries and targets, appears by a
rename: from that moment the new set counts. Now the temporaries are renamed to their targets, and the journal
goes.

A kill before the journal appears leaves the old set, untouched. A kill after it leaves a set that is complete
but partly under temporary names; `finish_commit`, which every reader calls first, finishes the renames. The targets
are plain files throughout: programs that know nothing of this read them as usual.

What killed saves leave behind is removed by the next `write_set` of the same family of files.
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

from .base import ArgumentError, FileError

_LEAST = 4
"""How many bytes must agree before they mean something."""

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
)


def likely_kind(head: bytes) -> str:
    """Say in words what a file is by its first bytes, "" where they tell nothing.

    Args:
        head: the beginning of the file; 64 bytes are enough, fewer tell less.
    """
    if not head:
        return "the file is empty"
    start = head[:64].lstrip(b"\xef\xbb\xbf \r\n\t").lower()
    for mark, meaning in _MARKS:
        if start.startswith(mark) or (len(start) >= _LEAST and mark.startswith(start)):
            return meaning
    return ""


def regular_file(path: str, flags: int) -> int:
    """Open a regular file; to be given to `open` as its `opener`.

    Opening a named pipe that nobody writes to blocks, and some devices, such as ``/dev/zero``, never end.

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
    """Check that a path does not lead to a device; data may come from a pipe, which ends."""
    if _is_device(os.stat(path).st_mode):
        raise FileError(errno.EINVAL, "this is a device, expected a file or a pipe", path)


def _is_device(mode: int) -> bool:
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


fcntl: Any
try:
    fcntl = importlib.import_module("fcntl")
except (
    ImportError
):  # Windows: left-overs of a killed process stay, and two saves into one folder are not kept apart
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


_JOURNAL = re.compile(r"\..+\.[0-9a-f]{8}\.commit", re.DOTALL)
_JOURNAL_BYTES = 1 << 20


def write_set(
    files: Mapping[str, bytes | Writer], name: str, is_family: Callable[[str], bool] = lambda name: False
) -> None:
    """Write files that replace their old versions together.

    Args:
        files: path -> content, or a function that writes it to the open file it is given; all in one folder.
        name: base name for the journal, such as "net-0001".
        is_family: tells from a base name whether what a killed save left for it is to be removed too;
            left-overs for `files` and `name` always are.
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
            if os.name == "nt":  # Windows renames no open files; elsewhere they stay open, for their locks
                opened.close()
            journal = _write_journal(folder, name, moves, temporaries)
        except BaseException:
            # the last one first: if it is the journal, what it lists must not go before it
            for path in reversed(temporaries):
                with suppress(OSError):
                    os.unlink(path)
            raise
        _finish_twice(journal, moves)


def finish_commit(path: str | os.PathLike[str]) -> None:
    """Finish a save of `path` that was killed after it had become valid; to be called before reading it.

    Does nothing when there is no such save.
    """
    folder, name = os.path.split(os.fspath(path))
    _finish_all(folder, {name})


def read_committed(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file as the last valid save left it (see `finish_commit`)."""
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
    """Write a new file down to the disk under a temporary name; return its base name."""
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
    # a write that failed is tried again by close; that failure has been raised already
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
    """Finish a save; try again if that fails, for its set is valid already."""
    try:
        _finish(journal, moves)
    except OSError:
        _finish(journal, moves)


def _finish(journal: str, moves: dict[str, str]) -> None:
    """Do the renames that a journal lists, then remove it. Safe to repeat, interrupt and do in parallel."""
    folder = os.path.dirname(journal)
    for target, temporary in moves.items():
        path = os.path.join(folder, target)
        # a missing temporary has been renamed before, by the killed save or by another reader
        with naming_errors(path), suppress(FileNotFoundError):
            os.replace(os.path.join(folder, temporary), path)
    # a journal that stays does no harm; one that goes before the renames have come to the disk would
    with suppress(OSError):
        sync_folder(folder)
        os.unlink(journal)


def _read_journal(path: str) -> dict[str, str] | None:
    """Return target -> temporary, both base names; None if the journal is gone or is none of ours."""
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
    except OSError:  # whoever reads or writes the file next will tell
        return
    for name in sorted(names):
        if _JOURNAL.fullmatch(name):
            journal = os.path.join(folder, name)
            moves = _read_journal(journal) if os.path.isfile(journal) else None
            if moves and not targets.isdisjoint(moves):
                with naming_errors(journal):
                    sync_folder(folder)  # the journal must come to the disk before the renames
                _finish(journal, moves)


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Keep other saves out of a folder; the lock of a killed process is gone with it."""
    with naming_errors(folder or "."):
        number = os.open(folder or ".", os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems lock no folders
            fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        with suppress(OSError):  # closing is not enough if a process was forked meanwhile: it shares the lock
            fcntl.flock(number, fcntl.LOCK_UN)
        os.close(number)
