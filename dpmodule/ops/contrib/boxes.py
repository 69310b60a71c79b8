"""Bounding boxes: suppression, overlap, matching."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import Shape, ShapeError
from ..attrs import boolean, choice, integer, real
from ..dtypes import as_float32
from ..registry import pure
from ..shapes import from_data, output_shape, unify
from ..spec import NEVER, Attr, Onnx, Shapes, arg

# Greedy non-maximum suppression as tensor operations, with the result of the loop over boxes.
#
# Boxes are processed in blocks, best first. A block is compared with the boxes kept so far, then with itself; within
# the block, "kept = not overlapped by an earlier kept box" is repeated until nothing changes. The only fixed point is
# the greedy solution, and each repetition decides at least one more box of every chain of overlaps.

Overlap = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""``(items (F, G, r), items (F, G, c)) -> (G, r, c)``: True if the second item is suppressed by the first."""

_BLOCK = 256
_KEPT_CHUNK = 512
"""Number of kept boxes that a block is compared with at a time, chosen to fit a core's cache."""


def overlap_area(one: torch.Tensor, other: torch.Tensor, extra: float = 0.0) -> torch.Tensor:
    """Return the intersection areas of pairs of boxes.

    Args:
        one: (F, G, r), whose first four rows are left, top, right, bottom.
        other: (F, G, c), in the same format.
        extra: added to each side: 1 if right and bottom are pixels inside the box.
    """
    first, second = one[:4, :, :, None].unbind(0), other[:4, :, None].unbind(0)
    width = torch.minimum(first[2], second[2]).sub_(torch.maximum(first[0], second[0]))
    height = torch.minimum(first[3], second[3]).sub_(torch.maximum(first[1], second[1]))
    if extra:
        width, height = width.add_(extra), height.add_(extra)
    return width.clamp_(min=0).mul_(height.clamp_(min=0))


def _suppress_within_block(inner: torch.Tensor, alive: torch.Tensor) -> torch.Tensor:
    """Return the boxes kept by greedy suppression; `inner[g, i, j]` is True if i suppresses j, for i < j only."""
    kept = alive
    while True:
        again = alive & ~(inner & kept[:, :, None]).any(1)
        if torch.equal(again, kept):
            return kept
        kept = again


def chosen_first(chosen: torch.Tensor) -> torch.Tensor:
    """Return the positions of the chosen elements of each row, in order, followed by those of the others."""
    count = chosen.cumsum(1)
    here = torch.arange(chosen.shape[1], device=chosen.device).expand(chosen.shape)
    # an unchosen element comes after all chosen and all earlier unchosen ones
    positions = torch.where(chosen, count - 1, count[:, -1:] + here - count)
    return torch.empty_like(count).scatter_(1, positions, here)


def keep_greedily(
    items: torch.Tensor, sizes: torch.Tensor, overlap: Overlap, limit: int | None = None
) -> torch.Tensor:
    """Return a mask of the items kept by greedy suppression.

    Args:
        items: (G, N, F), each group's items best first.
        sizes: (G,) number of items of each group; the rest of its row is ignored.
        limit: number of kept items of a group that matter; later ones may be missing.

    Returns:
        (G, N) bool.
    """
    order = sizes.argsort(descending=True)
    counts = sizes[order].tolist()
    items = items[order].permute(2, 0, 1).contiguous()
    keep = torch.arange(items.shape[2], device=items.device) < sizes[order][:, None]
    before: torch.Tensor | None = None
    for start in range(0, counts[0] if counts else 0, _BLOCK):
        active = sum(count > start for count in counts)
        block, alive = items[:, :active, start : start + _BLOCK], keep[:active, start : start + _BLOCK]
        if before is not None:
            before = before[:, :active]
            for chunk in torch.split(before, _KEPT_CHUNK, 2):
                alive = alive & ~overlap(chunk, block).any(1)
        alive = _suppress_within_block(overlap(block, block).triu_(1), alive)
        keep[:active, start : start + _BLOCK] = alive
        if limit is not None and int(keep[:, : start + _BLOCK].sum(1).min()) >= limit:
            keep[:, start + _BLOCK :] = False
            break
        positions = chosen_first(alive)[:, : int(alive.sum(1).max())]
        # NaN overlaps nothing, so it pads the shorter rows
        block = block.masked_fill(~alive, torch.nan).gather(2, positions.expand(block.shape[0], -1, -1))
        before = block if before is None else torch.cat([before, block], 2)
    result = torch.empty_like(keep)
    result[order] = keep
    return result


def group_by_key(keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Group elements by key.

    Args:
        keys: (E,) integers, at least one.

    Returns:
        The group of each element, its position in the group (in the original order), and (G,) sizes.
    """
    ordered, positions = keys.sort(stable=True)
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[1:] = ordered[1:] != ordered[:-1]
    starts = new.nonzero().view(-1)
    sizes = torch.diff(starts, append=starts.new_full((1,), ordered.numel()))
    group = torch.repeat_interleave(torch.arange(sizes.numel(), device=keys.device), sizes)
    rank = torch.arange(ordered.numel(), device=keys.device) - starts[group]
    group_of, rank_of = torch.empty_like(group), torch.empty_like(rank)
    group_of[positions], rank_of[positions] = group, rank
    return group_of, rank_of, sizes


_FORMAT = choice("center", "corner")


def _edges_and_area(boxes: torch.Tensor, kind: str) -> torch.Tensor:
    """Return left, top, right, bottom and area; the area is 0 where a side is negative."""
    if kind == "corner":
        low, high = boxes[..., :2], boxes[..., 2:4]
        size = high - low
    else:
        size = boxes[..., 2:4]
        low, high = boxes[..., :2] - size / 2, boxes[..., :2] + size / 2
    area = torch.where((size < 0).any(-1), torch.zeros_like(size[..., 0]), size[..., 0] * size[..., 1])
    return torch.cat([low, high, area[..., None]], -1)


def _iou(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return intersection over union of results of `_edges_and_area`; NaN for two empty boxes."""
    common = overlap_area(one, other)
    return common.div((one[4, :, :, None] + other[4, :, None]).sub_(common))


def _infer_nms(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    shape = unify(ins[0], outs[0], "data and output")
    if shape is None:
        return ins, outs
    least = 6 if a.id_index > 0 else 5
    if len(shape) < 2 or shape[-1] and shape[-1] < least:
        raise ShapeError(f"data has shape {shape}, expected (..., boxes, at least {least} numbers per box)")
    for name, position in (("score_index", a.score_index), ("id_index", max(a.id_index, -1))):
        if a.coord_start <= position < a.coord_start + 4 or shape[-1] and position >= shape[-1]:
            raise ShapeError(
                f"{name} is {position}, expected less than the {shape[-1]} numbers per box and not one of the"
                f" coordinates {a.coord_start} to {a.coord_start + 3}"
            )
    if a.score_index == a.id_index or shape[-1] and a.coord_start + 4 > shape[-1]:
        raise ShapeError(
            f"score_index {a.score_index}, id_index {a.id_index} and coord_start {a.coord_start} must be different"
            f" positions among the {shape[-1]} numbers per box"
        )
    return [shape], [shape]


class _MovedRows(torch.autograd.Function):
    """Permutation of rows; the gradient is permuted back, regardless of changes to their numbers."""

    @staticmethod
    def forward(ctx: Any, data: torch.Tensor, out: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(source)
        return out

    @staticmethod
    def backward(ctx: Any, *heads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (source,) = ctx.saved_tensors
        moved = heads[0].masked_fill((source < 0)[:, :, None], 0.0)
        index = source.clamp(min=0)[:, :, None].expand_as(moved)
        return torch.zeros_like(moved).scatter_add_(1, index, moved), None, None


_move_rows: Callable[..., torch.Tensor] = _MovedRows.apply


def _change_format(a: Any, rows: torch.Tensor) -> torch.Tensor:
    """Convert coordinates from the input's format to the output's; boxes that start below 0 are unchanged."""
    columns = slice(a.coord_start, a.coord_start + 4)
    boxes = rows[..., columns]
    first, second = boxes[..., :2], boxes[..., 2:]
    if a.out_format == "center":
        changed = torch.cat([(first + second) / 2, second - first], -1)
    else:
        changed = torch.cat([first - second / 2, first + second / 2], -1)
    rows = rows.clone()
    rows[..., columns] = torch.where(boxes[..., :1] < 0, boxes, changed)
    return rows


def _kept_rows(a: Any, data: torch.Tensor) -> torch.Tensor:
    """Return the kept rows of each image, best first, followed by -1.

    Shape:
        data: (B, N, numbers).
        returns: (B, N) int64.
    """
    images, count, _ = data.shape
    scores = data[:, :, a.score_index]
    valid = scores > as_float32(a.valid_thresh)
    if a.id_index >= 0:
        valid &= data[:, :, a.id_index] != a.background_id
    order = torch.sort(scores.masked_fill(~valid, -torch.inf), dim=1, descending=True, stable=True)[1]
    limit = count if a.topk < 0 else min(count, a.topk)
    sizes = valid.sum(1).clamp(max=limit)
    most = int(sizes.max()) if images else 0
    source = torch.full((images, count), -1, dtype=torch.long, device=data.device)
    if not most:
        return source
    order = order[:, :most]
    image, position = (torch.arange(most, device=data.device) < sizes[:, None]).nonzero().unbind(1)
    rows = data[image, order[image, position]]
    keys = image
    if a.id_index >= 0 and not a.force_suppress:
        classes = rows[:, a.id_index].long()
        low = classes.min()
        keys = image * (classes.max() - low + 1) + (classes - low)
    items = _edges_and_area(rows[:, a.coord_start : a.coord_start + 4], a.in_format)
    group, rank, lengths = group_by_key(keys)
    padded = items.new_zeros((lengths.numel(), int(lengths.max()), items.shape[1]))
    padded[group, rank] = items
    threshold = as_float32(a.overlap_thresh)
    kept = keep_greedily(padded, lengths, lambda one, other: _iou(one, other) > threshold)
    chosen = torch.zeros((images, most), dtype=torch.bool, device=data.device)
    chosen[image, position] = kept[group, rank]
    packed = chosen_first(chosen)
    source[:, :most] = order.gather(1, packed).masked_fill(~chosen.gather(1, packed), -1)
    return source


@pure(
    "_contrib_box_nms",
    [arg("data")],
    {
        "overlap_thresh": Attr(real, "boxes that overlap a better box by more are removed", 0.5),
        "valid_thresh": Attr(real, "boxes with scores up to this are removed", 0.0),
        "topk": Attr(integer(), "number of best boxes to consider; below 0 all, 0 changes nothing", -1),
        "coord_start": Attr(integer(low=0), "index of the first of the four coordinates", 2),
        "score_index": Attr(integer(low=0), "position of the score in a row", 1),
        "id_index": Attr(integer(), "index of the class; below 0 for none", -1),
        "background_id": Attr(integer(), "class whose boxes are removed, if boxes have a class", -1),
        "force_suppress": Attr(boolean, "let boxes of different classes suppress each other", False),
        "in_format": Attr(_FORMAT, "corner: left, top, right, bottom; center: x, y, width, height", "corner"),
        "out_format": Attr(_FORMAT, "like in_format", "corner"),
    },
    aliases=["_contrib_box_non_maximum_suppression"],
    outputs=("output0",),
    hidden=1,
    infer=_infer_nms,
    batch=NEVER,
    onnx=Onnx("NonMaxSuppression", builder="box_nms"),
)
def box_nms(a: Any, data: torch.Tensor) -> torch.Tensor:
    """Remove boxes that overlap a better box; return the others best first, followed by rows of -1.

    Boxes with equal scores keep their order. The gradient of an output row goes to its input row.

    Shape:
        data: (..., N, numbers), boxes with class, score and coordinates among their numbers.
        returns: as `data`.

    Source: MXNet 1.9.1 `_contrib_box_nms`.
    """
    if a.topk == 0 or not data.numel():
        return data.clone()
    rows = data.reshape(-1, *data.shape[-2:])
    with torch.no_grad():
        source = _kept_rows(a, rows)
        index = source.clamp(min=0)[:, :, None].expand(rows.shape)
        out = rows.gather(1, index).masked_fill((source < 0)[:, :, None], -1.0)
        if a.in_format != a.out_format:
            out = _change_format(a, out)
    return _move_rows(rows, out, source).view(data.shape)


def _infer_iou(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    left, right = ins
    for name, shape in (("lhs", left), ("rhs", right)):
        if shape is not None and (len(shape) < 2 or shape[-1] not in (0, 4)):
            raise ShapeError(f"{name} has shape {shape}, expected (..., 4)")
    if left is None or right is None:
        return ins, outs
    return [(*left[:-1], 4), (*right[:-1], 4)], [output_shape(outs[0], (*left[:-1], *right[:-1]))]


@pure(
    "_contrib_box_iou",
    [arg("lhs"), arg("rhs")],
    {"format": Attr(_FORMAT, "corner: left, top, right, bottom; center: x, y, width, height", "corner")},
    infer=_infer_iou,
    batch=NEVER,
)
def box_iou(a: Any, lhs: torch.Tensor, rhs: torch.Tensor) -> torch.Tensor:
    """Return intersection over union of all pairs of boxes; 0 where they do not intersect. No gradient.

    Shape:
        lhs: (*L, 4).
        rhs: (*R, 4).
        returns: (*L, *R).

    Source: MXNet 1.9.1 `_contrib_box_iou`.
    """
    left = _edges_and_area(lhs.detach().reshape(1, -1, 4), a.format).permute(2, 0, 1).contiguous()
    right = _edges_and_area(rhs.detach().reshape(1, -1, 4), a.format).permute(2, 0, 1).contiguous()
    common = overlap_area(left, right)
    iou = common / (left[4, :, :, None] + right[4, :, None]).sub_(common)
    return iou.masked_fill_(common <= 0, 0.0).view(*lhs.shape[:-1], *rhs.shape[:-1])


def match_greedily(scores: torch.Tensor) -> torch.Tensor:
    """Match rows and columns greedily, the pair with the largest score first, until no finite score is left.

    A pair that is the maximum of both its row and its column is matched in any case: each round matches all such
    pairs. Of equal scores, the lower row, then the lower column, wins.

    Shape:
        scores: (B, R, C); -inf excludes a pair. Overwritten.
        returns: (B, R) int64, the column of each row, -1 for none.
    """
    matches = torch.full(scores.shape[:2], -1, dtype=torch.long, device=scores.device)
    if not scores.numel():
        return matches
    columns = torch.arange(scores.shape[2], device=scores.device)
    while True:
        best, row = scores.max(1)
        # only rows that are the best of some column can be matched in this round
        own = scores.gather(1, row[:, :, None].expand(-1, -1, scores.shape[2])).argmax(2)
        image, column = ((own == columns) & (best > -torch.inf)).nonzero().unbind(1)
        if not image.numel():
            return matches
        matched_row = row[image, column]
        matches[image, matched_row] = column
        scores[image, matched_row] = -torch.inf
        scores.transpose(1, 2)[image, column] = -torch.inf


def _matching_shapes(a: Any, data: tuple[int, ...]) -> list[tuple[int, ...]]:
    if len(data) < 2:
        raise ShapeError(f"data has shape {data}, expected at least 2 axes: (..., rows, columns)")
    return [data[:-1], (*data[:-2], data[-1])]


@pure(
    "_contrib_bipartite_matching",
    [arg("data")],
    {
        "is_ascend": Attr(boolean, "smaller scores are better", False),
        "threshold": Attr(real, "scores must be better than this"),
        "topk": Attr(integer(), "return at most topk + 1 pairs; below 1 no limit", -1),
    },
    outputs=("output0", "output1"),
    infer=from_data(_matching_shapes),
    batch=NEVER,
    onnx=Onnx("Loop", builder="bipartite_matching"),
)
def bipartite_matching(a: Any, data: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Match rows with columns greedily, best score first. No gradient.

    Shape:
        data: (..., R, C) scores.
        returns: column of each row (..., R), and row of each column (..., C); -1 for none.

    Source: MXNet 1.9.1 `_contrib_bipartite_matching`, which with `topk` returns one more pair than documented.
    """
    threshold = as_float32(a.threshold)
    scores = data.detach().reshape(-1, *data.shape[-2:])
    good = scores < threshold if a.is_ascend else scores > threshold
    scores = torch.where(good, -scores if a.is_ascend else scores, -torch.inf)
    rows = match_greedily(scores.clone())
    if a.topk > 0:
        value = scores.gather(2, rows.clamp(min=0)[:, :, None])[:, :, 0].masked_fill(rows < 0, -torch.inf)
        order = torch.sort(value, dim=1, descending=True, stable=True)[1]
        rows.scatter_(1, order[:, a.topk + 1 :], -1)
    image, row = (rows >= 0).nonzero().unbind(1)
    columns = torch.full_like(rows, -1)[:, :1].repeat(1, scores.shape[2])
    columns[image, rows[image, row]] = row
    return (
        rows.to(data.dtype).view(data.shape[:-1]),
        columns.to(data.dtype).view(*data.shape[:-2], data.shape[-1]),
    )
