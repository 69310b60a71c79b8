"""Reading numbers from CSV and LibSVM files: in pieces, side by side, in C++ where there is the extension."""

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
"""Bytes that are read and parsed at once."""
_TAIL = 1 << 12
"""Bytes behind a piece that are read with it, for the end of its last line."""

_SLACK = 1.02
"""How much more memory is set aside than the lines so far let expect."""

_KINDS = {"float32": "f", "float64": "d", "int32": "i", "int64": "q"}

_MAX_COLUMNS = 2**53  # what a float64 tells apart
_QUERY = re.compile(rb"^([ \t]*\S+[ \t]+)qid:\d+(?!\S)")
_WORD = re.compile(rb"\S+")


class ParsedRows(NamedTuple):
    """Sparse rows of a file: values and columns of row i are those from ``starts[i]`` to ``starts[i + 1]``."""

    labels: Array
    values: Array
    columns: Array
    starts: Array


def input_files(path: str) -> list[str]:
    """Return the files that a path stands for: several joined by ``;``, and all files of a folder."""
    found = []
    for each in path.split(";"):
        if os.path.isdir(each):
            found += sorted(os.path.join(each, name) for name in os.listdir(each) if not name.startswith("."))
        else:
            found.append(each)
    return found


class _Chunk(NamedTuple):
    """Some of the bytes of a file: the lines that begin there are meant."""

    path: str
    begin: int
    end: int
    held: bytes | None  # all of them, where the file cannot be read from several places
    share: float  # how much of all files has been read with it


class _BadNumberLine(Exception):
    """A line of a piece that cannot be read."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(line, reason)
        self.line, self.reason = line, reason


def _chunks(paths: Sequence[str]) -> list[_Chunk]:
    """Cut files into pieces; what is no plain file, such as a pipe, is read now."""
    found, done = [], 0
    for path in paths:
        held = None
        try:
            facts = os.stat(path)
            size = facts.st_size
            if not stat.S_ISREG(facts.st_mode):
                refuse_device(path)
                held = Path(path).read_bytes()
                size = len(held)
        except OSError as error:
            raise _unreadable(path, error) from error
        step = _CHUNK_BYTES if held is None else size
        for begin in range(0, size, step):
            end = min(begin + step, size)
            found.append(_Chunk(path, begin, end, held, float(done + end)))
        done += size
    return [piece._replace(share=piece.share / done) for piece in found]


def _unreadable(path: str, error: OSError) -> FileError:
    return FileError(error.errno, f"text file: {error.strerror}", path)


def _lines(piece: _Chunk) -> bytes | memoryview:
    """Read the lines that begin in a piece."""
    if piece.held is not None:
        return piece.held
    try:
        with open(piece.path, "rb", buffering=0) as file:
            return _lines_between(file.fileno(), piece.begin, piece.end)
    except OSError as error:
        raise _unreadable(piece.path, error) from error


def _lines_between(descriptor: int, begin: int, end: int) -> memoryview:
    start = max(0, begin - 1)  # whether a line begins here, the character before tells
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
    """Parse files in several threads; yield what each piece holds, in order, and the share that has been parsed."""
    pieces = _chunks(input_files(path))
    workers = 1 if native.core is None else min(threads, os.cpu_count() or 1, len(pieces))
    if workers <= 1:
        for piece in pieces:
            yield _parsed(parse, piece), piece.share
        return
    waiting: deque[tuple[Future[Parsed], float]] = deque()
    with ThreadPoolExecutor(workers, "dpmodule-text") as pool:
        for piece in pieces:
            waiting.append((pool.submit(_parsed, parse, piece), piece.share))
            if len(waiting) > 2 * workers:
                job, share = waiting.popleft()
                yield job.result(), share
        for job, share in waiting:
            yield job.result(), share


def _parsed(parse: Callable[[bytes | memoryview], Parsed], piece: _Chunk) -> Parsed:
    text = _lines(piece)
    if piece.begin == 0 and (kind := likely_kind(bytes(text[:64]))):
        raise FileFormatError(f"{piece.path}: line 1: {kind}")
    try:
        return parse(text)
    except _BadNumberLine as bad:
        line = bad.line
        for begin in range(0, piece.begin, _CHUNK_BYTES):
            line += len(bytes(_lines(piece._replace(begin=begin, end=begin + _CHUNK_BYTES))).splitlines())
        raise FileFormatError(f"{piece.path}: line {line}: {bad.reason}") from None


class _GrowingArray:
    """An array that gets longer with every piece of a file.

    Args:
        width: shape of one row.
    """

    def __init__(self, dtype: Any, width: tuple[int, ...] = ()) -> None:
        self._rows = np.empty((0, *width), dtype)
        self._count = 0

    def add(self, rows: Array, share: float) -> None:
        """Append rows; with them, this share of all that will come is here."""
        end = self._count + len(rows)
        if end > len(self._rows):
            likely = end if share == 1 else int(end / share * _SLACK) + 1
            self._resize(likely)
        self._rows[self._count : end] = rows
        self._count = end

    def close(self) -> Array:
        """Return the array, and keep no more memory than it takes."""
        if self._count < len(self._rows):
            self._resize(self._count)
        return self._rows

    def _resize(self, count: int) -> None:
        if self._count == 0:
            self._rows = np.empty((count, *self._rows.shape[1:]), self._rows.dtype)
        else:
            self._rows.resize((count, *self._rows.shape[1:]), refcheck=False)  # moves pages, not numbers


def read_csv(path: str, columns: int, dtype: Any, threads: int = 1) -> Array:
    """Read a file of numbers separated by commas.

    Numbers are rounded as Python's `float` does, and from there to `dtype`.

    Shape:
        returns: (rows, columns), of type `dtype`.

    Args:
        path: the file, several joined by ``;``, or a folder.
        threads: how many threads parse; without the native extension, one does.
    """
    kind = np.dtype(dtype)
    table = _GrowingArray(kind, (columns,))
    for rows, share in _in_order(path, partial(_csv, columns=columns, dtype=kind), threads):
        table.add(rows, share)
    return table.close()


def _csv(text: bytes | memoryview, columns: int, dtype: np.dtype[Any]) -> Array:
    """Parse lines; those that the extension does not take are read one by one."""
    if native.core is not None and len(text) >= 2 * columns - 1:  # shorter text has no whole row
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
            text_at = f"{_shown(fields[at])} is no {dtype} number; it is the line's number {at + 1}"
            raise _BadNumberLine(number, text_at) from None
        rows.append(row)
    with np.errstate(over="ignore"):  # what is too large is infinite
        return np.array(rows, dtype).reshape(-1, columns)


def _real(text: bytes) -> float:
    if b"_" in text:  # Python takes these between digits
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

    A weight behind the label (``label:weight``), a query's number behind it (``label qid:3``) and what follows a ``#``
    are left out. Numbers are rounded as Python's `float` does, and from there to float32.

    Args:
        path: the file, several joined by ``;``, or a folder.
        columns: how many columns there are; None = as many as the file names.
        threads: how many threads parse; without the native extension, one does.
    """
    limit = _MAX_COLUMNS if columns is None else columns
    growing = [_GrowingArray(dtype) for dtype in ("f4", "i8", "f4", "i8")]
    for arrays, share in _in_order(path, partial(_libsvm, columns=limit), threads):
        for each, array in zip(growing, arrays, strict=True):
            each.add(array, share)
    labels, lengths, values, places = (each.close() for each in growing)
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return ParsedRows(labels, values, places, starts)


def _libsvm(text: bytes | memoryview, columns: int) -> tuple[Array, ...]:
    """Parse lines; return labels, numbers of entries, values and columns."""
    if native.core is None:
        native.report()
        return _libsvm_by_line(bytes(text), columns)
    # the shortest are "1" and " 1:1", with what ends them
    rows, entries = len(text) // 2 + 1, len(text) // 4 + 1
    labels, lengths = np.empty(rows, np.float32), np.empty(rows, np.int64)
    values, places = np.empty(entries, np.float32), np.empty(entries, np.int64)
    counts = native.core.parse_libsvm(text, columns, labels, lengths, values, places)
    if counts is None:
        return _libsvm_by_line(bytes(text), columns)
    rows, entries = counts
    return labels[:rows], lengths[:rows], values[:entries], places[:entries]


def _libsvm_by_line(text: bytes, columns: int) -> tuple[Array, ...]:
    labels, lengths, values, places = [], [], [], []
    for number, line in enumerate(text.split(b"\n"), 1):
        line = _QUERY.sub(_without_query, line.partition(b"#")[0])
        for place, word in enumerate(_WORD.finditer(line)):
            head, colon, tail = word[0].partition(b":")
            try:
                first, second = _real(head), _real(tail) if colon or place else 0.0
            except ValueError:
                raise _bad_libsvm(number, word) from None
            if place == 0:
                labels.append(first)
                lengths.append(0)
                continue
            if not (0 <= first < columns and first.is_integer()):
                raise _bad_libsvm(number, word, f"columns are whole numbers from 0 to {columns - 1}")
            lengths[-1] += 1
            places.append(int(first))
            values.append(second)
    with np.errstate(over="ignore"):  # what is too large is infinite
        return np.array(labels, "f4"), np.array(lengths, "i8"), np.array(values, "f4"), np.array(places, "i8")


def _without_query(match: re.Match[bytes]) -> bytes:
    """Return blanks in place of a query's number, so that what follows stays where it is."""
    return match[1].ljust(len(match[0]))


def _bad_libsvm(
    number: int, word: re.Match[bytes], rule: str = "expected column:value behind the label"
) -> _BadNumberLine:
    return _BadNumberLine(
        number, f"{_shown(word[0])}: {rule}; it is at the line's character {word.start() + 1}"
    )
