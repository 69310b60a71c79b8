"""The bytes of data files: plain files and ranges of them, gzip files, and output of programs."""

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
"""Longest time between the end of a command's output and its exit, in seconds."""


@dataclass(frozen=True)
class FileRange:
    """Range of a file: the lines that begin in a range of its bytes.

    Args:
        begin: first byte.
        end: end byte, exclusive; None: the end of the file.
        skip: number of lines to skip at the beginning, since they were read before.
        number: number of the range in a run.
    """

    path: str
    begin: int = 0
    end: int | None = None
    skip: int = field(default=0, repr=False)
    number: int = field(default=0, repr=False)


class ByteSource(Protocol):
    """A source of bytes."""

    def readinto(self, memory: memoryview) -> int:
        """Read bytes into memory, and return their number; 0 at the end."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


def check_files(filelist: Any) -> list[str]:
    """Return the paths of a list of files, after checking that they are readable.

    Args:
        filelist: paths of text files in reading order.

    Raises:
        ArgumentError: the list is empty, a string, or has items that are not paths.
        FileError: a file is missing, is a folder, or is not readable.
    """
    if isinstance(filelist, (str, bytes, os.PathLike)) or not isinstance(filelist, Iterable):
        raise ArgumentError(f"filelist is {filelist!r}, expected a list of paths, such as [{filelist!r}]")
    paths = []
    for path in filelist:
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
            raise ArgumentError(f"filelist contains {path!r}, expected paths")
        paths.append(os.fsdecode(path))
    if not paths:
        raise ArgumentError("filelist is empty, expected one or more paths")
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
    """Split files by bytes into ranges that distribute the work evenly.

    Files that can only be read from the beginning are not split: names with ``.gz``, and all files if a program reads
    them. The ranges are in the order of the files and of their bytes.

    Args:
        files: paths.
        workers: number of workers.
        pipe_command: program that reads each file; "cat" for none.

    Raises:
        FileError: the size of a file cannot be read.
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
    """Open a range for reading."""
    is_range = part.begin > 0 or part.end is not None
    if is_range and (pipe_command != "cat" or part.path.endswith(".gz")):
        raise ArgumentError(
            f"{part.path}: bytes {part.begin} to {part.end} cannot be read alone, since the file "
            f"{'is compressed' if pipe_command == 'cat' else 'is read by a program'}; read the whole file"
        )
    source: ByteSource
    if pipe_command != "cat":
        source = _CommandOutput(part.path, pipe_command)
    else:
        source = _LineRange(part) if is_range else _WholeFile(part.path)
    return _LineSkipper(source, part.skip) if part.skip else source


def count_lines(path: str, end: int) -> int:
    """Return the number of lines that end before a byte of a file."""
    count = 0
    with file_errors(path), open(path, "rb") as file:
        while end > 0 and (block := file.read(min(end, _BLOCK_BYTES))):
            count += block.count(b"\n")
            end -= len(block)
    return count


class _LineSkipper:
    """A source without its first lines."""

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
        """Return the number of bytes of a block that belong to skipped lines."""
        count = block.count(b"\n", 0, size)
        if count < self._left:
            self._left -= count
            return size
        at = 0
        for _ in range(self._left):
            at = block.index(b"\n", at) + 1
        self._left = 0
        return at

    def close(self) -> None:
        self._source.close()


class _WholeFile:
    """A whole file; gzip files are decompressed."""

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
                self._file.readline()  # skip the rest of the previous line
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
    """Output of a program with the file as its standard input; it ends with the reading process."""

    def __init__(self, path: str, command: str) -> None:
        self._path, self._command = path, command
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`; a pipe could block
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
                raise FileError(f"{path}: pipe_command {command!r} cannot be started: {reason}") from error
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
        stderr = self._errors.read().decode(errors="backslashreplace").strip()
        ended = f"ended with exit status {status}" if status > 0 else f"was killed by signal {-status}"
        raise FileError(
            f"{self._path}: pipe_command {self._command!r} {ended}; "
            + (f"it wrote to stderr: {stderr}" if stderr else "it wrote nothing to stderr")
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
    """Raise errors of the system in the block as FileError with the file's name."""
    try:
        yield
    except FileError:
        raise
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FileFormatError(f"{path}: not a complete gzip file: {error}") from error
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        number, reason = getattr(error, "errno", None), getattr(error, "strerror", None)
        raise FileError(number or 0, reason or str(error), path) from error
