"""Translators of indexing: gather, scatter, sorting, and selection by masks."""

from __future__ import annotations

import math

import torch

from .array import cut
from .build import GraphBuilder, NodeCall, Translator
from .check import Unsupported
from .shape_helpers import expand, normalize_axis, positions, reshape, squeeze
from .value import Dims, OnnxValue, Sizes

_COUNTS: tuple[Sizes, ...] = ((29, 31, 37), (41, 43, 59), (47, 71, 53), (61, 73, 67))


def _gather(c: NodeCall) -> OnnxValue:
    b, x, index = c.b, c.x, c.value(1)
    axis = normalize_axis(c.attrs["axis"], x.rank)
    if x.known is not None and not x.trains and x.entry is not None and index.rank <= 1:
        return _select_sizes(b, x, index)
    if index.is_scalar and b.constant_value(index) is not None:
        position = int(b.required_constant(index, "indices"))
        size = x.size(axis)
        if size is not None and not -size <= position < size:
            raise Unsupported(f"position {position} of an axis of {size} elements")
        end = None if position == -1 else position + 1
        return squeeze(b("slice_axis", x, axis=axis, begin=position, end=end), [axis])
    known = None if index.known is None else b.constant_value(index)
    is_plain = known is not None and (known.numel() == 0 or int(known.min()) >= 0)
    result: OnnxValue = b("take", x, index, axis=axis, mode="clip" if is_plain else "wrap")
    return squeeze(result, [axis]) if index.is_scalar else result


def _select_sizes(b: GraphBuilder, x: OnnxValue, index: OnnxValue) -> OnnxValue:
    """Select sizes of a shape."""
    indices = b.integers(index, "indices")
    result = b.from_trials(
        [t[list(p)].reshape(() if index.is_scalar else (-1,)) for t, p in zip(x.known or (), indices)]
    )
    if not b.is_uniform(result.known):
        open_x = x.again()
        open_x.known = open_x.recipe = None
        node = b("take", open_x, index.as_scalar(False), axis=0, mode="wrap")
        result.entry, result.scope = node.entry, node.scope
    return result


def _non_negative(b: GraphBuilder, index: OnnxValue, sizes: Sizes) -> OnnxValue:
    """Convert negative positions to positive ones."""
    known = None if index.known is None else b.constant_value(index)
    if known is not None and int(known.min()) >= 0:
        return index
    if any(n != sizes[0] for n in sizes):
        return index
    return index % float(sizes[0])


def _gather_nd(c: NodeCall) -> OnnxValue:
    b, x, index = c.b, c.x, c.value(1)
    skipped = c.attrs.get("batch_dims", 0)
    width = index.size(index.rank - 1)
    if width is None:
        raise Unsupported("indices address an open number of axes")
    parts = [
        _non_negative(b, b("slice_axis", index, axis=index.rank - 1, begin=i, end=i + 1), x.axis(skipped + i))
        for i in range(width)
    ]
    front = [_axis_positions(b, index, axis) for axis in range(skipped)]
    rows = [b("expand_dims", squeeze(p, [p.rank - 1]) if p.rank > 1 else p, axis=0) for p in (*front, *parts)]
    joined = rows[0] if len(rows) == 1 else b("Concat", *rows, dim=0)
    result: OnnxValue = b("gather_nd", x, joined)
    return result.as_scalar(index.rank == 1 and width == x.rank)


def _axis_positions(b: GraphBuilder, like: OnnxValue, axis: int) -> OnnxValue:
    """Return the positions 0, 1, ... along an axis of `like`."""
    shape = tuple((*s[:-1], 1) for s in like.shapes)
    line = positions(b, like.axis(axis))
    wide = tuple(tuple(d if i == axis else 1 for i, d in enumerate(s)) for s in shape)
    return expand(reshape(line, wide), shape)


def _positions_per_axis(b: GraphBuilder, index: OnnxValue, axis: int) -> list[OnnxValue]:
    """Return the positions along each axis for an index along one of them, of shape (1, ...) each."""
    results = []
    for i in range(index.rank):
        if i == axis:
            results.append(b("expand_dims", index, axis=0))
            continue
        wide = tuple(tuple(d if j == i else 1 for j, d in enumerate(s)) for s in index.shapes)
        line = reshape(positions(b, index.axis(i)), wide).cast(index.dtype)
        results.append(b("expand_dims", expand(line, index.shapes), axis=0))
    return results


def _gather_elements(c: NodeCall) -> OnnxValue:
    b, x = c.b, c.x
    axis = normalize_axis(c.attrs["axis"], x.rank)
    index = _non_negative(b, c.value(1), x.axis(axis))
    parts = _positions_per_axis(b, index, axis)
    return b("gather_nd", x, parts[0] if len(parts) == 1 else b("Concat", *parts, dim=0))


def _shape_or_zeros(x: OnnxValue) -> Dims:
    """Return a shape with 0 for open sizes."""
    return tuple(x.size(i) or 0 for i in range(len(x.shapes[0])))


def _scatter_elements(c: NodeCall) -> OnnxValue:
    b, x, updates = c.b, c.x, c.value(2)
    axis = normalize_axis(c.attrs["axis"], x.rank)
    parts = _positions_per_axis(b, _non_negative(b, c.value(1), x.axis(axis)), axis)
    joined = parts[0] if len(parts) == 1 else b("Concat", *parts, dim=0)
    return _scattered(c, x, updates, joined)


def _scattered(c: NodeCall, x: OnnxValue, updates: OnnxValue, index: OnnxValue) -> OnnxValue:
    """Write or add elements at positions along the leading axes."""
    reduction = c.attrs.get("reduction", "none")
    if reduction == "add":
        return c.b("_scatter_add_nd", x, updates, index)
    if reduction != "none":
        raise Unsupported(f"reduction {reduction!r}")
    return c.b("_scatter_set_nd", x, updates, index, shape=_shape_or_zeros(x))


def _scatter_nd(c: NodeCall) -> OnnxValue:
    b, x, index, updates = c.b, c.x, c.value(1), c.value(2)
    whole = _whole_ranges(b, x, index) if c.attrs.get("reduction", "none") == "none" else None
    if whole is not None:
        return _assigned(b, x, updates, whole)
    width = index.size(index.rank - 1) or 0
    rows = [
        _non_negative(b, b("slice_axis", index, axis=index.rank - 1, begin=i, end=i + 1), x.axis(i))
        for i in range(width)
    ]
    flat = [b("expand_dims", squeeze(r, [r.rank - 1]) if r.rank > 1 else r, axis=0) for r in rows]
    joined = flat[0] if len(flat) == 1 else b("Concat", *flat, dim=0)
    return _scattered(c, x, updates, joined)


def _whole_ranges(b: GraphBuilder, x: OnnxValue, index: OnnxValue) -> list[tuple[int, int]] | None:
    """Return the ranges along the leading axes that constant positions cover completely; None if they do not."""
    known = None if index.known is None else b.constant_value(index)
    if known is None or known.shape[-1] != known.dim() - 1:
        return None
    ranges = []
    for i in range(known.shape[-1]):
        lines = torch.unique(known[..., i])
        first, last = int(lines.min()), int(lines.max())
        wanted = (
            torch.arange(known.shape[i]).reshape([-1 if i == j else 1 for j in range(known.dim() - 1)])
            + first
        )
        if first < 0 or last - first + 1 != known.shape[i] or not bool((known[..., i] == wanted).all()):
            return None
        ranges.append((first, last + 1))
    return ranges


def _assigned(b: GraphBuilder, x: OnnxValue, updates: OnnxValue, ranges: list[tuple[int, int]]) -> OnnxValue:
    begin, end = zip(*ranges)
    return b("_slice_assign", x, updates, begin=begin, end=end)


def _top_k(c: NodeCall) -> list[OnnxValue]:
    b, x = c.b, c.x
    axis = normalize_axis(c.attrs["axis"], x.rank)
    k = c.attrs["k"] if "k" in c.attrs else b.integers(c.value(1), "k")[0][0]
    if "k" not in c.attrs and len(set(b.integers(c.value(1), "k"))) > 1:
        if tuple(n[0] for n in b.integers(c.value(1), "k")) != x.axis(axis):
            raise Unsupported("k depends on the sizes of the inputs")
        ascending = not c.attrs.get("largest", 1)
        order = b("argsort", x, axis=axis, is_ascend=ascending, dtype="int64")
        return [b("sort", x, axis=axis, is_ascend=ascending), order]
    ascending = not c.attrs.get("largest", 1)
    values, indices = b.many("topk", x, axis=axis, k=k, ret_typ="both", is_ascend=ascending, dtype="int64")
    return [values, indices]


def selected(b: GraphBuilder, x: OnnxValue, keep: OnnxValue) -> OnnxValue:
    """Return the rows of an array that a mask selects; their number depends on the data."""
    number = len([d for d in b.root.size_sources if d[0] in {c[0] for c in _COUNTS}])
    counts = _COUNTS[number % len(_COUNTS)]
    shapes = tuple((n, *s[1:]) for n, s in zip(counts, x.shapes))
    return b("_contrib_boolean_mask", x, keep, shapes=[shapes])


def _compress(c: NodeCall) -> OnnxValue:
    b, x, keep = c.b, c.x, c.value(1)
    if "axis" not in c.attrs:
        x = reshape(x, tuple((math.prod(s),) for s in x.shapes))
    axis = normalize_axis(c.attrs.get("axis", 0), x.rank)
    if axis:
        raise Unsupported("it selects along an axis other than the first")
    known = b.constant_value(keep)
    if known is not None:
        indices = torch.nonzero(known).reshape(-1)
        return b("take", x, b.constant(indices), axis=0)
    if keep.axis(0) != x.axis(0):
        x = cut(x, 0, (0,) * b.trials, keep.axis(0))
    return selected(b, x, keep.cast("float32"))


def _non_zero(c: NodeCall) -> OnnxValue:
    b, x = c.b, c.x
    known = b.constant_value(x)
    if known is not None:
        return b.constant(torch.nonzero(known).t().contiguous())
    source = x.cast("float32") if x.dtype == "bool" else x
    indices = b("_contrib_index_array", source)
    flat = reshape(indices, tuple((math.prod(s), len(s)) for s in x.shapes))
    mask = reshape(source, tuple((math.prod(s),) for s in x.shapes)).arith("not_equal", 0.0)
    return b("transpose", selected(b, flat, mask), axes=(1, 0))


def _reverse_sequence(c: NodeCall) -> OnnxValue:
    b, x, lengths = c.b, c.x, c.value(1)
    order = (c.attrs["time_axis"], c.attrs["batch_axis"])
    if order == (0, 1):
        return b("SequenceReverse", x, lengths.cast("float32"), use_sequence_length=True)
    swapped = b("SwapAxis", x, dim1=0, dim2=1)
    turned = b("SequenceReverse", swapped, lengths.cast("float32"), use_sequence_length=True)
    return b("SwapAxis", turned, dim1=0, dim2=1)


TABLE: dict[str, Translator] = {
    "Compress": _compress,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "NonZero": _non_zero,
    "ReverseSequence": _reverse_sequence,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "TopK": _top_k,
}
