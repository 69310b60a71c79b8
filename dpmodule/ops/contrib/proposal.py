"""Region proposals, and encoding of boxes relative to anchors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..._devices.device_transfer import on_device, tensor_like
from ...base import OpError, Shape, ShapeError
from ..attrs import boolean, choice, integer, real, reals
from ..dtypes import as_float32
from ..registry import bound, pure
from ..shapes import output_shape, unify
from ..spec import NEVER, ROWS, SHARE, Attr, Onnx, Shapes, arg
from .boxes import chosen_first, keep_greedily, overlap_area

_FORMAT = choice("center", "corner")


def _infer_encode(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    samples, matches, anchors, refs, means, stds = ins
    base = unify(samples, matches, "samples and matches")
    if anchors is not None:
        base = unify(base, anchors[:-1], "samples and anchors")
    if base is None:
        return ins, outs
    if len(base) != 2:
        raise ShapeError(f"samples has shape {base}, expected (B, N)")
    boxes = unify(anchors, (*base, 4), "anchors and samples")
    ends = [unify(vector, (4,), "means and stds") for vector in (means, stds)]
    refs = unify(refs, (base[0], 0, 4), "refs")
    return [base, base, boxes, refs, *ends], [output_shape(o, boxes) for o in outs]


def _centers_and_sizes(boxes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return centers and sizes of boxes given by corners."""
    size = boxes[..., 2:] - boxes[..., :2]
    return boxes[..., :2] + size * 0.5, size


@pure(
    "_contrib_box_encode",
    [
        arg("samples", ROWS),
        arg("matches", ROWS),
        arg("anchors", ROWS),
        arg("refs", ROWS),
        arg("means", SHARE),
        arg("stds", SHARE),
    ],
    outputs=("output0", "output1"),
    infer=_infer_encode,
)
def box_encode(a: Any, *inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the regression targets of anchors matched with boxes, and a mask of the matches. No gradient.

    Shape:
        samples: (B, N), 1 for a matched anchor.
        matches: (B, N), indices of the matched boxes.
        anchors: (B, N, 4), left, top, right, bottom.
        refs: (B, M, 4), in the same format.
        means, stds: (4,), means and standard deviations that normalize the targets.
        returns: targets (B, N, 4): relative offsets of the center, log ratios of the sizes; mask (B, N, 4).

    Source: MXNet 1.9.1 `_contrib_box_encode`.
    """
    samples, matches, anchors, refs, means, stds = (x.detach() for x in inputs)
    chosen = refs.gather(1, matches.long()[:, :, None].expand(-1, -1, 4))
    (at, size), (to, new) = _centers_and_sizes(anchors), _centers_and_sizes(chosen)
    raw = torch.cat([(to - at) / size, (new / size).log()], -1)
    mask = (samples > 0.5)[:, :, None].expand(anchors.shape)
    return torch.where(mask, (raw - means) / stds, torch.zeros_like(raw)), mask.to(anchors.dtype)


def _infer_decode(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, anchors = ins
    data = unify(data, outs[0], "data and output")
    if data is None:
        return ins, outs
    if len(data) != 3 or data[2] not in (0, 4):
        raise ShapeError(f"data has shape {data}, expected (B, N, 4)")
    anchors = unify(anchors, (1, data[1], 4), "anchors and data")
    data = (*data[:2], 4)
    return [data, anchors], [output_shape(outs[0], data)]


@pure(
    "_contrib_box_decode",
    [arg("data", ROWS), arg("anchors", SHARE)],
    {
        "std0": Attr(real, "factor of the horizontal offset", 1.0),
        "std1": Attr(real, "factor of the vertical offset", 1.0),
        "std2": Attr(real, "factor of the log width", 1.0),
        "std3": Attr(real, "factor of the log height", 1.0),
        "clip": Attr(real, "maximum log size; no limit if not positive", -1.0),
        "format": Attr(_FORMAT, "format of the anchors; corner: left, top, right, bottom", "center"),
    },
    infer=_infer_decode,
)
def box_decode(a: Any, data: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
    """Return the boxes encoded by predictions relative to anchors. No gradient.

    Shape:
        data: (B, N, 4), relative offsets of the center, log ratios of the sizes.
        anchors: (1, N, 4).
        returns: (B, N, 4), left, top, right, bottom.

    Source: MXNet 1.9.1 `_contrib_box_decode`.
    """
    factors = [as_float32(x) for x in (a.std0, a.std1, a.std2, a.std3)]
    data, anchors = data.detach(), anchors.detach()
    at, size = _centers_and_sizes(anchors) if a.format == "corner" else (anchors[..., :2], anchors[..., 2:])
    scaled = data * tensor_like(data, factors)
    centre = scaled[..., :2] * size + at
    growth = scaled[..., 2:]
    if a.clip > 0:
        growth = growth.clamp(max=as_float32(a.clip))
    half = growth.exp() * size * 0.5
    return torch.cat([centre - half, centre + half], -1)


Run = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]


def _base_anchors(a: Any) -> np.ndarray:
    """Return the anchors (ratios * scales, 4) of the first position, rounded as in MXNet."""
    f4 = np.float32
    side = f4(a.feature_stride)
    centre = f4(0.5) * (side - f4(1))
    ratios, scales = np.array(a.ratios, f4)[:, None], np.array(a.scales, f4)
    area = np.floor(side * side / ratios)
    wide = np.floor(np.sqrt(area) + f4(0.5)) * scales
    high = np.floor(wide / scales * ratios + f4(0.5)) * scales
    half = np.stack([wide, high], -1).reshape(-1, 2).astype(f4) * f4(0.5) - f4(0.5)
    return np.concatenate([centre - half, centre + half], 1)


def anchor_grid(a: Any, height: int, width: int, like: torch.Tensor) -> torch.Tensor:
    """Return the anchors (height * width * base anchors, 4) in image pixels."""
    base = on_device(torch.from_numpy(_base_anchors(a)).to(like.dtype), like.device)
    y = torch.arange(height, dtype=like.dtype, device=like.device) * a.feature_stride
    x = torch.arange(width, dtype=like.dtype, device=like.device) * a.feature_stride
    moves = torch.stack(torch.meshgrid(y, x, indexing="ij")[::-1] * 2, -1)
    return (moves.view(-1, 1, 4) + base).view(-1, 4)


def _decode_boxes(anchors: torch.Tensor, moves: torch.Tensor) -> torch.Tensor:
    """Return the boxes encoded by offsets of the center and log scales of the sizes.

    Halves are computed in float64, as in C.
    """
    size = anchors[:, 2:] - anchors[:, :2] + 1.0
    centre = (anchors[:, :2].double() + 0.5 * (size.double() - 1.0)).to(anchors.dtype)
    centre = moves[..., :2] * size + centre
    half = 0.5 * ((moves[..., 2:].exp() * size).double() - 1.0)
    return torch.cat([centre.double() - half, centre.double() + half], -1).to(anchors.dtype)


def _scored_boxes(a: Any, scores: torch.Tensor, moves: torch.Tensor, info: torch.Tensor) -> torch.Tensor:
    """Return every anchor's box and score (N, anchors, 5); the score of ignored boxes is -1."""
    images, _, height, width = moves.shape
    count = scores.shape[1]
    anchors = anchor_grid(a, height, width, moves)
    moves = moves.reshape(images, count, 4, height, width).permute(0, 3, 4, 1, 2).reshape(images, -1, 4)
    boxes = anchors + moves if a.iou_loss else _decode_boxes(anchors, moves)
    border = info[:, :2].flip(1).repeat(1, 2)[:, None] - 1.0
    boxes = torch.minimum(boxes, border).clamp_(min=0.0)
    real_size = (info[:, :2] / a.feature_stride).int()
    rows = torch.arange(height, device=moves.device) >= real_size[:, :1]
    columns = torch.arange(width, device=moves.device) >= real_size[:, 1:]
    padding = (
        (rows[:, :, None] | columns[:, None, :])[..., None].expand(-1, -1, -1, count).reshape(images, -1)
    )
    min_side = (a.rpn_min_size * info[:, 2])[:, None]
    small = ((boxes[..., 2:] - boxes[..., :2] + 1.0) < min_side[..., None]).any(-1)
    grown = torch.where(small, min_side / 2, torch.zeros_like(min_side))[..., None]
    boxes = torch.cat([boxes[..., :2] - grown, boxes[..., 2:] + grown], -1)
    masked_scores = scores.permute(0, 2, 3, 1).reshape(images, -1).masked_fill(padding | small, -1.0)
    return torch.cat([boxes, masked_scores[..., None]], -1)


def _overlap(one: torch.Tensor, other: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return a mask of boxes that overlap by more than the threshold; their fifth number is the area."""
    common = overlap_area(one, other, 1.0)
    return common.div((one[4, :, :, None] + other[4, :, None]).sub_(common)) > threshold


def _select_boxes(a: Any, boxes: torch.Tensor) -> torch.Tensor:
    """Return the best boxes that do not overlap (N, rpn_post_nms_top_n, 5), repeated if there are too few."""
    count = boxes.shape[1]
    before = min(a.rpn_pre_nms_top_n, count) if a.rpn_pre_nms_top_n > 0 else count
    after = min(a.rpn_post_nms_top_n, before)
    order = torch.sort(boxes[..., 4], dim=1, descending=True, stable=True)[1][:, :before]
    boxes = boxes.gather(1, order[..., None].expand(-1, -1, 5))
    size = boxes[..., 2:4] - boxes[..., :2] + 1.0
    items = torch.cat([boxes[..., :4], size[..., :1] * size[..., 1:]], -1)
    threshold = as_float32(a.threshold)
    lengths = torch.full((boxes.shape[0],), before, device=boxes.device)
    keep = keep_greedily(items, lengths, lambda one, other: _overlap(one, other, threshold), after)
    sizes = keep.sum(1).clamp(max=after)
    ranks = torch.arange(a.rpn_post_nms_top_n, device=boxes.device) % sizes[:, None]
    positions = chosen_first(keep).gather(1, ranks)
    return boxes.gather(1, positions[..., None].expand(-1, -1, 5))


def _infer(single_image: bool) -> Callable[..., Shapes]:
    def infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
        scores, moves, info = ins
        if scores is None:
            return ins, outs
        if len(scores) != 4:
            raise ShapeError(f"cls_prob has shape {scores}, expected 4 axes: (N, 2 * anchors, H, W)")
        moves = unify(moves, (scores[0], 2 * scores[1], *scores[2:]), "bbox_pred and cls_prob")
        info = unify(info, (scores[0], 3), "im_info and cls_prob")
        count = a.rpn_post_nms_top_n * (1 if single_image else scores[0])
        shapes = ((count, 5), (count, 1))
        return [scores, moves, info], [output_shape(o, f) for o, f in zip(outs, shapes)]

    return infer


_ATTRS = {
    "rpn_pre_nms_top_n": Attr(integer(), "number of best boxes to consider; below 1 all", 6000),
    "rpn_post_nms_top_n": Attr(integer(low=1), "number of boxes returned for each image", 300),
    "threshold": Attr(real, "boxes that overlap a better box by more are removed", 0.7),
    "rpn_min_size": Attr(integer(), "minimum side of a box, multiplied by the image's scale", 16),
    "scales": Attr(reals, "sizes of the anchors, in units of the stride", (4.0, 8.0, 16.0, 32.0)),
    "ratios": Attr(reals, "ratios of height to width of the anchors", (0.5, 1.0, 2.0)),
    "feature_stride": Attr(integer(low=1), "image pixels per pixel of the maps", 16),
    "output_score": Attr(boolean, "also return the scores", False),
    "iou_loss": Attr(boolean, "bbox_pred holds offsets of the four sides in pixels", False),
}


def _check(name: str, a: Any, scores: torch.Tensor, info: torch.Tensor) -> None:
    anchors = len(a.ratios) * len(a.scales)
    if scores.shape[1] != 2 * anchors:
        raise OpError(
            f"{name}: cls_prob has {scores.shape[1]} channels, expected {2 * anchors}, two for each of the"
            f" {len(a.ratios)} ratios times {len(a.scales)} scales"
        )
    if bool(((info[:, :2] / a.feature_stride).int() > tensor_like(info, scores.shape[2:])).any()):
        raise OpError(
            f"{name}: im_info gives {info[:, :2].tolist()} pixels, expected at most feature_stride"
            f" {a.feature_stride} times the maps' size {tuple(scores.shape[2:])}"
        )


def _bind_proposal(name: str, a: Any) -> Run:
    def run(scores: torch.Tensor, moves: torch.Tensor, info: torch.Tensor) -> Any:
        scores, moves, info = scores.detach(), moves.detach(), info.detach()
        _check(name, a, scores, info)
        boxes = _select_boxes(a, _scored_boxes(a, scores[:, scores.shape[1] // 2 :], moves, info))
        images, count, _ = boxes.shape
        number = torch.arange(images, dtype=boxes.dtype, device=boxes.device).view(-1, 1, 1)
        rois = torch.cat([number.expand(-1, count, 1), boxes[..., :4]], -1).view(-1, 5)
        return (rois, boxes[..., 4].reshape(-1, 1)) if a.output_score else rois

    return run


def _outputs(a: Any) -> tuple[str, ...]:
    return ("output", "score") if a.output_score else ("output",)


@pure(
    "_contrib_Proposal",
    [arg("cls_prob"), arg("bbox_pred"), arg("im_info")],
    _ATTRS,
    outputs=_outputs,
    hidden=lambda a: int(not a.output_score),
    infer=_infer(single_image=True),
    batch=NEVER,
    onnx=Onnx("NonMaxSuppression", builder="proposal"),
)
def proposal(a: Any, scores: torch.Tensor, moves: torch.Tensor, info: torch.Tensor) -> Any:
    """Return the best boxes of a region proposal network that do not overlap, for one image. No gradient.

    Boxes are clipped to the image; boxes of padding or below the minimum size come last. If too few boxes are left,
    they are repeated. Boxes with equal scores keep their order.

    Shape:
        cls_prob: (1, 2 * A, H, W), probabilities; those of objects are the second half.
        bbox_pred: (1, 4 * A, H, W), offsets of the center and log scales of the sizes, per anchor.
        im_info: (1, 3): height, width, scale of the image.
        returns: (rpn_post_nms_top_n, 5): 0, left, top, right, bottom; with `output_score` also
            (rpn_post_nms_top_n, 1).

    Raises:
        OpError: there are several images, or the maps do not fit the anchors or the image.

    Source: Ren et al., "Faster R-CNN", 2015; MXNet 1.9.1 `_contrib_Proposal`.
    """
    run = _bind_proposal("_contrib_Proposal", a)
    if scores.shape[0] != 1:
        raise OpError(
            f"_contrib_Proposal: cls_prob holds {scores.shape[0]} images, expected 1;"
            " use _contrib_MultiProposal for more"
        )
    return run(scores, moves, info)


@bound(
    "_contrib_MultiProposal",
    [arg("cls_prob"), arg("bbox_pred"), arg("im_info")],
    _ATTRS,
    outputs=_outputs,
    hidden=lambda a: int(not a.output_score),
    infer=_infer(single_image=False),
    batch=NEVER,
    onnx=Onnx("NonMaxSuppression", builder="proposal"),
)
def multi_proposal(a: Any) -> Run:
    """Return the best boxes of a region proposal network that do not overlap, for each image of a batch.

    Otherwise like `_contrib_Proposal`. No gradient.

    Shape:
        cls_prob: (N, 2 * A, H, W), probabilities; those of objects are the second half.
        bbox_pred: (N, 4 * A, H, W), offsets of the center and log scales of the sizes, per anchor.
        im_info: (N, 3): height, width, scale of each image.
        returns: (N * rpn_post_nms_top_n, 5): image index, left, top, right, bottom; with `output_score` also
            (N * rpn_post_nms_top_n, 1).

    Raises:
        OpError: the maps do not fit the anchors or an image.

    Source: Ren et al., "Faster R-CNN", 2015; MXNet 1.9.1 `_contrib_MultiProposal`.
    """
    return _bind_proposal("_contrib_MultiProposal", a)
