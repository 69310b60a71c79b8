"""Read the samples that a command was asked to work on."""

from __future__ import annotations

import argparse
import csv
import os
import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base import ArgumentError, FileFormatError, MXNetError, ShapeError

__all__ = ["Samples", "labelled", "read", "split"]

_SPLIT_SEED = 0  # fixed, so that `fit` and `predict` mean the same samples by "validation"


@dataclass(frozen=True)
class Samples:
    """Samples x of shape (N, ...), float32, and class numbers y of shape (N,), float32, or None."""

    x: np.ndarray[Any, Any]
    y: np.ndarray[Any, Any] | None

    @property
    def num_classes(self) -> int:
        """One more than the largest class number."""
        return 0 if self.y is None else int(self.y.max()) + 1


def read(args: argparse.Namespace) -> Samples:
    """Return the samples named by the arguments of `options.add_data_options`.

    Raises:
        FileFormatError: the file cannot be read as what its name says.
        ShapeError: the samples do not fit ``--shape``.
        ArgumentError: labels that are no class numbers, or no such column.
    """
    if args.data is None:
        x, y = _digits()
    elif args.data.endswith(".npz"):
        x, y = _npz(args.data)
    else:
        x, y = _csv(args.data, args.label_column)
    x = x.astype(np.float32) * np.float32(_scale(args))
    if len(x) == 0:
        raise FileFormatError(f"{args.data}: there is no sample in it")
    if args.shape is not None:
        x = _reshaped(x, args.shape)
    return Samples(x, None if y is None else _classes(y, len(x)))


def labelled(samples: Samples) -> Samples:
    """Return `samples` if they have labels.

    Raises:
        ArgumentError: they have none.
    """
    if samples.y is None:
        raise ArgumentError(
            "the samples have no labels; give an .npz with x and y, or a CSV with --label-column"
        )
    return samples


def split(samples: Samples, share: float) -> tuple[Samples, Samples]:
    """Return (training, validation) samples; which are which depends on their number and `share` only."""
    order = np.random.RandomState(_SPLIT_SEED).permutation(len(samples.x))
    cut = round(len(order) * share)
    return _pick(samples, order[cut:]), _pick(samples, order[:cut])


def _pick(samples: Samples, rows: np.ndarray[Any, Any]) -> Samples:
    return Samples(samples.x[rows], None if samples.y is None else samples.y[rows])


def _scale(args: argparse.Namespace) -> float:
    if args.scale is not None:
        return float(args.scale)
    return 1 / 16 if args.data is None else 1.0


def _digits() -> tuple[Any, Any]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MXNetError(
            "the handwritten digits come with scikit-learn, which is not installed: "
            "pip install 'dpmodule[demo]', or give --data"
        ) from None
    digits = load_digits()
    return digits.images[:, None], digits.target


def _npz(path: str) -> tuple[Any, Any]:
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            if "x" not in file:
                raise FileFormatError(f"{path}: holds {', '.join(file) or 'nothing'}; expected x and y")
            return file["x"], file.get("y")
    except (ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, MXNetError):
            raise
        raise FileFormatError(f"{path}: no readable .npz file ({error})") from error


def _csv(path: str, label: str) -> tuple[Any, Any]:
    with open(path, newline="", encoding="utf-8") as file:
        try:
            rows = [row for row in csv.reader(file) if row]
        except (csv.Error, UnicodeDecodeError) as error:
            raise FileFormatError(f"{path}: no readable CSV file ({error})") from error
    header = [] if not rows or _numeric(rows[0]) else rows.pop(0)
    table = _table(path, rows, 2 if header else 1)
    if label == "none" or not rows:
        return table, None
    column = _column(path, label, header, table.shape[1])
    return np.delete(table, column, axis=1), table[:, column]


def _table(path: str, rows: list[list[str]], first_line: int) -> np.ndarray[Any, Any]:
    width = len(rows[0]) if rows else 0
    table = np.empty((len(rows), width))
    for number, row in enumerate(rows):
        if len(row) != width:
            where = f"{path}: row {number + first_line}"
            raise FileFormatError(f"{where} has {len(row)} columns, expected {width} as in the first")
        try:
            table[number] = row
        except ValueError as error:
            raise FileFormatError(f"{path}: row {number + first_line}: {error}") from None
    return table


def _numeric(row: list[str]) -> bool:
    try:
        [float(cell) for cell in row]
    except ValueError:
        return False
    return True


def _column(path: str, label: str, header: list[str], width: int) -> int:
    if label in header:
        return header.index(label)
    if label.lstrip("-").isdecimal() and -width <= int(label) < width:
        return int(label) % width
    names = ", ".join(header) if header else f"numbers from 0 to {width - 1}"
    raise ArgumentError(f"--label-column is {label!r}; {os.path.basename(path)} has {names}")


def _reshaped(x: np.ndarray[Any, Any], sample: tuple[int, ...]) -> np.ndarray[Any, Any]:
    if x[0].size != np.prod(sample):
        raise ShapeError(
            f"--shape {sample} has {np.prod(sample)} values, but a sample {x.shape[1:]} has {x[0].size}"
        )
    return x.reshape(len(x), *sample)


def _classes(y: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    if y.shape != (count,):
        raise ShapeError(f"y has shape {y.shape}, expected ({count},): one class number per sample")
    wrong = y[(y < 0) | (y != np.floor(y))] if y.dtype.kind in "iufb" else y[:1]
    if len(wrong):
        raise ArgumentError(f"the label {wrong[0]!s} is no class number; expected 0, 1, 2, ...")
    return y.astype(np.float32)
