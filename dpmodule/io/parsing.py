"""Parallel reading of numbers from CSV and LibSVM files in chunks, in C++ if the extension is available."""

from __future__ import annotations

import os
import re
import stat
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from .. import native
from .._files import likely_kind, refuse_device
from ..base import FileError, FileFormatError

Array = np.ndarray[Any, Any]
Parsed = TypeVar("Parsed")

_CHUNK_BYTES = 1 << 19
"""Number of bytes that are read and parsed together."""
_TAIL = 1 << 12
"""Number of bytes read after a chunk, for the end of its last line."""

_SLACK = 1.02
"""Factor by which more memory is allocated than the lines so far predict."""

_KINDS = {"float32": "f", "float64": "d", "int32": "i", "int64": "q"}

_MAX_COLUMNS = 2**53  # larger integers are not exact in float64
_QUERY = re.compile(rb"^([ \t]*\S+[ \t]+)qid:\d+(?!\S)")
_WORD = re.compile(rb"\S+")


class ParsedRows(NamedTuple):
    """Sparse rows of a file; ``starts[i]`` to ``starts[i + 1]`` are the values and columns of row i."""

    labels: Array
    values: Array
    columns: Array
    starts: Array


def input_files(path: str) -> list[str]:
    """Return the files of a path: several joined by ``;``, or all files of a folder."""
    files = []
    for entry in path.split(";"):
        if os.path.isdir(entry):
            files += sorted(
                os.path.join(entry, name) for name in os.listdir(entry) if not name.startswith(".")
            )
        else:
            files.append(entry)
    return files


class _Chunk(NamedTuple):
    """A range of bytes of a file, for the lines that begin in it."""

    path: str
    begin: int
    end: int
    held: bytes | None  # all bytes of a file that is not seekable
    share: float  # fraction of all files up to its end


class _BadNumberLine(Exception):
    """A line of a chunk that cannot be parsed."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(line, reason)
        self.line, self.reason = line, reason


def _chunks(paths: Sequence[str]) -> list[_Chunk]:
    """Cut files into chunks; special files, such as pipes, are read now."""
    chunks, done = [], 0
    for path in paths:
        held = None
        try:
            status = os.stat(path)
            size = status.st_size
            if not stat.S_ISREG(status.st_mode):
                refuse_device(path)
                held = Path(path).read_bytes()
                size = len(held)
        except OSError as error:
            raise _unreadable(path, error) from error
        step = _CHUNK_BYTES if held is None else size
        for begin in range(0, size, step):
            end = min(begin + step, size)
            chunks.append(_Chunk(path, begin, end, held, float(done + end)))
        done += size
    return [chunk._replace(share=chunk.share / done) for chunk in chunks]


def _unreadable(path: str, error: OSError) -> FileError:
    return FileError(error.errno, f"text file: {error.strerror}", path)


def _lines(chunk: _Chunk) -> bytes | memoryview:
    """Read the lines that begin in a chunk."""
    if chunk.held is not None:
        return chunk.held
    try:
        with open(chunk.path, "rb", buffering=0) as file:
            return _lines_between(file.fileno(), chunk.begin, chunk.end)
    except OSError as error:
        raise _unreadable(chunk.path, error) from error


def _lines_between(descriptor: int, begin: int, end: int) -> memoryview:
    start = max(0, begin - 1)  # the previous character shows if a line begins here
    data = os.pread(descriptor, end - start + _TAIL, start)
    inside = end - start - 1
    first = data.find(b"\n", 0, inside) + 1
    if begin and not first:
        return memoryview(b"")
    last = data.find(b"\n", inside)
    while last < 0 and (more := os.pread(descriptor, len(data), start + len(data))):
        last = more.find(b"\n")
        last += len(data) if last >= 0 else 0
        data += more
    return memoryview(data)[first if begin else 0 : last + 1 if last >= 0 else len(data)]


def _in_order(
    path: str, parse: Callable[[bytes | memoryview], Parsed], threads: int
) -> Iterator[tuple[Parsed, float]]:
    """Parse files in several threads; yield the result of each chunk, in order, and the fraction parsed so far."""
    chunks = _chunks(input_files(path))
    workers = 1 if native.core is None else min(threads, os.cpu_count() or 1, len(chunks))
    if workers <= 1:
        for chunk in chunks:
            yield _parsed(parse, chunk), chunk.share
        return
    waiting: deque[tuple[Future[Parsed], float]] = deque()
    with ThreadPoolExecutor(workers, "dpmodule-text") as pool:
        for chunk in chunks:
            waiting.append((pool.submit(_parsed, parse, chunk), chunk.share))
            if len(waiting) > 2 * workers:
                job, share = waiting.popleft()
                yield job.result(), share
        for job, share in waiting:
            yield job.result(), share


def _parsed(parse: Callable[[bytes | memoryview], Parsed], chunk: _Chunk) -> Parsed:
    text = _lines(chunk)
    if chunk.begin == 0 and (kind := likely_kind(bytes(text[:64]))):
        raise FileFormatError(f"{chunk.path}: line 1: {kind}")
    try:
        return parse(text)
    except _BadNumberLine as bad:
        line = bad.line
        for begin in range(0, chunk.begin, _CHUNK_BYTES):
            line += len(bytes(_lines(chunk._replace(begin=begin, end=begin + _CHUNK_BYTES))).splitlines())
        raise FileFormatError(f"{chunk.path}: line {line}: {bad.reason}") from None


class _GrowingArray:
    """An array that grows with every chunk of a file.

    Args:
        width: shape of one row.
    """

    def __init__(self, dtype: Any, width: tuple[int, ...] = ()) -> None:
        self._rows = np.empty((0, *width), dtype)
        self._count = 0

    def add(self, rows: Array, share: float) -> None:
        """Append rows; `share` is the fraction of all rows present after it."""
        end = self._count + len(rows)
        if end > len(self._rows):
            likely = end if share == 1 else int(end / share * _SLACK) + 1
            self._resize(likely)
        self._rows[self._count : end] = rows
        self._count = end

    def close(self) -> Array:
        """Return the array without spare memory."""
        if self._count < len(self._rows):
            self._resize(self._count)
        return self._rows

    def _resize(self, count: int) -> None:
        if self._count == 0:
            self._rows = np.empty((count, *self._rows.shape[1:]), self._rows.dtype)
        else:
            self._rows.resize(
                (count, *self._rows.shape[1:]), refcheck=False
            )  # remaps pages instead of copying


def read_csv(path: str, columns: int, dtype: Any, threads: int = 1) -> Array:
    """Read a file of numbers separated by commas.

    Numbers are rounded like Python's `float`, then to `dtype`.

    Shape:
        returns: (rows, columns), of type `dtype`.

    Args:
        path: the file, several joined by ``;``, or a folder.
        threads: number of threads that parse; 1 without the native extension.
    """
    numpy_type = np.dtype(dtype)
    table = _GrowingArray(numpy_type, (columns,))
    for rows, share in _in_order(path, partial(_csv, columns=columns, dtype=numpy_type), threads):
        table.add(rows, share)
    return table.close()


def _csv(text: bytes | memoryview, columns: int, dtype: np.dtype[Any]) -> Array:
    """Parse lines; lines that the extension rejects are parsed one by one."""
    if native.core is not None and len(text) >= 2 * columns - 1:  # shorter text has no complete row
        table = np.empty((len(text) // (2 * columns) + 1, columns), dtype)  # a number takes two characters
        rows = native.core.parse_csv(text, columns, _KINDS[dtype.name], table)
        if rows >= 0:
            return table[:rows]
    elif native.core is None:
        native.report()
    return _csv_by_line(bytes(text), columns, dtype)


def _csv_by_line(text: bytes, columns: int, dtype: np.dtype[Any]) -> Array:
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        fields = line.split(b",")
        if len(fields) != columns:
            shown = f"{len(fields)} numbers, expected {columns}, the size of the shape"
            raise _BadNumberLine(number, f"{shown}: {_shown(line)}")
        row: list[float] = []
        try:
            for field in fields:
                row.append(_whole(field, dtype) if dtype.kind == "i" else _real(field))  # noqa: PERF401
        except ValueError:
            at = len(row)
            text_at = (
                f"{_shown(fields[at])} is not a number of type {dtype}; it is number {at + 1} of the line"
            )
            raise _BadNumberLine(number, text_at) from None
        rows.append(row)
    with np.errstate(over="ignore"):  # too large numbers become infinite
        return np.array(rows, dtype).reshape(-1, columns)


def _real(text: bytes) -> float:
    if b"_" in text:  # Python allows these between digits
        raise ValueError(text)
    return float(text)


def _whole(text: bytes, dtype: np.dtype[Any]) -> int:
    value, limits = int(text), np.iinfo(dtype)
    if b"_" in text or not limits.min <= value <= limits.max:
        raise ValueError(text)
    return value


def _shown(text: bytes) -> str:
    return repr(text[:60].decode("utf-8", "replace").strip())


def read_libsvm(path: str, columns: int | None, threads: int = 1) -> ParsedRows:
    """Read a file of rows ``label column:value column:value ...``, columns counted from 0.

    A weight after the label (``label:weight``), a query number after it (``label qid:3``) and text after ``#`` are
    ignored. Numbers are rounded like Python's `float`, then to float32.

    Args:
        path: the file, several joined by ``;``, or a folder.
        columns: number of columns; None: any column may occur.
        threads: number of threads that parse; 1 without the native extension.
    """
    limit = _MAX_COLUMNS if columns is None else columns
    growing = [_GrowingArray(dtype) for dtype in ("f4", "i8", "f4", "i8")]
    for arrays, share in _in_order(path, partial(_libsvm, columns=limit), threads):
        for target, array in zip(growing, arrays, strict=True):
            target.add(array, share)
    labels, lengths, values, column_numbers = (array.close() for array in growing)
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return ParsedRows(labels, values, column_numbers, starts)


def _libsvm(text: bytes | memoryview, columns: int) -> tuple[Array, ...]:
    """Parse lines; return labels, numbers of entries, values and columns."""
    if native.core is None:
        native.report()
        return _libsvm_by_line(bytes(text), columns)
    # the shortest are "1" and " 1:1", each with a separator
    rows, entries = len(text) // 2 + 1, len(text) // 4 + 1
    labels, lengths = np.empty(rows, np.float32), np.empty(rows, np.int64)
    values, column_numbers = np.empty(entries, np.float32), np.empty(entries, np.int64)
    counts = native.core.parse_libsvm(text, columns, labels, lengths, values, column_numbers)
    if counts is None:
        return _libsvm_by_line(bytes(text), columns)
    rows, entries = counts
    return labels[:rows], lengths[:rows], values[:entries], column_numbers[:entries]


def _libsvm_by_line(text: bytes, columns: int) -> tuple[Array, ...]:
    labels, lengths, values, column_numbers = [], [], [], []
    for number, line in enumerate(text.split(b"\n"), 1):
        line = _QUERY.sub(lambda match: match[1].ljust(len(match[0])), line.partition(b"#")[0])
        for position, word in enumerate(_WORD.finditer(line)):
            head, colon, tail = word[0].partition(b":")
            try:
                first, second = _real(head), _real(tail) if colon or position else 0.0
            except ValueError:
                raise _bad_libsvm(number, word) from None
            if position == 0:
                labels.append(first)
                lengths.append(0)
                continue
            if not (0 <= first < columns and first.is_integer()):
                raise _bad_libsvm(number, word, f"columns are whole numbers from 0 to {columns - 1}")
            lengths[-1] += 1
            column_numbers.append(int(first))
            values.append(second)
    with np.errstate(over="ignore"):  # too large numbers become infinite
        return (
            np.array(labels, "f4"),
            np.array(lengths, "i8"),
            np.array(values, "f4"),
            np.array(column_numbers, "i8"),
        )


def _bad_libsvm(
    number: int, word: re.Match[bytes], rule: str = "expected column:value after the label"
) -> _BadNumberLine:
    return _BadNumberLine(
        number, f"{_shown(word[0])}: {rule}; it is at character {word.start() + 1} of the line"
    )
