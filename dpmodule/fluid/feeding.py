"""Feeds: arrays, sequences of different lengths, and rows of both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ..base import ArgumentError, BoundsError, DTypeError, ShapeError, did_you_mean
from ..module.class_labels import NetworkInputs, find_invalid_label
from ..ndarray import NDArray, array
from ..ndarray.ragged import RaggedNDArray, ragged_array
from ..symbol import Symbol
from .lod_tensor import LoDTensor
from .program import Program, default_main_program
from .variable import Data, Variable


def create_lod_tensor(
    data: Any, recursive_seq_lens: Sequence[Sequence[int]], place: Any = None
) -> RaggedNDArray:
    """Return sequences as a ragged array, whose values have the axes of `data`.

    Args:
        data: concatenated elements, (T, ...), or a list of sequences.
        recursive_seq_lens: a list with the list of lengths.

    Raises:
        ArgumentError: there are several levels of lengths.
        ShapeError: the sum of the lengths is not the number of elements.
    """
    if len(recursive_seq_lens) != 1:
        raise ArgumentError(
            f"create_lod_tensor: got {len(recursive_seq_lens)} levels of lengths, expected one"
        )
    lengths = [int(n) for n in recursive_seq_lens[0]]
    if isinstance(data, list):
        rows = [np.asarray(row) for row in data if len(row)]
        data = np.concatenate([row.reshape(len(row), -1) for row in rows]) if rows else np.zeros((0, 1))
    values = np.asarray(data.asnumpy() if isinstance(data, NDArray) else data)
    if sum(lengths) != len(values):
        raise ShapeError(
            f"create_lod_tensor: the sum of lengths is {sum(lengths)}, but there are {len(values)} elements"
        )
    return ragged_array(values, [0, *accumulate(lengths)], dtype=values.dtype)


def create_random_int_lodtensor(
    recursive_seq_lens: Sequence[Sequence[int]], base_shape: Sequence[int], place: Any, low: int, high: int
) -> RaggedNDArray:
    """Return sequences of random integers, from NumPy's global generator.

    Args:
        recursive_seq_lens: a list with the list of lengths.
        base_shape: shape of an element.
        place: accepted.
        low: the smallest integer.
        high: the largest integer.

    Raises:
        ArgumentError: there are several levels of lengths.
    """
    count = sum(recursive_seq_lens[-1]) if len(recursive_seq_lens) else 0
    numbers = np.random.randint(low, high + 1, (count, *base_shape), "int64")
    return create_lod_tensor(numbers, recursive_seq_lens, place)


def feed_arrays(program: Program, feed: Any, wanted: Sequence[Data]) -> dict[str, Any]:
    """Return a feed as arrays of the declared shapes and types.

    Args:
        feed: values by name; may include declared data that is not used.
    """
    given = {} if feed is None else feed
    if not isinstance(given, Mapping):
        raise ArgumentError(f"feed is of type {type(given).__name__}, expected a dict from names to arrays")
    known = [variable.name for variable in program.list_vars() if variable.is_data]
    for name in given:
        if name not in known:
            raise ArgumentError(
                f"feed: the program declares no data {name!r}{did_you_mean(str(name), known)}"
            )
    missing = [data.name for data in wanted if data.name not in given]
    if missing:
        raise ArgumentError(f"feed: {', '.join(missing)} is missing, but the program needs it")
    arrays = {data.name: _array(data, given[data.name]) for data in wanted}
    sizes = {each.name: arrays[each.name].shape[0] for each in wanted if each.shape[0] == -1}
    if len(set(sizes.values())) > 1:
        raise ShapeError(f"feed: batches have different sizes: {sizes}")
    if 0 in sizes.values():
        raise ShapeError(f"feed: the batch of {', '.join(sizes)} is empty, expected at least one line")
    return arrays


def _array(variable: Variable, value: Any) -> Any:
    """Return a value with the type of its variable."""
    try:
        value = value.array if isinstance(value, LoDTensor) else value
        if variable.lod_level:
            return _sequences(variable, value)
        if isinstance(
            value, RaggedNDArray
        ):  # of data that is declared without sequences, only the values count
            value = value.values
        raw = value.asnumpy() if isinstance(value, NDArray) else value
        converted = _cast(np.asarray(raw), variable)
    except (TypeError, ValueError) as error:
        raise DTypeError(f"feed: {variable.name!r} is not an array of {variable.dtype}: {error}") from error
    shape = variable.shape
    if len(converted.shape) != len(shape) or any(n not in (-1, m) for n, m in zip(shape, converted.shape)):
        expected = ("N" if shape[0] == -1 else shape[0], *shape[1:])
        raise ShapeError(f"feed: {variable.name!r} has shape {converted.shape}, expected {expected}")
    return array(converted, dtype=variable.dtype)


def _cast(array: Any, variable: Variable) -> Any:
    """Return an array with the type of a variable."""
    converted = array.astype(variable.dtype, copy=False)
    if converted.dtype.kind in "iu" and array.dtype.kind == "f" and not np.array_equal(converted, array):
        raise ValueError("it has fractions")
    return converted


def _sequences(variable: Variable, value: Any) -> RaggedNDArray:
    """Return sequences, from a ragged array or a list, as a ragged array."""
    if not isinstance(value, RaggedNDArray):
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise TypeError("expected create_lod_tensor(...), or a list of sequences")
        rows = [_cast(np.asarray(row), variable) for row in value]
        value = create_lod_tensor(
            np.concatenate([row.reshape(len(row), *variable.shape[1:]) for row in rows])
            if rows
            else np.zeros((0, *variable.shape[1:])),
            [[len(row) for row in rows]],
        )
    values = value.values.asnumpy()
    values = values.reshape(len(values), *variable.shape[1:])
    return ragged_array(values, value.offsets, dtype=variable.dtype)


def as_bound_shape(data: Data, value: Any) -> Any:
    """Return a value with the shape of the bound input; shares memory.

    Args:
        value: an array of the declared shape.
    """
    if not data.lod_level or value.shape[1:] == data.fed_shape[1:]:
        return value
    record = value.stored
    return RaggedNDArray.of_record(record.replaced(record.values.flatten()), value.context)


def check_indices(symbol: Symbol, values: Mapping[str, Any]) -> None:
    """Raise BoundsError for indices that are not rows of their table, and labels that are not classes."""
    for node in symbol.graph.nodes:
        if node.op is None or node.op.name != "Embedding" or node.inputs[0][0].name not in values:
            continue
        name, table, rows = node.inputs[0][0].name, node.inputs[1][0].name, node.a.input_dim
        given = values[name]
        numbers = (given.values if isinstance(given, RaggedNDArray) else given).raw
        wrong = numbers[(numbers < 0) | (numbers >= rows)]
        if wrong.numel():
            raise BoundsError(
                f"feed: {name!r} has the value {int(wrong[0])}, but the table {table!r} has {rows} rows"
            )
    shapes = {name: value.shape for name, value in values.items()}
    wrong_label = find_invalid_label(NetworkInputs(symbol, shapes, values))
    if wrong_label is not None:
        raise BoundsError(f"feed: {wrong_label.describe(f'row {wrong_label.row} of the batch')}")


class DataFeeder:
    """Converts rows to a feed of `Executor.run`.

    Args:
        feed_list: variables or their names in the order of a row.
        program: program of the names; None: the current one.
    """

    def __init__(self, feed_list: Sequence[Any], place: Any = None, program: Program | None = None) -> None:
        owner = default_main_program() if program is None else program
        self._variables = [owner.var(each) if isinstance(each, str) else each for each in feed_list]

    def feed(self, iterable: Iterable[Sequence[Any]]) -> dict[str, Any]:
        """Return a batch by name.

        Args:
            iterable: rows, each with a value for every variable.

        Raises:
            ArgumentError: a row has another number of values.
        """
        rows = [tuple(row) for row in iterable]
        count = len(self._variables)
        if any(len(row) != count for row in rows):
            raise ArgumentError(f"DataFeeder: a row does not have {count} values, the length of feed_list")
        feed: dict[str, Any] = {}
        for variable, column in zip(self._variables, zip(*rows)):
            if variable.lod_level:
                feed[variable.name] = _sequences(variable, column)
            else:
                array, inner = np.asarray(column), variable.shape[1:]
                is_open = -1 in inner
                feed[variable.name] = array if is_open else array.reshape(len(rows), *inner)
        return feed
