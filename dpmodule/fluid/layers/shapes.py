"""Layers that change shapes, and that take parts of variables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ... import symbol as sym
from ...base import ArgumentError, ShapeError
from ...symbol import Symbol
from ..variable import Variable
from .elementwise import concat
from .layer_helper import (
    add_layer,
    add_result,
    as_variable,
    as_variables,
    check_integer,
    place_of_axis,
    width_of,
)

_OPEN_END = 2**31 - 1
"""Ends of slices from here on mean the end of the axis, as in Paddle."""


def _changed(
    layer: str,
    variable: Variable,
    make: Callable[[Symbol, str], Any],
    name: str | None = None,
    axes: Sequence[int] = (0,),
) -> Variable:
    """Add a layer whose shape is inferred.

    Args:
        axes: axes along which it works; sequences have no first one.
    """
    if variable.lod_level and any(axis % len(variable.shape) == 0 for axis in axes):
        raise ArgumentError(f"{layer}: {variable.name!r} holds sequences; pool them first")
    return add_layer(layer, [variable], lambda own: make(variable.symbol, own), name, shape=None, dtype=None)


def transpose(x: Any, perm: Sequence[int], name: str | None = None) -> Variable:
    """Permute axes.

    Args:
        perm: the axes of `x` in their new order.
    """
    return _changed(
        "transpose", as_variable("transpose", x, "x"),
        lambda data, own: sym.transpose(data, axes=tuple(perm), name=own), name,
    )  # fmt: skip


def squeeze(input: Any, axes: Sequence[int], name: str | None = None) -> Variable:
    """Drop axes of length 1.

    Args:
        axes: the axes; an empty list means all of length 1.
    """
    return _changed(
        "squeeze", as_variable("squeeze", input),
        lambda data, own: sym.squeeze(data, axis=tuple(axes) or None, name=own), name, axes,
    )  # fmt: skip


def unsqueeze(input: Any, axes: int | Sequence[int], name: str | None = None) -> Variable:
    """Insert axes of length 1.

    Args:
        axes: one or several positions in the result, inserted one after the other.
    """
    places = [axes] if isinstance(axes, int) else list(axes)
    if not places:
        raise ArgumentError("unsqueeze: axes is empty, expected positions of new axes")

    def made(data: Symbol, own: str) -> Any:
        for i, place in enumerate(places):
            data = sym.expand_dims(data, axis=place, name=own if i == len(places) - 1 else f"{own}_{i}")
        return data

    variable = as_variable("unsqueeze", input)
    return _changed("unsqueeze", variable, made, name, [0 if 0 in places else 1])


def flatten(x: Any, axis: int = 1, name: str | None = None) -> Variable:
    """Reshape to a matrix.

    Shape:
        output: (product of the axes before `axis`, product of the others).

    Args:
        axis: first axis of the columns, from 1.

    Raises:
        ShapeError: the columns have no known length.
    """
    variable = as_variable("flatten", x, "x")
    inner = variable.shape[axis:]
    if any(size < 1 for size in inner) or not 1 <= axis <= len(variable.shape):
        raise ShapeError(f"flatten: axis is {axis!r} for {variable.name!r} of shape {variable.shape}")
    columns = math.prod(inner)
    return _changed(
        "flatten", variable, lambda data, own: sym.Reshape(data, shape=(-1, columns), name=own), name
    )


def slice(input: Any, axes: Sequence[int], starts: Sequence[int], ends: Sequence[int]) -> Variable:
    """Return a part of a variable.

    Args:
        axes: axes to cut.
        starts: first index on each axis; negative ones count from the end.
        ends: index after the last one on each axis; larger ones mean the end.

    Raises:
        ArgumentError: the lists have different lengths.
    """
    variable = as_variable("slice", input)
    if not len(axes) == len(starts) == len(ends) or not axes:
        raise ArgumentError(
            f"slice: axes, starts and ends have {len(axes)}, {len(starts)} and {len(ends)} items, expected equally many"
        )

    places = [place_of_axis("slice", "axes", variable, axis) for axis in axes]

    def made(data: Symbol, own: str) -> Any:
        for i, (axis, start, end) in enumerate(zip(places, starts, ends)):
            size = variable.shape[axis]
            is_open = end >= (size if size > 0 else _OPEN_END)
            part = f"{own}_{i}" if i < len(axes) - 1 else own
            data = sym.slice_axis(data, axis=axis, begin=start, end=None if is_open else end, name=part)
        return data

    return _changed("slice", variable, made, axes=axes)


def split(
    input: Any, num_or_sections: int | Sequence[int], dim: int = -1, name: str | None = None
) -> list[Variable]:
    """Return the parts of a variable along an axis.

    Args:
        num_or_sections: number of equal parts, or their lengths, of which one may be -1.
        dim: the axis.

    Raises:
        ArgumentError: the variable has no such axis.
        ShapeError: the parts do not add up to the length of the axis.
    """
    variable = as_variable("split", input)
    axis = place_of_axis("split", "dim", variable, dim)
    size = variable.shape[axis]
    if isinstance(num_or_sections, int):
        sections = [size // num_or_sections] * num_or_sections
    else:
        sections = list(num_or_sections)
        rest = size - sum(each for each in sections if each != -1)
        sections = [rest if each == -1 else each for each in sections]
    if size < 1 or sum(sections) != size or min(sections, default=0) < 1:
        raise ShapeError(
            f"split: num_or_sections is {num_or_sections!r} for axis {dim} of {variable.name!r}, whose shape is "
            f"{variable.shape}"
        )
    begins = [sum(sections[:i]) for i in range(len(sections))]
    return [slice(variable, [axis], [begin], [begin + length]) for begin, length in zip(begins, sections)]


def stack(x: Any, axis: int = 0) -> Variable:
    """Join variables of one shape along a new axis.

    Args:
        x: the variables.
        axis: the new axis.
    """
    several = as_variables("stack", x)
    symbols = [each.symbol for each in several]
    return add_layer(
        "stack", several, lambda name: sym.stack(*symbols, axis=axis, name=name), shape=None, dtype=None
    )


def expand(x: Any, expand_times: Sequence[int], name: str | None = None) -> Variable:
    """Repeat a variable along its axes.

    Args:
        expand_times: number of repetitions for each axis; of sequences of vectors, 1 first.
    """
    variable = as_variable("expand", x, "x")
    if variable.lod_level and len(expand_times) == len(variable.shape) == 2 and expand_times[0] == 1:
        return concat([variable] * expand_times[1], axis=1, name=name)
    return _changed(
        "expand", variable,
        lambda data, own: sym.tile(data, reps=tuple(expand_times), name=own), name,
    )  # fmt: skip


def gather(input: Any, index: Any, overwrite: bool = True) -> Variable:
    """Return rows by their numbers.

    Shape:
        input: (N, ...).
        index: (K,) or (K, 1), integers.
        output: (K, ...).

    Args:
        index: the row numbers.
        overwrite: accepted.
    """
    table, rows = as_variable("gather", input), as_variable("gather", index, "index")
    is_column = len(rows.shape) == 2

    def made(name: str) -> Any:
        numbers = sym.Reshape(rows.symbol, shape=(-1,), name=f"{name}_rows") if is_column else rows.symbol
        return sym.take(table.symbol, numbers, axis=0, name=name)

    return add_layer("gather", [table, rows], made, shape=(-1, *table.shape[1:]), dtype=table.dtype)


def topk(input: Any, k: int, name: str | None = None) -> tuple[Variable, Variable]:
    """Return the k largest elements of the last axis, descending, and their indices.

    Shape:
        input: (..., D).
        output: (..., k), and the same as int64.

    Args:
        k: number of elements.

    Raises:
        ArgumentError: `k` is not a number of elements.
    """
    variable = as_variable("topk", input)
    size = width_of("topk", variable)
    if check_integer("topk", "k", k, 1) > size:
        raise ArgumentError(f"topk: k is {k!r}, expected at most {size}, the last axis of {variable.name!r}")
    own = variable.program.unique("topk") if name is None else name
    both = sym.topk(variable.symbol, axis=-1, k=int(k), ret_typ="both", dtype="int64", name=f"{own}_both")
    shape = (*variable.shape[:-1], int(k))
    values = add_result("topk", [variable], both[0], own, shape=shape)
    return values, add_result("topk", [variable], both[1], f"{own}_indices", shape=shape, dtype="int64")


def one_hot(input: Any, depth: int) -> Variable:
    """Return a vector for each class number, with 1 at its position.

    Shape:
        input: (N, 1), class numbers.
        output: (N, depth).

    Args:
        depth: number of classes.
    """
    variable = as_variable("one_hot", input)

    def made(data: Symbol, own: str) -> Any:
        numbers = sym.squeeze(data, axis=1, name=f"{own}_numbers") if variable.shape[1:] == (1,) else data
        return sym.one_hot(numbers, depth=depth, name=own)

    return _changed("one_hot", variable, made, axes=())


def unstack(x: Any, axis: int = 0, num: int | None = None) -> list[Variable]:
    """Return the parts of a variable along an axis, without that axis.

    Args:
        axis: the axis.
        num: its length, if known.

    Raises:
        ArgumentError: the variable has no such axis.
        ShapeError: the length of the axis is unknown, or not `num`.
    """
    variable = as_variable("unstack", x, "x")
    place = place_of_axis("unstack", "axis", variable, axis)
    size = variable.shape[place]
    if size < 1 or num not in (None, size):
        raise ShapeError(f"unstack: axis {axis} of {variable.name!r} has length {size}, num is {num!r}")
    return [squeeze(slice(variable, [place], [i], [i + 1]), [place]) for i in range(size)]


def reverse(x: Any, axis: int | Sequence[int]) -> Variable:
    """Reverse the order of elements along axes.

    Args:
        axis: one or several axes.
    """
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    return _changed(
        "reverse", as_variable("reverse", x, "x"),
        lambda data, own: sym.reverse(data, axis=axes, name=own), axes=axes,
    )  # fmt: skip


def pad(x: Any, paddings: Sequence[int], pad_value: float = 0.0, name: str | None = None) -> Variable:
    """Add a number before and after the elements of each axis.

    Args:
        paddings: numbers of elements before and after those of the first axis, of the second, ...
        pad_value: the number.

    Raises:
        ArgumentError: there are not two numbers for each axis, or the batch is padded.
    """
    variable = as_variable("pad", x, "x")
    sizes, axes = tuple(int(n) for n in paddings), len(variable.shape)
    if len(sizes) != 2 * axes or any(sizes[:2]) or min(sizes) < 0:
        raise ArgumentError(
            f"pad: paddings is {paddings!r} for {variable.name!r} of shape {variable.shape}, expected two numbers "
            "from 0 for each axis, those of the batch 0"
        )

    def made(data: Symbol, own: str) -> Any:
        for axis in range(1, axes):
            first = sym.zeros_like(sym.slice_axis(data, axis=axis, begin=0, end=1))
            edge = sym._internal._plus_scalar(first, scalar=float(pad_value))
            before, after = (
                [sym.tile(edge, reps=(*[1] * axis, size, *[1] * (axes - axis - 1)))] if size else []
                for size in sizes[2 * axis : 2 * axis + 2]
            )
            data = sym.Concat(*before, data, *after, dim=axis) if before or after else data
        return sym.identity(data, name=own)

    return _changed("pad", variable, made, name)


def cumsum(
    x: Any, axis: int | None = None, exclusive: bool | None = None, reverse: bool | None = None
) -> Variable:
    """Return sums of elements up to each one along an axis.

    Args:
        axis: the axis; None: the last one.
        exclusive: whether the element itself does not count.
        reverse: whether to add from the end.
    """
    variable = as_variable("cumsum", x, "x")
    place = len(variable.shape) - 1 if axis is None else axis

    def made(data: Symbol, own: str) -> Any:
        turned = sym.reverse(data, axis=(place,)) if reverse else data
        total = sym.cumsum(turned, axis=place)
        if exclusive:
            total = sym.broadcast_sub(total, turned)
        return sym.reverse(total, axis=(place,), name=own) if reverse else sym.identity(total, name=own)

    return _changed("cumsum", variable, made, axes=(place,))


def expand_as(x: Any, target_tensor: Any, name: str | None = None) -> Variable:
    """Repeat a variable along its axes to the shape of another one.

    Args:
        target_tensor: a variable, whose axes are multiples of those of `x`.
    """
    variable, like = (
        as_variable("expand_as", x, "x"),
        as_variable("expand_as", target_tensor, "target_tensor"),
    )
    ratios = [b // a if a > 0 < b and not b % a else 0 for a, b in zip(variable.shape[1:], like.shape[1:])]
    if len(variable.shape) != len(like.shape) or variable.shape[0] != like.shape[0] or 0 in ratios:
        raise ShapeError(f"expand_as: x has the shape {variable.shape}, expected divisors of {like.shape}")
    return expand(variable, [1, *ratios], name)
