"""Readers that feed a program: `py_reader` and `read_file`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import ArgumentError
from ..reader import DataLoader, GeneratorLoader
from ..variable import Variable
from .inputs import data
from .layer_helper import main_program


def py_reader(
    capacity: int,
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[Any],
    lod_levels: Sequence[int] | None = None,
    name: str | None = None,
    use_double_buffer: bool = True,
) -> GeneratorLoader:
    """Declare data, and return a loader that feeds the current program with it.

    Args:
        capacity: number of batches to read ahead, from 1.
        shapes: shapes of the batches of each, with -1 first.
        dtypes: their element types.
        lod_levels: 1 for sequences, else 0; None: no sequences.
        name: prefix of the names of the data; None: "py_reader".
        use_double_buffer: accepted.

    Raises:
        ArgumentError: the lists differ in length, or `capacity` is below 1.

    Source: Paddle 1.8 `py_reader`.
    """
    levels = [0] * len(shapes) if lod_levels is None else list(lod_levels)
    if not len(shapes) == len(dtypes) == len(levels):
        raise ArgumentError(
            f"py_reader: got {len(shapes)} shapes, {len(dtypes)} dtypes and {len(levels)} lod_levels"
        )
    program, prefix = main_program(), name or "py_reader"
    variables = [
        data(program.unique(prefix), list(shape), append_batch_size=False, dtype=dtype, lod_level=level)
        for shape, dtype, level in zip(shapes, dtypes, levels)
    ]
    return create_py_reader_by_data(capacity, variables)


def create_py_reader_by_data(
    capacity: int, feed_list: Sequence[Variable], name: str | None = None, use_double_buffer: bool = True
) -> GeneratorLoader:
    """Return a loader that feeds the current program.

    Args:
        capacity: number of batches to read ahead, from 1.
        feed_list: the variables that a batch feeds.
        name: accepted.
        use_double_buffer: accepted.

    Raises:
        ArgumentError: `feed_list` is not a list of variables, or `capacity` is below 1.

    Source: Paddle 1.8 `create_py_reader_by_data`.
    """
    return DataLoader.from_generator(feed_list, capacity, iterable=False)


def read_file(reader: GeneratorLoader) -> Any:
    """Return the variables that a loader feeds: a list, or the only one.

    Args:
        reader: a result of `py_reader` or `create_py_reader_by_data`.
    """
    return reader.variables if len(reader.variables) > 1 else reader.variables[0]


def double_buffer(reader: GeneratorLoader, place: Any = None, name: str | None = None) -> GeneratorLoader:
    """Return a loader as it is: it reads ahead.

    Args:
        place: accepted.
        name: accepted.
    """
    return reader
