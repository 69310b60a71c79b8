"""Anchors, training targets and detections of the single-shot detector (SSD)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..._devices.device_transfer import on_device, tensor_like
from ...base import OpError, Shape, ShapeError
from ..attrs import AttrType, boolean, integer, real, reals
from ..dtypes import as_float32
from ..registry import op, pure
from ..shapes import from_data, output_shape
from ..spec import NEVER, ROWS, SHARE, Attr, ClassLabels, Env, Onnx, Shapes, arg, label
from .boxes import chosen_first, group_by_key, keep_greedily, match_greedily, overlap_area


def _numbers(count: int) -> AttrType:
    """A tuple of `count` numbers, or of one or more if `count` is 0."""

    def parse(value: Any) -> tuple[float, ...]:
        numbers: tuple[float, ...] = reals.parse(value)
        if len(numbers) != count if count else not numbers:
            raise ValueError(value)
        return numbers

    return AttrType(parse, f"{count or 'one or more'} numbers", "tuple[float, ...]")


_VARIANCES = Attr(_numbers(4), "divisors of the center offsets and of the log sizes", (0.1, 0.1, 0.2, 0.2))


def _prior_shape(a: Any, data: tuple[int, ...]) -> tuple[int, ...]:
    if len(data) < 4:
        raise ShapeError(f"data has shape {data}, expected 4 axes: (N, C, H, W)")
    return 1, data[2] * data[3] * (len(a.sizes) + len(a.ratios) - 1), 4


def _half_sizes(a: Any, height: int, width: int) -> np.ndarray:
    """Return half widths and half heights of the anchors of one position, in float32 as in MXNet."""
    f4 = np.float32
    sizes, ratios = np.array(a.sizes, f4), np.sqrt(np.array(a.ratios, f4))
    each_size = np.concatenate([sizes, np.full(len(ratios) - 1, sizes[0])])
    each_ratio = np.concatenate([np.full(len(sizes), ratios[0]), ratios[1:]])
    wide = each_size * f4(height) / f4(width) * each_ratio / f4(2)
    return np.stack([wide, each_size / each_ratio / f4(2)], 1)


@op(
    "_contrib_MultiBoxPrior",
    [arg("data")],
    {
        "sizes": Attr(
            _numbers(0), "sizes of the anchors with the first ratio, relative to the image height", (1.0,)
        ),
        "ratios": Attr(
            _numbers(0),
            "ratios of width to height; all but the first are combined with the first size",
            (1.0,),
        ),
        "clip": Attr(boolean, "clip anchors to the image", False),
        "steps": Attr(
            _numbers(2),
            "vertical and horizontal distance of anchors; if not positive, 1 / H and 1 / W",
            (-1.0, -1.0),
        ),
        "offsets": Attr(
            _numbers(2), "vertical and horizontal position of the first anchor's center, in steps", (0.5, 0.5)
        ),
    },
    infer=from_data(_prior_shape),
    batch=NEVER,
    onnx=Onnx(builder="multibox_prior"),
)
def multibox_prior(a: Any, env: Env, data: torch.Tensor) -> torch.Tensor:
    """Return anchor boxes for every pixel of a feature map; only the shape of the map matters. No gradient.

    Shape:
        data: (N, C, H, W).
        returns: (1, H * W * (sizes + ratios - 1), 4), left, top, right, bottom, relative to the image size.

    Raises:
        OpError: an offset is outside [0, 1], or only one step is given.

    Source: Liu et al., "SSD: Single shot multibox detector", 2016; MXNet 1.9.1 `_contrib_MultiBoxPrior`.
    """
    if not all(0 <= x <= 1 for x in a.offsets) or a.steps[0] * a.steps[1] < 0:
        raise OpError(
            f"_contrib_MultiBoxPrior: offsets is {a.offsets} and steps {a.steps}, expected offsets within [0, 1] and"
            " both steps or none"
        )
    f4 = np.float32
    height, width = data.shape[2:4]
    own = min(a.steps) > 0
    down, right = (f4(a.steps[0]), f4(a.steps[1])) if own else (f4(1) / f4(height), f4(1) / f4(width))
    y = (np.arange(height, dtype=f4) + f4(a.offsets[0])) * down
    x = (np.arange(width, dtype=f4) + f4(a.offsets[1])) * right
    half = _half_sizes(a, height, width)
    out = np.empty((height, width, len(half), 4), f4)
    out[..., 0], out[..., 2] = x[:, None] - half[:, 0], x[:, None] + half[:, 0]
    out[..., 1], out[..., 3] = y[:, None, None] - half[:, 1], y[:, None, None] + half[:, 1]
    if a.clip:
        out.clip(0, 1, out=out)
    return on_device(torch.from_numpy(out).view(1, -1, 4).to(data.dtype), data.device)


def _target_shape(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    anchor, labels, scores = ins
    if anchor is not None and (len(anchor) != 3 or anchor[0] > 1 or anchor[2] not in (0, 4)):
        raise ShapeError(f"anchor has shape {anchor}, expected (1, anchors, 4)")
    if labels is not None and (len(labels) != 3 or 0 < labels[2] < 5):
        raise ShapeError(f"label has shape {labels}, expected (N, boxes, at least 5)")
    if scores is not None and len(scores) != 3:
        raise ShapeError(f"cls_pred has shape {scores}, expected (N, classes, anchors)")
    count = (anchor[1] if anchor else 0) or (scores[2] if scores else 0)
    if scores and count and scores[2] not in (0, count):
        raise ShapeError(
            f"cls_pred has shape {scores}, expected {count} anchors on its last axis, as in anchor"
        )
    rows = (labels[0] if labels else 0) or (scores[0] if scores else 0)
    shapes = ((rows, 4 * count), (rows, 4 * count), (rows, count))
    return ins, [output_shape(o, f) for o, f in zip(outs, shapes, strict=True)]


def _area(sides: torch.Tensor) -> torch.Tensor:
    """Return the areas of boxes with rows left, top, right, bottom."""
    return (sides[2] - sides[0]) * (sides[3] - sides[1])


def _overlaps(anchors: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    """Return intersection over union (N, boxes, anchors); 0 if the union is empty."""
    boxes, anchors = boxes.permute(2, 0, 1).contiguous(), anchors.t().contiguous()[:, None]
    common = overlap_area(boxes, anchors)
    union = (_area(anchors)[:, None] + _area(boxes)[:, :, None]).sub_(common)
    return torch.where(union == 0, torch.zeros_like(union), common.div_(union))


def _hard_negatives(
    a: Any, scores: torch.Tensor, overlap: torch.Tensor, positive: torch.Tensor
) -> torch.Tensor:
    """Return a mask of the hardest negatives: the anchors with the lowest background probability."""
    wanted = (positive.sum(1).to(torch.float32) * as_float32(a.negative_mining_ratio)).long()
    free = ~positive & (overlap < as_float32(a.negative_mining_thresh))
    background = torch.softmax(scores, 1)[:, 0]
    order = torch.sort(background.masked_fill(~free, torch.inf), dim=1, stable=True)[1]
    rank = torch.empty_like(order).scatter_(
        1, order, torch.arange(order.shape[1], device=order.device).expand_as(order)
    )
    return free & (rank < wanted[:, None])


def _match_anchors(a: Any, overlaps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the box of each anchor, their overlap, and whether the anchor is positive.

    First each box gets the anchor with the largest overlap, the best pair first; then each other anchor gets the box
    with the largest overlap if that exceeds the threshold.

    Shape:
        overlaps: (N, boxes, anchors), -1 for padding boxes.
        returns: (N, anchors) each.
    """
    best, box = overlaps.max(1)
    scores = overlaps.masked_fill(overlaps <= as_float32(1e-6), -torch.inf).transpose(1, 2)
    first = match_greedily(scores)
    positive = first >= 0
    box = torch.where(positive, first, box)
    overlap = torch.where(positive, overlaps.gather(1, box[:, None])[:, 0], best)
    if a.overlap_threshold > 0:
        positive = positive | (overlap > as_float32(a.overlap_threshold))
    return box, overlap, positive


def _boxes_with_class(labels: torch.Tensor) -> torch.Tensor:
    """Return a mask of the class of each box before a class of -1 ends the list."""
    mask = torch.zeros_like(labels, dtype=torch.bool)
    mask[..., 0] = (labels[..., 0] != -1).cumprod(1).bool()
    return mask


@pure(
    "_contrib_MultiBoxTarget",
    [arg("anchor", SHARE), label("label"), arg("cls_pred", ROWS)],
    {
        "overlap_threshold": Attr(real, "overlap above which an anchor is positive", 0.5),
        "ignore_label": Attr(real, "class of ignored anchors", -1.0),
        "negative_mining_ratio": Attr(
            real, "hard negatives per positive; if not positive, all negatives", -1.0
        ),
        "negative_mining_thresh": Attr(real, "maximum overlap of a negative with any box", 0.5),
        "minimum_negative_samples": Attr(integer(), "accepted and ignored", 0),
        "variances": _VARIANCES,
    },
    outputs=("loc_target", "loc_mask", "cls_target"),
    infer=_target_shape,
    classes=lambda a, anchor, label, scores: ClassLabels(scores[1] - 1, _boxes_with_class),
    onnx=Onnx(missing="it is only used in training"),
)
def multibox_target(
    a: Any, anchor: torch.Tensor, labels: torch.Tensor, scores: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Match anchors with labelled boxes and return the training targets. No gradient.

    Shape:
        anchor: (1, A, 4), left, top, right, bottom.
        label: (N, boxes, 5 or more): class, left, top, right, bottom, the rest is ignored; class -1 ends a list.
        cls_pred: (N, classes, A), raw scores; class 0 is the background.
        returns: loc_target (N, 4 * A), the relative offsets of the center and the log ratios of the sizes, divided by
            `variances`; loc_mask (N, 4 * A), 1 for positives; cls_target (N, A): class + 1 for positives, 0 for
            negatives, else `ignore_label`. An image without boxes is ignored.

    Source: Liu et al., "SSD: Single shot multibox detector", 2016; MXNet 1.9.1 `_contrib_MultiBoxTarget`.
    """
    anchors, labels, scores = anchor.detach()[0], labels.detach(), scores.detach()
    count, dtype = anchors.shape[0], anchors.dtype
    valid = (labels[:, :, 0] != -1).cumprod(1).bool()
    has_boxes = valid.any(1, keepdim=True)
    used = max(int(valid.sum(1).max()), 1) if valid.numel() else 1
    labels, valid = labels[:, :used], valid[:, :used]
    overlaps = _overlaps(anchors, labels[:, :, 1:5]).masked_fill_(~valid[:, :, None], -1.0)
    box, overlap, positive = _match_anchors(a, overlaps)
    mined = a.negative_mining_ratio > 0
    negative = _hard_negatives(a, scores, overlap, positive) if mined else ~positive
    chosen = labels.gather(1, box[:, :, None].expand(-1, -1, 5))
    target = torch.where(
        positive[:, :, None],
        _encode(a, anchors, chosen[:, :, 1:]),
        torch.zeros((), dtype=dtype, device=box.device),
    )
    ignored = torch.full_like(box, as_float32(a.ignore_label), dtype=dtype)
    zero = torch.zeros((), dtype=dtype, device=box.device)
    classes = torch.where(positive, chosen[:, :, 0] + 1, torch.where(negative & has_boxes, zero, ignored))
    mask = positive[:, :, None].expand(-1, -1, 4).to(dtype)
    return target.reshape(-1, 4 * count), mask.reshape(-1, 4 * count), classes


def _encode(a: Any, anchors: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    """Return the targets (N, A, 4) of anchors (A, 4) matched with boxes (N, A, 4)."""
    factors = tensor_like(anchors, a.variances)
    size, new = anchors[:, 2:] - anchors[:, :2], boxes[..., 2:] - boxes[..., :2]
    at, to = (anchors[:, :2] + anchors[:, 2:]) * 0.5, (boxes[..., :2] + boxes[..., 2:]) * 0.5
    return torch.cat([(to - at) / size / factors[:2], (new / size).log() / factors[2:]], -1)


def _detection_shape(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    scores, moves, anchor = ins
    for name, shape, rank in (("cls_prob", scores, 3), ("loc_pred", moves, 2), ("anchor", anchor, 3)):
        if shape is not None and len(shape) != rank:
            raise ShapeError(f"{name} has shape {shape}, expected {rank} axes")
    count = (scores[2] if scores else 0) or (anchor[1] if anchor else 0)
    if anchor and count and anchor[1] not in (0, count) or moves and count and moves[1] not in (0, 4 * count):
        raise ShapeError(
            f"cls_prob {scores}, loc_pred {moves} and anchor {anchor} differ in the number of anchors, expected"
            " (N, classes, A), (N, 4 * A) and (1, A, 4)"
        )
    return ins, [output_shape(outs[0], (scores[0] if scores else 0, count, 6))]


def _decode(a: Any, moves: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
    """Return the boxes (N, A, 4) encoded by predictions (N, A, 4) relative to anchors (1, A, 4)."""
    factors = tensor_like(moves, a.variances)
    size = anchors[..., 2:] - anchors[..., :2]
    centre = moves[..., :2] * factors[:2] * size + (anchors[..., :2] + anchors[..., 2:]) / 2.0
    half = (moves[..., 2:] * factors[2:]).exp() * size / 2
    boxes = torch.cat([centre - half, centre + half], -1)
    return boxes.clamp_(0, 1) if a.clip else boxes


def _overlaps_enough(one: torch.Tensor, other: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return a mask of boxes that overlap by at least the positive threshold; empty boxes do not overlap."""
    common = overlap_area(one, other)
    union = (_area(one)[:, :, None] + _area(other)[:, None]).sub_(common)
    return common.div_(union) >= threshold


def _best_class(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the largest score of each anchor without the background, and its class, counted without the background.

    The loop over classes is much faster than a reduction over an axis other than the last.
    """
    best = scores[:, 1].clone()
    class_index = torch.zeros_like(best)
    for number in range(2, scores.shape[1]):
        torch.maximum(class_index, (scores[:, number] > best) * float(number - 1), out=class_index)
        torch.maximum(best, scores[:, number], out=best)
    return best, class_index


def _suppressed_mask(a: Any, rows: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """Return a mask of the rows (class, score, box) that overlap an earlier kept row, or exceed `sizes`."""
    image, position = (torch.arange(rows.shape[1], device=rows.device) < sizes[:, None]).nonzero().unbind(1)
    flat = rows[image, position]
    keys = image
    if not a.force_suppress:
        classes = flat[:, 0].long()
        keys = image * (classes.max() + 1) + classes
    group, rank, lengths = group_by_key(keys)
    padded = flat.new_zeros((lengths.numel(), int(lengths.max()), 4))
    padded[group, rank] = flat[:, 2:]
    threshold = as_float32(a.nms_threshold)
    kept = keep_greedily(padded, lengths, lambda one, other: _overlaps_enough(one, other, threshold))
    out = torch.ones(rows.shape[:2], dtype=torch.bool, device=rows.device)
    out[image, position] = ~kept[group, rank]
    return out


@pure(
    "_contrib_MultiBoxDetection",
    [arg("cls_prob", ROWS), arg("loc_pred", ROWS), arg("anchor", SHARE)],
    {
        "clip": Attr(boolean, "clip boxes to the image", True),
        "threshold": Attr(real, "minimum probability of a detection", 0.01),
        "background_id": Attr(integer(), "accepted and ignored: the background is class 0", 0),
        "nms_threshold": Attr(
            real, "boxes that overlap a better box by at least this are removed; outside (0, 1] none", 0.5
        ),
        "force_suppress": Attr(boolean, "let boxes of different classes suppress each other", False),
        "variances": _VARIANCES,
        "nms_topk": Attr(integer(), "number of best boxes of an image to consider; below 1 all", -1),
    },
    infer=_detection_shape,
    onnx=Onnx("NonMaxSuppression", builder="multibox_detection"),
)
def multibox_detection(
    a: Any, scores: torch.Tensor, moves: torch.Tensor, anchor: torch.Tensor
) -> torch.Tensor:
    """Convert predictions to detections, best first, and mark those that overlap a better one. No gradient.

    Shape:
        cls_prob: (N, classes, A), probabilities; class 0 is the background.
        loc_pred: (N, 4 * A), offsets of the centers and log sizes, divided by `variances`.
        anchor: (1, A, 4), left, top, right, bottom.
        returns: (N, A, 6): class without the background, probability, left, top, right, bottom; class -1 for
            removed boxes; rows of -1 at the end.

    Source: Liu et al., "SSD: Single shot multibox detector", 2016; MXNet 1.9.1 `_contrib_MultiBoxDetection`.
    """
    scores, moves, anchor = scores.detach(), moves.detach(), anchor.detach()
    images, classes, count = scores.shape
    out = scores.new_full((images, count, 6), -1.0)
    if classes < 2:
        return out
    score, class_index = _best_class(scores)
    valid = score >= as_float32(a.threshold)
    sizes = valid.sum(1)
    max_count = int(sizes.max()) if images else 0
    if not max_count:
        return out
    order = chosen_first(valid)[:, :max_count]
    if 0 < a.nms_threshold <= 1:
        order = _sort_by_score(a, order, score, sizes)
    boxes = _decode(a, moves.reshape(images, count, 4), anchor)
    rows = torch.cat([class_index[..., None], score[..., None], boxes], -1)
    rows = rows.gather(1, order[..., None].expand(-1, -1, 6))
    if 0 < a.nms_threshold <= 1:
        considered = sizes.clamp(max=a.nms_topk) if a.nms_topk > 0 else sizes
        rows[..., 0].masked_fill_(_suppressed_mask(a, rows, considered), -1.0)
    filled = torch.arange(max_count, device=rows.device) < sizes[:, None]
    out[:, :max_count] = torch.where(filled[..., None], rows, torch.full_like(rows, -1.0))
    return out


def _sort_by_score(a: Any, order: torch.Tensor, score: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """Return the anchors of the detections, best first; those beyond nms_topk keep their order."""
    filled = torch.arange(order.shape[1], device=order.device) < sizes[:, None]
    best = score.gather(1, order).masked_fill(~filled, -torch.inf)
    if not 0 < a.nms_topk < order.shape[1]:
        return order.gather(1, torch.sort(best, dim=1, descending=True, stable=True)[1])
    # only the best, and ties with the last of them, need sorting
    candidates = best >= best.topk(a.nms_topk, dim=1, sorted=False)[0].amin(1, keepdim=True)
    positions = chosen_first(candidates)[:, : int(candidates.sum(1).max())]
    best = best.masked_fill(~candidates, -torch.inf).gather(1, positions)
    ranked = positions.gather(1, torch.sort(best, dim=1, descending=True, stable=True)[1])
    return torch.cat([order.gather(1, ranked[:, : a.nms_topk]), order[:, a.nms_topk :]], 1)
