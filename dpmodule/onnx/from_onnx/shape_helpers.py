"""Helpers of translators: shapes, axes, types and arithmetic of values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np
import torch

from ...base import ShapeError
from ...ops.array.reshape_codes import resolve
from ...ops.dtypes import torch_dtype
from .build import GraphBuilder
from .check import Unsupported
from .value import Dims, OnnxValue, Sizes

MAX_LENGTH = 2**24
"""Maximal length of a generated row, of which the file states only the length."""

_MAX_TRIES = 3000


def normalize_axis(axis: int, rank: int) -> int:
    """Return an axis counted from the front."""
    if not -rank <= axis < rank:
        raise Unsupported(f"axis {axis} of an array with {rank} axes")
    return axis % rank


def is_dynamic(sizes: Sizes) -> bool:
    """Return True if a size differs between trials."""
    return any(n != sizes[0] for n in sizes)


def to_bool(x: OnnxValue) -> OnnxValue:
    """Convert numbers to booleans: True where they are not 0."""
    if x.dtype == "bool":
        return x
    return x.then("_not_equal_scalar", scalar=0.0).as_scalar(x.is_scalar).cast("bool")


# shapes


class _Codes:
    """Searches codes of Reshape that turn each source shape into its target.

    Args:
        sources: the source shape in every trial.
    """

    def __init__(self, sources: tuple[Dims, ...], targets: tuple[Dims, ...]) -> None:
        self._sources, self._targets = sources, targets
        self._columns = [tuple(s[i] for s in sources) for i in range(len(sources[0]))]
        self._wanted = [tuple(t[j] for t in targets) for j in range(len(targets[0]))]
        self._tries = 0

    def find(self, i: int = 0, j: int = 0, free: bool = True, codes: Dims = ()) -> Dims | None:
        """Return the codes; None if none were found.

        Args:
            i: index of the next source dimension.
            free: True if -1 may still be used.
        """
        self._tries += 1
        if self._tries > _MAX_TRIES:
            return None
        if j == len(self._wanted):
            return codes if _fits(self._sources, self._targets, codes) else None
        for more, steps, new in (*self._merging(i, j), *self._plain(i, j, free)):
            still = free and more != (-1,)
            if (result := self.find(i + steps, j + new, still, codes + more)) is not None:
                return result
        return None

    def _merging(self, i: int, j: int) -> list[tuple[Dims, int, int]]:
        """Return codes that copy, merge or split dimensions, with the numbers of dimensions they cover."""
        columns, wanted = self._columns, self._wanted
        codes: list[tuple[Dims, int, int]] = []
        if i >= len(columns):
            return codes
        if columns[i] == wanted[j]:
            codes.append(((0,), 1, 1))
        if i + 1 < len(columns) and _times(columns[i], columns[i + 1]) == wanted[j]:
            codes.append(((-3,), 2, 1))
        if j + 1 < len(wanted) and _times(wanted[j], wanted[j + 1]) == columns[i]:
            pair = tuple(-1 if is_dynamic(w) else w[0] for w in wanted[j : j + 2])
            if pair != (-1, -1):
                codes.append(((-4, *pair), 1, 2))
        return codes

    def _plain(self, i: int, j: int, free: bool) -> list[tuple[Dims, int, int]]:
        """Return codes that give a size, or leave it to be inferred."""
        codes: list[tuple[Dims, int, int]] = []
        if not is_dynamic(self._wanted[j]) and self._wanted[j][0] > 0:
            codes.append(((self._wanted[j][0],), 1, 1))
        if free:
            codes.append(((-1,), 1, 1))
        return codes


def _times(one: Sizes, other: Sizes) -> Sizes:
    return tuple(m * n for m, n in zip(one, other))


def _fits(sources: tuple[Dims, ...], targets: tuple[Dims, ...], codes: Dims) -> bool:
    try:
        return all(resolve(s, codes) == t for s, t in zip(sources, targets))
    except (ShapeError, IndexError, ZeroDivisionError):
        return False


def reshape(x: OnnxValue, targets: tuple[Dims, ...]) -> OnnxValue:
    """Give a value another shape.

    Args:
        targets: the shape in every trial.
    """
    b, is_scalar = x.b, not targets[0]
    held = tuple(t or (1,) for t in targets)
    if any(math.prod(s) != math.prod(t) for s, t in zip(x.shapes, held)):
        raise Unsupported(f"{x.dims[0]} does not fit into {targets[0]}")
    if held == x.shapes:
        return x.as_scalar(is_scalar)
    if x.known is not None and not x.trains and b.values_per_trial(x) is not None and x.entry is None:
        return OnnxValue.as_scalar(b.from_trials([t.reshape(s) for t, s in zip(x.known, held)]), is_scalar)
    codes = _Codes(x.shapes, held).find()
    if codes is not None:
        return x.then("Reshape", shape=codes).as_scalar(is_scalar)
    like = filled(b, held, 0.0, "float32")
    return x.then("reshape_like", like).as_scalar(is_scalar)


def _size_source(b: GraphBuilder, sizes: Sizes) -> tuple[OnnxValue, int]:
    """Return a value and an axis with a given size, creating one if the size is a product of others."""
    result = b.find_size(sizes)
    if result is not None:
        return result
    known = b.all_sizes()
    for shape_part in list(known)[:200]:
        rest = tuple(n // m for n, m in zip(sizes, shape_part))
        if all(m * n == whole for m, n, whole in zip(shape_part, rest, sizes)) and (
            rest in known or not is_dynamic(rest)
        ):
            flat = b("Reshape", filled(b, tuple(zip(shape_part, rest)), 0.0, "float32"), shape=(-1,))
            return flat, 0
    for shape_part in list(known)[:200]:
        more = tuple(n - m for n, m in zip(sizes, shape_part))
        if not is_dynamic(more):
            return _moved(b, known[shape_part], more[0]), 0
    raise Unsupported("a size that depends on the sizes of the inputs in a way that no operator can compute")


def _moved(b: GraphBuilder, source: tuple[OnnxValue, int], by: int) -> OnnxValue:
    """Return zeros along one axis, longer or shorter than a given axis by a constant."""
    value, axis = source
    line = like_axis(b.constant(torch.zeros(1)), 0, (value, axis))
    if by > MAX_LENGTH:
        raise Unsupported(
            f"an axis {by} elements longer than one of the inputs, expected at most {MAX_LENGTH}"
        )
    if by > 0:
        result: OnnxValue = b("Concat", line, b.constant(torch.zeros(by)), dim=0)
    else:
        result = b("slice_axis", line, axis=0, begin=0, end=by)
    return result


def like_axis(x: OnnxValue, axis: int, source: tuple[OnnxValue, int]) -> OnnxValue:
    """Broadcast an axis of size 1 to the size of another value's axis."""
    return x.then("broadcast_like", source[0], lhs_axes=(axis,), rhs_axes=(source[1],))


def filled(b: GraphBuilder, targets: Sequence[Sequence[int]], value: float, dtype: str) -> OnnxValue:
    """Return an array filled with a number, of a shape that may differ between trials."""
    columns = list(zip(*targets))
    start = tuple(1 if is_dynamic(c) else c[0] for c in columns)
    tensor = torch.full((1,) * len(start), value, dtype=torch_dtype(dtype))
    if math.prod(start) > 2**31:
        raise Unsupported(f"an array of shape {start}")
    array = (
        b.constant(tensor.expand(start))
        if math.prod(start) < 2**20
        else b("_full", shape=start, value=value, dtype=dtype)
    )
    array = array.as_scalar(not columns)
    for axis, sizes in enumerate(columns):
        if is_dynamic(sizes):
            array = like_axis(array, axis, _size_source(b, sizes))
    return array


def positions(
    b: GraphBuilder, sizes: Sizes, start: int = 0, step: int = 1, dtype: str = "int64"
) -> OnnxValue:
    """Return evenly spaced integers of a given count."""
    if not is_dynamic(sizes):
        if sizes[0] > MAX_LENGTH:
            raise Unsupported(f"a row of {sizes[0]} positions, expected at most {MAX_LENGTH}")
        return b.constant(torch.arange(sizes[0], dtype=torch.int64) * step + start, dtype)
    value, axis = _size_source(b, sizes)
    line = b("_contrib_arange_like", value, axis=axis, start=float(start), step=float(step))
    return line.cast(dtype)


def expand(x: OnnxValue, targets: tuple[Dims, ...]) -> OnnxValue:
    """Broadcast a value to a shape."""
    rank = max(len(targets[0]), x.rank)
    if not rank:
        return x
    if x.rank < rank:
        x = reshape(x, tuple((1,) * (rank - len(d)) + d for d in x.dims))
    targets = tuple((1,) * (rank - len(t)) + tuple(t) for t in targets)
    axes, sizes = [], []
    for axis in range(rank):
        have, want = x.axis(axis), tuple(t[axis] for t in targets)
        if have == want or all(n == 1 for n in want):
            continue
        if any(n != 1 for n in have):
            raise Unsupported(f"{x.dims[0]} does not broadcast to {targets[0]}")
        if is_dynamic(want):
            x = like_axis(x, axis, _size_source(x.b, want))
        else:
            axes.append(axis)
            sizes.append(want[0])
    return x.then("broadcast_axis", axis=tuple(axes), size=tuple(sizes)) if axes else x


def broadcast_dims(*values: OnnxValue) -> tuple[Dims, ...]:
    """Return the shape of values broadcast together, in every trial."""
    return tuple(common_shape(*dims) for dims in zip(*(v.dims for v in values)))


def common_shape(*shapes: Dims) -> Dims:
    """Return the shape of arrays broadcast together."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise Unsupported(f"shapes {', '.join(map(str, shapes))} do not broadcast") from None


def unsqueeze(x: OnnxValue, axes: Sequence[int]) -> OnnxValue:
    """Insert axes of size 1."""
    rank = x.rank + len(axes)
    positions = sorted(normalize_axis(a, rank) for a in axes)
    if len(set(positions)) != len(positions):
        raise Unsupported(f"axes {list(axes)} contain a duplicate")
    for position in positions:
        x = x.as_scalar(False) if x.is_scalar else x.then("expand_dims", axis=position)
    return x


def squeeze(x: OnnxValue, axes: Sequence[int] | None) -> OnnxValue:
    """Remove axes of size 1; None means all."""
    if axes is None:
        axes = [i for i in range(x.rank) if x.size(i) == 1]
    positions = sorted({normalize_axis(a, x.rank) for a in axes})
    if any(n != 1 for p in positions for n in x.axis(p)):
        raise Unsupported(f"axes {positions} of {x.dims[0]} cannot be removed, since their size is not 1")
    if not positions:
        return x
    if len(positions) == x.rank:
        flat = x if x.shapes[0] == (1,) else x.then("Reshape", shape=(1,))
        return flat.as_scalar(True)
    return x.then("squeeze", axis=tuple(positions))


def transpose(x: OnnxValue, order: Sequence[int]) -> OnnxValue:
    """Permute the axes."""
    if list(order) == list(range(x.rank)) or x.is_scalar:
        return x
    result: OnnxValue = x.then("transpose", axes=tuple(order))
    rank = x.rank
    if rank > 1 and list(order) == [*range(rank - 2), rank - 1, rank - 2]:
        result = result.again()
        result.transposed_from = x
    return result


def move_axis(x: OnnxValue, axis: int, to: int) -> OnnxValue:
    """Move an axis to another position."""
    order = [i for i in range(x.rank) if i != axis]
    order.insert(to, axis)
    return transpose(x, order)


def fold(word: str, values: Sequence[OnnxValue]) -> OnnxValue:
    """Apply a binary operator to many arrays successively; see `OnnxValue.arith`."""
    return reduce(lambda x, y: x.arith(word, y), values)


def round_half_even(x: OnnxValue) -> OnnxValue:
    """Round to the nearest integer, halves to even."""
    return x.apply("_onnx_round")
