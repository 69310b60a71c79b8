"""The samples that a command works on, and which of them are for validation."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..base import ArgumentError, FileFormatError, MXNetError, ShapeError
from . import options, tables
from .tables import FileTable

Array = np.ndarray[Any, Any]

_SPLIT_SEED = 0  # fixed, so that `fit` and `predict` mean the same samples by "validation"
SHARE = 0.2
"""Share of the samples that is kept for validation unless ``--validation`` gives another."""


@dataclass(frozen=True)
class Samples:
    """Samples x of shape (N, ...), float32, and class numbers y of shape (N,), float32, or None."""

    x: Array
    y: Array | None
    name: str = "the samples"
    """What messages call them: the file."""
    held: Array | None = None
    """Whether a sample is for validation, (N,); None if the file does not tell."""
    columns: tuple[str, ...] = ()
    """Names of the columns, where the file has them."""


def add_options(parser: argparse.ArgumentParser) -> Any:
    """Add the arguments that say where samples come from; return their group."""
    group = parser.add_argument_group("data")
    group.add_argument(
        "--data",
        type=options.input_file,
        metavar="FILE",
        help="a CSV, an .npz with arrays x and y, or a LibSVM file (default: scikit-learn's 1797 handwritten digits)",
    )
    group.add_argument(
        "--format",
        choices=["auto", *tables.FORMATS],
        default="auto",
        help="format of the files; auto goes by the name: .npz; .libsvm, .svm or .svmlight; CSV for all others "
        "(default: auto)",
    )
    group.add_argument(
        "--label-column",
        type=options.filled,
        metavar="COLUMN",
        help="name or number (from 0; -1 is the last) of a CSV's column of class numbers, or 'none' "
        "(default: the last)",
    )
    group.add_argument(
        "--index-base",
        choices=["auto", "0", "1"],
        default="auto",
        help="number of the first column in LibSVM files; auto: 0 if a column 0 is named, else 1 (default: auto)",
    )
    group.add_argument(
        "--shape",
        type=options.shape,
        metavar="C,H,W",
        help="shape of one sample, such as 1,8,8 for grey images (default: as stored)",
    )
    group.add_argument(
        "--scale", type=options.scale, help="factor on every value (default: 1/16 for the digits, else 1)"
    )
    return group


def read(args: argparse.Namespace, width: int | None = None) -> Samples:
    """Return the samples named by the arguments of `add_options`.

    Args:
        width: number of values in a sample, where that is known; read by formats that do not tell it.
    """
    if args.data is None:
        return _digits(args)
    return _files(args, [args.data], width)[0]


def read_both(args: argparse.Namespace, width: int | None = None) -> list[Samples]:
    """Return the samples for training and, if there are some, those for validation."""
    if args.validation_data is not None:
        return _read_two(args, width)
    samples = _labelled(read(args, width))
    training, validation = part(args, samples)
    if not len(training.x):
        raise ArgumentError(_nothing_left(args, samples, "training"))
    if samples.held is not None and not len(validation.x):
        raise ArgumentError(_nothing_left(args, samples, "validation"))
    return [training, validation] if len(validation.x) else [training]


def _read_two(args: argparse.Namespace, width: int | None) -> list[Samples]:
    if args.data is None:
        raise ArgumentError("--validation-data needs --data, the samples to train on")
    training, validation = map(_labelled, _files(args, [args.data, args.validation_data], width))
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


def part(args: argparse.Namespace, samples: Samples) -> tuple[Samples, Samples]:
    """Return (training, validation) samples: as a column marks them, or by a share of all."""
    if samples.held is not None:
        return _pick(samples, ~samples.held), _pick(samples, samples.held)
    return split(samples, SHARE if args.validation is None else args.validation)


def split(samples: Samples, share: float) -> tuple[Samples, Samples]:
    """Return (training, validation) samples; which are which depends on their number and `share` only."""
    order = np.random.RandomState(_SPLIT_SEED).permutation(len(samples.x))
    cut = round(len(order) * share)
    return _pick(samples, order[cut:]), _pick(samples, order[:cut])


def num_classes(parts: Sequence[Samples], given: int | None) -> int:
    """Return how many classes labels stand for.

    Args:
        given: the number that the user gave, or None.
    """
    found = np.unique(np.concatenate([_labelled(each).y for each in parts]))
    name, last = " and ".join(dict.fromkeys(each.name for each in parts)), int(found[-1])
    if given is not None and last >= given:
        raise ArgumentError(
            f"--classes is {given}, but {name} has a label {last}; expected at least {last + 1}"
        )
    if given is None and last != len(found) - 1:
        raise ArgumentError(
            f"{name}: the labels are {len(found)} different numbers, the smallest {int(found[0])} and the largest "
            f"{last}; expected 0 to {len(found) - 1} for {len(found)} classes. Number them anew, or give --classes "
            f"{last + 1} if some classes have no samples here; --label-column says which column holds labels"
        )
    return last + 1 if given is None else given


def _files(args: argparse.Namespace, paths: Sequence[str], width: int | None) -> list[Samples]:
    """Read files; those in LibSVM's format together, as their columns are counted alike."""
    kinds = [tables.format_of(path) if args.format == "auto" else args.format for path in paths]
    sparse = [path for path, kind in zip(paths, kinds) if kind == "libsvm"]
    if args.index_base != "auto" and not sparse:
        raise ArgumentError(
            f"--index-base {args.index_base} is for LibSVM files; {paths[0]} is none (see --format)"
        )
    dense = iter(_sparse(args, sparse, width) if sparse else ())
    return [
        _samples(args, path, next(dense) if kind == "libsvm" else _table(args, path, kind))
        for path, kind in zip(paths, kinds)
    ]


def _table(args: argparse.Namespace, path: str, kind: str) -> FileTable:
    if kind == "csv":
        return tables.read_csv(path, args.label_column, args.validation_column)
    if args.label_column is not None:
        raise ArgumentError(f"--label-column is for CSV files; the labels of {path} are its array y")
    return tables.read_npz(path, args.validation_column)


def _sparse(args: argparse.Namespace, paths: Sequence[str], width: int | None) -> list[FileTable]:
    if args.label_column is not None or args.validation_column is not None:
        raise ArgumentError(
            f"--label-column and --validation-column are for tables; {paths[0]} is a LibSVM file, "
            "whose lines begin with the label (--validation-data takes a second file)"
        )
    wanted = math.prod(args.shape) if args.shape is not None else width
    base = None if args.index_base == "auto" else int(args.index_base)
    found, first = tables.read_sparse(paths, base, wanted)
    if base is None:
        reason = "a column 0 is named" if first == 0 else "no column 0 is named"
        print(
            f"{paths[0]}: {reason}, so columns count from {first} (--index-base says otherwise)",
            file=sys.stderr,
        )
    return found


def _digits(args: argparse.Namespace) -> Samples:
    for option in ("format", "index_base", "label_column", "validation_column"):
        if getattr(args, option) not in (None, "auto"):
            raise ArgumentError(f"--{option.replace('_', '-')} {getattr(args, option)} needs --data, a file")
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MXNetError(
            "the handwritten digits come with scikit-learn, which is not installed: "
            "pip install 'dpmodule[demo]', or give --data"
        ) from None
    digits = load_digits()
    return _samples(args, "the digits", FileTable(digits.images[:, None], digits.target), 1 / 16)


def _samples(args: argparse.Namespace, name: str, table: FileTable, usual_scale: float = 1.0) -> Samples:
    if not len(table.x):
        raise FileFormatError(f"{name}: there is no sample in it")
    x = _scaled(table.x, usual_scale if args.scale is None else args.scale)
    if args.shape is not None:
        x = _reshaped(x, args.shape, name)
    y = None if table.y is None else _classes(table.y, len(x), name)
    return Samples(x, y, name, table.held, table.names)


def _scaled(x: Array, scale: float) -> Array:
    with np.errstate(over="ignore"):  # what becomes infinite is told when the network meets it
        return x.astype(np.float32) * np.float32(scale)


def _labelled(samples: Samples) -> Samples:
    if samples.y is None:
        raise ArgumentError(
            f"{samples.name} has no labels; give an .npz with x and y, a LibSVM file, or a CSV with --label-column"
        )
    return samples


def _pick(samples: Samples, rows: Array) -> Samples:
    return replace(samples, x=samples.x[rows], y=None if samples.y is None else samples.y[rows], held=None)


def _size(samples: Samples) -> str:
    shape = samples.x.shape[1:]
    return f"{shape[0]} values" if len(shape) == 1 else f"the shape {shape}"


def _nothing_left(args: argparse.Namespace, samples: Samples, what: str) -> str:
    if samples.held is not None:
        marked = "every sample" if what == "training" else "no sample"
        return f"--validation-column {args.validation_column} marks {marked} of {samples.name}: none is left for {what}"
    share = SHARE if args.validation is None else args.validation
    return f"--validation {share:g} of {len(samples.x)} samples leaves none for training; expected a smaller share"


def _reshaped(x: Array, sample: tuple[int, ...], path: str) -> Array:
    size = math.prod(sample)
    if x[0].size != size:
        raise ShapeError(
            f"--shape {sample} has {size} values, but a sample of {path} has {x[0].size}: {x.shape[1:]}"
        )
    return x.reshape(len(x), *sample)


def _classes(y: Array, count: int, path: str) -> Array:
    if y.shape != (count,):
        raise ShapeError(f"{path}: y has shape {y.shape}, expected ({count},): one class number per sample")
    wrong = y[~((y >= 0) & (y == np.floor(y)) & np.isfinite(y))] if y.dtype.kind in "iufb" else y[:1]
    if len(wrong):
        raise ArgumentError(
            f"{path}: the label {wrong[0]!s} is no class number; expected 0, 1, 2, ... "
            "(--label-column says which column holds labels, or 'none')"
        )
    return y.astype(np.float32)
