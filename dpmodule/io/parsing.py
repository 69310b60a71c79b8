"""Reading numbers from CSV and LibSVM files."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..base import FileError, FileFormatError
from ..foreign import likely_kind

__all__ = ["Rows", "input_files", "read_csv", "read_libsvm"]

Array = np.ndarray[Any, Any]

_MOST_COLUMNS = 2**53  # what a float64 tells apart
_COLON, _NEWLINE = ord(":"), ord("\n")
_QUERY = re.compile(rb"^([ \t]*\S+[ \t]+)qid:\d+(?!\S)", re.MULTILINE)
_BLANKS = np.zeros(256, bool)
_BLANKS[[ord(c) for c in " \t\r\n\v\f"]] = True


class Rows(NamedTuple):
    """Sparse rows of a file: values and columns of row i are those from ``starts[i]`` to ``starts[i + 1]``."""

    labels: Array
    values: Array
    columns: Array
    starts: Array


def input_files(path: str) -> list[str]:
    """Return the files that a path stands for: several joined by ``;``, and all files of a folder.

    Raises:
        FileError: a folder cannot be listed.
    """
    found = []
    for each in path.split(";"):
        if os.path.isdir(each):
            found += sorted(os.path.join(each, name) for name in os.listdir(each) if not name.startswith("."))
        else:
            found.append(each)
    return found


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise FileError(error.errno, f"text file: {error.strerror}", path) from error
    if data and (kind := likely_kind(data[:64])):
        raise FileFormatError(f"{path}: line 1: {kind}")
    return data


def read_csv(path: str, columns: int, dtype: Any) -> Array:
    """Read a file of numbers separated by commas.

    Shape:
        returns: (rows, columns), of type `dtype`.

    Args:
        path: the file, several joined by ``;``, or a folder.
        columns: how many numbers a row has.
        dtype: NumPy type of the result.

    Raises:
        FileError: a file cannot be read.
        FileFormatError: a row has another length or holds no numbers; the text names file and line.
    """
    parts = [_read_csv(each, columns, np.dtype(dtype)) for each in input_files(path)]
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def _read_csv(path: str, columns: int, dtype: np.dtype[Any]) -> Array:
    data = _read(path)
    if not data.strip():
        return np.empty((0, columns), dtype)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            table = np.loadtxt(data.decode("ascii").splitlines(), dtype, None, ",", ndmin=2)
    except (ValueError, OverflowError, Warning) as error:
        raise _csv_error(path, data, columns, dtype, str(error)) from None
    if table.shape[1] != columns:
        raise _csv_error(
            path, data, columns, dtype, f"rows have {table.shape[1]} numbers, expected {columns}"
        )
    return table


def _csv_error(path: str, data: bytes, columns: int, dtype: np.dtype[Any], reason: str) -> FileFormatError:
    """Find the line that is wrong; slow, and done only then."""
    for number, line in enumerate(data.splitlines(), 1):
        fields = line.split(b",")
        if not line.strip():
            continue
        if len(fields) != columns:
            shown = f"{len(fields)} numbers, expected {columns}, the size of the shape"
            return FileFormatError(f"{path}: line {number}: {shown}: {_shown(line)}")
        for field in fields:
            if not _is_number(field, dtype):
                return FileFormatError(f"{path}: line {number}: {_shown(field)} is no {dtype} number")
    return FileFormatError(f"{path}: {reason}")


def _is_number(text: bytes, dtype: np.dtype[Any]) -> bool:
    try:
        (int if dtype.kind == "i" else float)(text)
    except ValueError:
        return False
    return True


def _shown(text: bytes) -> str:
    return repr(text[:60].decode("utf-8", "replace").strip())


def read_libsvm(path: str, columns: int | None) -> Rows:
    """Read a file of rows ``label column:value column:value ...``, columns counted from 0.

    A weight behind the label (``label:weight``), a query's number behind it (``label qid:3``) and what follows a ``#``
    are left out.

    Args:
        path: the file, several joined by ``;``, or a folder.
        columns: how many columns there are; None = as many as the file names.

    Raises:
        FileError: a file cannot be read.
        FileFormatError: a row has another form or a column that does not exist; the text names file and line.
    """
    return _joined([_read_libsvm(each, columns) for each in input_files(path)])


def _joined(parts: Sequence[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    counts = np.concatenate([np.diff(part.starts) for part in parts])
    labels, values, columns = (np.concatenate(arrays) for arrays in zip(*(p[:3] for p in parts), strict=True))
    return Rows(labels, values, columns, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))


def _read_libsvm(path: str, columns: int | None) -> Rows:
    data = _read(path)
    if b"#" in data:
        data = re.sub(rb"#[^\n]*", b"", data)
    if b"qid:" in data:
        data = _QUERY.sub(rb"\1", data)
    if not data.endswith(b"\n"):
        data += b"\n"
    raw = np.frombuffer(data, np.uint8)
    blank = _BLANKS[raw]
    begins = np.flatnonzero(~blank & np.concatenate([[True], blank[:-1]]))  # of words
    ends = np.flatnonzero(raw == _NEWLINE)  # of lines
    colons = np.flatnonzero(raw == _COLON)
    line = np.searchsorted(ends, begins)
    first = np.concatenate([[True], line[1:] != line[:-1]]) if len(line) else np.zeros(0, bool)
    # a word holds one colon, the first of a line none or one
    word = np.searchsorted(begins, colons, side="right") - 1
    held = np.bincount(word[word >= 0], minlength=len(begins)) if len(begins) else np.zeros(0, np.int64)
    wrong = np.flatnonzero((held != 1) & ~(first & (held == 0)))
    if len(wrong):
        raise _libsvm_error(path, data, begins[wrong[0]])
    numbers = _numbers(path, data, begins, held)
    at = np.concatenate([[0], np.cumsum(held + 1)])[:-1]
    feature = at[~first]
    found = numbers[feature]
    limit = _MOST_COLUMNS if columns is None else columns
    bad = np.flatnonzero(~((found >= 0) & (found < limit) & (found == np.floor(found))))
    if len(bad):
        where = begins[np.flatnonzero(~first)[bad[0]]]
        raise _libsvm_error(path, data, where, f"columns are whole numbers from 0 to {limit - 1}")
    rows = np.flatnonzero(first)
    starts = np.concatenate([rows, [len(first)]]) - np.arange(len(rows) + 1)
    return Rows(
        numbers[at[first]].astype(np.float32),
        numbers[feature + 1].astype(np.float32),
        found.astype(np.int64),
        starts.astype(np.int64),
    )


def _numbers(path: str, data: bytes, begins: Array, held: Array) -> Array:
    """Return all numbers of a file in order."""
    text = data.replace(b":", b" ").decode("ascii", "replace")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            numbers = np.fromstring(text, np.float64, sep=" ") if text.strip() else np.empty(0)
    except ValueError:
        numbers = np.empty(0)
    if len(numbers) == int(held.sum()) + len(held):
        return numbers
    for begin in begins.tolist():
        word = re.compile(rb"\S+").match(data, begin)
        if word is None or not all(_is_number(part, np.dtype("f8")) for part in word[0].split(b":")):
            raise _libsvm_error(path, data, begin)
    raise FileFormatError(f"{path}: not a LibSVM file")


def _libsvm_error(
    path: str, data: bytes, at: int, rule: str = "expected column:value behind the label"
) -> FileFormatError:
    word = data[at : at + 60].split(None, 1)[0]
    line = data.count(b"\n", 0, at) + 1
    return FileFormatError(f"{path}: line {line}: {_shown(word)}: {rule}")
