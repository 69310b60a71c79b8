"""Translators of image operators: resizing, grid sampling, regions, and box suppression."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from .build import GraphBuilder, NodeCall, Translator
from .check import Unsupported
from .index import selected
from .shape_helpers import (
    expand,
    filled,
    is_dynamic,
    normalize_axis,
    positions,
    reshape,
    transpose,
    unsqueeze,
)
from .value import OnnxValue, Sizes

_MATRIX = 2**24


class _ResizedAxis:
    """Resizing of one axis."""

    def __init__(self, before: Sizes, after: Sizes, scales: tuple[float, ...], attrs: dict[str, Any]) -> None:
        self.before, self.after, self._scales, self._a = before, after, scales, attrs

    def source_positions(self, trial: int) -> torch.Tensor:
        """Return the source position of each element of the result."""
        n, m, scale = self.before[trial], self.after[trial], self._scales[trial]
        line = torch.arange(m, dtype=torch.float32)  # as in ONNX Runtime, since rounding decides ties
        mode = self._a["coordinate_transformation_mode"]
        if mode == "asymmetric":
            return line / scale
        if mode == "align_corners":
            return line * ((n - 1) / (m - 1)) if m > 1 else line * 0
        if mode == "tf_half_pixel_for_nn":
            return (line + 0.5) / scale
        if mode == "half_pixel_symmetric":
            adjust = m / (n * scale)
            return n / 2 * (1 - adjust) + (line + 0.5) / scale - 0.5
        if mode == "pytorch_half_pixel" and m == 1:
            return line * 0
        if mode in ("half_pixel", "pytorch_half_pixel"):
            return (line + 0.5) / scale - 0.5
        raise Unsupported(f"coordinate_transformation_mode {mode!r}")

    def nearest(self, trial: int) -> torch.Tensor:
        """Return the index of the source element of each element of the result."""
        source = self.source_positions(trial)
        mode = self._a["nearest_mode"]
        functions: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
            "round_prefer_floor": lambda x: torch.ceil(x - 0.5),
            "round_prefer_ceil": lambda x: torch.floor(x + 0.5),
            "floor": torch.floor,
            "ceil": torch.ceil,
        }
        if mode not in functions:
            raise Unsupported(f"nearest_mode {mode!r}")
        return functions[mode](source).long().clamp(0, self.before[trial] - 1)

    def matrix(self) -> torch.Tensor:
        """Return the interpolation weights (result, data) of an axis of constant size."""
        n, m = self.before[0], self.after[0]
        if n * m > _MATRIX:
            raise Unsupported(f"an axis of {n} elements resized to {m}")
        indices = self.source_positions(0).unsqueeze(1)
        is_cubic = self._a["mode"] == "cubic"
        shrink = min(self._scales[0], 1.0) if self._a.get("antialias") else 1.0
        reach = math.ceil((2 if is_cubic else 1) / shrink)
        taps = torch.floor(indices) + torch.arange(-reach, reach + 2)
        gaps = ((taps - indices) * shrink).abs()
        weights = _cubic(gaps, self._a["cubic_coeff_a"]) if is_cubic else (1 - gaps).clamp(min=0)
        outside = (taps < 0) | (taps > n - 1)
        if self._a.get("exclude_outside"):
            weights = torch.where(outside, 0.0, weights)
        weights = weights / weights.sum(1, keepdim=True)
        whole = torch.zeros(m, n)
        return whole.scatter_add_(1, taps.long().clamp(0, n - 1), weights)


def _cubic(gaps: torch.Tensor, a: float) -> torch.Tensor:
    near = ((a + 2) * gaps - (a + 3)) * gaps * gaps + 1
    far = ((a * gaps - 5 * a) * gaps + 8 * a) * gaps - 4 * a
    return torch.where(gaps <= 1, near, torch.where(gaps < 2, far, 0.0))


def _defaults(c: NodeCall) -> dict[str, Any]:
    """Return the attributes; old opsets have fixed values."""
    results = dict(c.attrs)
    if c.kind == "Upsample" or c.since < 11:
        results["coordinate_transformation_mode"], results["nearest_mode"] = "asymmetric", "floor"
    results.setdefault("cubic_coeff_a", -0.75)
    if results.get("antialias") and results["mode"] == "nearest":
        results["antialias"] = 0
    return results


def _target_sizes(
    c: NodeCall, rank: int, attrs: dict[str, Any]
) -> tuple[list[int], list[tuple[float, ...]], Any]:
    """Return the axes, their factors in every trial, and the sizes if the file gives them."""
    b = c.b
    axes = [normalize_axis(n, rank) for n in attrs.get("axes") or range(rank)]
    position = {"Upsample": 1}.get(c.kind, 1 if c.since < 11 else 2)
    if "scales" in attrs:
        return axes, [tuple(attrs["scales"])] * b.trials, None
    given = c.maybe(position)
    if given is not None:
        numbers = b.values_per_trial(given)
        if numbers is None:
            raise Unsupported("scales depend on the data")
        return axes, [tuple(t.reshape(-1).tolist()) for t in numbers], None
    sizes = None if c.maybe(3) is None else b.integers(c.value(3), "sizes")
    if sizes is None:
        raise Unsupported("neither scales nor sizes are given")
    if attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Unsupported(f"keep_aspect_ratio_policy {attrs['keep_aspect_ratio_policy']!r}")
    return axes, [], sizes


def _resize(c: NodeCall) -> OnnxValue:
    x, attrs = c.x, _defaults(c)
    axes, factors, sizes = _target_sizes(c, x.rank, attrs)
    resized_axes: dict[int, _ResizedAxis] = {}
    for i, axis in enumerate(axes):
        before = x.axis(axis)
        if sizes is None:
            if any(len(f) != len(axes) or not 0 < f[i] < 2**20 for f in factors):
                raise Unsupported(f"scales {factors[0]} for {len(axes)} axes")
            scales = tuple(f[i] for f in factors)
            after = tuple(math.floor(n * s) for n, s in zip(before, scales))
        else:
            if any(len(s) != len(axes) for s in sizes):
                raise Unsupported(f"sizes {sizes[0]} for {len(axes)} axes")
            after = tuple(s[i] for s in sizes)
            scales = tuple(m / n for m, n in zip(after, before))
        if min(after) < 1 or max(after) > 2**20:
            raise Unsupported(f"an axis of {before[0]} elements resized to {after[0]}")
        if after != before:
            resized_axes[axis] = _ResizedAxis(before, after, scales, attrs)
    return _resize_axes(c.b, x, resized_axes, attrs)


def _resize_axes(
    b: GraphBuilder, x: OnnxValue, resized_axes: dict[int, _ResizedAxis], attrs: dict[str, Any]
) -> OnnxValue:
    if attrs["mode"] == "nearest":
        for axis, resized_axis in resized_axes.items():
            x = _resize_nearest(b, x, axis, resized_axis)
        return x
    if attrs["mode"] not in ("linear", "cubic"):
        raise Unsupported(f"mode {attrs['mode']!r}")
    if any(
        is_dynamic(resized_axis.before) or is_dynamic(resized_axis.after)
        for resized_axis in resized_axes.values()
    ):
        return _resize_open_axes(b, x, resized_axes, attrs)
    for axis, resized_axis in resized_axes.items():
        matrix = b.constant(resized_axis.matrix().t().contiguous(), x.dtype)
        order = [i for i in range(x.rank) if i != axis] + [axis]
        back = [order.index(i) for i in range(x.rank)]
        x = transpose(b("dot", transpose(x, order), matrix), back)
    return x


def _resize_nearest(b: GraphBuilder, x: OnnxValue, axis: int, resized_axis: _ResizedAxis) -> OnnxValue:
    indices = [resized_axis.nearest(w) for w in range(b.trials)]
    times = resized_axis.after[0] // resized_axis.before[0]
    if times > 1 and all(
        m == n * times and bool((p == torch.arange(m) // times).all())
        for p, n, m in zip(indices, resized_axis.before, resized_axis.after)
    ):
        return b("repeat", x, repeats=times, axis=axis)
    step = round(resized_axis.before[0] / resized_axis.after[0])
    begin = int(indices[0][0])
    if step > 1 and all(
        p.tolist() == list(range(begin, n, step)) for p, n in zip(indices, resized_axis.before)
    ):
        nothing = (None,) * axis
        return b("slice", x, begin=(*nothing, begin), end=(*nothing, None), step=(*nothing, step))
    if is_dynamic(resized_axis.before) or is_dynamic(resized_axis.after):
        raise Unsupported("an axis of open size, resized by a factor that is not an integer")
    return b("take", x, b.constant(indices[0]), axis=axis)


def _resize_open_axes(
    b: GraphBuilder, x: OnnxValue, resized_axes: dict[int, _ResizedAxis], attrs: dict[str, Any]
) -> OnnxValue:
    """Resize images of open sizes."""
    mode = attrs["coordinate_transformation_mode"]
    plain = (
        attrs["mode"] == "linear"
        and not attrs.get("antialias")
        and x.rank == 4
        and set(resized_axes) <= {2, 3}
    )
    if not plain or mode not in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        raise Unsupported(f"mode {attrs['mode']} with {mode} for axes of open sizes")
    after = tuple(
        (
            1,
            1,
            *(resized_axes[axis].after[w] if axis in resized_axes else x.shapes[w][axis] for axis in (2, 3)),
        )
        for w in range(b.trials)
    )
    like = filled(b, after, 0.0, x.dtype)
    return b("_contrib_BilinearResize2D", x, like, mode="like", align_corners=mode == "align_corners")


def _grid(c: NodeCall) -> OnnxValue:
    x, grid, a = c.x, c.value(1), c.attrs
    if x.rank != 4:
        raise Unsupported(f"data of shape {x.dims[0]}, expected images")
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(a["mode"], a["mode"])
    options = {"padding_mode": a["padding_mode"], "align_corners": bool(a["align_corners"])}
    return c.b("_grid_sample", x, grid, mode=mode, **options)


# regions of images, and box suppression


def _roi_align(c: NodeCall) -> OnnxValue:
    b, x, rois, index, a = c.b, c.x, c.value(1), c.value(2), c.attrs
    if a["mode"] != "avg":
        raise Unsupported(f"mode {a['mode']!r}")
    joined = b("Concat", unsqueeze(index.cast(rois.dtype), [1]), rois, dim=1)
    return b(
        "_contrib_ROIAlign",
        x,
        joined,
        pooled_size=(a["output_height"], a["output_width"]),
        spatial_scale=a["spatial_scale"],
        sample_ratio=a["sampling_ratio"] or -1,
        aligned=a.get("coordinate_transformation_mode", "output_half_pixel") == "half_pixel",
    )


def _roi_pool(c: NodeCall) -> OnnxValue:
    a = c.attrs
    return c.b(
        "ROIPooling", c.x, c.value(1), pooled_size=tuple(a["pooled_shape"]), spatial_scale=a["spatial_scale"]
    )


def _corners(b: GraphBuilder, boxes: OnnxValue, is_center: bool) -> OnnxValue:
    """Return boxes as left, top, right, bottom."""
    if is_center:
        middle, size = b.many("_split_v2", boxes, indices=(0, 2), axis=2)
        half = size * 0.5
        return b("Concat", middle - half, middle + half, dim=2)
    one, other = b.many("_split_v2", boxes, indices=(0, 2), axis=2)  # any two opposite corners
    return b("Concat", one.arith("minimum", other), one.arith("maximum", other), dim=2)


def _suppression(c: NodeCall) -> OnnxValue:
    b, boxes, scores = c.b, c.x, c.value(1)
    max_boxes = (
        0
        if c.maybe(2) is None
        else int(b.required_constant(c.value(2), "max_output_boxes_per_class").reshape(-1)[0])
    )
    max_overlap = (
        0.0 if c.maybe(3) is None else float(b.required_constant(c.value(3), "iou_threshold").reshape(-1)[0])
    )
    min_score = (
        -1e30
        if c.maybe(4) is None
        else float(b.required_constant(c.value(4), "score_threshold").reshape(-1)[0])
    )
    if max_boxes < 1 or boxes.rank != 3 or scores.rank != 3:
        raise Unsupported(f"{max_boxes} boxes of a class out of {boxes.dims[0]} with scores {scores.dims[0]}")
    shapes = tuple((*s, 1) for s in scores.shapes)
    indices = reshape(positions(b, scores.axis(2), dtype="float32"), tuple((1, 1, s[2], 1) for s in shapes))
    corners = unsqueeze(_corners(b, boxes, bool(c.attrs["center_point_box"])), [1])
    rows = b(
        "Concat",
        reshape(scores, shapes),
        expand(corners, tuple((*s[:3], 4) for s in shapes)),
        expand(indices, shapes),
        dim=3,
    )
    flat = reshape(rows, tuple((s[0] * s[1], s[2], 6) for s in shapes))
    kept = b(
        "_contrib_box_nms",
        flat,
        overlap_thresh=max_overlap,
        valid_thresh=min_score,
        coord_start=1,
        score_index=0,
    )
    kept = reshape(kept, tuple((*s[:3], 6) for s in shapes))
    result = b("slice_axis", kept, axis=3, begin=5, end=6)
    if any(n > max_boxes for n in scores.axis(2)):
        result = b("slice_axis", result, axis=2, begin=0, end=max_boxes)
    wide = result.shapes
    images = _line(b, wide, 0)
    classes = _line(b, wide, 1)
    triples = b("Concat", images, classes, result, dim=3)
    flat = reshape(triples, tuple((math.prod(s), 3) for s in wide))
    mask = reshape(result, tuple((math.prod(s),) for s in wide)) >= 0.0
    return selected(b, flat, mask).cast("int64")


def _line(b: GraphBuilder, wide: tuple[tuple[int, ...], ...], axis: int) -> OnnxValue:
    line = positions(b, tuple(s[axis] for s in wide), dtype="float32")
    narrow = tuple(tuple(d if i == axis else 1 for i, d in enumerate(s)) for s in wide)
    return expand(reshape(line, narrow), wide)


TABLE: dict[str, Translator] = {
    "GridSample": _grid,
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    "MaxRoiPool": _roi_pool,
    "NonMaxSuppression": _suppression,
    "RoiAlign": _roi_align,
}
