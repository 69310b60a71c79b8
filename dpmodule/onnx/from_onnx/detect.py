"""Regions of pictures, and boxes without those that overlap better ones."""

from __future__ import annotations

import math

from .build import GraphBuilder
from .call import NodeCall, Translator
from .forms import expand, positions, reshape, unsqueeze
from .index import selected
from .problems import Refused
from .value import OnnxValue


def _roi_align(c: NodeCall) -> OnnxValue:
    b, x, rois, index, a = c.b, c.x, c.value(1), c.value(2), c.attrs
    if a["mode"] != "avg":
        raise Refused(f"mode {a['mode']!r}")
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
    most = 0 if c.maybe(2) is None else int(b.needed(c.value(2), "max_output_boxes_per_class").reshape(-1)[0])
    overlap = 0.0 if c.maybe(3) is None else float(b.needed(c.value(3), "iou_threshold").reshape(-1)[0])
    least = -1e30 if c.maybe(4) is None else float(b.needed(c.value(4), "score_threshold").reshape(-1)[0])
    if most < 1 or boxes.rank != 3 or scores.rank != 3:
        raise Refused(f"{most} boxes of a class out of {boxes.dims[0]} with scores {scores.dims[0]}")
    shapes = tuple((*s, 1) for s in scores.shapes)
    places = reshape(positions(b, scores.axis(2), dtype="float32"), tuple((1, 1, s[2], 1) for s in shapes))
    corners = unsqueeze(_corners(b, boxes, bool(c.attrs["center_point_box"])), [1])
    rows = b(
        "Concat",
        reshape(scores, shapes),
        expand(corners, tuple((*s[:3], 4) for s in shapes)),
        expand(places, shapes),
        dim=3,
    )
    flat = reshape(rows, tuple((s[0] * s[1], s[2], 6) for s in shapes))
    kept = b(
        "_contrib_box_nms", flat, overlap_thresh=overlap, valid_thresh=least, coord_start=1, score_index=0
    )
    kept = reshape(kept, tuple((*s[:3], 6) for s in shapes))
    found = b("slice_axis", kept, axis=3, begin=5, end=6)
    if any(n > most for n in scores.axis(2)):
        found = b("slice_axis", found, axis=2, begin=0, end=most)
    wide = found.shapes
    images = _line(b, wide, 0)
    classes = _line(b, wide, 1)
    triples = b("Concat", images, classes, found, dim=3)
    flat = reshape(triples, tuple((math.prod(s), 3) for s in wide))
    mask = reshape(found, tuple((math.prod(s),) for s in wide)) >= 0.0
    return selected(b, flat, mask).cast("int64")


def _line(b: GraphBuilder, wide: tuple[tuple[int, ...], ...], axis: int) -> OnnxValue:
    line = positions(b, tuple(s[axis] for s in wide), dtype="float32")
    narrow = tuple(tuple(d if i == axis else 1 for i, d in enumerate(s)) for s in wide)
    return expand(reshape(line, narrow), wide)


TABLE: dict[str, Translator] = {
    "MaxRoiPool": _roi_pool,
    "NonMaxSuppression": _suppression,
    "RoiAlign": _roi_align,
}
