"""Layers that begin a network: what is fed, lookups, and linear maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ... import symbol as sym
from ...base import ArgumentError, ShapeError, dtype_name
from ...symbol import Symbol
from ..variable import Data, ParamAttr, Variable
from .layer_helper import (
    add_layer,
    as_variable,
    as_variables,
    biases,
    check_act,
    main_program,
    parameter,
    program_of,
)


def data(
    name: str,
    shape: Sequence[int],
    append_batch_size: bool = True,
    dtype: Any = "float32",
    lod_level: int = 0,
    stop_gradient: bool = True,
) -> Variable:
    """Declare what is fed: a slot of files, or an entry of `Executor.run`'s feed; once more is the same variable.

    Args:
        name: its name, which is that of the slot.
        shape: of one line, or with `append_batch_size` False of a batch, -1 first.
        append_batch_size: whether an axis for the batch is put before the shape.
        lod_level: 1 if each line has a sequence of its own length, of elements of that shape.
        stop_gradient: accepted; no gradient goes to data.

    Raises:
        ArgumentError: the level is neither 0 nor 1, or the name is taken by something else.
        ShapeError: the shape is no list of sizes; only that of the batch may be open.
    """
    program = main_program()
    if lod_level not in (0, 1):
        raise ArgumentError(f"data {name!r}: lod_level is {lod_level!r}, expected 0, or 1 for sequences")
    declared = tuple(shape) if isinstance(shape, (list, tuple)) else None
    if declared is None or any(isinstance(n, bool) or not isinstance(n, int) for n in declared):
        raise ShapeError(f"data {name!r}: shape is {shape!r}, expected a list of integers such as [1]")
    whole = (-1, *declared) if append_batch_size and declared[:1] != (-1,) else declared
    if not whole or whole[0] > 0 or any(n < 1 for n in whole[1:]):
        raise ShapeError(
            f"data {name!r}: the shape is {whole}, expected -1 for the batch and sizes from 1 behind it"
        )
    kind = dtype_name(dtype)
    known = program.find(name)
    if known is not None and known.is_data:
        if (known.shape, known.dtype, known.lod_level) == (whole, kind, lod_level):
            return known
        raise ArgumentError(f"data {name!r}: the program has declared {known!r}; give this one another name")
    inner = () if lod_level and whole[1:] == (1,) else whole[1:]
    fed = sym.Variable(name, shape=(0, *inner), dtype=kind, stype="ragged" if lod_level else None)
    return program.add(Data(program, fed, name, whole, kind, lod_level))


def embedding(
    input: Any,
    size: Sequence[int],
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """Look rows of a table up.

    Shape:
        input: (N, 1), or sequences of numbers; int64 as a rule.
        output: (N, D), or sequences of rows.

    Args:
        size: (rows, D) of the table.
        is_sparse: whether the table's gradient has only the rows that were looked up.
        padding_idx: row that counts as zeros and is not trained; a negative one is counted from the end.
        param_attr: of the table; tables of one name are one.

    Raises:
        ArgumentError: `padding_idx` is no row.
        ShapeError: `size` is no pair.
    """
    ids = as_variable("embedding", input)
    program = program_of("embedding", ids)
    if not isinstance(size, (list, tuple)) or len(size) != 2 or min(size) < 1:
        raise ShapeError(f"embedding: size is {size!r}, expected (rows, columns) of the table")
    rows, columns = map(int, size)
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise ArgumentError(
            f"embedding: padding_idx is {padding_idx!r}, expected a row of a table of {rows} rows"
        )
    name, kind = program.unique("embedding"), dtype_name(dtype)
    table = parameter(program, f"{name}_weight", (rows, columns), ParamAttr.of(param_attr), kind)
    numbers, is_column = _indices(ids), not ids.lod_level and ids.shape[-1] == 1

    def looked_up(name: str) -> Any:
        own = f"{name}_lookup" if is_column or padding_idx is not None else name
        sizes = {"input_dim": rows, "output_dim": columns}
        whole = sym.Embedding(numbers, table, dtype=kind, sparse_grad=is_sparse, name=own, **sizes)
        if padding_idx is not None:
            whole = _zero_row(padding_idx % rows, numbers, whole, kind, f"{name}_kept" if is_column else name)
        if not is_column:
            return whole
        if len(ids.shape) == 2:
            return sym.Flatten(whole, name=name)
        return sym.squeeze(whole, axis=len(ids.shape) - 1, name=name)

    inner = ids.shape[1:-1] if ids.shape[-1] == 1 else ids.shape[1:]
    return add_layer("embedding", [ids], looked_up, name, shape=(-1, *inner, columns), dtype=kind)


def _indices(ids: Variable) -> Symbol:
    """Return what an Embedding looks up: numbers of sequences without their last axis."""
    if not ids.lod_level or ids.shape[1:] != (1,):
        return ids.symbol
    return ids.fed if isinstance(ids, Data) else sym.squeeze(ids.symbol, axis=1)


def _zero_row(row: int, ids: Symbol, found: Symbol, dtype: str, name: str) -> Any:
    """Return rows of a table with zeros in place of one of them."""
    other = sym.Cast(sym._internal._not_equal_scalar(ids, scalar=float(row)), dtype=dtype)
    return sym.broadcast_mul(found, sym.expand_dims(other, axis=-1), name=name)


def fc(
    input: Any,
    size: int,
    num_flatten_dims: int = 1,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    is_test: bool = False,
    name: str | None = None,
) -> Variable:
    """Map linearly, and apply an activation; several inputs are mapped each by its own weight, and added.

    Shape:
        input: (N, ...), or sequences.
        weights: (size, features), the transpose of Paddle's.
        output: (N, size); with `num_flatten_dims` above 1 the axes before that one are kept.

    Args:
        input: a variable, or several.
        num_flatten_dims: from which axis on features are counted.
        param_attr: of the weight; a list of them for several inputs.
        bias_attr: of the bias; False: none.
        name: first part of the names; None: ``fc_0`` and so on.

    Raises:
        ArgumentError: there is no such activation, or there are not as many attributes as inputs.
        ShapeError: the number of features of an input is not known.
    """
    inputs = as_variables("fc", input)
    check_act("fc", act)
    program = program_of("fc", *inputs)
    given = list(param_attr) if isinstance(param_attr, (list, tuple)) else [param_attr] * len(inputs)
    if len(given) != len(inputs):
        raise ArgumentError(f"fc: param_attr has {len(given)} entries for {len(inputs)} inputs")
    own = program.unique("fc") if name is None else name
    several = len(inputs) > 1
    terms = []
    for i, (each, attr) in enumerate(zip(inputs, given)):
        rows, features = _as_features(each, num_flatten_dims)
        part = f"{own}_{i}" if several else own
        weight = parameter(program, f"{part}_weight", (size, features), ParamAttr.of(attr))
        terms.append((part, rows, weight))
    last = len(terms) - 1
    bias = biases(program, own, size, bias_attr)
    attributes = {"num_hidden": size, "flatten": num_flatten_dims == 1}

    def linear(name: str) -> Any:
        total: Any = None
        for i, (part, rows, weight) in enumerate(terms):
            given = [rows, weight, *(bias if i == last else [])]
            map_name = f"{part}_map" if several else name
            one = sym.FullyConnected(*given, no_bias=len(given) == 2, name=map_name, **attributes)
            sum_name = name if i == last else f"{part}_sum"
            total = one if total is None else sym.broadcast_add(total, one, name=sum_name)
        return total

    shape = (*inputs[0].shape[:num_flatten_dims], size)
    return add_layer("fc", inputs, linear, own, act=act, shape=shape, dtype="float32")


def _as_features(variable: Variable, axis: int) -> tuple[Symbol, int]:
    """Return what `FullyConnected` maps, and how many features it has."""
    shape, symbol = variable.shape, variable.symbol
    if variable.lod_level and axis != 1:
        raise ArgumentError(
            f"fc: num_flatten_dims is {axis!r}, expected 1 for sequences such as {variable.name!r}"
        )
    if isinstance(axis, bool) or not isinstance(axis, int) or not 1 <= axis < max(len(shape), 2):
        raise ArgumentError(f"fc: num_flatten_dims is {axis!r} for {variable.name!r} of shape {shape}")
    features = math.prod(shape[axis:])
    if any(n < 1 for n in shape[axis:]) or len(shape) < 2:
        raise ShapeError(f"fc: {variable.name!r} has the shape {shape}; its features must be known")
    if 1 < axis < len(shape) - 1:
        symbol = sym.Reshape(symbol, shape=(*[0] * axis, -1))
    return symbol, features


def create_parameter(
    shape: Sequence[int],
    dtype: Any = "float32",
    name: str | None = None,
    attr: Any = None,
    default_initializer: Any = None,
) -> Variable:
    """Make a parameter of one's own; `layers.create_parameter`.

    Args:
        shape: length of each axis.
        name: its name; None: one of its own.
        default_initializer: its first values; None: Xavier's.
    """
    program = main_program()
    own = program.unique("create_parameter") if name is None else name
    chosen = ParamAttr.of(attr)
    parameter(program, own, tuple(map(int, shape)), chosen, dtype_name(dtype), default_initializer)
    return program.var(chosen.name or own)
