"""Input layers: data, embeddings, fully connected layers and parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral
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
    parameter_variable,
    program_of,
)


def data(
    name: str,
    shape: Sequence[int],
    append_batch_size: bool = True,
    dtype: Any = "float32",
    lod_level: int = 0,
    type: Any = None,
    stop_gradient: bool = True,
) -> Variable:
    """Declare data, a slot of files or a feed of `Executor.run`; a second call returns the same variable.

    Args:
        name: name of the data, and of its slot.
        shape: shape of a line, or with `append_batch_size` False of a batch, whose first axis is -1 for lines, or a
            size for data that is not of lines. Other axes can be -1, too, if batches differ in them.
        append_batch_size: whether to add an axis for the batch.
        lod_level: 1 for sequences of different lengths with elements of this shape.
        type: ignored.
        stop_gradient: ignored; data has no gradient.

    Raises:
        ArgumentError: the level is not 0 or 1, `append_batch_size` is not a bool, or the name is in use.
        ShapeError: the shape is not a list of sizes.
    """
    program = main_program()
    if lod_level not in (0, 1):
        raise ArgumentError(f"data {name!r}: lod_level is {lod_level!r}, expected 0, or 1 for sequences")
    if not isinstance(append_batch_size, bool):
        raise ArgumentError(
            f"data {name!r}: append_batch_size is {append_batch_size!r}, expected True or False"
        )
    is_list = isinstance(shape, (list, tuple))
    if not is_list or any(isinstance(n, bool) or not isinstance(n, Integral) for n in shape):
        raise ShapeError(f"data {name!r}: shape is {shape!r}, expected a list of integers such as [1]")
    declared = tuple(map(int, shape))
    whole = (-1, *declared) if append_batch_size and declared[:1] != (-1,) else declared
    if not whole or any(n < 1 and n != -1 for n in whole) or lod_level and -1 in whole[1:]:
        raise ShapeError(f"data {name!r}: the shape is {whole}, expected sizes from 1, or -1 for open ones")
    kind = dtype_name(dtype)
    known = program.find(name)
    if known is not None and known.is_data:
        if (known.shape, known.dtype, known.lod_level) == (whole, kind, lod_level):
            return known
        raise ArgumentError(f"data {name!r}: the program already has {known!r}; choose another name")
    inner = () if lod_level and whole[1:] == (1,) else whole[1:]
    fed_shape = tuple(max(n, 0) for n in (whole[0], *inner))
    fed = sym.Variable(name, shape=fed_shape, dtype=kind, stype="ragged" if lod_level else None)
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
    """Look up rows of a table.

    Shape:
        input: (N, 1), or sequences of indices; usually int64.
        output: (N, D), or sequences of rows.

    Args:
        size: (rows, D) of the table.
        is_sparse: whether the gradient of the table is row-sparse.
        padding_idx: row that is replaced by zeros and not trained; negative values count from the end.
        param_attr: attributes of the table; tables with the same name are shared.

    Raises:
        ArgumentError: `padding_idx` is not a row.
        ShapeError: `size` is not a pair.
    """
    return look_up(input, size, is_sparse, padding_idx, param_attr, dtype)


def look_up(
    input: Any,
    size: Sequence[int],
    is_sparse: bool,
    padding_idx: int | None,
    param_attr: Any,
    dtype: Any,
    keeps_axes: bool = False,
) -> Variable:
    """Look up rows of a table; see `embedding`.

    Args:
        keeps_axes: whether a last axis of length 1 of the input stays.
    """
    ids = as_variable("embedding", input)
    program = program_of("embedding", ids)
    if not isinstance(size, (list, tuple)) or len(size) != 2 or min(size) < 1:
        raise ShapeError(f"embedding: size is {size!r}, expected (rows, columns) of the table")
    rows, columns = map(int, size)
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise ArgumentError(
            f"embedding: padding_idx is {padding_idx!r}, expected a row of a table with {rows} rows"
        )
    name, kind = program.unique("embedding"), dtype_name(dtype)
    table = parameter(program, f"{name}_weight", (rows, columns), ParamAttr.of(param_attr), kind)
    numbers, is_column = _indices(ids), not ids.lod_level and ids.shape[-1] == 1 and not keeps_axes
    adds_axis = keeps_axes and ids.lod_level and ids.shape[1:] == (1,)

    def looked_up(name: str) -> Any:
        changes = is_column or adds_axis
        own = f"{name}_lookup" if changes or padding_idx is not None else name
        sizes = {"input_dim": rows, "output_dim": columns}
        whole = sym.Embedding(numbers, table, dtype=kind, sparse_grad=is_sparse, name=own, **sizes)
        if padding_idx is not None:
            whole = _zero_row(padding_idx % rows, numbers, whole, kind, f"{name}_kept" if changes else name)
        if adds_axis:
            return sym.expand_dims(whole, axis=1, name=name)
        if not is_column:
            return whole
        if len(ids.shape) == 2:
            return sym.Flatten(whole, name=name)
        return sym.squeeze(whole, axis=len(ids.shape) - 1, name=name)

    drops = ids.shape[-1] == 1 and len(ids.shape) > 1 and not keeps_axes
    inner = ids.shape[1:-1] if drops else ids.shape[1:]
    return add_layer("embedding", [ids], looked_up, name, shape=(ids.shape[0], *inner, columns), dtype=kind)


def _indices(ids: Variable) -> Symbol:
    """Return the indices of an Embedding: those of sequences without their last axis."""
    if not ids.lod_level or ids.shape[1:] != (1,):
        return ids.symbol
    return ids.fed if isinstance(ids, Data) else sym.squeeze(ids.symbol, axis=1)


def _zero_row(row: int, ids: Symbol, found: Symbol, dtype: str, name: str) -> Any:
    """Return rows of a table with one of them replaced by zeros."""
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
    """Apply a fully connected layer with an activation; several inputs have their own weights and are added.

    Shape:
        input: (N, ...), or sequences.
        weights: (size, features), the transpose of Paddle's.
        output: (N, size); with `num_flatten_dims` above 1 the axes before it are kept.

    Args:
        input: one or several variables.
        num_flatten_dims: first axis of the features.
        param_attr: attributes of the weight, or a list of them for several inputs.
        bias_attr: attributes of the bias; False: no bias.
        name: prefix of the names; None: ``fc_0`` and so on.

    Raises:
        ArgumentError: the activation is unknown, or the numbers of attributes and inputs differ.
        ShapeError: the number of features of an input is unknown.
    """
    inputs = as_variables("fc", input)
    check_act("fc", act)
    program = program_of("fc", *inputs)
    attrs = list(param_attr) if isinstance(param_attr, (list, tuple)) else [param_attr] * len(inputs)
    if len(attrs) != len(inputs):
        raise ArgumentError(f"fc: param_attr has {len(attrs)} entries for {len(inputs)} inputs")
    own = program.unique("fc") if name is None else name
    several = len(inputs) > 1
    terms = []
    for i, (each, attr) in enumerate(zip(inputs, attrs)):
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
            attrs = [rows, weight, *(bias if i == last else [])]
            map_name = f"{part}_map" if several else name
            one = sym.FullyConnected(*attrs, no_bias=len(attrs) == 2, name=map_name, **attributes)
            sum_name = name if i == last else f"{part}_sum"
            total = one if total is None else sym.broadcast_add(total, one, name=sum_name)
        return total

    shape = (*inputs[0].shape[:num_flatten_dims], size)
    return add_layer("fc", inputs, linear, own, act=act, shape=shape, dtype="float32")


def _as_features(variable: Variable, axis: int) -> tuple[Symbol, int]:
    """Return the input of `FullyConnected`, and its number of features."""
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
    """Create a parameter.

    Args:
        shape: length of each axis.
        name: its name; None: a new name.
        default_initializer: its initializer; None: Xavier's.
    """
    program = main_program()
    own = program.unique("create_parameter") if name is None else name
    return parameter_variable(
        program, own, tuple(map(int, shape)), ParamAttr.of(attr), dtype_name(dtype), default_initializer
    )
