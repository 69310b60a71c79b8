"""Read samples from files: .npz, CSV and LibSVM."""

from __future__ import annotations

import csv
import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base import ArgumentError, FileFormatError, MXNetError, OutOfMemoryError
from ..files.file_kind import likely_kind, refuse_device, regular_file
from ..io.parsing import ParsedRows, read_libsvm

Array = np.ndarray[Any, Any]

FORMATS = ("csv", "npz", "libsvm")
_ENDINGS = {".npz": "npz", ".libsvm": "libsvm", ".svmlight": "libsvm", ".svm": "libsvm"}

_HELD = {
    **dict.fromkeys(("train", "training", "false"), "0"),
    **dict.fromkeys(("validation", "valid", "val", "test", "true"), "1"),
}
"""Words of a validation column, and the numbers that they stand for."""

_CLASSES = (
    "a class number, 0, 1, 2, ..., as this column holds labels (--label-column names another, or 'none')"
)
_MARKS = "1 or 'validation' for samples kept apart and 0 or 'train' for the others (--validation-column)"


@dataclass(frozen=True)
class FileTable:
    """What a file holds.

    Shape:
        x: (N, ...)
        y: (N,), or None without labels.
        held: (N,), whether a sample is for validation; None if the file does not tell.
    """

    x: Array
    y: Array | None
    held: Array | None = None
    names: tuple[str, ...] = ()
    """Names of the columns of x, where the file has them."""


def format_of(path: str) -> str:
    """Return the format that the ending of a name stands for; CSV for all others."""
    return _ENDINGS.get(os.path.splitext(path)[1].lower(), "csv")


def read_npz(path: str, held: str | None) -> FileTable:
    """Read the arrays x and, if there is one, y.

    Args:
        held: name of the array that marks samples for validation, or None.
    """
    try:  # in place of an archive an array may come, which cannot be entered: AttributeError in Python 3.10
        with open(path, "rb", opener=regular_file) as raw, np.load(raw, allow_pickle=False) as file:
            if "x" not in file:
                raise FileFormatError(f"{path}: holds {', '.join(file) or 'nothing'}; expected x and y")
            if held is not None and held not in file:
                raise ArgumentError(f"--validation-column is {held!r}; {path} holds {', '.join(file)}")
            x = file["x"]
            if not x.ndim or x.dtype.kind not in "iufb":
                raise FileFormatError(
                    f"{path}: x is {x.dtype} of shape {x.shape}; expected numbers for each sample"
                )
            marks = None if held is None else _marks(path, held, file[held], len(x))
            return FileTable(x[:, None] if x.ndim == 1 else x, file.get("y"), marks)
    except MemoryError as error:
        raise OutOfMemoryError.of(f"the arrays of {path}", error) from error
    except (
        ValueError,
        TypeError,
        AttributeError,
        EOFError,
        OSError,
        OverflowError,
        zipfile.BadZipFile,
    ) as error:
        if isinstance(error, MXNetError):
            raise
        meaning = error if os.path.getsize(path) else likely_kind(b"")
        raise FileFormatError(f"{path}: not a readable .npz file ({meaning})") from error


def read_csv(path: str, label: str | None, held: str | None) -> FileTable:
    """Read a table of numbers, with or without a line of names above.

    Args:
        label: name or number of the column of labels, "none" if there is none; None = the last one that is not `held`.
        held: name or number of the column that marks rows for validation, or None.
    """
    rows = _lines(path)
    words = _HELD if held is not None else {}
    named = bool(rows) and not all(_is_number(words.get(cell.strip().lower(), cell)) for cell in rows[0][1])
    header = [name.strip() for name in rows.pop(0)[1]] if named else []
    if not rows:
        raise FileFormatError(f"{path}: there is no sample in it")
    width = len(header or rows[0][1])
    marked = None if held is None else _column(path, "--validation-column", held, header, width)
    labels = _label_column(path, label, header, width, marked)
    table = _numbers(path, rows, header, width, {labels: _CLASSES, marked: _MARKS})
    marks = None if marked is None or held is None else _marks(path, held, table[:, marked], len(table))
    kept = [i for i in range(width) if i not in (labels, marked)]
    names = tuple(header[i] for i in kept) if header else ()
    return FileTable(table[:, kept], None if labels is None else table[:, labels], marks, names)


def _lines(path: str) -> list[tuple[int, list[str]]]:
    """Return number and cells of every line that is not empty."""
    rows = []
    refuse_device(path)
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        try:
            for row in reader:
                if row:
                    rows.append((reader.line_num, row))  # noqa: PERF401 (the number changes with every row)
        except (csv.Error, UnicodeDecodeError) as error:
            raise FileFormatError(f"{path}: no readable CSV file ({error})") from error
    return rows


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(
    path: str,
    rows: Sequence[tuple[int, list[str]]],
    header: Sequence[str],
    width: int,
    meanings: Mapping[int | None, str],
) -> Array:
    """Return all cells as numbers."""
    marked = next((column for column, meaning in meanings.items() if meaning == _MARKS), None)
    table = np.empty((len(rows), width))
    for number, (line, row) in enumerate(rows):
        if len(row) != width:
            raise FileFormatError(
                f"{path}: line {line} has {len(row)} columns, expected {width} as in the first"
            )
        if marked is not None:
            row[marked] = _HELD.get(row[marked].strip().lower(), row[marked])
        try:
            table[number] = row
        except ValueError:
            wrong = next(i for i, cell in enumerate(row) if not _is_number(cell))
            name = f" {header[wrong]!r}" if header else ""
            raise FileFormatError(
                f"{path}: line {line}, column {wrong}{name}: {row[wrong]!r} is no number; "
                f"expected {meanings.get(wrong, 'a number')}"
            ) from None
    return table


def _label_column(
    path: str, label: str | None, header: Sequence[str], width: int, marked: int | None
) -> int | None:
    if label == "none":
        return None
    if label is None:
        return max((i for i in range(width) if i != marked), default=None)
    found = _column(path, "--label-column", label, header, width)
    if found == marked:
        raise ArgumentError(f"--label-column {label} and --validation-column are the same column of {path}")
    return found


def _column(path: str, option: str, asked: str, header: Sequence[str], width: int) -> int:
    if asked in header:
        return header.index(asked)
    if asked.lstrip("-").isdecimal() and len(asked) < 10 and -width <= int(asked) < width:
        return int(asked) % width
    names = ", ".join(header) if header else f"columns without names: a number from 0 to {width - 1}"
    raise ArgumentError(f"{option} is {asked!r}; {path} has {names}")


def _marks(path: str, column: str, values: Array, count: int) -> Array:
    """Return which samples a column marks for validation."""
    if values.shape != (count,) or values.dtype.kind not in "iufb":
        raise ArgumentError(
            f"--validation-column {column} of {path} is {values.dtype} of shape {values.shape}, "
            f"expected ({count},) of 0 and 1"
        )
    wrong = values[(values != 0) & (values != 1)]
    if len(wrong):
        raise ArgumentError(f"--validation-column {column} of {path} holds {wrong[0]}, expected {_MARKS}")
    return values.astype(bool)


def read_sparse(paths: Sequence[str], base: int | None, width: int | None) -> tuple[list[FileTable], int]:
    """Read LibSVM files, whose columns are counted alike; query numbers (``qid:``) are left out.

    Args:
        base: number of the first column, 0 or 1; None = 0 if a file names a column 0, or none at all, else 1.
        width: how many columns there are; None = up to the last that a file names.

    Returns:
        The tables, dense, and the number of the first column.
    """
    files = [read_libsvm(path, None) for path in paths]
    lowest = [int(rows.columns.min()) if len(rows.columns) else 0 for rows in files]
    first = min(min(lowest), 1) if base is None else base
    ends = [int(rows.columns.max()) - first + 1 if len(rows.columns) else 0 for rows in files]
    wanted = max(ends) if width is None else width
    for path, low, end in zip(paths, lowest, ends, strict=True):
        if low < first:
            raise FileFormatError(f"{path}: names column {low}, but --index-base {base} counts from {first}")
        if end > wanted:
            raise FileFormatError(
                f"{path}: names column {end + first - 1}, but a sample has {wanted} values: columns {first} to "
                f"{wanted + first - 1}, counted from {first} (--index-base says otherwise)"
            )
    return [_dense(path, rows, first, wanted) for path, rows in zip(paths, files, strict=True)], first


def _dense(path: str, rows: ParsedRows, first: int, width: int) -> FileTable:
    count = len(rows.labels)
    _check_memory(path, count, width)
    x = np.zeros((count, width), np.float32)
    x[np.repeat(np.arange(count), np.diff(rows.starts)), rows.columns - first] = rows.values
    return FileTable(x, rows.labels)


def _check_memory(path: str, count: int, width: int) -> None:
    """Refuse sparse samples whose dense form this machine cannot hold."""
    needed = 4 * count * width
    try:
        there: float = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # as on Windows
        there = math.inf
    if needed > there:
        raise FileFormatError(
            f"{path}: {count} samples of {width} values take {needed / 2**30:.0f} GiB, more than this machine has; "
            "train such data in a program, with mx.io.LibSVMIter"
        )
