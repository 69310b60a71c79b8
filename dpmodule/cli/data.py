"""Samples of a command: read from .npz, CSV and LibSVM files, and split for validation."""

from __future__ import annotations

import argparse
import csv
import math
import os
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._files import likely_kind, refuse_device, regular_file
from ..base import ArgumentError, FileFormatError, MXNetError, OutOfMemoryError, ShapeError
from ..io.parsing import ParsedRows, read_libsvm

Array = np.ndarray[Any, Any]

FORMATS = ("csv", "npz", "libsvm")
_ENDINGS = {".npz": "npz", ".libsvm": "libsvm", ".svmlight": "libsvm", ".svm": "libsvm"}

_VALIDATION_WORDS = {
    **dict.fromkeys(("train", "training", "false"), "0"),
    **dict.fromkeys(("validation", "valid", "val", "test", "true"), "1"),
}
"""Words of a validation column and their numbers."""

_EXPECTED_LABEL = (
    "a class number, 0, 1, 2, ..., since this is the label column (--label-column sets another, or 'none')"
)
_EXPECTED_MARK = (
    "1 or 'validation' for validation samples and 0 or 'train' for the others (--validation-column)"
)

_SPLIT_SEED = 0  # fixed, so that `fit` and `predict` use the same validation samples
VALIDATION_SHARE = 0.2
"""Default share of validation samples."""


@dataclass(frozen=True)
class Samples:
    """Samples x of shape (N, ...), float32, and class numbers y of shape (N,), float32, or None."""

    x: Array
    y: Array | None
    name: str = "the samples"
    """Their name in messages: the file."""
    validation: Array | None = None
    """Mask of validation samples, (N,); None if the file has none."""
    columns: tuple[str, ...] = ()
    """Names of the columns, if the file has them."""


def read(args: argparse.Namespace, width: int | None = None) -> Samples:
    """Return the samples named by the arguments of `add_options`.

    Args:
        width: number of values in a sample, if known, for formats that do not store it.
    """
    if args.data is None:
        return _digits(args)
    return _read_files(args, [args.data], width)[0]


def read_train_and_validation(args: argparse.Namespace, width: int | None = None) -> list[Samples]:
    """Return the training samples and, if there are any, the validation samples."""
    if args.validation_data is not None:
        return _read_two_files(args, width)
    samples = _with_labels(read(args, width))
    training, validation = split_samples(args, samples)
    if not len(training.x):
        raise ArgumentError(_empty_split_error(args, samples, "training"))
    if samples.validation is not None and not len(validation.x):
        raise ArgumentError(_empty_split_error(args, samples, "validation"))
    return [training, validation] if len(validation.x) else [training]


def _read_two_files(args: argparse.Namespace, width: int | None) -> list[Samples]:
    if args.data is None:
        raise ArgumentError("--validation-data needs --data, the samples to train on")
    training, validation = map(_with_labels, _read_files(args, [args.data, args.validation_data], width))
    if training.columns and validation.columns and training.columns != validation.columns:
        raise ArgumentError(
            f"--validation-data {validation.name} has the columns {', '.join(validation.columns)}, "
            f"expected {', '.join(training.columns)} as in {training.name}"
        )
    if training.x.shape[1:] != validation.x.shape[1:]:
        raise ShapeError(
            f"--validation-data {validation.name}: a sample has {_size(validation)}, "
            f"expected {_size(training)} as in {training.name}"
        )
    return [training, validation]


def split_samples(args: argparse.Namespace, samples: Samples) -> tuple[Samples, Samples]:
    """Return (training, validation) samples: by a column, or by a share of all."""
    if samples.validation is not None:
        return _select(samples, ~samples.validation), _select(samples, samples.validation)
    return split(samples, VALIDATION_SHARE if args.validation is None else args.validation)


def split(samples: Samples, share: float) -> tuple[Samples, Samples]:
    """Return (training, validation) samples; the split depends only on their number and `share`."""
    order = np.random.RandomState(_SPLIT_SEED).permutation(len(samples.x))
    cut = round(len(order) * share)
    return _select(samples, order[cut:]), _select(samples, order[:cut])


def num_classes(parts: Sequence[Samples], given: int | None) -> int:
    """Return the number of classes of labels.

    Args:
        given: number from the user; None: not given.
    """
    labels = np.unique(np.concatenate([_with_labels(part).y for part in parts]))
    name, last = " and ".join(dict.fromkeys(part.name for part in parts)), int(labels[-1])
    if given is not None and last >= given:
        raise ArgumentError(
            f"--classes is {given}, but {name} has a label {last}; expected at least {last + 1}"
        )
    if given is None and last != len(labels) - 1:
        raise ArgumentError(
            f"{name}: the labels are {len(labels)} different numbers, the smallest {int(labels[0])} and the largest "
            f"{last}; expected 0 to {len(labels) - 1} for {len(labels)} classes. Renumber them, or set --classes "
            f"{last + 1} if some classes have no samples here; --label-column sets the column of labels"
        )
    return last + 1 if given is None else given


def _read_files(args: argparse.Namespace, paths: Sequence[str], width: int | None) -> list[Samples]:
    """Read files; LibSVM files are read together, so that they number columns in the same way."""
    kinds = [format_of(path) if args.format == "auto" else args.format for path in paths]
    sparse = [path for path, kind in zip(paths, kinds) if kind == "libsvm"]
    if args.index_base != "auto" and not sparse:
        raise ArgumentError(
            f"--index-base {args.index_base} is for LibSVM files, and {paths[0]} is not one (see --format)"
        )
    dense = iter(_read_sparse_files(args, sparse, width) if sparse else ())
    return [
        _prepare(args, next(dense) if kind == "libsvm" else _read_table(args, path, kind))
        for path, kind in zip(paths, kinds)
    ]


def _read_table(args: argparse.Namespace, path: str, kind: str) -> Samples:
    if kind == "csv":
        return read_csv(path, args.label_column, args.validation_column)
    if args.label_column is not None:
        raise ArgumentError(f"--label-column is for CSV files; the labels of {path} are its array y")
    return read_npz(path, args.validation_column)


def _read_sparse_files(args: argparse.Namespace, paths: Sequence[str], width: int | None) -> list[Samples]:
    if args.label_column is not None or args.validation_column is not None:
        raise ArgumentError(
            f"--label-column and --validation-column are for tables; {paths[0]} is a LibSVM file, "
            "whose lines begin with the label (--validation-data takes a second file)"
        )
    wanted = math.prod(args.shape) if args.shape is not None else width
    base = None if args.index_base == "auto" else int(args.index_base)
    samples, first = read_sparse(paths, base, wanted)
    if base is None:
        reason = "a column 0 is named" if first == 0 else "no column 0 is named"
        print(
            f"{paths[0]}: {reason}, so columns count from {first} (--index-base sets the base)",
            file=sys.stderr,
        )
    return samples


def _digits(args: argparse.Namespace) -> Samples:
    for option in ("format", "index_base", "label_column", "validation_column"):
        if getattr(args, option) not in (None, "auto"):
            raise ArgumentError(f"--{option.replace('_', '-')} {getattr(args, option)} needs --data, a file")
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MXNetError(
            "the handwritten digits need scikit-learn, which is not installed; run "
            "pip install 'dpmodule[demo]', or give --data"
        ) from None
    digits = load_digits()
    return _prepare(args, Samples(digits.images[:, None], digits.target, "the digits"), 1 / 16)


def _prepare(args: argparse.Namespace, read: Samples, usual_scale: float = 1.0) -> Samples:
    """Return samples after scaling and reshaping them as the options say."""
    if not len(read.x):
        raise FileFormatError(f"{read.name}: the file has no samples")
    x = _scale(read.x, usual_scale if args.scale is None else args.scale)
    if args.shape is not None:
        x = _reshape(x, args.shape, read.name)
    return replace(read, x=x, y=None if read.y is None else _class_numbers(read.y, len(x), read.name))


def _scale(x: Array, scale: float) -> Array:
    with np.errstate(over="ignore"):  # the network reports infinite values
        return x.astype(np.float32) * np.float32(scale)


def _with_labels(samples: Samples) -> Samples:
    if samples.y is None:
        raise ArgumentError(
            f"{samples.name} has no labels; give an .npz with x and y, a LibSVM file, or a CSV with --label-column"
        )
    return samples


def _select(samples: Samples, rows: Array) -> Samples:
    return replace(
        samples, x=samples.x[rows], y=None if samples.y is None else samples.y[rows], validation=None
    )


def _size(samples: Samples) -> str:
    shape = samples.x.shape[1:]
    return f"{shape[0]} values" if len(shape) == 1 else f"the shape {shape}"


def _empty_split_error(args: argparse.Namespace, samples: Samples, what: str) -> str:
    if samples.validation is not None:
        marked = "every sample" if what == "training" else "no sample"
        return f"--validation-column {args.validation_column} marks {marked} of {samples.name}; none is left for {what}"
    share = VALIDATION_SHARE if args.validation is None else args.validation
    return (
        f"--validation {share:g} of {len(samples.x)} samples leaves none for training; choose a smaller share"
    )


def _reshape(x: Array, sample: tuple[int, ...], path: str) -> Array:
    size = math.prod(sample)
    if x[0].size != size:
        raise ShapeError(
            f"--shape {sample} has {size} values, but a sample of {path} has {x[0].size}: {x.shape[1:]}"
        )
    return x.reshape(len(x), *sample)


def _class_numbers(y: Array, count: int, path: str) -> Array:
    if y.shape != (count,):
        raise ShapeError(f"{path}: y has shape {y.shape}, expected ({count},): one class number per sample")
    wrong = y[~((y >= 0) & (y == np.floor(y)) & np.isfinite(y))] if y.dtype.kind in "iufb" else y[:1]
    if len(wrong):
        raise ArgumentError(
            f"{path}: the label {wrong[0]!s} is not a class number; expected 0, 1, 2, ... "
            "(--label-column sets the column of labels, or 'none')"
        )
    return y.astype(np.float32)


# reading files


def format_of(path: str) -> str:
    """Return the format of a file extension; CSV for unknown extensions."""
    return _ENDINGS.get(os.path.splitext(path)[1].lower(), "csv")


def read_npz(path: str, validation: str | None) -> Samples:
    """Read the array x, and y if the file has it.

    Args:
        validation: name of the array that marks validation samples; None: there is none.
    """
    try:  # the file may be an array instead of an archive: AttributeError in Python 3.10
        with open(path, "rb", opener=regular_file) as raw, np.load(raw, allow_pickle=False) as file:
            if "x" not in file:
                raise FileFormatError(f"{path}: holds {', '.join(file) or 'nothing'}; expected x and y")
            if validation is not None and validation not in file:
                raise ArgumentError(f"--validation-column is {validation!r}; {path} holds {', '.join(file)}")
            x = file["x"]
            if not x.ndim or x.dtype.kind not in "iufb":
                raise FileFormatError(
                    f"{path}: x is {x.dtype} of shape {x.shape}; expected numbers for each sample"
                )
            marks = (
                None if validation is None else _validation_mask(path, validation, file[validation], len(x))
            )
            return Samples(x[:, None] if x.ndim == 1 else x, file.get("y"), path, marks)
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


def read_csv(path: str, label: str | None, validation: str | None) -> Samples:
    """Read a table of numbers, with or without a header.

    Args:
        label: name or number of the label column, "none" if there is none; None: the last one other than `validation`.
        validation: name or number of the column that marks rows for validation; None: there is none.
    """
    rows = _read_lines(path)
    words = _VALIDATION_WORDS if validation is not None else {}
    named = bool(rows) and not all(_is_number(words.get(cell.strip().lower(), cell)) for cell in rows[0][1])
    header = [name.strip() for name in rows.pop(0)[1]] if named else []
    if not rows:
        raise FileFormatError(f"{path}: the file has no samples")
    width = len(header or rows[0][1])
    validation_column = (
        None if validation is None else _find_column(path, "--validation-column", validation, header, width)
    )
    labels = _find_label_column(path, label, header, width, validation_column)
    table = _parse_numbers(
        path, rows, header, width, {labels: _EXPECTED_LABEL, validation_column: _EXPECTED_MARK}
    )
    marks = (
        None
        if validation_column is None or validation is None
        else _validation_mask(path, validation, table[:, validation_column], len(table))
    )
    kept = [i for i in range(width) if i not in (labels, validation_column)]
    names = tuple(header[i] for i in kept) if header else ()
    return Samples(table[:, kept], None if labels is None else table[:, labels], path, marks, names)


def _read_lines(path: str) -> list[tuple[int, list[str]]]:
    """Return the number and the cells of every non-empty line."""
    rows = []
    refuse_device(path)
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        try:
            for row in reader:
                if row:
                    rows.append((reader.line_num, row))  # noqa: PERF401 (the number changes with every row)
        except (csv.Error, UnicodeDecodeError) as error:
            raise FileFormatError(f"{path}: not a readable CSV file ({error})") from error
    return rows


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _parse_numbers(
    path: str,
    rows: Sequence[tuple[int, list[str]]],
    header: Sequence[str],
    width: int,
    meanings: Mapping[int | None, str],
) -> Array:
    """Return all cells as numbers."""
    validation_column = next(
        (column for column, meaning in meanings.items() if meaning == _EXPECTED_MARK), None
    )
    table = np.empty((len(rows), width))
    for number, (line, row) in enumerate(rows):
        if len(row) != width:
            raise FileFormatError(
                f"{path}: line {line} has {len(row)} columns, expected {width} as in the first"
            )
        if validation_column is not None:
            row[validation_column] = _VALIDATION_WORDS.get(
                row[validation_column].strip().lower(), row[validation_column]
            )
        try:
            table[number] = row
        except ValueError:
            wrong = next(i for i, cell in enumerate(row) if not _is_number(cell))
            name = f" {header[wrong]!r}" if header else ""
            raise FileFormatError(
                f"{path}: line {line}, column {wrong}{name}: {row[wrong]!r} is not a number; "
                f"expected {meanings.get(wrong, 'a number')}"
            ) from None
    return table


def _find_label_column(
    path: str, label: str | None, header: Sequence[str], width: int, validation_column: int | None
) -> int | None:
    if label == "none":
        return None
    if label is None:
        return max((i for i in range(width) if i != validation_column), default=None)
    column = _find_column(path, "--label-column", label, header, width)
    if column == validation_column:
        raise ArgumentError(f"--label-column {label} and --validation-column are the same column of {path}")
    return column


def _find_column(path: str, option: str, asked: str, header: Sequence[str], width: int) -> int:
    if asked in header:
        return header.index(asked)
    if asked.lstrip("-").isdecimal() and len(asked) < 10 and -width <= int(asked) < width:
        return int(asked) % width
    names = ", ".join(header) if header else f"columns without names: a number from 0 to {width - 1}"
    raise ArgumentError(f"{option} is {asked!r}; {path} has {names}")


def _validation_mask(path: str, column: str, values: Array, count: int) -> Array:
    """Return the mask of validation samples of a column."""
    if values.shape != (count,) or values.dtype.kind not in "iufb":
        raise ArgumentError(
            f"--validation-column {column} of {path} is {values.dtype} of shape {values.shape}, "
            f"expected ({count},) of 0 and 1"
        )
    wrong = values[(values != 0) & (values != 1)]
    if len(wrong):
        raise ArgumentError(
            f"--validation-column {column} of {path} holds {wrong[0]}, expected {_EXPECTED_MARK}"
        )
    return values.astype(bool)


def read_sparse(paths: Sequence[str], base: int | None, width: int | None) -> tuple[list[Samples], int]:
    """Read LibSVM files with the same numbering of columns; query numbers (``qid:``) are ignored.

    Args:
        base: number of the first column, 0 or 1; None: 0 if a file has a column 0, or no columns, else 1.
        width: number of columns; None: up to the last column in the files.

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
                f"{wanted + first - 1}, counted from {first} (--index-base sets the base)"
            )
    return [_dense(path, rows, first, wanted) for path, rows in zip(paths, files, strict=True)], first


def _dense(path: str, rows: ParsedRows, first: int, width: int) -> Samples:
    count = len(rows.labels)
    _check_memory(path, count, width)
    x = np.zeros((count, width), np.float32)
    x[np.repeat(np.arange(count), np.diff(rows.starts)), rows.columns - first] = rows.values
    return Samples(x, rows.labels, path)


def _check_memory(path: str, count: int, width: int) -> None:
    """Raise FileFormatError if the dense form of sparse samples does not fit into memory."""
    needed = 4 * count * width
    try:
        there: float = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # as on Windows
        there = math.inf
    if needed > there:
        raise FileFormatError(
            f"{path}: {count} samples of {width} values take {needed / 2**30:.0f} GiB, more than this machine has; "
            "use mx.io.LibSVMIter in a program instead"
        )
