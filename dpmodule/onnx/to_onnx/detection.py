"""Builders of box operators: anchors, encodings, overlap, suppression and proposals.

NonMaxSuppression receives ranks instead of scores, so that equal scores keep MXNet's order. It computes the overlap of
boxes from their corners; a box given by its centre may differ in the last bit of its area, which matters only if an
overlap equals the threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ...ops.contrib.multibox import multibox_prior as priors
from ...ops.contrib.proposal import anchor_grid
from .call import OperatorCall, Value
from .common import reshape, result, shape_value

F4 = "float32"


def _floats(c: OperatorCall) -> list[Value]:
    """Return all inputs in single precision."""
    return [x.cast(F4) for x in c.inputs]


def _gather_rows(c: OperatorCall, rows: Value, places: Value) -> Value:
    """Select rows (B, N, K) of each image by indices (B, M)."""
    return c.emit("GatherND", rows, places.unsqueeze(2), batch_dims=1)


def _split_boxes(c: OperatorCall, boxes: Value) -> tuple[Value, Value]:
    """Return the first two and the last two of the four numbers of boxes (B, N, 4)."""
    return boxes.slice(2, 0, 2), boxes.slice(2, 2, 4)


def _to_centres(c: OperatorCall, boxes: Value) -> tuple[Value, Value]:
    """Return centres and sizes of boxes given by corners."""
    low, high = _split_boxes(c, boxes)
    size = high - low
    return low + size * 0.5, size


def _to_corners(c: OperatorCall, centre: Value, half: Value) -> Value:
    return c.emit("Concat", centre - half, centre + half, axis=-1)


def multibox_prior(c: OperatorCall) -> Value:
    """Write a constant, which depends only on the shape of the feature map."""
    map_like = torch.empty((1, 1, c.length(2), c.length(3)))
    return c.const(priors(c.a, None, map_like).numpy(), c.out_dtypes[0])


def box_encode(c: OperatorCall) -> list[Value]:
    """Encode matched boxes as offsets of anchors."""
    samples, matches, anchors, refs, means, stds = _floats(c)
    chosen = _gather_rows(c, refs, matches.cast("int64"))
    (at, size), (to, new) = _to_centres(c, anchors), _to_centres(c, chosen)
    moves = (to - at) / size
    raw = c.emit("Concat", moves, c.emit("Log", new / size), axis=-1)
    scaled = (raw - means) / stds
    matched = (samples > 0.5).unsqueeze(2)
    target = matched.choose(scaled, 0.0)
    mask = c.emit("Expand", matched.cast(c.out_dtypes[1]), c.emit("Shape", anchors))
    return [result(target), mask]


def box_decode(c: OperatorCall) -> Value:
    """Decode boxes from offsets of anchors."""
    a, (data, anchors) = c.a, _floats(c)
    at, size = _to_centres(c, anchors) if a.format == "corner" else _split_boxes(c, anchors)
    scaled = data * c.const([a.std0, a.std1, a.std2, a.std3], F4)
    moves, growth = _split_boxes(c, scaled)
    if a.clip > 0:
        growth = growth.then("Min", a.clip)
    half = c.emit("Exp", growth) * size * 0.5
    return result(_to_corners(c, moves * size + at, half))


def _corners(c: OperatorCall, boxes: Value, kind: str) -> tuple[Value, Value]:
    """Return low and high corners of boxes (..., 4) with three axes."""
    first, second = _split_boxes(c, boxes)
    if kind == "corner":
        return first, second
    half = second / 2.0
    return first - half, first + half


def _area(c: OperatorCall, boxes: Value, kind: str) -> Value:
    """Return areas with a last axis of 1; 0 if a side is negative."""
    first, second = _split_boxes(c, boxes)
    size = second - first if kind == "corner" else second
    return _product(c, size.then("Max", 0.0))


def _product(c: OperatorCall, size: Value) -> Value:
    return size.slice(2, 0, 1) * size.slice(2, 1, 2)


def box_iou(c: OperatorCall) -> Value:
    """Overlap of all pairs of boxes, on three axes."""
    lhs, rhs = _floats(c)
    one = lhs.reshape(-1, 1, 4)
    other = rhs.reshape(1, -1, 4)
    (low, high), (low_2, high_2) = (_corners(c, boxes, c.a.format) for boxes in (one, other))
    sides = c.emit("Min", high, high_2) - c.emit("Max", low, low_2)
    common = _product(c, sides.then("Max", 0.0))
    areas = _area(c, one, c.a.format) + _area(c, other, c.a.format)
    share = common / (areas - common)
    meets = common > 0.0
    output = meets.choose(share, 0.0)
    return result(reshape(c, output, c.out_shapes[0]))


def _top_scores(c: OperatorCall, scores: Value, count: int) -> tuple[Value, Value]:
    """Return the `count` highest scores (B, N) and their indices; equal ones keep their order."""
    values, indices = c.emit("TopK", scores, c.ints(count), outputs=2, axis=1)
    return values, indices


def _ranks(c: OperatorCall, count: int) -> Value:
    """Return descending ranks count, ..., 1."""
    return c.const(np.arange(count, 0, -1)[None], F4)


def _suppressed(
    c: OperatorCall, boxes: Value, scores: Value, ranks: Value, threshold: float, most: int
) -> Value:
    """Return the ranks of the remaining boxes, 0 for all others."""
    if not threshold >= 0:
        c.refuse(f"its threshold of overlap is {threshold}; NonMaxSuppression requires at least 0")
    low, high = _split_boxes(c, boxes)
    # negative sides count as 0; NonMaxSuppression would swap the corners
    proper = c.emit("Concat", low, c.emit("Max", low, high), axis=2)
    chosen = c.emit(
        "NonMaxSuppression",
        proper,
        scores,
        c.ints(most),
        c.const([min(threshold, 1.0)], F4),
        c.const([0.5], F4),
    )
    indices = c.emit("Gather", chosen, c.ints(0, 2), axis=1)
    none = ranks * 0.0
    return c.emit("ScatterND", none, indices, c.emit("GatherND", ranks, indices))


def box_nms(c: OperatorCall) -> Value:
    """Sort, suppress, and move the remaining boxes to the front."""
    a, shape = c.a, c.shapes[0]
    if a.topk == 0:
        return c.inputs[0]
    count = c.length(-2)
    (data,) = _floats(c)
    if len(shape) != 3:
        data = data.reshape(-1, count, c.length(-1))
    rows, alive = _candidates(c, data, count)
    ranks = alive.choose(_ranks(c, count), 0.0)
    boxes = rows.slice(2, a.coord_start, a.coord_start + 4)
    corners = c.emit("Concat", *_corners(c, boxes, a.in_format), axis=2)
    by_class = ranks.unsqueeze(1)
    if a.id_index >= 0 and not a.force_suppress:
        by_class = _by_own_class(c, rows, by_class, count)
    kept = _suppressed(c, corners, by_class, ranks, float(np.float32(a.overlap_thresh)), count)
    order, indices = _top_scores(c, kept, count)
    stays = (order > 0.0).unsqueeze(2)
    output = stays.choose(_gather_rows(c, rows, indices), -1.0)
    if a.in_format != a.out_format:
        output = _converted(c, output)
    return result(output if len(shape) == 3 else reshape(c, output, shape, None))


def _candidates(c: OperatorCall, data: Value, count: int) -> tuple[Value, Value]:
    """Return all rows, best first, and the mask of candidates for suppression."""
    a = c.a
    score = data.gather(a.score_index, 2)
    valid = score > a.valid_thresh
    if a.id_index >= 0:
        kind = data.gather(a.id_index, 2)
        background = kind.equals(a.background_id)
        valid = valid & ~background
    least = c.const(-np.inf, F4)
    values, order = _top_scores(c, valid.choose(score, least), count)
    alive = values > least
    if 0 < a.topk < count:
        alive = alive & c.const([np.arange(count) < a.topk], "bool")
    return _gather_rows(c, data, order), alive


def _by_own_class(c: OperatorCall, rows: Value, ranks: Value, count: int) -> Value:
    """Return ranks (B, N, N), in which the row of the first box of each class has the ranks of its class."""
    kind = rows.gather(c.a.id_index, 2).cast("int64")
    same = kind.unsqueeze(2).equals(kind.unsqueeze(1))
    position = c.const(np.arange(count), "int64")
    earlier = same & (position < c.const(np.arange(count)[:, None], "int64"))
    repeated = earlier.cast(F4).reduce("ReduceMax", 2, keepdims=True)
    first = repeated.equals(0.0)
    return (same & first).choose(ranks, 0.0)


def _converted(c: OperatorCall, rows: Value) -> Value:
    """Change the coordinates to the other format, unless a box starts below 0."""
    start, count = c.a.coord_start, c.length(-1)
    boxes = rows.slice(2, start, start + 4)
    first, second = _split_boxes(c, boxes)
    two = c.const(2.0, F4)
    if c.a.out_format == "center":
        changed = [(first + second) / two, second - first]
    else:
        half = second / two
        changed = [first - half, first + half]
    below = boxes.slice(2, 0, 1) < 0.0
    chosen = below.choose(boxes, c.emit("Concat", *changed, axis=2))
    parts = [rows.slice(2, 0, start)] if start else []
    parts += [chosen] + ([rows.slice(2, start + 4, count)] if start + 4 < count else [])
    return parts[0] if len(parts) == 1 else c.emit("Concat", *parts, axis=2)


def multibox_detection(c: OperatorCall) -> Value:
    """Decode, sort, suppress."""
    a, count, classes = c.a, c.length(2), c.length(1)
    scores, moves, anchors = _floats(c)
    if classes < 2:
        shape = shape_value(c, c.out_shapes[0])
        return result(c.emit("Expand", c.const([-1.0], F4), shape))
    kinds = scores.slice(1, 1, classes)
    score = kinds.reduce("ReduceMax", 1)
    kind = c.emit("ArgMax", kinds, axis=1, keepdims=0).cast(F4)
    valid = score >= a.threshold
    suppresses = 0 < a.nms_threshold <= 1
    order, filled = _detection_order(c, score, valid, count, suppresses)
    boxes = _decode_offsets(c, moves.reshape(-1, count, 4), anchors)
    rows = _gather_rows(c, c.emit("Concat", kind.unsqueeze(2), score.unsqueeze(2), boxes, axis=2), order)
    if suppresses:
        rows = _suppress_classes(c, rows, filled, count, classes - 1)
    output = filled.unsqueeze(2).choose(rows, -1.0)
    return result(output)


def _detection_order(
    c: OperatorCall, score: Value, valid: Value, count: int, ranked: bool
) -> tuple[Value, Value]:
    """Return the order of the anchors, and the mask of detections."""
    a, zero = c.a, c.const(0.0, F4)
    marks, order = _top_scores(c, valid.choose(_ranks(c, count), zero), count)
    filled = marks > zero
    if ranked:
        best = _top_scores(c, valid.choose(score, -np.inf), count)[1]
        if 0 < a.nms_topk < count:
            # detections beyond the best ones keep their original order, as in MXNet
            parts = best.slice(1, 0, a.nms_topk), order.slice(1, a.nms_topk, count)
            best = c.emit("Concat", *parts, axis=1)
        order = best
    return order, filled


def _decode_offsets(c: OperatorCall, moves: Value, anchors: Value) -> Value:
    factors = [float(x) for x in c.a.variances]
    (first, growth), (low, high) = _split_boxes(c, moves), _split_boxes(c, anchors)
    size, two = high - low, c.const(2.0, F4)
    middle = (low + high) / two
    steps = first * c.const(factors[:2], F4) * size
    grown = c.emit("Exp", growth * c.const(factors[2:], F4))
    half = grown * size / two
    boxes = _to_corners(c, steps + middle, half)
    return c.emit("Clip", boxes, c.const(0.0, F4), c.const(1.0, F4)) if c.a.clip else boxes


def _suppress_classes(c: OperatorCall, rows: Value, filled: Value, count: int, classes: int) -> Value:
    """Set the class -1 for rows that overlap a better one of their class, or exceed the limit."""
    a, zero = c.a, c.const(0.0, F4)
    looked_at = filled
    if 0 < a.nms_topk < count:
        looked_at = filled & c.const([np.arange(count) < a.nms_topk], "bool")
    ranks = looked_at.choose(_ranks(c, count), zero)
    kind = rows.slice(2, 0, 1)
    by_class = ranks.unsqueeze(1)
    if not a.force_suppress:
        own = c.emit("Transpose", kind.equals(np.arange(classes)), perm=[0, 2, 1])
        by_class = own.choose(by_class, zero)
    # an overlap equal to the threshold counts here
    least = float(np.nextafter(np.float32(a.nms_threshold), np.float32(0)))
    kept = _suppressed(c, rows.slice(2, 2, 6), by_class, ranks, least, count)
    stays = (kept > zero).unsqueeze(2)
    marked = stays.choose(kind, -1.0)
    return c.emit("Concat", marked, rows.slice(2, 1, 6), axis=2)


def proposal(c: OperatorCall) -> list[Value] | Value:
    """Boxes of all anchors, sorted and suppressed, padded with the best one."""
    a = c.a
    height, width = c.length(2), c.length(3)
    count = c.length(1) // 2
    scores, moves, info = _floats(c)
    anchors = anchor_grid(a, height, width, torch.empty(())).numpy()
    boxes = _decode_proposals(c, moves, info, anchors)
    boxes, output = _scored(c, boxes, scores, info, (height, width, count))
    every = len(anchors)
    before = min(a.rpn_pre_nms_top_n, every) if a.rpn_pre_nms_top_n > 0 else every
    best, order = _top_scores(c, output, before)
    boxes = _gather_rows(c, boxes, order)
    indices = _select_boxes(c, boxes, before)
    rois = _gather_rows(c, boxes, indices).reshape(-1, 4)
    rois = c.emit("Concat", _image_numbers(c, scores), rois, axis=1)
    if not a.output_score:
        return result(rois)
    score = c.emit("GatherElements", best, indices, axis=1).reshape(-1, 1)
    return [result(rois), result(score, 1)]


def _decode_proposals(c: OperatorCall, moves: Value, info: Value, anchors: np.ndarray[Any, Any]) -> Value:
    """Decode boxes (B, anchors, 4) from offsets of anchors, clipped to the image."""
    height, width = c.length(2), c.length(3)
    apart = moves.reshape(-1, c.length(1) // 2, 4, height, width)
    apart = c.emit("Transpose", apart, perm=[0, 3, 4, 1, 2])
    apart = apart.reshape(-1, len(anchors), 4)
    if c.a.iou_loss:
        boxes = apart + c.const(anchors, F4)
    else:
        size = anchors[:, 2:] - anchors[:, :2] + np.float32(1)
        middle = (anchors[:, :2].astype("f8") + 0.5 * (size.astype("f8") - 1.0)).astype("f4")
        steps, growth = _split_boxes(c, apart)
        # halves are computed in double precision, as in C
        centre = steps * size + c.const(middle, F4)
        grown = (c.emit("Exp", growth) * size).cast("float64")
        half = (grown - c.const(1.0, "float64")) * c.const(0.5, "float64")
        boxes = _to_corners(c, centre.cast("float64"), half).cast(F4)
    border = c.emit("Gather", info, c.ints(1, 0, 1, 0), axis=1) - 1.0
    inside = c.emit("Min", boxes, border.unsqueeze(1))
    return inside.then("Max", 0.0)


def _scored(
    c: OperatorCall, boxes: Value, scores: Value, info: Value, sizes: Sequence[int]
) -> tuple[Value, Value]:
    """Return boxes, with too small ones enlarged, and scores, -1 for these and for padding."""
    height, width, count = sizes
    least = (info.slice(1, 2, 3) * c.a.rpn_min_size).unsqueeze(2)
    low, high = _split_boxes(c, boxes)
    side = high - low + 1.0
    short = (side < least).cast(F4)
    small = short.reduce("ReduceMax", 2, keepdims=True) > 0.0
    half = least / 2.0
    grown = small.choose(half, 0.0)
    boxes = c.emit("Concat", low - grown, high + grown, axis=2)
    inner = (info.slice(1, 0, 2) / c.a.feature_stride).cast("int32")
    row = c.const(np.repeat(np.arange(height), width * count)[None], "int32")
    column = c.const(np.tile(np.repeat(np.arange(width), count), height)[None], "int32")
    below = row >= inner.slice(1, 0, 1)
    right_of = column >= inner.slice(1, 1, 2)
    out = below | right_of | c.emit("Squeeze", small, c.ints(2))
    chances = c.emit("Transpose", scores.slice(1, count, 2 * count), perm=[0, 2, 3, 1])
    chances = chances.reshape(-1, height * width * count)
    return boxes, out.choose(-1.0, chances)


def _select_boxes(c: OperatorCall, boxes: Value, before: int) -> Value:
    """Return indices (B, rpn_post_nms_top_n) of the remaining boxes."""
    post = c.a.rpn_post_nms_top_n
    low, high = _split_boxes(c, boxes)
    # the box includes its last pixel
    wider = c.emit("Concat", low, high + 1.0, axis=2)
    like = c.emit("Squeeze", boxes.slice(2, 0, 1), c.ints(2)) * 0.0
    ranks = like + _ranks(c, before)
    threshold = float(np.float32(c.a.threshold))
    kept = _suppressed(c, wider, ranks.unsqueeze(1), ranks, threshold, min(post, before))
    marks, indices = _top_scores(c, kept, before)
    left = (marks > 0.0).cast("int64")
    number = left.reduce("ReduceSum", 1, keepdims=True)
    turns = c.emit("Mod", c.const(np.arange(post)[None], "int64"), number)
    return c.emit("GatherElements", indices, turns, axis=1)


def _image_numbers(c: OperatorCall, scores: Value) -> Value:
    """Return the image index of each proposal, (images * rpn_post_nms_top_n, 1)."""
    post = c.a.rpn_post_nms_top_n
    images = c.emit("Gather", c.emit("Shape", scores), c.const(0, "int64"))
    numbers = c.emit("Range", c.const(0, "int64"), images, c.const(1, "int64"))
    wide = numbers.unsqueeze(1) * c.const(np.ones((1, post)), "int64")
    return wide.reshape(-1, 1).cast(F4)


def bipartite_matching(c: OperatorCall) -> list[Value]:
    """A Loop that selects the best remaining pair in each step."""
    a, rows, columns = c.a, c.length(-2), c.length(-1)
    (data,) = _floats(c)
    data = data.reshape(-1, rows, columns)
    good = c.emit("Less" if a.is_ascend else "Greater", data, c.const(a.threshold, F4))
    scores = good.choose(-data if a.is_ascend else data, -np.inf)
    none = (good.cast(F4) * 0.0).reduce("ReduceMax", 2)
    none_of_columns = (good.cast(F4) * 0.0).reduce("ReduceMax", 1)
    minus = c.const(-1.0, F4)
    start = [scores, none + minus, none_of_columns + minus]
    pairs = min(rows, columns, *([a.topk + 1] if a.topk > 0 else []))
    body = _matching_step(c, rows, columns)
    _, *output = c.emit("Loop", c.const(pairs, "int64"), "", *start, outputs=3, body=body)
    return [result(reshape(c, each, dims), i) for i, (each, dims) in enumerate(zip(output, c.out_shapes))]


def _matching_step(c: OperatorCall, rows: int, columns: int) -> Any:
    inner = c.inside("pair")
    inner.argument("int64", ())
    go_on = inner.argument("bool", ())
    dims = [("images", rows, columns), ("images", rows), ("images", columns)]
    scores, of_rows, of_columns = (inner.argument(F4, dim) for dim in dims)
    flat = scores.reshape(-1, rows * columns)
    best = flat.reduce("ReduceMax", 1, keepdims=True) > -np.inf
    position, width = flat.then("ArgMax", axis=1, keepdims=1), inner.const(columns, "int64")
    row, column = position / width, position.then("Mod", width)
    hits = [best & at.equals(np.arange(count)[None]) for at, count in ((row, rows), (column, columns))]
    used = hits[0].unsqueeze(2) | hits[1].unsqueeze(1)
    left = used.choose(-np.inf, scores)
    of_rows = hits[0].choose(column.cast(F4), of_rows)
    of_columns = hits[1].choose(row.cast(F4), of_columns)
    return inner.graph([go_on, left, of_rows, of_columns], ["bool", F4, F4, F4], [(), *dims])
