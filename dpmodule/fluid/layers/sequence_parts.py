"""Layers that cut, join and pad sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import symbol as sym
from ...base import ArgumentError, ShapeError
from ..variable import Variable
from .elementwise import elementwise_add, elementwise_mul
from .layer_helper import (
    add_layer,
    add_result,
    apply,
    as_sequences,
    as_variable,
    as_variables,
    check_integer,
    check_number,
    width_of,
)
from .sequence import sequence_expand, sequence_pool
from .shapes import one_hot


def sequence_concat(input: Any, name: str | None = None) -> Variable:
    """Join the same sequence of several variables.

    Args:
        input: a list of variables with equal features.
    """
    several = [as_sequences("sequence_concat", each) for each in as_variables("sequence_concat", input)]
    return apply("sequence_concat", sym.sequence_concat, several, name)


def sequence_expand_as(x: Any, y: Any, name: str | None = None) -> Variable:
    """Repeat each row of x by the length of the sequence of y, as `sequence_expand` of rows.

    Args:
        x: rows.
        y: sequences, of which only the lengths are read.

    Raises:
        ArgumentError: `x` holds sequences, or `y` does not.
    """
    rows = as_variable("sequence_expand_as", x, "x")
    if rows.lod_level:
        raise ArgumentError(f"sequence_expand_as: x {rows.name!r} holds sequences, expected rows")
    return sequence_expand(rows, as_sequences("sequence_expand_as", y, "y"), name=name)


def sequence_slice(input: Any, offset: Any, length: Any, name: str | None = None) -> Variable:
    """Return a part of each sequence.

    Shape:
        input: sequences.
        offset, length: (N, 1), integers.
        output: sequences.

    Args:
        offset: first elements of the parts.
        length: lengths of the parts.
    """
    layer = "sequence_slice"
    given = [
        as_sequences(layer, input),
        as_variable(layer, offset, "offset"),
        as_variable(layer, length, "length"),
    ]
    return apply(layer, sym.sequence_slice, given, name)


def sequence_enumerate(input: Any, win_size: int, pad_value: int = 0, name: str | None = None) -> Variable:
    """Return for each element the numbers of the window that begins with it.

    Shape:
        input: sequences of integers.
        output: sequences of (win_size) integers.

    Args:
        win_size: number of elements of a window.
        pad_value: number after the end of a sequence.
    """
    layer = "sequence_enumerate"
    sequences = as_sequences(layer, input)
    size = check_integer(layer, "win_size", win_size, 1)

    def made(name: str) -> Any:
        return sym.sequence_enumerate(sequences.symbol, win_size=size, pad_value=int(pad_value), name=name)

    return add_layer(layer, [sequences], made, name, shape=(-1, size))


def sequence_pad(
    x: Any, pad_value: Any, maxlen: int | None = None, name: str | None = None
) -> tuple[Variable, Variable]:
    """Return sequences as a dense variable, with a number after their ends, and their lengths.

    Shape:
        x: sequences of elements (...).
        pad_value: (1,).
        output: (N, maxlen, ...), and (N,) int64.

    Args:
        pad_value: the number, or a variable of `fill_constant` or `assign`.
        maxlen: length of all rows, at least that of the longest one; it is not found from the batch, as Paddle does,
            since networks have fixed shapes.

    Raises:
        ArgumentError: `x` does not hold sequences, or `maxlen` is None.
    """
    layer = "sequence_pad"
    sequences = as_sequences(layer, x, "x")
    if maxlen is None:
        raise ArgumentError(f"{layer}: maxlen is None, expected the length of all rows, such as maxlen=100")
    size = check_integer(layer, "maxlen", maxlen, 1)
    if isinstance(pad_value, Variable):
        value = pad_value.symbol
    else:
        check_number(layer, "pad_value", pad_value)
        value = sym.full(shape=(1,), val=float(pad_value), dtype=sequences.dtype)
    own = sequences.program.unique(layer) if name is None else name
    both = sym.sequence_pad(sequences.symbol, value, maxlen=size, name=f"{own}_both")
    whole = (-1, size, *sequences.shape[1:])
    padded = add_result(layer, [sequences], both[0], own, shape=whole, lod_level=0)
    counted = {"shape": (-1,), "dtype": "int64", "lod_level": 0}
    return padded, add_result(layer, [sequences], both[1], f"{own}_length", **counted)


def sequence_unpad(x: Any, length: Any, name: str | None = None) -> Variable:
    """Return padded rows as sequences.

    Shape:
        x: (N, T, ...).
        length: (N,) or (N, 1), integers up to T.
        output: sequences of elements (...).

    Args:
        length: lengths of the rows.
    """
    layer = "sequence_unpad"
    rows, lengths = as_variable(layer, x, "x"), as_variable(layer, length, "length")
    if rows.lod_level or len(rows.shape) < 3:
        raise ShapeError(
            f"{layer}: x {rows.name!r} has the shape {rows.shape}, expected (N, T, ...) without sequences"
        )

    def made(name: str) -> Any:
        return sym.sequence_unpad(rows.symbol, lengths.symbol, name=name)

    return add_layer(layer, [rows, lengths], made, name, shape=(-1, *rows.shape[2:]), lod_level=1)


def sequence_mask(
    x: Any, maxlen: int | None = None, dtype: Any = "int64", name: str | None = None
) -> Variable:
    """Return 1 for positions before a length, and 0 for others.

    Shape:
        x: (N,) or (N, 1), lengths.
        output: (N, maxlen).

    Args:
        maxlen: number of positions; as in `sequence_pad`, it is required.

    Raises:
        ArgumentError: `maxlen` is None.
    """
    layer = "sequence_mask"
    lengths = as_variable(layer, x, "x")
    if maxlen is None:
        raise ArgumentError(f"{layer}: maxlen is None, expected the number of positions, such as maxlen=100")
    size = check_integer(layer, "maxlen", maxlen, 1)

    def made(name: str) -> Any:
        places = sym.arange(start=0, stop=size, dtype="float32")
        column = sym.Reshape(sym.Cast(lengths.symbol, dtype="float32"), shape=(-1, 1))
        before = sym.broadcast_lesser(sym.Reshape(places, shape=(1, -1)), column, name=f"{name}_before")
        return sym.Cast(before, dtype=dtype, name=name)

    return add_layer(layer, [lengths], made, name, shape=(-1, size), dtype=str(dtype))


def sequence_scatter(input: Any, index: Any, updates: Any, name: str | None = None) -> Variable:
    """Add the numbers of each sequence to places of a row.

    Shape:
        input: (N, features).
        index: N sequences of place numbers.
        updates: as many sequences of numbers.
        output: (N, features).

    Raises:
        ArgumentError: `index` or `updates` does not hold sequences.
        ShapeError: the size of the last axis of `input` is unknown.
    """
    layer = "sequence_scatter"
    rows = as_variable(layer, input)
    places, numbers = as_sequences(layer, index, "index"), as_sequences(layer, updates, "updates")
    marks = one_hot(places, width_of(layer, rows))
    return elementwise_add(rows, sequence_pool(elementwise_mul(marks, numbers), "sum"), name=name)


def sequence_reshape(input: Any, new_dim: int) -> Variable:
    """Return the numbers of each sequence with another number of features, and thus another length.

    Args:
        new_dim: the number of features, which divides the numbers of each sequence.
    """
    layer = "sequence_reshape"
    sequences = as_sequences(layer, input)
    size = check_integer(layer, "new_dim", new_dim, 1)
    width_of(layer, sequences)

    def made(name: str) -> Any:
        return sym.sequence_reshape(sequences.symbol, new_dim=size, name=name)

    return add_layer(layer, [sequences], made, shape=(-1, size))


def sequence_erase(input: Any, tokens: Sequence[int]) -> Variable:
    """Drop some numbers from each sequence.

    Args:
        input: sequences of integers.
        tokens: the numbers to drop.
    """
    layer = "sequence_erase"
    given = [as_sequences(layer, input)]
    return apply(layer, sym.sequence_erase, given, tokens=tuple(map(int, tokens)))
