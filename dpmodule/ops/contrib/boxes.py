"""Bounding boxes: suppression, overlap, matching."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import Shape, ShapeError
from ..attrs import boolean, choice, integer, real
from ..dtypes import single
from ..registry import pure
from ..shapes import from_data, output_shape, unify
from ..spec import NEVER, Attr, Onnx, Shapes, arg

# Greedy non-maximum suppression as tensor operations, with the result of the loop over boxes.
#
# Boxes are taken in blocks, best first. A block is compared with the boxes kept so far, then with itself; within the
# block, "kept = not overlapped by a kept one before it" is repeated until nothing changes. That equation has one
# solution, the greedy one, and each repetition settles at least one more box of every chain of overlaps.

Overlap = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""``(items (F, G, r), items (F, G, c)) -> (G, r, c)``: True where one is suppressed by the other."""

_BLOCK = 256
_KEPT_CHUNK = 512
"""Kept boxes that a block is compared with at a time: what a core's cache holds several times."""


def overlap_area(one: torch.Tensor, other: torch.Tensor, extra: float = 0.0) -> torch.Tensor:
    """Return the areas common to pairs of boxes.

    Args:
        one: (F, G, r), the first four being left, top, right, bottom.
        other: (F, G, c), likewise.
        extra: added to each side: 1 where right and bottom are pixels that belong to the box.
    """
    first, second = one[:4, :, :, None].unbind(0), other[:4, :, None].unbind(0)
    wide = torch.minimum(first[2], second[2]).sub_(torch.maximum(first[0], second[0]))
    high = torch.minimum(first[3], second[3]).sub_(torch.maximum(first[1], second[1]))
    if extra:
        wide, high = wide.add_(extra), high.add_(extra)
    return wide.clamp_(min=0).mul_(high.clamp_(min=0))


def _suppress_within_block(inner: torch.Tensor, alive: torch.Tensor) -> torch.Tensor:
    """Return what greedy suppression keeps; `inner[g, i, j]` says that i suppresses j, for i before j only."""
    kept = alive
    while True:
        again = alive & ~(inner & kept[:, :, None]).any(1)
        if torch.equal(again, kept):
            return kept
        kept = again


def chosen_first(chosen: torch.Tensor) -> torch.Tensor:
    """Return the positions of the chosen elements of each row, in order, then those of the others."""
    count = chosen.cumsum(1)
    here = torch.arange(chosen.shape[1], device=chosen.device).expand(chosen.shape)
    # one that is not chosen goes after all that are, and after those before it that are not either
    places = torch.where(chosen, count - 1, count[:, -1:] + here - count)
    return torch.empty_like(count).scatter_(1, places, here)


def keep_greedily(
    items: torch.Tensor, sizes: torch.Tensor, overlap: Overlap, limit: int | None = None
) -> torch.Tensor:
    """Return which items greedy suppression keeps.

    Args:
        items: (G, N, F), each group's items best first.
        sizes: (G,) how many each group has; the rest of its row is ignored.
        limit: how many kept items of a group matter; those after them may be left out.

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
            for part in torch.split(before, _KEPT_CHUNK, 2):
                alive = alive & ~overlap(part, block).any(1)
        alive = _suppress_within_block(overlap(block, block).triu_(1), alive)
        keep[:active, start : start + _BLOCK] = alive
        if limit is not None and int(keep[:, : start + _BLOCK].sum(1).min()) >= limit:
            keep[:, start + _BLOCK :] = False
            break
        places = chosen_first(alive)[:, : int(alive.sum(1).max())]
        # what is not a number overlaps nothing: it fills up the shorter rows
        block = block.masked_fill(~alive, torch.nan).gather(2, places.expand(block.shape[0], -1, -1))
        before = block if before is None else torch.cat([before, block], 2)
    result = torch.empty_like(keep)
    result[order] = keep
    return result


def group_by_key(keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gather elements with equal keys.

    Args:
        keys: (E,) integers, at least one.

    Returns:
        For each element its group and its place in it, elements of a group keeping their order; and (G,) sizes.
    """
    ordered, places = keys.sort(stable=True)
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[1:] = ordered[1:] != ordered[:-1]
    starts = new.nonzero().view(-1)
    sizes = torch.diff(starts, append=starts.new_full((1,), ordered.numel()))
    group = torch.repeat_interleave(torch.arange(sizes.numel(), device=keys.device), sizes)
    rank = torch.arange(ordered.numel(), device=keys.device) - starts[group]
    group_of, rank_of = torch.empty_like(group), torch.empty_like(rank)
    group_of[places], rank_of[places] = group, rank
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
    """Return intersection over union of what `_edges_and_area` gives; not a number for two empty boxes."""
    common = overlap_area(one, other)
    return common.div((one[4, :, :, None] + other[4, :, None]).sub_(common))


def _infer_nms(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    shape = unify(ins[0], outs[0], "data and output")
    if shape is None:
        return ins, outs
    least = 6 if a.id_index > 0 else 5
    if len(shape) < 2 or shape[-1] and shape[-1] < least:
        raise ShapeError(f"data has shape {shape}, expected (..., boxes, at least {least} numbers per box)")
    for name, place in (("score_index", a.score_index), ("id_index", max(a.id_index, -1))):
        if a.coord_start <= place < a.coord_start + 4 or shape[-1] and place >= shape[-1]:
            raise ShapeError(
                f"{name} is {place}, expected less than the {shape[-1]} numbers per box and not one of the"
                f" coordinates {a.coord_start} to {a.coord_start + 3}"
            )
    if a.score_index == a.id_index or shape[-1] and a.coord_start + 4 > shape[-1]:
        raise ShapeError(
            f"score_index {a.score_index}, id_index {a.id_index} and coord_start {a.coord_start} must be different"
            f" places among the {shape[-1]} numbers per box"
        )
    return [shape], [shape]


class _MovedRows(torch.autograd.Function):
    """Rows moved to other places; the gradient moves back with them, whatever was done to their numbers."""

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
    """Change the coordinates from the format of the input to that of the output; boxes that start below 0 stay."""
    place = slice(a.coord_start, a.coord_start + 4)
    boxes = rows[..., place]
    first, second = boxes[..., :2], boxes[..., 2:]
    if a.out_format == "center":
        changed = torch.cat([(first + second) / 2, second - first], -1)
    else:
        changed = torch.cat([first - second / 2, first + second / 2], -1)
    rows = rows.clone()
    rows[..., place] = torch.where(boxes[..., :1] < 0, boxes, changed)
    return rows


def _kept_rows(a: Any, data: torch.Tensor) -> torch.Tensor:
    """Return for each image the rows that are kept, best first, then -1.

    Shape:
        data: (B, N, numbers).
        returns: (B, N) int64.
    """
    images, count, _ = data.shape
    scores = data[:, :, a.score_index]
    valid = scores > single(a.valid_thresh)
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
    image, place = (torch.arange(most, device=data.device) < sizes[:, None]).nonzero().unbind(1)
    rows = data[image, order[image, place]]
    keys = image
    if a.id_index >= 0 and not a.force_suppress:
        kind = rows[:, a.id_index].long()
        low = kind.min()
        keys = image * (kind.max() - low + 1) + (kind - low)
    items = _edges_and_area(rows[:, a.coord_start : a.coord_start + 4], a.in_format)
    group, rank, lengths = group_by_key(keys)
    padded = items.new_zeros((lengths.numel(), int(lengths.max()), items.shape[1]))
    padded[group, rank] = items
    threshold = single(a.overlap_thresh)
    kept = keep_greedily(padded, lengths, lambda one, other: _iou(one, other) > threshold)
    chosen = torch.zeros((images, most), dtype=torch.bool, device=data.device)
    chosen[image, place] = kept[group, rank]
    packed = chosen_first(chosen)
    source[:, :most] = order.gather(1, packed).masked_fill(~chosen.gather(1, packed), -1)
    return source


@pure(
    "_contrib_box_nms",
    [arg("data")],
    {
        "overlap_thresh": Attr(real, "boxes that overlap a better one by more are removed", 0.5),
        "valid_thresh": Attr(real, "boxes with scores up to it are removed", 0.0),
        "topk": Attr(
            integer(), "how many of the best boxes are looked at; below 0 all, 0 changes nothing", -1
        ),
        "coord_start": Attr(integer(low=0), "where the four coordinates start", 2),
        "score_index": Attr(integer(low=0), "where the score is", 1),
        "id_index": Attr(integer(), "where the class is; below 0 there is none", -1),
        "background_id": Attr(integer(), "class whose boxes are removed, if there is a class", -1),
        "force_suppress": Attr(boolean, "boxes of different classes remove each other", False),
        "in_format": Attr(_FORMAT, "corner: left, top, right, bottom; center: x, y, width, height", "corner"),
        "out_format": Attr(_FORMAT, "as in_format", "corner"),
    },
    aliases=["_contrib_box_non_maximum_suppression"],
    outputs=("output0",),
    hidden=1,
    infer=_infer_nms,
    batch=NEVER,
    onnx=Onnx("NonMaxSuppression", builder="box_nms"),
)
def box_nms(a: Any, data: torch.Tensor) -> torch.Tensor:
    """Remove boxes that overlap a better box; the others come first, best first, then rows of -1.

    Boxes of one score keep their order. The gradient of a row goes to the row it came from.

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
    for name, each in (("lhs", left), ("rhs", right)):
        if each is not None and (len(each) < 2 or each[-1] not in (0, 4)):
            raise ShapeError(f"{name} has shape {each}, expected (..., 4)")
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
    """Return intersection over union of every box with every other; 0 where they do not meet. No gradient.

    Shape:
        lhs: (*L, 4).
        rhs: (*R, 4).
        returns: (*L, *R).

    Source: MXNet 1.9.1 `_contrib_box_iou`.
    """
    one = _edges_and_area(lhs.detach().reshape(1, -1, 4), a.format).permute(2, 0, 1).contiguous()
    other = _edges_and_area(rhs.detach().reshape(1, -1, 4), a.format).permute(2, 0, 1).contiguous()
    common = overlap_area(one, other)
    found = common / (one[4, :, :, None] + other[4, :, None]).sub_(common)
    return found.masked_fill_(common <= 0, 0.0).view(*lhs.shape[:-1], *rhs.shape[:-1])


def match_greedily(scores: torch.Tensor) -> torch.Tensor:
    """Match rows and columns, the pair of greatest score first, until no finite score is left.

    A pair that is the greatest both of its row and of its column is matched whatever the other pairs are: each round
    matches all such pairs. Of equal scores, the one of the lower row, then of the lower column, is the greater.

    Shape:
        scores: (B, R, C); -inf forbids a pair. Overwritten.
        returns: (B, R) int64, the column of each row, -1 for none.
    """
    found = torch.full(scores.shape[:2], -1, dtype=torch.long, device=scores.device)
    if not scores.numel():
        return found
    columns = torch.arange(scores.shape[2], device=scores.device)
    while True:
        best, row = scores.max(1)
        # only rows that are some column's best can be matched now
        own = scores.gather(1, row[:, :, None].expand(-1, -1, scores.shape[2])).argmax(2)
        image, column = ((own == columns) & (best > -torch.inf)).nonzero().unbind(1)
        if not image.numel():
            return found
        at = row[image, column]
        found[image, at] = column
        scores[image, at] = -torch.inf
        scores.transpose(1, 2)[image, column] = -torch.inf


def _matching_shapes(a: Any, data: tuple[int, ...]) -> list[tuple[int, ...]]:
    if len(data) < 2:
        raise ShapeError(f"data has shape {data}, expected at least 2 axes: (..., rows, columns)")
    return [data[:-1], (*data[:-2], data[-1])]


@pure(
    "_contrib_bipartite_matching",
    [arg("data")],
    {
        "is_ascend": Attr(boolean, "the smallest scores are the best", False),
        "threshold": Attr(real, "scores must be better than it"),
        "topk": Attr(integer(), "at most one more than so many pairs; below 1 no limit", -1),
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
        returns: the column of each row (..., R), and the row of each column (..., C); -1 for none.

    Source: MXNet 1.9.1 `_contrib_bipartite_matching`, which with `topk` gives one pair more than it says.
    """
    threshold = single(a.threshold)
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
