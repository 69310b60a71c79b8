"""Reading and writing parts of arrays by ranges and positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..symbol import Symbol
from .builder import SymbolBuilder
from .table import translates
from .value import NoCounterpart, Size, TorchValue, difference, dims_of, is_number, same

if TYPE_CHECKING:
    from ...types import Ints

_END = 2**63 - 1


def _from_the_end(position: Size, size: Size) -> Any:
    """Return a position as a number, negative if it is only known from the end; None for the end."""
    if is_number(position):
        return None if position >= _END else position
    rest = difference(position, size)
    if rest is None or rest > 0:
        return position
    return None if rest == 0 else rest


def _ranges(axis: int, begin: Size | None, end: Size | None, step: int) -> dict[str, Any]:
    """Return the attributes of `slice` for one axis."""
    lead = (None,) * axis
    return {"begin": (*lead, begin), "end": (*lead, end), **({"step": (*lead, step)} if step != 1 else {})}


@translates("slice", "slice_copy")
def _slice(
    b: SymbolBuilder,
    value: TorchValue,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: int = 1,
) -> Any:
    axis = value.axis(dim)
    if same(dims_of(b.result)[axis], value.dims[axis]):
        return TorchValue(value.dims, value.dtype, b.sym(value))
    size = value.dims[axis]
    start = _from_the_end(0 if start is None else start, size)
    end = _from_the_end(_END if end is None else end, size)
    start = None if start == 0 else start
    if start is not None and not is_number(start):
        raise NoCounterpart(f"slices from position {start}, which is not fixed")
    if end is None or is_number(end):
        return b.op("slice", value, **_ranges(axis, start, end, step))
    if start is not None or step != 1:
        raise NoCounterpart(f"slices to position {end}, which is not fixed, and not from the beginning")
    return _first_elements(b, value, axis, end)


@translates("narrow", "narrow_copy")
def _narrow(b: SymbolBuilder, value: TorchValue, dim: int, start: Size, length: Size) -> Any:
    if is_number(start) and is_number(length):
        end: Size = start + length
        return _slice(b, value, dim, start, _END if start < 0 and end == 0 else end)
    if start == 0:
        return _slice(b, value, dim, 0, length)
    raise NoCounterpart(f"narrow from position {start} with length {length}, which are not fixed")


def _first_elements(b: SymbolBuilder, value: TorchValue, axis: int, size: Size) -> Symbol:
    """Return the beginning of an axis with a symbolic length."""
    position = b.find(size)
    if position is None:
        raise NoCounterpart(f"slices to position {size}: no array has that size")
    other, other_axis = position
    if other_axis != axis:
        row = b.indices(other, other_axis)
        return b.op("take", value, row, axis=axis)
    return b.op("slice_like", value, other, axes=(axis,))


@translates("select", "select_copy")
def _select(b: SymbolBuilder, value: TorchValue, dim: int, index: Size) -> Symbol:
    axis = value.axis(dim)
    index = _from_the_end(index, value.dims[axis])
    if index is None or not is_number(index):
        raise NoCounterpart("selects a position that is not fixed")
    end = None if index == -1 else index + 1
    element = b.op("slice_axis", value, axis=axis, begin=index, end=end)
    return b.squeeze(element, [axis], value.rank)


translates("index_select")(lambda b, value, dim, index: b.op("take", value, index, axis=value.axis(dim)))


@translates("index", "_unsafe_index")
def _index(b: SymbolBuilder, value: TorchValue, indices: Sequence[TorchValue | None]) -> Any:
    indexed = [(axis, i) for axis, i in enumerate(indices) if i is not None]
    if any(i.is_bool for _, i in indexed):
        raise NoCounterpart("selects elements by a mask: their number is not known before run time")
    if len(indexed) == 1:
        axis, index = indexed[0]
        output = b.op("take", value, index, axis=axis, mode="wrap")
        return output if index.rank else b.squeeze(output, [axis], value.rank)
    axes = [axis for axis, _ in indexed]
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    value = b.transpose(value, [*axes, *(i for i in range(value.rank) if i not in axes)])
    picked = b.op("gather_nd", value, _positions(b, value, [i for _, i in indexed]))
    if not adjacent or not axes[0]:
        return picked
    return _put_back(b, picked, value, [i for _, i in indexed], axes[0])


def _positions(b: SymbolBuilder, value: TorchValue, indices: Sequence[TorchValue]) -> Symbol:
    """Return positions for `gather_nd`: one row for each of the leading axes."""
    rank = max(i.rank for i in indices)
    padded = [(1,) * (rank - i.rank) + i.dims for i in indices]
    dims = tuple(next((d for d in sizes if not same(d, 1)), 1) for sizes in zip(*padded))
    rows = []
    for axis, index in enumerate(indices):
        whole = b.expand(b.cast(index, torch.int64), dims)
        rows.append(
            b.op("_mod_scalar", whole, scalar=float(value.dims[axis]))
            if is_number(value.dims[axis])
            else b.sym(whole)
        )
    return b.op("stack", *rows, axis=0)


def _put_back(
    b: SymbolBuilder, picked: Symbol, value: TorchValue, indices: Sequence[TorchValue], axis: int
) -> Symbol:
    """Move the axes of the positions, which come first, to the position of the selected axes."""
    count = max(i.rank for i in indices)
    rank = count + value.rank - len(indices)
    lead = list(range(count, count + axis))
    return b.op("transpose", picked, axes=(*lead, *range(count), *range(count + axis, rank)))


@translates("gather")
def _gather(b: SymbolBuilder, value: TorchValue, dim: int, index: TorchValue, **named: Any) -> Symbol:
    axis = value.axis(dim)
    if not value.rank:
        return b.sym(value)
    if same(index.dims[axis], 1) and all(
        same(p, q) for i, (p, q) in enumerate(zip(value.dims, index.dims)) if i != axis
    ):
        return b.op("pick", value, index, axis=axis, keepdims=True)
    return b.op("gather_nd", value, _elements(b, index, axis))


def _elements(b: SymbolBuilder, index: TorchValue, axis: int) -> Symbol:
    """Return positions for `gather_nd` that differ from those of the index itself along one axis."""
    rows = []
    for i in range(index.rank):
        if i == axis:
            rows.append(b.sym(b.cast(index, torch.int64)))
            continue
        one = tuple(d if j == i else 1 for j, d in enumerate(index.dims))
        rows.append(b.sym(b.expand(b.reshape(b.indices(index, i, torch.int64), one), index.dims)))
    return b.op("stack", *rows, axis=0)


# writes


@translates("copy", "copy_")
def _copy(b: SymbolBuilder, value: TorchValue, source: TorchValue, *rest: Any, **named: Any) -> TorchValue:
    return b.expand(b.cast(source, b.result.dtype), dims_of(b.result))


@translates("fill")
def _fill(b: SymbolBuilder, value: TorchValue, number: TorchValue | float) -> TorchValue:
    if isinstance(number, TorchValue):
        return _copy(b, value, number)
    return b.full(dims_of(b.result), number, b.result.dtype)


translates("zero")(lambda b, value: b.full(dims_of(b.result), 0, b.result.dtype))


@translates("slice_scatter")
def _slice_scatter(
    b: SymbolBuilder,
    value: TorchValue,
    source: TorchValue,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: int = 1,
) -> Any:
    axis = value.axis(dim)
    size = value.dims[axis]
    start = _from_the_end(0 if start is None else start, size)
    end = _from_the_end(_END if end is None else end, size)
    if not all(p is None or is_number(p) for p in (start, end)):
        raise NoCounterpart("writes into a range that is not fixed")
    source = b.cast(source, value.dtype)
    if same(source.dims[axis], size):
        return source
    return b.op("_slice_assign", value, source, **_ranges(axis, start, end, step))


@translates("select_scatter")
def _select_scatter(b: SymbolBuilder, value: TorchValue, source: TorchValue, dim: int, index: Size) -> Any:
    axis = value.axis(dim)
    shape = (*value.dims[:axis], 1, *value.dims[axis + 1 :])
    end = _END if index == -1 else index + 1
    return _slice_scatter(b, value, b.reshape(source, shape), axis, index, end)


@translates("index_put")
def _index_put(
    b: SymbolBuilder, value: TorchValue, indices: Sequence[TorchValue | None], source: TorchValue, *rest: Any
) -> Any:
    accumulates = bool(rest and rest[0])
    mask = indices[0]
    if not any(index is not None and index.is_bool for index in indices):
        return _index_written(b, value, indices, source, accumulates)
    if len(indices) != 1 or mask is None or source.dims not in ((), (1,)) or accumulates:
        raise NoCounterpart("writes several values, or adds, where a mask is true: their number is not known")
    mask = b.reshape(mask, (*mask.dims, *[1] * (value.rank - mask.rank)))
    dims = dims_of(b.result)
    return b.op("where", b.expand(mask, dims), b.expand(b.cast(source, value.dtype), dims), value)


def _written(
    b: SymbolBuilder, value: TorchValue, source: TorchValue, positions: Symbol, accumulates: bool
) -> TorchValue:
    """Write or add elements, or slices, at positions for the leading axes."""
    source = b.cast(source, value.dtype)
    if accumulates:
        output = b.op("_scatter_add_nd", value, source, positions)
    else:
        shape = tuple(d if is_number(d) else 0 for d in value.dims)
        output = b.op("_scatter_set_nd", value, source, positions, shape=shape)
    return b.value(output, value.dims, value.dtype)


def _index_written(
    b: SymbolBuilder,
    value: TorchValue,
    indices: Sequence[TorchValue | None],
    source: TorchValue,
    accumulates: bool,
) -> TorchValue:
    """Write or add values at the elements that `_index` would read."""
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    positions = [index for index in indices if index is not None]
    rank = max(index.rank for index in positions)
    padded = [(1,) * (rank - i.rank) + i.dims for i in positions]
    position_dims = tuple(next((d for d in sizes if not same(d, 1)), 1) for sizes in zip(*padded))
    other_axes = [axis for axis in range(value.rank) if axis not in axes]
    before = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    kept = tuple(value.dims[axis] for axis in other_axes)
    source = b.expand(source, (*kept[:before], *position_dims, *kept[before:]))
    # positions first, and their axes first as well
    source = b.transpose(
        source, [*range(before, before + rank), *range(before), *range(before + rank, source.rank)]
    )
    order = [*axes, *other_axes]
    moved = b.transpose(value, order)
    written = _written(b, moved, source, _positions(b, moved, positions), accumulates)
    return b.transpose(written, [order.index(axis) for axis in range(value.rank)])


@translates("index_add")
def _index_add(
    b: SymbolBuilder, value: TorchValue, dim: int, index: TorchValue, source: TorchValue, alpha: float = 1
) -> TorchValue:
    if alpha != 1:
        source = b.value(b.with_number("mul", source, alpha), source.dims, source.dtype)
    return _index_written(b, value, [*[None] * value.axis(dim), index], source, True)


@translates("index_copy")
def _index_copy(
    b: SymbolBuilder, value: TorchValue, dim: int, index: TorchValue, source: TorchValue
) -> TorchValue:
    return _index_written(b, value, [*[None] * value.axis(dim), index], source, False)


@translates("index_fill")
def _index_fill(
    b: SymbolBuilder, value: TorchValue, dim: int, index: TorchValue, number: TorchValue | float
) -> TorchValue:
    source = number if isinstance(number, TorchValue) else b.full((), number, value.dtype)
    return _index_written(b, value, [*[None] * value.axis(dim), index], source, False)


@translates("scatter")
def _scatter(
    b: SymbolBuilder,
    value: TorchValue,
    dim: int,
    index: TorchValue,
    source: TorchValue | float,
    reduce: str | None = None,
) -> Any:
    if reduce not in (None, "add"):
        raise NoCounterpart(f"scatters with reduce={reduce!r}")
    if not isinstance(source, TorchValue):
        source = b.full(index.dims, source, value.dtype)
    elif not all(map(same, source.dims, index.dims)):  # torch ignores the rest
        source = b.value(b.op("slice_like", source, index), index.dims, source.dtype)
    return _written(b, value, source, _elements(b, index, value.axis(dim)), reduce == "add")


translates("scatter_add")(lambda b, value, dim, index, source: _scatter(b, value, dim, index, source, "add"))


@translates("scatter_reduce")
def _scatter_reduce(
    b: SymbolBuilder,
    value: TorchValue,
    dim: int,
    index: TorchValue,
    source: TorchValue,
    reduce: str,
    include_self: bool = True,
) -> Any:
    if reduce != "sum" or not include_self:
        raise NoCounterpart(f"scatters with reduce={reduce!r} and include_self={include_self}")
    return _scatter(b, value, dim, index, source, "add")


@translates("unfold")
def _unfold(b: SymbolBuilder, value: TorchValue, dim: int, size: int, step: int) -> TorchValue:
    axis, count = value.axis(dim), dims_of(b.result)[value.axis(dim)]
    lead, tail = value.dims[:axis], value.dims[axis + 1 :]
    if is_number(count):
        starts = b.op(
            "Reshape", b.op("_arange", start=0.0, stop=float(count * step), step=float(step)), shape=(-1, 1)
        )
        within = b.op("Reshape", b.op("_arange", start=0.0, stop=float(size)), shape=(1, -1))
        stacked = b.op("take", value, b.op("broadcast_add", starts, within), axis=axis)
    else:
        ends = [None if k == size - 1 else k + 1 - size for k in range(size)]
        slices = [b.op("slice", value, **_ranges(axis, k, end, step)) for k, end in enumerate(ends)]
        stacked = b.op("stack", *slices, axis=axis + 1)
    windows = b.value(stacked, (*lead, count, size, *tail), value.dtype)
    return b.transpose(windows, [*range(axis + 1), *range(axis + 2, value.rank + 1), axis + 1])


# order along axes


translates("flip")(lambda b, value, dims: b.op("reverse", value, axis=tuple(value.axis(d) for d in dims)))


@translates("roll")
def _roll(b: SymbolBuilder, value: TorchValue, shifts: Ints, dims: Ints = ()) -> Any:
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    axes = [dims] if isinstance(dims, int) else list(dims)
    if not axes:
        raise NoCounterpart("rolls over all axes together")
    symbol = b.sym(value)
    for shift, axis in zip(shifts, axes):
        axis, size = value.axis(axis), value.dims[value.axis(axis)]
        shift = shift % size if is_number(size) else shift
        if shift:
            tail = b.op("slice_axis", symbol, axis=axis, begin=-shift, end=None)
            head = b.op("slice_axis", symbol, axis=axis, begin=0, end=-shift)
            symbol = b.op("Concat", tail, head, dim=axis)
    return symbol


def _triangle(compare: str) -> Any:
    def translate(b: SymbolBuilder, value: TorchValue, diagonal: int = 0) -> Symbol:
        rows = b.reshape(b.indices(value, value.rank - 2), (value.dims[-2], 1))
        columns = b.reshape(b.indices(value, value.rank - 1), (1, value.dims[-1]))
        limit = b.value(b.op("_plus_scalar", rows, scalar=float(diagonal)), rows.dims, rows.dtype)
        dims = (value.dims[-2], value.dims[-1])
        keep = b.value(b.pair(compare, columns, limit, dims), dims, torch.bool)
        return b.op("where", b.expand(keep, value.dims), value, b.op("zeros_like", value))

    return translate


translates("tril")(_triangle("lesser_equal"))
translates("triu")(_triangle("greater_equal"))
