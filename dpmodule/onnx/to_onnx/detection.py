"""Boxes: anchors, codes, overlap, suppression and proposals.

NonMaxSuppression is given ranks for scores, so that equal scores keep the order that they have here. It computes the
overlap of boxes from their corners; a box given by its centre may differ in the last bit of its area, which matters
only where an overlap equals the threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ...ops.contrib.multibox import multibox_prior as priors
from ...ops.contrib.proposal import anchors_of
from .call import OperatorCall
from .common import reduce, reshape, shape_value, unsqueeze

F4 = "float32"


def _floats(c: OperatorCall) -> list[str]:
    """Return all inputs in single precision."""
    return [x if dtype == F4 else c.cast(x, F4) for x, dtype in zip(c.inputs, c.dtypes)]


def _stored(c: OperatorCall, value: str, i: int = 0) -> str:
    """Return a single-precision result in the type of the output."""
    return value if c.out_dtypes[i] == F4 else c.cast(value, c.out_dtypes[i])


def _part(c: OperatorCall, value: str, start: int, stop: int, axis: int) -> str:
    """Return the elements from `start` to before `stop` along an axis."""
    return c.emit("Slice", value, c.ints(start), c.ints(stop), c.ints(axis))


def _picked(c: OperatorCall, rows: str, places: str) -> str:
    """Return rows (B, N, K) of each image at places (B, M)."""
    return c.emit("GatherND", rows, unsqueeze(c, places, 2), batch_dims=1)


def _halves(c: OperatorCall, boxes: str) -> tuple[str, str]:
    """Return the first two and the last two of the four numbers of boxes (B, N, 4)."""
    return _part(c, boxes, 0, 2, 2), _part(c, boxes, 2, 4, 2)


def _centred(c: OperatorCall, boxes: str) -> tuple[str, str]:
    """Return centres and sizes of boxes given by corners."""
    low, high = _halves(c, boxes)
    size = c.emit("Sub", high, low)
    return c.emit("Add", low, c.emit("Mul", size, c.const(0.5, F4))), size


def _around(c: OperatorCall, centre: str, half: str) -> str:
    return c.emit("Concat", c.emit("Sub", centre, half), c.emit("Add", centre, half), axis=-1)


def multibox_prior(c: OperatorCall) -> str:
    """A constant, as it depends on the shape of the feature map alone."""
    map_like = torch.empty((1, 1, c.length(2), c.length(3)))
    return c.const(priors(c.a, None, map_like).numpy(), c.out_dtypes[0])


def box_encode(c: OperatorCall) -> list[str]:
    """Moves and growth of anchors that matched boxes mean."""
    samples, matches, anchors, refs, means, stds = _floats(c)
    chosen = _picked(c, refs, c.cast(matches, "int64"))
    (at, size), (to, new) = _centred(c, anchors), _centred(c, chosen)
    moves = c.emit("Div", c.emit("Sub", to, at), size)
    raw = c.emit("Concat", moves, c.emit("Log", c.emit("Div", new, size)), axis=-1)
    scaled = c.emit("Div", c.emit("Sub", raw, means), stds)
    matched = unsqueeze(c, c.emit("Greater", samples, c.const(0.5, F4)), 2)
    target = c.emit("Where", matched, scaled, c.const(0.0, F4))
    mask = c.emit("Expand", c.cast(matched, c.out_dtypes[1]), c.emit("Shape", anchors))
    return [_stored(c, target), mask]


def box_decode(c: OperatorCall) -> str:
    """Boxes that moves and growth of anchors mean."""
    a, (data, anchors) = c.a, _floats(c)
    at, size = _centred(c, anchors) if a.format == "corner" else _halves(c, anchors)
    scaled = c.emit("Mul", data, c.const([a.std0, a.std1, a.std2, a.std3], F4))
    moves, growth = _halves(c, scaled)
    if a.clip > 0:
        growth = c.emit("Min", growth, c.const(a.clip, F4))
    half = c.emit("Mul", c.emit("Mul", c.emit("Exp", growth), size), c.const(0.5, F4))
    return _stored(c, _around(c, c.emit("Add", c.emit("Mul", moves, size), at), half))


def _corners(c: OperatorCall, boxes: str, kind: str) -> tuple[str, str]:
    """Return low and high corners of boxes (..., 4) with three axes."""
    first, second = _halves(c, boxes)
    if kind == "corner":
        return first, second
    half = c.emit("Div", second, c.const(2.0, F4))
    return c.emit("Sub", first, half), c.emit("Add", first, half)


def _area(c: OperatorCall, boxes: str, kind: str) -> str:
    """Return areas with a last axis of 1; 0 where a side is negative."""
    first, second = _halves(c, boxes)
    size = c.emit("Sub", second, first) if kind == "corner" else second
    return _product(c, c.emit("Max", size, c.const(0.0, F4)))


def _product(c: OperatorCall, size: str) -> str:
    return c.emit("Mul", _part(c, size, 0, 1, 2), _part(c, size, 1, 2, 2))


def box_iou(c: OperatorCall) -> str:
    """Overlap of every box with every other, on three axes."""
    lhs, rhs = _floats(c)
    one = c.emit("Reshape", lhs, c.ints(-1, 1, 4))
    other = c.emit("Reshape", rhs, c.ints(1, -1, 4))
    (low, high), (low_2, high_2) = (_corners(c, boxes, c.a.format) for boxes in (one, other))
    sides = c.emit("Sub", c.emit("Min", high, high_2), c.emit("Max", low, low_2))
    common = _product(c, c.emit("Max", sides, c.const(0.0, F4)))
    areas = c.emit("Add", _area(c, one, c.a.format), _area(c, other, c.a.format))
    share = c.emit("Div", common, c.emit("Sub", areas, common))
    meets = c.emit("Greater", common, c.const(0.0, F4))
    found = c.emit("Where", meets, share, c.const(0.0, F4))
    return _stored(c, reshape(c, found, c.out_shapes[0]))


def _sorted(c: OperatorCall, scores: str, count: int) -> tuple[str, str]:
    """Return the greatest `count` scores (B, N) and their places; equal ones keep their order."""
    values, places = c.emit("TopK", scores, c.ints(count), outputs=2, axis=1)
    return values, places


def _ranks(c: OperatorCall, count: int) -> str:
    """Return count, ..., 1: numbers that fall with the place in a row."""
    return c.const(np.arange(count, 0, -1)[None], F4)


def _suppressed(c: OperatorCall, boxes: str, scores: str, ranks: str, threshold: float, most: int) -> str:
    """Return the ranks of the boxes that stay, 0 for all others."""
    if not threshold >= 0:
        c.refuse(f"its threshold of overlap is {threshold}; NonMaxSuppression takes none below 0")
    low, high = _halves(c, boxes)
    # sides below 0 are none; NonMaxSuppression would exchange the corners
    proper = c.emit("Concat", low, c.emit("Max", low, high), axis=2)
    chosen = c.emit(
        "NonMaxSuppression",
        proper,
        scores,
        c.ints(most),
        c.const([min(threshold, 1.0)], F4),
        c.const([0.5], F4),
    )
    places = c.emit("Gather", chosen, c.ints(0, 2), axis=1)
    none = c.emit("Mul", ranks, c.const(0.0, F4))
    return c.emit("ScatterND", none, places, c.emit("GatherND", ranks, places))


def box_nms(c: OperatorCall) -> str:
    """Sort, suppress, and bring what is left to the front."""
    a, shape = c.a, c.shapes[0]
    if a.topk == 0:
        return c.inputs[0]
    count = c.length(-2)
    (data,) = _floats(c)
    if len(shape) != 3:
        data = c.emit("Reshape", data, c.ints(-1, count, c.length(-1)))
    rows, alive = _candidates(c, data, count)
    ranks = c.emit("Where", alive, _ranks(c, count), c.const(0.0, F4))
    boxes = _part(c, rows, a.coord_start, a.coord_start + 4, 2)
    corners = c.emit("Concat", *_corners(c, boxes, a.in_format), axis=2)
    by_class = unsqueeze(c, ranks, 1)
    if a.id_index >= 0 and not a.force_suppress:
        by_class = _by_own_class(c, rows, by_class, count)
    kept = _suppressed(c, corners, by_class, ranks, float(np.float32(a.overlap_thresh)), count)
    order, places = _sorted(c, kept, count)
    stays = unsqueeze(c, c.emit("Greater", order, c.const(0.0, F4)), 2)
    found = c.emit("Where", stays, _picked(c, rows, places), c.const(-1.0, F4))
    if a.in_format != a.out_format:
        found = _converted(c, found)
    return _stored(c, found if len(shape) == 3 else reshape(c, found, shape, None))


def _candidates(c: OperatorCall, data: str, count: int) -> tuple[str, str]:
    """Return all rows, best first, and which of them suppression looks at."""
    a = c.a
    score = c.emit("Gather", data, c.const(a.score_index, "int64"), axis=2)
    valid = c.emit("Greater", score, c.const(a.valid_thresh, F4))
    if a.id_index >= 0:
        kind = c.emit("Gather", data, c.const(a.id_index, "int64"), axis=2)
        background = c.emit("Equal", kind, c.const(a.background_id, F4))
        valid = c.emit("And", valid, c.emit("Not", background))
    least = c.const(-np.inf, F4)
    values, order = _sorted(c, c.emit("Where", valid, score, least), count)
    alive = c.emit("Greater", values, least)
    if 0 < a.topk < count:
        alive = c.emit("And", alive, c.const([np.arange(count) < a.topk], "bool"))
    return _picked(c, data, order), alive


def _by_own_class(c: OperatorCall, rows: str, ranks: str, count: int) -> str:
    """Return ranks (B, N, N) in which the row of the first box of each class holds those of its class."""
    kind = c.cast(c.emit("Gather", rows, c.const(c.a.id_index, "int64"), axis=2), "int64")
    same = c.emit("Equal", unsqueeze(c, kind, 2), unsqueeze(c, kind, 1))
    place = c.const(np.arange(count), "int64")
    earlier = c.emit("And", same, c.emit("Less", place, c.const(np.arange(count)[:, None], "int64")))
    repeated = reduce(c, "ReduceMax", c.cast(earlier, F4), [2], keepdims=True)
    first = c.emit("Equal", repeated, c.const(0.0, F4))
    return c.emit("Where", c.emit("And", same, first), ranks, c.const(0.0, F4))


def _converted(c: OperatorCall, rows: str) -> str:
    """Change the coordinates to the other format, unless a box starts below 0."""
    start, count = c.a.coord_start, c.length(-1)
    boxes = _part(c, rows, start, start + 4, 2)
    first, second = _halves(c, boxes)
    two = c.const(2.0, F4)
    if c.a.out_format == "center":
        changed = [c.emit("Div", c.emit("Add", first, second), two), c.emit("Sub", second, first)]
    else:
        half = c.emit("Div", second, two)
        changed = [c.emit("Sub", first, half), c.emit("Add", first, half)]
    below = c.emit("Less", _part(c, boxes, 0, 1, 2), c.const(0.0, F4))
    chosen = c.emit("Where", below, boxes, c.emit("Concat", *changed, axis=2))
    parts = [_part(c, rows, 0, start, 2)] if start else []
    parts += [chosen] + ([_part(c, rows, start + 4, count, 2)] if start + 4 < count else [])
    return parts[0] if len(parts) == 1 else c.emit("Concat", *parts, axis=2)


def multibox_detection(c: OperatorCall) -> str:
    """Decode, sort, suppress."""
    a, count, classes = c.a, c.length(2), c.length(1)
    scores, moves, anchors = _floats(c)
    if classes < 2:
        shape = shape_value(c, c.out_shapes[0])
        return _stored(c, c.emit("Expand", c.const([-1.0], F4), shape))
    kinds = _part(c, scores, 1, classes, 1)
    score = reduce(c, "ReduceMax", kinds, [1], keepdims=False)
    kind = c.cast(c.emit("ArgMax", kinds, axis=1, keepdims=0), F4)
    valid = c.emit("GreaterOrEqual", score, c.const(a.threshold, F4))
    suppresses = 0 < a.nms_threshold <= 1
    order, filled = _detection_order(c, score, valid, count, suppresses)
    boxes = _decoded(c, c.emit("Reshape", moves, c.ints(-1, count, 4)), anchors)
    rows = _picked(c, c.emit("Concat", unsqueeze(c, kind, 2), unsqueeze(c, score, 2), boxes, axis=2), order)
    if suppresses:
        rows = _unmarked(c, rows, filled, count, classes - 1)
    found = c.emit("Where", unsqueeze(c, filled, 2), rows, c.const(-1.0, F4))
    return _stored(c, found)


def _detection_order(c: OperatorCall, score: str, valid: str, count: int, ranked: bool) -> tuple[str, str]:
    """Return the order of the anchors, and how many of the first ones are detections, as a mask."""
    a, zero = c.a, c.const(0.0, F4)
    marks, order = _sorted(c, c.emit("Where", valid, _ranks(c, count), zero), count)
    filled = c.emit("Greater", marks, zero)
    if ranked:
        best = _sorted(c, c.emit("Where", valid, score, c.const(-np.inf, F4)), count)[1]
        if 0 < a.nms_topk < count:
            # those beyond the best ones come as they stand among all detections, as in MXNet
            parts = _part(c, best, 0, a.nms_topk, 1), _part(c, order, a.nms_topk, count, 1)
            best = c.emit("Concat", *parts, axis=1)
        order = best
    return order, filled


def _decoded(c: OperatorCall, moves: str, anchors: str) -> str:
    factors = [float(x) for x in c.a.variances]
    (first, growth), (low, high) = _halves(c, moves), _halves(c, anchors)
    size, two = c.emit("Sub", high, low), c.const(2.0, F4)
    middle = c.emit("Div", c.emit("Add", low, high), two)
    steps = c.emit("Mul", c.emit("Mul", first, c.const(factors[:2], F4)), size)
    grown = c.emit("Exp", c.emit("Mul", growth, c.const(factors[2:], F4)))
    half = c.emit("Div", c.emit("Mul", grown, size), two)
    boxes = _around(c, c.emit("Add", steps, middle), half)
    return c.emit("Clip", boxes, c.const(0.0, F4), c.const(1.0, F4)) if c.a.clip else boxes


def _unmarked(c: OperatorCall, rows: str, filled: str, count: int, classes: int) -> str:
    """Give the class -1 to rows that overlap a better one of their class, or come too late."""
    a, zero = c.a, c.const(0.0, F4)
    looked_at = filled
    if 0 < a.nms_topk < count:
        looked_at = c.emit("And", filled, c.const([np.arange(count) < a.nms_topk], "bool"))
    ranks = c.emit("Where", looked_at, _ranks(c, count), zero)
    kind = _part(c, rows, 0, 1, 2)
    by_class = unsqueeze(c, ranks, 1)
    if not a.force_suppress:
        own = c.emit("Transpose", c.emit("Equal", kind, c.const(np.arange(classes), F4)), perm=[0, 2, 1])
        by_class = c.emit("Where", own, by_class, zero)
    # to overlap by the threshold is enough here
    least = float(np.nextafter(np.float32(a.nms_threshold), np.float32(0)))
    kept = _suppressed(c, _part(c, rows, 2, 6, 2), by_class, ranks, least, count)
    stays = unsqueeze(c, c.emit("Greater", kept, zero), 2)
    marked = c.emit("Where", stays, kind, c.const(-1.0, F4))
    return c.emit("Concat", marked, _part(c, rows, 1, 6, 2), axis=2)


def proposal(c: OperatorCall) -> list[str] | str:
    """Boxes of all anchors, sorted and suppressed, the best repeated where too few are left."""
    a = c.a
    height, width = c.length(2), c.length(3)
    count = c.length(1) // 2
    scores, moves, info = _floats(c)
    anchors = anchors_of(a, height, width, torch.empty(())).numpy()
    boxes = _proposed(c, moves, info, anchors)
    boxes, found = _scored(c, boxes, scores, info, (height, width, count))
    every = len(anchors)
    before = min(a.rpn_pre_nms_top_n, every) if a.rpn_pre_nms_top_n > 0 else every
    best, order = _sorted(c, found, before)
    boxes = _picked(c, boxes, order)
    places = _chosen(c, boxes, before)
    rois = c.emit("Reshape", _picked(c, boxes, places), c.ints(-1, 4))
    rois = c.emit("Concat", _image_numbers(c, scores), rois, axis=1)
    if not a.output_score:
        return _stored(c, rois)
    score = c.emit("Reshape", c.emit("GatherElements", best, places, axis=1), c.ints(-1, 1))
    return [_stored(c, rois), _stored(c, score, 1)]


def _proposed(c: OperatorCall, moves: str, info: str, anchors: np.ndarray[Any, Any]) -> str:
    """Return the boxes (B, anchors, 4) that moves of anchors mean, cut off at the image's border."""
    height, width = c.length(2), c.length(3)
    apart = c.emit("Reshape", moves, c.ints(-1, c.length(1) // 2, 4, height, width))
    apart = c.emit("Transpose", apart, perm=[0, 3, 4, 1, 2])
    apart = c.emit("Reshape", apart, c.ints(-1, len(anchors), 4))
    if c.a.iou_loss:
        boxes = c.emit("Add", apart, c.const(anchors, F4))
    else:
        size = anchors[:, 2:] - anchors[:, :2] + np.float32(1)
        middle = (anchors[:, :2].astype("f8") + 0.5 * (size.astype("f8") - 1.0)).astype("f4")
        steps, growth = _halves(c, apart)
        # halves are taken in double precision, as C does
        centre = c.emit("Add", c.emit("Mul", steps, c.const(size, F4)), c.const(middle, F4))
        grown = c.cast(c.emit("Mul", c.emit("Exp", growth), c.const(size, F4)), "float64")
        half = c.emit("Mul", c.emit("Sub", grown, c.const(1.0, "float64")), c.const(0.5, "float64"))
        boxes = c.cast(_around(c, c.cast(centre, "float64"), half), F4)
    border = c.emit("Sub", c.emit("Gather", info, c.ints(1, 0, 1, 0), axis=1), c.const(1.0, F4))
    inside = c.emit("Min", boxes, unsqueeze(c, border, 1))
    return c.emit("Max", inside, c.const(0.0, F4))


def _scored(c: OperatorCall, boxes: str, scores: str, info: str, sizes: Sequence[int]) -> tuple[str, str]:
    """Return boxes, those below the least size grown, and scores, -1 for these and for padding."""
    height, width, count = sizes
    least = unsqueeze(c, c.emit("Mul", _part(c, info, 2, 3, 1), c.const(c.a.rpn_min_size, F4)), 2)
    low, high = _halves(c, boxes)
    side = c.emit("Add", c.emit("Sub", high, low), c.const(1.0, F4))
    short = c.cast(c.emit("Less", side, least), F4)
    small = c.emit("Greater", reduce(c, "ReduceMax", short, [2], keepdims=True), c.const(0.0, F4))
    half = c.emit("Div", least, c.const(2.0, F4))
    grown = c.emit("Where", small, half, c.const(0.0, F4))
    boxes = c.emit("Concat", c.emit("Sub", low, grown), c.emit("Add", high, grown), axis=2)
    inner = c.cast(c.emit("Div", _part(c, info, 0, 2, 1), c.const(c.a.feature_stride, F4)), "int32")
    row = c.const(np.repeat(np.arange(height), width * count)[None], "int32")
    column = c.const(np.tile(np.repeat(np.arange(width), count), height)[None], "int32")
    below = c.emit("GreaterOrEqual", row, _part(c, inner, 0, 1, 1))
    beside = c.emit("GreaterOrEqual", column, _part(c, inner, 1, 2, 1))
    out = c.emit("Or", c.emit("Or", below, beside), c.emit("Squeeze", small, c.ints(2)))
    chances = c.emit("Transpose", _part(c, scores, count, 2 * count, 1), perm=[0, 2, 3, 1])
    chances = c.emit("Reshape", chances, c.ints(-1, height * width * count))
    return boxes, c.emit("Where", out, c.const(-1.0, F4), chances)


def _chosen(c: OperatorCall, boxes: str, before: int) -> str:
    """Return places (B, rpn_post_nms_top_n) of the boxes that stay."""
    post = c.a.rpn_post_nms_top_n
    low, high = _halves(c, boxes)
    # the last pixel belongs to the box
    wider = c.emit("Concat", low, c.emit("Add", high, c.const(1.0, F4)), axis=2)
    like = c.emit("Mul", c.emit("Squeeze", _part(c, boxes, 0, 1, 2), c.ints(2)), c.const(0.0, F4))
    ranks = c.emit("Add", like, _ranks(c, before))
    threshold = float(np.float32(c.a.threshold))
    kept = _suppressed(c, wider, unsqueeze(c, ranks, 1), ranks, threshold, min(post, before))
    marks, places = _sorted(c, kept, before)
    left = c.cast(c.emit("Greater", marks, c.const(0.0, F4)), "int64")
    number = reduce(c, "ReduceSum", left, [1], keepdims=True)
    turns = c.emit("Mod", c.const(np.arange(post)[None], "int64"), number)
    return c.emit("GatherElements", places, turns, axis=1)


def _image_numbers(c: OperatorCall, scores: str) -> str:
    """Return the number of the image of each proposal, (images * rpn_post_nms_top_n, 1)."""
    post = c.a.rpn_post_nms_top_n
    images = c.emit("Gather", c.emit("Shape", scores), c.const(0, "int64"))
    numbers = c.emit("Range", c.const(0, "int64"), images, c.const(1, "int64"))
    wide = c.emit("Mul", unsqueeze(c, numbers, 1), c.const(np.ones((1, post)), "int64"))
    return c.cast(c.emit("Reshape", wide, c.ints(-1, 1)), F4)


def bipartite_matching(c: OperatorCall) -> list[str]:
    """A Loop that takes the best pair that is left, once for every pair that there can be."""
    a, rows, columns = c.a, c.length(-2), c.length(-1)
    (data,) = _floats(c)
    data = c.emit("Reshape", data, c.ints(-1, rows, columns))
    good = c.emit("Less" if a.is_ascend else "Greater", data, c.const(a.threshold, F4))
    scores = c.emit("Where", good, c.emit("Neg", data) if a.is_ascend else data, c.const(-np.inf, F4))
    none = reduce(c, "ReduceMax", c.emit("Mul", c.cast(good, F4), c.const(0.0, F4)), [2], keepdims=False)
    none_of_columns = reduce(
        c, "ReduceMax", c.emit("Mul", c.cast(good, F4), c.const(0.0, F4)), [1], keepdims=False
    )
    minus = c.const(-1.0, F4)
    start = [scores, c.emit("Add", none, minus), c.emit("Add", none_of_columns, minus)]
    pairs = min(rows, columns, *([a.topk + 1] if a.topk > 0 else []))
    body = _matching_step(c, rows, columns)
    _, *found = c.emit("Loop", c.const(pairs, "int64"), "", *start, outputs=3, body=body)
    return [_stored(c, reshape(c, each, dims), i) for i, (each, dims) in enumerate(zip(found, c.out_shapes))]


def _matching_step(c: OperatorCall, rows: int, columns: int) -> Any:
    inner = c.inside("pair")
    inner.argument("int64", ())
    go_on = inner.argument("bool", ())
    dims = [("images", rows, columns), ("images", rows), ("images", columns)]
    scores, of_rows, of_columns = (inner.argument(F4, each) for each in dims)
    flat = inner.emit("Reshape", scores, inner.ints(-1, rows * columns))
    best = inner.emit(
        "Greater", reduce(inner, "ReduceMax", flat, [1], keepdims=True), inner.const(-np.inf, F4)
    )
    place, width = inner.emit("ArgMax", flat, axis=1, keepdims=1), inner.const(columns, "int64")
    row, column = inner.emit("Div", place, width), inner.emit("Mod", place, width)
    hits = [
        inner.emit("And", best, inner.emit("Equal", at, inner.const(np.arange(count)[None], "int64")))
        for at, count in ((row, rows), (column, columns))
    ]
    used = inner.emit("Or", unsqueeze(inner, hits[0], 2), unsqueeze(inner, hits[1], 1))
    left = inner.emit("Where", used, inner.const(-np.inf, F4), scores)
    of_rows = inner.emit("Where", hits[0], inner.cast(column, F4), of_rows)
    of_columns = inner.emit("Where", hits[1], inner.cast(row, F4), of_columns)
    return inner.graph([go_on, left, of_rows, of_columns], ["bool", F4, F4, F4], [(), *dims])
