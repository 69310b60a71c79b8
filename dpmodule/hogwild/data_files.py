"""The bytes of data files: plain ones and ranges of them, gzip, and what a program makes of them."""

from __future__ import annotations

import gzip
import os
import shlex
import subprocess
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

from .._files import refuse_device
from ..base import ArgumentError, FileError, FileFormatError
from ..streams.child import Lifeline

_BLOCK_BYTES = 1 << 20
_RANGES_PER_WORKER = 4
_MIN_RANGE_BYTES = 4096
_STDERR_BYTES = 2000

_EXIT_TIMEOUT_S = 10.0
"""How long a command may run on after it has closed its output, in seconds."""


@dataclass(frozen=True)
class FileRange:
    """A piece of a file: the lines that begin in a range of its bytes.

    Args:
        begin: first byte.
        end: byte behind the last; None for the end of the file.
        skip: how many of its lines are passed over at the beginning, since they were read before.
        number: which of the parts of a run it is.
    """

    path: str
    begin: int = 0
    end: int | None = None
    skip: int = field(default=0, repr=False)
    number: int = field(default=0, repr=False)


class ByteSource(Protocol):
    """Bytes from beginning to end."""

    def readinto(self, memory: memoryview) -> int:
        """Fill the memory as far as there are bytes now; 0 at the end."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


def check_files(filelist: Any) -> list[str]:
    """Return the paths of a list of files, all of which are there.

    Args:
        filelist: paths of text files, in the order in which they are read.

    Raises:
        ArgumentError: the list is empty, one string, or has something else than paths in it.
        FileError: a file is missing, is a folder, or may not be read.
    """
    if isinstance(filelist, (str, bytes, os.PathLike)) or not isinstance(filelist, Iterable):
        raise ArgumentError(f"filelist is {filelist!r}, expected a list of paths, such as [{filelist!r}]")
    paths = []
    for path in filelist:
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
            raise ArgumentError(f"filelist has {path!r} in it, expected paths")
        paths.append(os.fsdecode(path))
    if not paths:
        raise ArgumentError("filelist is empty, expected one path or more")
    for path in paths:
        with file_errors(path):
            if os.path.isdir(path):
                raise IsADirectoryError(21, "is a folder, expected a file")
            if not os.access(path, os.R_OK):
                os.stat(path)
                raise PermissionError(13, "Permission denied")
            refuse_device(path)
    return paths


def split_parts(files: list[str], workers: int, pipe_command: str = "cat") -> list[FileRange]:
    """Cut files by bytes into parts that keep a number of workers equally busy.

    Files that can only be read from their beginning stay whole: those whose name ends with ``.gz``, and all that go
    through a program. Parts are in the order of the files and of their bytes.

    Args:
        files: paths.
        workers: how many take parts in turn.
        pipe_command: what files go through; "cat" for nothing.

    Raises:
        FileError: a file cannot be looked at.
    """
    if pipe_command != "cat":
        return [FileRange(path) for path in files]
    sizes = []
    for path in files:
        with file_errors(path):
            sizes.append(os.path.getsize(path))
    total = sum(sizes)
    size = max(-(-total // (_RANGES_PER_WORKER * workers)), min(_MIN_RANGE_BYTES, -(-total // workers)), 1)
    parts = []
    for path, bytes_of in zip(files, sizes):
        pieces = 1 if path.endswith(".gz") else max(1, -(-bytes_of // size))
        cuts = [bytes_of * i // pieces for i in range(1, pieces)]
        parts += [FileRange(path, *ends) for ends in zip([0, *cuts], [*cuts, None])]
    return parts


def open_part(part: FileRange, pipe_command: str = "cat") -> ByteSource:
    """Open a part for reading."""
    is_range = part.begin > 0 or part.end is not None
    if is_range and (pipe_command != "cat" or part.path.endswith(".gz")):
        raise ArgumentError(
            f"{part.path}: bytes {part.begin} to {part.end} cannot be read alone, since the file "
            f"{'is compressed' if pipe_command == 'cat' else 'goes through a program'}; read it as a whole"
        )
    source: ByteSource
    if pipe_command != "cat":
        source = _CommandOutput(part.path, pipe_command)
    else:
        source = _LineRange(part) if is_range else _WholeFile(part.path)
    return _LineSkipper(source, part.skip) if part.skip else source


def count_lines(path: str, end: int) -> int:
    """Return how many lines end before a byte of a file."""
    found = 0
    with file_errors(path), open(path, "rb") as file:
        while end > 0 and (block := file.read(min(end, _BLOCK_BYTES))):
            found += block.count(b"\n")
            end -= len(block)
    return found


class _LineSkipper:
    """What comes behind the first lines of a source."""

    def __init__(self, source: ByteSource, lines: int) -> None:
        self._source = source
        self._left = lines
        self._rest = memoryview(b"")
        self.begin: int = getattr(source, "begin", 0)

    def readinto(self, memory: memoryview) -> int:
        while self._left:
            block = bytearray(_BLOCK_BYTES)
            size = self._source.readinto(memoryview(block))
            if size == 0:
                self._left = 0
            self._rest = memoryview(block)[self._skip(block, size) : size]
        if not self._rest:
            return self._source.readinto(memory)
        count = min(len(memory), len(self._rest))
        memory[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def _skip(self, block: bytearray, size: int) -> int:
        """Return how many bytes of a block are lines to be passed over."""
        found = block.count(b"\n", 0, size)
        if found < self._left:
            self._left -= found
            return size
        at = 0
        for _ in range(self._left):
            at = block.index(b"\n", at) + 1
        self._left = 0
        return at

    def close(self) -> None:
        self._source.close()


class _WholeFile:
    """A file as it is; of gzip, of one member or several, what it holds."""

    def __init__(self, path: str) -> None:
        self._path = path
        with file_errors(path):
            is_packed = path.endswith(".gz")
            self._file: Any = gzip.open(path, "rb") if is_packed else open(path, "rb", buffering=0)  # noqa: SIM115

    def readinto(self, memory: memoryview) -> int:
        with file_errors(self._path):
            return self._file.readinto(memory) or 0

    def close(self) -> None:
        self._file.close()


class _LineRange:
    """The lines of a file that begin in a range of bytes."""

    def __init__(self, part: FileRange) -> None:
        self._part = part
        with file_errors(part.path):
            self._file = open(part.path, "rb")  # noqa: SIM115 - closed by `close`
            if part.begin > 0:
                self._file.seek(part.begin - 1)
                self._file.readline()  # the end of the line that begins before
            self.begin = self._at = self._file.tell()
        self._is_in_line = False

    def readinto(self, memory: memoryview) -> int:
        end = self._part.end
        with file_errors(self._part.path):
            if end is None:
                return self._file.readinto(memory)
            if self._at < end:
                count = self._file.readinto(memory[: end - self._at])
                self._is_in_line = count > 0 and memory[count - 1] != 10
            elif self._is_in_line:
                line = self._file.readline(len(memory))
                count = len(line)
                memory[:count] = line
                self._is_in_line = count > 0 and not line.endswith(b"\n")
            else:
                count = 0
        self._at += count
        return count

    def close(self) -> None:
        self._file.close()


class _CommandOutput:
    """What a program writes that has the file as its standard input; it ends with the process that reads it."""

    def __init__(self, path: str, command: str) -> None:
        self._path, self._command = path, command
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`; a pipe could fill up
        with file_errors(path), open(path, "rb") as file:
            self._lifeline = Lifeline()
            try:
                self._process: subprocess.Popen[bytes] = subprocess.Popen(
                    shlex.split(command),
                    stdin=file,
                    stdout=subprocess.PIPE,
                    stderr=self._errors,
                    bufsize=0,
                    pass_fds=(self._lifeline.child_fd,),
                )
            except (OSError, ValueError) as error:
                self._errors.close()
                self._lifeline.close()
                reason = getattr(error, "strerror", None) or str(error)
                raise FileError(f"{path}: pipe_command {command!r} cannot be run: {reason}") from error
        self._lifeline.arm(self._process.pid)

    def readinto(self, memory: memoryview) -> int:
        output: Any = self._process.stdout
        count: int = output.readinto(memory)
        if count == 0:
            self._finish()
        return count

    def _finish(self) -> None:
        try:
            status = self._process.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise FileError(
                f"{self._path}: pipe_command {self._command!r} closed its output but did not end within "
                f"{_EXIT_TIMEOUT_S:g} s"
            ) from error
        if status == 0:
            return
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - _STDERR_BYTES))
        said = self._errors.read().decode(errors="backslashreplace").strip()
        ended = f"ended with exit status {status}" if status > 0 else f"was killed by signal {-status}"
        raise FileError(
            f"{self._path}: pipe_command {self._command!r} {ended}; "
            + (f"it wrote to stderr: {said}" if said else "it wrote nothing to stderr")
        )

    def close(self) -> None:
        if self._process.stdout is not None:
            self._process.stdout.close()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._errors.close()
        self._lifeline.close()


@contextmanager
def file_errors(path: str) -> Iterator[None]:
    """Raise what the system refuses inside the block as FileError with the file's name."""
    try:
        yield
    except FileError:
        raise
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FileFormatError(f"{path}: not a complete gzip file: {error}") from error
    except (OSError, ValueError) as error:  # ValueError: a name with the character 0
        number, reason = getattr(error, "errno", None), getattr(error, "strerror", None)
        raise FileError(number or 0, reason or str(error), path) from error
