"""Constants, random numbers and variables without an input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from ... import initializer as init
from ... import symbol as sym
from ...base import ArgumentError, dtype_name
from ...symbol import Symbol
from ..variable import ParamAttr, Variable
from .comparison import argmax as argmax  # these are in this module in Paddle, too
from .comparison import argmin as argmin
from .comparison import argsort as argsort
from .elementwise import cast as cast
from .elementwise import concat as concat
from .elementwise import sums as sums
from .layer_helper import (
    add_layer,
    apply,
    as_variable,
    check_integer,
    check_number,
    main_program,
    parameter_variable,
)
from .shapes import reverse as reverse


def _sizes(layer: str, shape: Any) -> tuple[int, ...]:
    """Return the shape of a result that has no batch axis."""
    if not isinstance(shape, (list, tuple)):
        raise ArgumentError(f"{layer}: shape is {shape!r}, expected a list of sizes")
    return tuple(check_integer(layer, "an axis of shape", size, 1) for size in shape)


class _Length(Variable):
    """The length of an axis of a variable, which `fill_constant` takes as a size."""

    def __init__(self, value: Variable, of: Variable, axis: int) -> None:
        super().__init__(value.program, value.symbol, value.name, value.shape, value.dtype)
        self.of, self.axis = of, axis


class _Shape(Variable):
    """The lengths of the axes of a variable."""

    def __init__(self, of: Variable, symbol: Symbol, name: str) -> None:
        super().__init__(of.program, symbol, name, (len(of.shape),), "int32")
        self.of = of

    def __getitem__(self, index: Any) -> Variable:
        found = super().__getitem__(index)
        if not isinstance(index, Integral):
            return found
        return _Length(found, self.of, int(index) % len(self.of.shape))


def shape(input: Any) -> Variable:
    """Return the lengths of all axes, int32; the first one of sequences is their number.

    Shape:
        output: (number of axes,).

    Args:
        input: a variable.
    """
    given = as_variable("shape", input)

    def made(name: str) -> Any:
        data = sym.sequence_pool(given.symbol, pool_type="first") if given.lod_level else given.symbol
        return sym.Cast(sym.shape_array(data), dtype="int32", name=name)

    own = given.program.unique("shape")
    added: Variable = given.program.add(_Shape(given, made(own), own))
    return added


def fill_constant(
    shape: Sequence[Any], dtype: Any, value: float, force_cpu: bool = False, out: None = None
) -> Variable:
    """Return a variable filled with a number.

    Args:
        shape: length of each axis, one of which can be an element of `shape`, such as ``shape(x)[0]``.
        value: the number.
        force_cpu: ignored.
        out: must be None.

    Raises:
        ArgumentError: an argument is not valid.
    """
    if out is not None:
        raise ArgumentError("fill_constant: out is not supported; use the result of the layer")
    check_number("fill_constant", "value", value)
    given = shape if isinstance(shape, (list, tuple)) else []
    lengths = [size for size in given if isinstance(size, _Length)]
    if len(lengths) == 1:
        to = [isinstance(size, _Length) for size in shape].index(True)
        like = [-1 if isinstance(size, _Length) else size for size in shape]
        return fill_constant_batch_size_like(lengths[0].of, like, dtype, value, lengths[0].axis, to)
    sizes, kind = _sizes("fill_constant", shape), dtype_name(dtype)

    def made(name: str) -> Symbol:
        return sym.full(shape=sizes, val=float(value), dtype=kind, name=name)

    return main_program().derive("fill_constant", made, sizes, kind)


def zeros(shape: Sequence[int], dtype: Any, force_cpu: bool = False) -> Variable:
    """Return a variable of zeros; see `fill_constant`."""
    return fill_constant(shape, dtype, 0.0)


def ones(shape: Sequence[int], dtype: Any, force_cpu: bool = False) -> Variable:
    """Return a variable of ones; see `fill_constant`."""
    return fill_constant(shape, dtype, 1.0)


def zeros_like(x: Any, out: None = None) -> Variable:
    """Return zeros of the shape of a variable.

    Args:
        out: must be None.
    """
    return _like("zeros_like", sym.zeros_like, x, out)


def ones_like(x: Any, out: None = None) -> Variable:
    """Return ones of the shape of a variable.

    Args:
        out: must be None.
    """
    return _like("ones_like", sym.ones_like, x, out)


def _like(layer: str, operator: Any, x: Any, out: Any) -> Variable:
    if out is not None:
        raise ArgumentError(f"{layer}: out is not supported; use the result of the layer")
    return apply(layer, operator, [as_variable(layer, x, "x")])


def assign(input: Any, output: Any = None) -> Variable:
    """Return a copy of a variable, or the values of an array as a variable that is not trained.

    Args:
        input: a variable, or an array.
        output: a result of `create_tensor`, which gets the copy; None: a new variable.

    Raises:
        ArgumentError: `input` is neither a variable nor an array, or `output` is not a variable that a layer computes.
    """
    if output is not None:
        place = as_variable("assign", output, "output")
        place.become(assign(input))
        return place
    if isinstance(input, Variable):
        return apply("assign", sym.identity, [input])
    if not isinstance(input, np.ndarray):
        raise ArgumentError(f"assign: input is {input!r}, expected a variable of fluid or a NumPy array")
    kind = dtype_name(input.dtype)
    return _untrained(
        "assign", None, input.shape, "float32" if kind == "float64" else kind, init.Constant(input)
    )


def create_tensor(dtype: Any, name: str | None = None, persistable: bool = False) -> Variable:
    """Return a variable that is 0 until `assign`, `accuracy` or `sums` gives it a value.

    Args:
        dtype: its element type.
        name: its name; None: a new name.
        persistable: accepted.
    """
    kind = dtype_name(dtype)
    program = main_program()
    return program.derive("tensor", lambda own: sym.zeros((1,), dtype=kind, name=own), (1,), kind, 0, name)


def _untrained(hint: str, name: str | None, shape: Any, dtype: str, start: Any) -> Variable:
    """Return a parameter that is not trained, which blocks the gradient."""
    program = main_program()
    own = program.unique(hint) if name is None else name
    return parameter_variable(program, own, tuple(shape), ParamAttr(trainable=False), dtype, start)


def create_global_var(
    shape: Sequence[int],
    value: float,
    dtype: Any,
    persistable: bool = False,
    force_cpu: bool = False,
    name: str | None = None,
) -> Variable:
    """Create a variable that is saved with the parameters, but not trained.

    Args:
        shape: length of each axis.
        value: its first value.
        persistable: accepted; it is always saved.
        force_cpu: ignored.
        name: its name; None: a new name.
    """
    check_number("create_global_var", "value", value)
    sizes = _sizes("create_global_var", shape)
    return _untrained("global_var", name, sizes, dtype_name(dtype), init.Constant(float(value)))


def _per_line(
    layer: str, input: Any, shape: Sequence[int], at: int, to: int, dtype: str
) -> tuple[Variable, Any]:
    """Return the input, and a function from a name to zeros of a shape with the batch size of the input.

    Args:
        at: axis of the input whose length is taken.
        to: axis of the result that has this length.
    """
    like = as_variable(layer, input)
    if not 0 <= at < len(like.shape) or not 0 <= to < len(shape) or like.lod_level and at:
        raise ArgumentError(
            f"{layer}: input_dim_idx is {at!r} and output_dim_idx {to!r} for shapes {like.shape} and {tuple(shape)}"
        )

    def made(name: str) -> Any:
        data = sym.sequence_pool(like.symbol, pool_type="first") if like.lod_level else like.symbol
        rest = tuple(i for i in range(len(like.shape)) if i != at)
        column = sym.zeros_like(data)
        column = sym.sum(column, axis=rest) if rest else column
        place = tuple(-1 if i == to else 1 for i in range(len(shape)))
        column = sym.Cast(sym.Reshape(column, shape=place), dtype=dtype)
        return sym.tile(column, reps=tuple(1 if i == to else n for i, n in enumerate(shape)), name=name)

    return like, made


def fill_constant_batch_size_like(
    input: Any,
    shape: Sequence[int],
    dtype: Any,
    value: float,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    force_cpu: bool = False,
) -> Variable:
    """Return a variable filled with a number, with the batch size of another variable.

    Args:
        input: a variable, or sequences, whose number counts.
        shape: length of each axis; that of `output_dim_idx` is ignored.
        value: the number.
        input_dim_idx: axis of the input.
        output_dim_idx: axis of the result that has the length of that axis.
        force_cpu: ignored.

    Raises:
        ArgumentError: an argument is not valid.
    """
    layer, kind = "fill_constant_batch_size_like", dtype_name(dtype)
    check_number(layer, "value", value)
    like, zeros_of = _per_line(layer, input, shape, input_dim_idx, output_dim_idx, kind)

    def made(name: str) -> Any:
        return sym._internal._plus_scalar(zeros_of(f"{name}_zeros"), scalar=float(value), name=name)

    return _filled(layer, like, made, shape, output_dim_idx, kind)


def _filled(
    layer: str, like: Variable, made: Callable[[str], Any], shape: Sequence[int], to: int, dtype: str
) -> Variable:
    whole = tuple(-1 if i == to else int(n) for i, n in enumerate(shape))
    return add_layer(layer, [like], made, shape=whole, dtype=dtype, lod_level=0)


def _check_seed(layer: str, seed: Any) -> None:
    if seed:
        raise ArgumentError(
            f"{layer}: seed is {seed!r}, expected 0; mx.random.seed(n) seeds all random numbers"
        )


def uniform_random(
    shape: Sequence[int], dtype: Any = "float32", min: float = -1.0, max: float = 1.0, seed: int = 0
) -> Variable:
    """Return random numbers, uniform from min to max, new ones in each run.

    Args:
        shape: length of each axis.
        seed: must be 0; use `mx.random.seed`.
    """
    return _random("uniform_random", shape, dtype, seed, sym.random_uniform, low=min, high=max)


def gaussian_random(
    shape: Sequence[int], mean: float = 0.0, std: float = 1.0, seed: int = 0, dtype: Any = "float32"
) -> Variable:
    """Return normal random numbers, new ones in each run.

    Args:
        shape: length of each axis.
        std: standard deviation.
        seed: must be 0; use `mx.random.seed`.
    """
    return _random("gaussian_random", shape, dtype, seed, sym.random_normal, loc=mean, scale=std)


def _random(layer: str, shape: Any, dtype: Any, seed: Any, operator: Any, **numbers: float) -> Variable:
    _check_seed(layer, seed)
    for name, value in numbers.items():
        check_number(layer, name, value)
    sizes, kind = _sizes(layer, shape), dtype_name(dtype)
    given = {name: float(value) for name, value in numbers.items()}

    def made(name: str) -> Symbol:
        symbol: Symbol = operator(shape=sizes, dtype=kind, name=name, **given)
        return symbol

    return main_program().derive(layer, made, sizes, kind)


def uniform_random_batch_size_like(
    input: Any,
    shape: Sequence[int],
    dtype: Any = "float32",
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
) -> Variable:
    """Return uniform random numbers with the batch size of another variable.

    Args:
        input: as in `fill_constant_batch_size_like`; so are the next arguments.
        seed: must be 0; use `mx.random.seed`.
    """
    layer, numbers = "uniform_random_batch_size_like", {"low": min, "high": max}
    operator = sym._internal._random_uniform_like
    return _random_like(layer, operator, input, shape, dtype, input_dim_idx, output_dim_idx, seed, numbers)


def gaussian_random_batch_size_like(
    input: Any,
    shape: Sequence[int],
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: Any = "float32",
) -> Variable:
    """Return normal random numbers with the batch size of another variable.

    Args:
        input: as in `fill_constant_batch_size_like`; so are the next arguments.
        std: standard deviation.
        seed: must be 0; use `mx.random.seed`.
    """
    layer, numbers = "gaussian_random_batch_size_like", {"loc": mean, "scale": std}
    operator = sym._internal._random_normal_like
    return _random_like(layer, operator, input, shape, dtype, input_dim_idx, output_dim_idx, seed, numbers)


def _random_like(
    layer: str, operator: Any, input: Any, shape: Any, dtype: Any, at: int, to: int, seed: Any, numbers: Any
) -> Variable:
    _check_seed(layer, seed)
    kind = dtype_name(dtype)
    like, zeros_of = _per_line(layer, input, shape, at, to, kind)
    given = {name: float(value) for name, value in numbers.items()}

    def made(name: str) -> Any:
        return operator(zeros_of(f"{name}_zeros"), name=name, **given)

    return _filled(layer, like, made, shape, to, kind)


def hash(input: Any, hash_size: int, num_hash: int = 1, name: str | None = None) -> Variable:
    """Return hashes of the numbers of the last axis: XXH64 with the seeds 0, 1, ..., modulo `hash_size`.

    Each number counts with its 8 bytes. Paddle before 1.8 hashes only half of the bytes of int64.

    Shape:
        input: (N, ..., k), or sequences of k integers.
        output: (N, ..., num_hash, 1), int64.

    Args:
        hash_size: number of values.
        num_hash: number of hashes.

    Source: Paddle 1.8 `hash`.
    """
    given = as_variable("hash", input)
    size = check_integer("hash", "hash_size", hash_size, 1)
    count = check_integer("hash", "num_hash", num_hash, 1)

    def made(name: str) -> Any:
        return sym._internal._xxhash(given.symbol, hash_size=size, num_hash=count, name=name)

    return add_layer("hash", [given], made, name, shape=(*given.shape[:-1], count, 1), dtype="int64")
