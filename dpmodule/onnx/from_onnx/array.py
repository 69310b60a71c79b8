"""Translators of shape operators, concatenation, slicing, padding and constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch

from .build import GraphBuilder, NodeCall, Translator
from .check import Unsupported
from .read import DTYPES
from .shape_helpers import (
    MAX_LENGTH,
    common_shape,
    expand,
    filled,
    is_dynamic,
    normalize_axis,
    positions,
    reshape,
    squeeze,
    transpose,
    unsqueeze,
)
from .value import OnnxValue, Sizes, same_type


def _constant(c: NodeCall) -> OnnxValue:
    b, a = c.b, c.attrs
    if "value" in a:
        return b.constant(c.read(a["value"]))
    for name, dtype in (("value_float", "float32"), ("value_int", "int64"), ("value_floats", "float32")):
        if name in a:
            return b.constant(a[name], dtype)
    if "value_ints" in a:
        return b.constant(torch.tensor(a["value_ints"], dtype=torch.int64))
    raise Unsupported(f"a constant given as {', '.join(a) or 'nothing'}")


def _shape(c: NodeCall) -> OnnxValue:
    b, x = c.b, c.x
    start, end = c.attrs.get("start", 0), c.attrs.get("end")
    result = b.from_trials([torch.tensor(d[start:end], dtype=torch.int64) for d in x.dims])
    if b.is_uniform(result.known):
        return result
    node = b("shape_array", _as_runtime_value(x))
    result.entry, result.scope = (
        (node if (start, end) == (0, None) else _shape_range(b, node, start, end)).entry,
        b.scope,
    )
    return result


def _as_runtime_value(x: OnnxValue) -> OnnxValue:
    """Return a value that is not known to be constant, so that operators on it are not folded."""
    result = x.again()
    result.known = result.recipe = None
    return result


def _shape_range(b: GraphBuilder, x: OnnxValue, start: int, end: int | None) -> OnnxValue:
    result: OnnxValue = b("slice", _as_runtime_value(x), begin=(start,), end=(end,))
    return result


def _size(c: NodeCall) -> OnnxValue:
    b, x = c.b, c.x
    result = b.from_trials([torch.tensor(math.prod(d), dtype=torch.int64) for d in x.dims])
    if not b.is_uniform(result.known):
        result.entry, result.scope = b("size_array", _as_runtime_value(x)).entry, b.scope
    return result


def _reshape(c: NodeCall) -> OnnxValue:
    x = c.x
    wanted = c.ints("shape", 1)
    if wanted is None:
        raise Unsupported("shape is missing")
    targets = []
    for dims, target in zip(x.dims, wanted):
        if not c.attrs.get("allowzero"):
            if any(d == 0 and i >= len(dims) for i, d in enumerate(target)):
                raise Unsupported(f"shape {target} copies more dimensions than {dims} has")
            target = tuple(dims[i] if d == 0 else d for i, d in enumerate(target))
        if -1 in target:
            rest = -math.prod(target)
            if target.count(-1) > 1 or rest <= 0 or math.prod(dims) % rest:
                raise Unsupported(f"{dims} does not fit into {target}")
            target = tuple(math.prod(dims) // rest if d == -1 else d for d in target)
        targets.append(target)
    return reshape(x, tuple(targets))


def _flatten(c: NodeCall) -> OnnxValue:
    x = c.x
    axis = c.attrs["axis"] % x.rank if c.attrs["axis"] < 0 else c.attrs["axis"]
    if axis == 1 and x.rank > 1:
        return x if x.rank == 2 else c.b("Flatten", x)
    return reshape(x, tuple((math.prod(d[:axis]), math.prod(d[axis:])) for d in x.dims))


def _unsqueeze(c: NodeCall) -> OnnxValue:
    axes = c.fixed_ints("axes", 1)
    if axes is None:
        raise Unsupported("axes is missing")
    return unsqueeze(c.x, axes)


def _concat(c: NodeCall) -> OnnxValue:
    values = [v for i in range(len(c.inputs)) if (v := c.maybe(i)) is not None]
    if not values:
        return c.x
    values = same_type(*values)
    if len(values) == 1:
        return values[0]
    return c.b("Concat", *values, dim=normalize_axis(c.attrs["axis"], values[0].rank))


def _split(c: NodeCall) -> list[OnnxValue]:
    b, x, count = c.b, c.x, len(c.used)
    axis = normalize_axis(c.attrs["axis"], x.rank)
    sizes = c.fixed_ints("split", 1)
    whole = x.size(axis)
    if sizes is None and whole is None and count > 1:
        return b.many("SliceChannel", x, num_outputs=count, axis=axis)
    if sizes is None:
        each = -(-(whole or 1) // count)
        sizes = tuple(min(each, (whole or 1) - i * each) for i in range(count))
    if len(sizes) != count or min(sizes) < 0:
        raise Unsupported(f"split {sizes} for {count} outputs")
    if count == 1:
        return [x]
    if whole is not None and sum(sizes) != whole:
        raise Unsupported(f"split {sizes} of an axis of {whole} elements")
    if min(sizes) == 0:
        return [_slice_axis(x, axis, sum(sizes[:i]), n) for i, n in enumerate(sizes)]
    if len(set(sizes)) == 1:
        return b.many("SliceChannel", x, num_outputs=count, axis=axis)
    indices = [sum(sizes[:i]) for i in range(count)]
    return b.many("_split_v2", x, indices=tuple(indices), axis=axis)


def _slice_axis(x: OnnxValue, axis: int, begin: int, size: int) -> OnnxValue:
    each = (begin,) * x.b.trials
    return cut(x, axis, each, tuple(n + size for n in each))


def cut(x: OnnxValue, axis: int, begins: Sizes, ends: Sizes, step: int = 1) -> OnnxValue:
    """Slice an axis.

    Args:
        axis: the axis.
        ends: one after the last position; -1 with a negative `step` includes position 0.
    """
    b, sizes = x.b, x.axis(axis)
    counts = tuple(len(range(m, n, step)) for m, n in zip(begins, ends))
    if not any(counts):
        nothing = torch.zeros((*x.shapes[0][:axis], 0, *x.shapes[0][axis + 1 :]))
        result: OnnxValue = b.constant(nothing, x.dtype)
        return result
    if any(n == 0 for n in counts):
        raise Unsupported(f"a range without elements of an axis of {sizes[0]}")
    if counts == sizes and step == 1:
        return x
    begin, end = _common_bound(begins, sizes, 0 if step > 0 else None), _common_bound(ends, sizes, None)
    if step < 0:
        begin = None if all(m == n - 1 for m, n in zip(begins, sizes)) else _common_bound(begins, sizes, 0)
        end = None if all(n == -1 for n in ends) else _common_bound(ends, sizes, 0)
    if begin is not False and end is not False:
        skipped = (None,) * axis
        if step == 1:
            return x.then("slice_axis", axis=axis, begin=begin or 0, end=end)
        return x.then("slice", begin=(*skipped, begin), end=(*skipped, end), step=(*skipped, step))
    if begin == 0 and step == 1:
        shape = tuple(tuple(n if i == axis else 1 for i in range(x.rank)) for n in counts)
        return x.then("slice_like", filled(b, shape, 0.0, "float32"), axes=(axis,))
    if is_dynamic(begins):
        raise Unsupported("a range whose start depends on the sizes of the inputs")
    return x.then("take", positions(b, counts, begins[0], step), axis=axis)


def _common_bound(places: Sizes, sizes: Sizes, default: int | None) -> Any:
    """Return a position as one number for all trials, None for the end, or False if it differs."""
    if all(p == n for p, n in zip(places, sizes)):
        return default if default is not None else None
    if not is_dynamic(places) and (not is_dynamic(sizes) or places[0] <= min(sizes)):
        return places[0]
    gaps = tuple(p - n for p, n in zip(places, sizes))
    return False if is_dynamic(gaps) or gaps[0] >= 0 else gaps[0]


def _slice(c: NodeCall) -> OnnxValue:
    b, x = c.b, c.x
    starts, ends = c.ints("starts", 1), c.ints("ends", 2)
    if starts is None or ends is None:
        raise Unsupported("starts or ends are missing")
    axes = c.fixed_ints("axes", 3) or tuple(range(len(starts[0])))
    steps = (c.fixed_ints("steps", 4) if c.since >= 10 else None) or (1,) * len(axes)
    if not len(starts[0]) == len(ends[0]) == len(axes) == len(steps) or 0 in steps:
        raise Unsupported(f"starts {starts[0]}, ends {ends[0]}, axes {axes} and steps {steps} do not match")
    if x.known is None or x.trains:
        return _slice_axes(x, starts, ends, axes, steps)
    known = _slice_known(b, x, starts, ends, axes, steps)
    if x.entry is not None and not b.is_uniform(known.known):
        with suppress(Unsupported):  # then only the values of each trial are known
            computed = _slice_axes(_as_runtime_value(x), starts, ends, axes, steps)
            known.entry, known.scope = computed.entry, computed.scope
    return known


def _slice_axes(x: OnnxValue, starts: Any, ends: Any, axes: Sequence[int], steps: Sequence[int]) -> OnnxValue:
    """Slice one axis after the other."""
    for i, (axis, step) in enumerate(zip(axes, steps)):
        axis = normalize_axis(axis, x.rank)
        ranges = [
            slice(s[i], e[i] if step > 0 or e[i] >= -n else None, step).indices(n)
            for s, e, n in zip(starts, ends, x.axis(axis))
        ]
        x = cut(x, axis, tuple(r[0] for r in ranges), tuple(r[1] for r in ranges), step)
    return x


def _slice_known(
    b: GraphBuilder, x: OnnxValue, starts: Any, ends: Any, axes: Sequence[int], steps: Sequence[int]
) -> OnnxValue:
    """Slice known values; the ranges may be empty."""
    results = []
    for tensor, first, last in zip(x.known or (), starts, ends):
        for s, e, axis, step in zip(first, last, axes, steps):
            n = tensor.shape[axis]
            indices = range(*slice(s, e if step > 0 or e >= -n else None, step).indices(n))
            tensor = tensor.index_select(axis, torch.tensor(list(indices), dtype=torch.int64))
        results.append(tensor)
    return b.from_trials(results)


def _tile(c: NodeCall) -> OnnxValue:
    b, x = c.b, c.x
    repeats = c.ints("repeats", 1) or [()] * b.trials
    if len(repeats[0]) != x.rank or any(n < 1 for repeat in repeats for n in repeat):
        raise Unsupported(f"repeats {repeats[0]} for {x.dims[0]}")
    if all(repeat == repeats[0] for repeat in repeats):
        return b("tile", x, reps=repeats[0]) if max(repeats[0], default=1) > 1 else x
    for axis in range(x.rank):
        counts = tuple(repeat[axis] for repeat in repeats)
        apart = expand(
            unsqueeze(x, [axis]), tuple((*s[:axis], n, *s[axis:]) for s, n in zip(x.shapes, counts))
        )
        x = reshape(apart, tuple((*s[:axis], s[axis] * n, *s[axis + 1 :]) for s, n in zip(x.shapes, counts)))
    return x


def _expand(c: NodeCall) -> OnnxValue:
    x = c.x
    wanted = c.ints("shape", 1) or []
    shapes = [common_shape(dims, target) for dims, target in zip(x.dims, wanted)]
    if math.prod(shapes[0]) > 2**40:
        raise Unsupported(f"an array of shape {shapes[0]}")
    return expand(x, tuple(shapes))


def _constant_of_shape(c: NodeCall) -> OnnxValue:
    shapes = c.ints("shape", 0) or []
    value = c.read(c.attrs["value"]) if "value" in c.attrs else torch.zeros(1)
    if value.numel() != 1:
        raise Unsupported(f"value has {value.numel()} elements, expected one")
    dtype = str(value.dtype).removeprefix("torch.")
    if any(0 in s for s in shapes):
        return c.b.from_trials(
            [
                torch.zeros(s, dtype=value.dtype) if math.prod(s) == 0 else value.reshape(()).expand(s)
                for s in shapes
            ]
        )
    if any(n < 0 for s in shapes for n in s):
        raise Unsupported(f"shape {shapes[0]}")
    return filled(c.b, shapes, float(value), dtype)


def _range(c: NodeCall) -> OnnxValue:
    b = c.b
    start, limit, delta = c.x, c.value(1), c.value(2)
    first, last, step = b.values_per_trial(start), b.values_per_trial(limit), b.values_per_trial(delta)
    if first is None or last is None or step is None:
        raise Unsupported("start, limit or delta depends on the data")
    if b.constant_value(delta) is None:
        raise Unsupported("delta depends on the sizes of the inputs")
    gap = float(step[0])
    counts = tuple(max(0, math.ceil((float(m) - float(n)) / gap)) for m, n in zip(last, first))
    if max(counts) > MAX_LENGTH or min(counts) == 0:
        raise Unsupported(f"{counts[0]} elements")
    if is_dynamic(counts) and b.constant_value(start) is None:
        line = positions(b, counts, 0, 1, start.dtype)
        return line * gap + start
    lines = [torch.arange(n) for n in counts]
    begin = b.constant_value(start)
    if begin is None:
        return b.constant(lines[0] * gap, start.dtype) + start
    if not is_dynamic(counts):
        values = lines[0].double() * gap + float(begin)
        return b.constant(values, start.dtype)
    line = positions(b, counts, 0, 1, start.dtype)
    result = line * gap + float(begin) if (gap, float(begin)) != (1, 0) else line
    result = result.again()
    result.known = tuple((n.double() * gap + float(begin)).to(begin.dtype) for n in lines)
    return result


def _pad(c: NodeCall) -> OnnxValue:
    b, x = c.b, c.x
    pads = c.ints("pads", 1) or [()]
    axes = c.fixed_ints("axes", 3)
    mode, value = c.attrs["mode"], c.attrs.get("value", 0.0)
    if c.since >= 11 and c.maybe(2) is not None:
        value = float(b.required_constant(c.value(2), "constant_value"))
    indices = [normalize_axis(a, x.rank) for a in axes] if axes is not None else list(range(x.rank))
    if any(len(p) != 2 * len(indices) for p in pads):
        raise Unsupported(f"pads {pads[0]} for {len(indices)} axes")
    half = len(indices)
    widths = {a: (tuple(p[i] for p in pads), tuple(p[i + half] for p in pads)) for i, a in enumerate(indices)}
    return padded(x, widths, mode, value)


def padded(x: OnnxValue, widths: dict[int, tuple[Sizes, Sizes]], mode: str, value: float) -> OnnxValue:
    """Pad axes."""
    for axis, (before, after) in widths.items():
        sizes = x.axis(axis)
        begins = tuple(max(0, -n) for n in before)
        ends = tuple(size - max(0, -n) for size, n in zip(sizes, after))
        if any(begins) or ends != sizes:
            x = cut(x, axis, begins, ends)
    widths = {
        axis: (tuple(max(0, n) for n in before), tuple(max(0, n) for n in after))
        for axis, (before, after) in widths.items()
    }
    widths = {axis: pair for axis, pair in widths.items() if any(pair[0]) or any(pair[1])}
    static = all(not is_dynamic(each) for pair in widths.values() for each in pair)
    if not widths:
        return x
    if static and x.rank >= 3 and min(widths) >= 2 and mode != "wrap" and x.rank <= 5 and "float" in x.dtype:
        numbers = [n for axis in range(x.rank) for n in (p[0] for p in widths.get(axis, ((0,), (0,))))]
        result: OnnxValue = x.then("Pad", mode=mode, pad_width=tuple(numbers), constant_value=value)
        return result
    for axis, (before, after) in widths.items():
        x = _padded_axis(x, axis, before, after, mode, value)
    return x


def _padded_axis(x: OnnxValue, axis: int, before: Sizes, after: Sizes, mode: str, value: float) -> OnnxValue:
    b, parts = x.b, [x]
    for counts, is_front in ((before, True), (after, False)):
        if not any(counts):
            continue
        if any(n == 0 for n in counts):
            raise Unsupported("pads that are 0 only for some sizes of the inputs")
        if mode == "constant":
            shape = tuple((*s[:axis], n, *s[axis + 1 :]) for s, n in zip(x.shapes, counts))
            piece = filled(b, shape, value, x.dtype)
        else:
            piece = _mirrored(x, axis, counts, is_front, mode)
        parts = [piece, *parts] if is_front else [*parts, piece]
    return parts[0].then("Concat", *parts[1:], dim=axis)


def _mirrored(x: OnnxValue, axis: int, counts: Sizes, is_front: bool, mode: str) -> OnnxValue:
    """Return the padding before or after an axis in modes other than constant."""
    sizes, first = x.axis(axis), (0,) * len(counts)
    if mode == "edge":
        one = cut(
            x, axis, *((first, (1,) * len(counts)) if is_front else (tuple(n - 1 for n in sizes), sizes))
        )
        return expand(one, tuple((*s[:axis], n, *s[axis + 1 :]) for s, n in zip(x.shapes, counts)))
    if any(n >= size for n, size in zip(counts, sizes)):
        raise Unsupported(f"pads of {counts[0]} elements, as many as the axis has")
    if mode == "wrap":
        return cut(
            x,
            axis,
            *((tuple(s - n for s, n in zip(sizes, counts)), sizes) if is_front else (first, counts)),
        )
    begins = (1,) * len(counts) if is_front else tuple(s - 1 - n for s, n in zip(sizes, counts))
    piece = cut(x, axis, begins, tuple(m + n for m, n in zip(begins, counts)))
    return piece.then("reverse", axis=axis)


def _one_hot(c: NodeCall) -> OnnxValue:
    b, x = c.b, c.x
    depth = int(b.required_constant(c.value(1), "depth").reshape(-1)[0])
    off, on = (float(n) for n in b.required_constant(c.value(2), "values"))
    axis = normalize_axis(c.attrs["axis"], x.rank + 1)
    hot: OnnxValue = b(
        "one_hot",
        x % float(depth),
        depth=depth,
        on_value=on,
        off_value=off,
        dtype=c.value(2).dtype,
    )
    order = [*range(axis), x.rank, *range(axis, x.rank)]
    return transpose(hot, order)


def _eye_like(c: NodeCall) -> OnnxValue:
    rows, columns, k = c.x.size(0), c.x.size(1), c.attrs["k"]
    if rows is None or columns is None or rows * columns > 2**24:
        raise Unsupported("a matrix whose size is open")
    dtype = DTYPES.get(c.attrs["dtype"], "float32") if "dtype" in c.attrs else c.x.dtype
    line = torch.arange(columns) - torch.arange(rows).unsqueeze(1)
    return c.b.constant((line == k).float(), dtype)


def _rearrange_blocks(c: NodeCall) -> OnnxValue:
    b, x, size = c.b, c.x, c.attrs["blocksize"]
    if size < 1:
        raise Unsupported(f"blocksize {size}")
    if c.kind == "SpaceToDepth" and c.attrs.get("mode", "DCR") == "CRD":
        apart = reshape(x, tuple((n, d, h // size, size, w // size, size) for n, d, h, w in x.shapes))
        turned = transpose(apart, (0, 1, 3, 5, 2, 4))
        return reshape(turned, tuple((n, d * size**2, h // size, w // size) for n, d, h, w in x.shapes))
    if c.kind == "SpaceToDepth":
        return b("space_to_depth", x, block_size=size)
    if c.attrs.get("mode", "DCR") == "DCR":
        return b("depth_to_space", x, block_size=size)
    apart = reshape(x, tuple((n, d // size**2, size, size, h, w) for n, d, h, w in x.shapes))
    turned = transpose(apart, (0, 1, 4, 2, 5, 3))
    return reshape(turned, tuple((n, d // size**2, h * size, w * size) for n, d, h, w in x.shapes))


def _col2im(c: NodeCall) -> OnnxValue:
    b, a = c.b, c.attrs
    size, block = c.fixed_ints("image_shape", 1) or (), c.fixed_ints("block_shape", 2) or ()
    pads = tuple(a.get("pads") or (0,) * 4)
    if len(size) != 2 or len(block) != 2 or pads[:2] != pads[2:]:
        raise Unsupported(f"blocks {block} of images {size} with pads {pads}")
    return b(
        "col2im",
        c.x,
        output_size=size,
        kernel=block,
        stride=tuple(a.get("strides") or (1, 1)),
        dilate=tuple(a.get("dilations") or (1, 1)),
        pad=pads[:2],
    )


def _center_crop_pad(c: NodeCall) -> OnnxValue:
    x = c.x
    wanted = c.ints("shape", 1) or []
    axes = [normalize_axis(a, x.rank) for a in c.attrs.get("axes") or range(x.rank)]
    widths = {}
    for i, axis in enumerate(axes):
        gaps = [target[i] - n for target, n in zip(wanted, x.axis(axis))]
        widths[axis] = (
            tuple(g // 2 if g >= 0 else -(-g // 2) for g in gaps),
            tuple(g - g // 2 if g >= 0 else g + (-g // 2) for g in gaps),
        )
    return padded(x, widths, "constant", 0.0)


TABLE: dict[str, Translator] = {
    "CenterCropPad": _center_crop_pad,
    "Col2Im": _col2im,
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _rearrange_blocks,
    "Expand": _expand,
    "EyeLike": _eye_like,
    "Flatten": _flatten,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "SpaceToDepth": _rearrange_blocks,
    "Split": _split,
    "Squeeze": lambda c: squeeze(c.x, c.fixed_ints("axes", 1)),
    "Tile": _tile,
    "Unsqueeze": _unsqueeze,
}
