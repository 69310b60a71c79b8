"""`CSVIter` and `LibSVMIter`: batches from text files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..base import ArgumentError, FileFormatError, ShapeError, np_dtype
from ..context import cpu
from ..ndarray import NDArray
from ..ndarray.csr import CSRNDArray
from ..ops.attrs import boolean, choice, optional, shape, string
from ..ops.shapes import prod
from ..ops.spec import Attr
from .data_iter import (
    BATCH,
    NAMES,
    PARTS,
    PREFETCH,
    THREADS,
    MXDataIter,
    Rounds,
    check_count,
    check_parts,
    describe,
    parse_options,
)
from .desc import DataDesc
from .iterator import DataBatch
from .parsing import ParsedRows, read_csv, read_libsvm

if TYPE_CHECKING:
    from .data_iter import OptionValues

_NONE = ("", "NULL")  # spellings of "no file" in MXNet

_ROUND = {
    "round_batch": Attr(
        boolean,
        "if True, the last batch is padded from the start, and the next epoch continues after that",
        True,
    )
}

Cut = Callable[[torch.Tensor], Any]


class _RowSource:
    """Batches of rows that are held in memory."""

    def __init__(
        self, count: int, cuts: tuple[Cut, Cut], descs: tuple[DataDesc, DataDesc], wrap: bool, what: str
    ) -> None:
        self._cuts, self._count, self._what = cuts, count, what
        self.data_desc, self.label_desc = descs
        self._rounds = Rounds(partial(iter, range(count)), self.data_desc.shape[0], wrap, what)

    def read(self) -> DataBatch | None:
        batch = self._rounds.next()
        if batch is None:
            return None
        rows, pad = batch
        numbers = torch.tensor(rows)
        data, label = (cut(numbers) for cut in self._cuts)
        return DataBatch([data], [label], pad, np.array(rows, np.uint64))

    def reset(self) -> None:
        self._rounds.reset()

    def state_dict(self) -> dict[str, Any]:
        return {"examples": self._count, **self._rounds.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_count(self._what, self._count, state)
        self._rounds.load_state_dict(state)


def _gathered(values: np.ndarray[Any, Any], shape_of_one: tuple[int, ...]) -> Cut:
    """Return a function that gathers rows into dense arrays."""
    table = torch.from_numpy(np.ascontiguousarray(values)).reshape(len(values), *shape_of_one)
    return partial(_rows_of, table)


def _rows_of(table: torch.Tensor, rows: torch.Tensor) -> NDArray:
    return NDArray(table.index_select(0, rows), cpu())


_CSV = {
    "data_csv": Attr(string, "the data: path of a CSV file, several joined by ';', or a folder"),
    "data_shape": Attr(shape, "shape of one example"),
    "label_csv": Attr(string, "the labels, likewise; 'NULL' makes all labels 0", "NULL"),
    "label_shape": Attr(shape, "shape of one label", (1,)),
    **BATCH,
    **_ROUND,
    **THREADS,
    **PREFETCH,
    "dtype": Attr(
        optional(choice("float32", "int32", "int64")), "type of the numbers; None is float32", None
    ),
    **NAMES,
}


class CSVIter(MXDataIter):
    r"""Read batches from CSV files.

    The constructor reads the files into memory.

    Raises:
        ArgumentError: an option is missing or invalid.
        FileError: a file cannot be read.
        FileFormatError: a row has another length or text that is not a number (the message names file and line), or
            there are no rows.
        ShapeError: there are fewer labels than examples.

    Example:
        >>> import pathlib
        >>> size = pathlib.Path("x.csv").write_text("1,2\n3,4\n5,6\n7,8\n")
        >>> [batch.data[0].shape for batch in mx.io.CSVIter(data_csv="x.csv", data_shape=(2,), batch_size=2)]
        [(2, 2), (2, 2)]

    Source: MXNet 1.9.1 `CSVIter`.
    """

    def __init__(self, **options: Any) -> None:
        o = parse_options("CSVIter", _CSV, options)
        dtype = o.dtype or "float32"
        data = read_csv(o.data_csv, prod(o.data_shape), dtype, o.preprocess_threads)
        labelled = o.label_csv not in _NONE
        shape_of_label = () if not labelled or o.label_shape == (1,) else o.label_shape
        labels = np.zeros(len(data), dtype)
        if labelled:
            labels = read_csv(o.label_csv, prod(o.label_shape), dtype, o.preprocess_threads)
        _check_counts("CSVIter", o.label_csv, len(labels), o.data_csv, len(data))
        descs = (
            DataDesc(o.data_name, (o.batch_size, *o.data_shape), np_dtype(dtype)),
            DataDesc(o.label_name, (o.batch_size, *shape_of_label), np_dtype(dtype)),
        )
        cuts = _gathered(data, o.data_shape), _gathered(labels[: len(data)], shape_of_label)
        super().__init__(_RowSource(len(data), cuts, descs, o.round_batch, o.data_csv))


describe(CSVIter, _CSV)

_LIBSVM = {
    "data_libsvm": Attr(string, "the data: path of a LibSVM file, several joined by ';', or a folder"),
    "data_shape": Attr(shape, "(number of columns,)"),
    "label_libsvm": Attr(string, "the labels, likewise; 'NULL' if the data file contains them", "NULL"),
    "label_shape": Attr(shape, "(number of columns,) of `label_libsvm`", (1,)),
    **PARTS,
    **BATCH,
    **_ROUND,
    **THREADS,
    **PREFETCH,
    "dtype": Attr(optional(choice("float32")), "type of the numbers; None is float32", None),
    **NAMES,
}


class LibSVMIter(MXDataIter):
    r"""Read batches of sparse rows from LibSVM files.

    Data, and labels from a separate file, are `CSRNDArray`. Columns are counted from 0. The constructor reads the
    files into memory.

    Raises:
        ArgumentError: an option is missing or invalid.
        FileError: a file cannot be read.
        FileFormatError: a row has another format or an unknown column (the message names file and line), or there are
            no rows.
        ShapeError: there are fewer labels than examples.

    Example:
        >>> import pathlib
        >>> size = pathlib.Path("a.libsvm").write_text("1 0:1.5 3:2\n0 1:4\n")
        >>> batch = mx.io.LibSVMIter(data_libsvm="a.libsvm", data_shape=(5,), batch_size=2).next()
        >>> batch.data[0].stype, batch.label[0].asnumpy().tolist()
        ('csr', [1.0, 0.0])

    Source: MXNet 1.9.1 `LibSVMIter`. Differences: parts have whole rows, the same number for data and labels; MXNet
    cuts both files by bytes.
    """

    def __init__(self, **options: Any) -> None:
        o = parse_options("LibSVMIter", _LIBSVM, options)
        check_parts("LibSVMIter", o)
        _check_libsvm(o)
        rows = read_libsvm(o.data_libsvm, o.data_shape[0], o.preprocess_threads)
        count = len(rows.labels)
        begin, end = _part(count, o.num_parts, o.part_index)
        rows = _cut_rows(rows, begin, end)
        first = _sparse(rows, o.data_shape[0])
        if o.label_libsvm in _NONE:
            _check_counts("LibSVMIter", "", count, o.data_libsvm, count)
            second, shape_of_label = _gathered(rows.labels, ()), ()
        else:
            labels = read_libsvm(o.label_libsvm, o.label_shape[0], o.preprocess_threads)
            _check_counts("LibSVMIter", o.label_libsvm, len(labels.labels), o.data_libsvm, count)
            second, shape_of_label = _sparse(_cut_rows(labels, begin, end), o.label_shape[0]), o.label_shape
        descs = (
            DataDesc(o.data_name, (o.batch_size, *o.data_shape)),
            DataDesc(o.label_name, (o.batch_size, *shape_of_label)),
        )
        super().__init__(_RowSource(end - begin, (first, second), descs, True, o.data_libsvm))
        self.num_parts = o.num_parts


describe(LibSVMIter, _LIBSVM)


def _check_libsvm(o: OptionValues) -> None:
    if len(o.data_shape) != 1:
        raise ArgumentError(f"LibSVMIter: data_shape is {o.data_shape}, expected (number of columns,)")
    if not o.round_batch:
        raise ArgumentError("LibSVMIter: round_batch is False, expected True for sparse batches")
    is_scalar = prod(o.label_shape) == 1
    if is_scalar != (o.label_libsvm in _NONE):
        want = "(1,) without label_libsvm" if not is_scalar else "larger than (1,) with label_libsvm"
        raise ArgumentError(f"LibSVMIter: label_shape is {o.label_shape}, expected {want}")


def _check_counts(owner: str, label_path: str, labels: int, data_path: str, examples: int) -> None:
    for path, count in ((data_path, examples), (label_path, labels)):
        if not count and path not in _NONE:
            raise FileFormatError(f"{owner}: {path} is empty, expected rows of numbers")
    if labels < examples:
        raise ShapeError(
            f"{owner}: {label_path} has {labels} rows, but {data_path} has {examples}; give one label per example"
        )


def _part(count: int, parts: int, index: int) -> tuple[int, int]:
    """Return the begin and end of a part of `count` examples."""
    step = -(-count // parts)
    return min(index * step, count), min((index + 1) * step, count)


def _cut_rows(rows: ParsedRows, begin: int, end: int) -> ParsedRows:
    """Return a copy of a part of the rows; all rows are not copied."""
    if end - begin == len(rows.labels):
        return rows
    starts = rows.starts[begin : end + 1]
    stored = slice(starts[0], starts[-1])
    return ParsedRows(
        rows.labels[begin:end].copy(),
        rows.values[stored].copy(),
        rows.columns[stored].copy(),
        starts - starts[0],
    )


def _sparse(rows: ParsedRows, columns: int) -> Cut:
    """Return a function that gathers rows into sparse arrays."""
    return partial(_sparse_rows_of, tuple(map(torch.from_numpy, rows[1:])), columns)


def _sparse_rows_of(table: tuple[torch.Tensor, ...], columns: int, numbers: torch.Tensor) -> CSRNDArray:
    values, columns_of_values, starts = table
    begins = starts[numbers]
    lengths = starts[numbers + 1] - begins
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    stored = torch.repeat_interleave(begins - indptr[:-1], lengths) + torch.arange(int(indptr[-1]))
    return CSRNDArray(values[stored], columns_of_values[stored], indptr, (len(numbers), columns), cpu())
