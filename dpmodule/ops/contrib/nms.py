"""Greedy non-maximum suppression as tensor operations, with the result of the loop over boxes.

Boxes are taken in blocks, best first. A block is compared with the boxes kept so far, then with itself; within the
block, "kept = not overlapped by a kept one before it" is repeated until nothing changes. That equation has one
solution, the greedy one, and each repetition settles at least one more box of every chain of overlaps.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

Overlap = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""``(items (F, G, r), items (F, G, c)) -> (G, r, c)``: True where one is suppressed by the other."""

_BLOCK = 256
_PART = 512
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


def _settled(inner: torch.Tensor, alive: torch.Tensor) -> torch.Tensor:
    """Return what greedy suppression keeps; `inner[g, i, j]` says that i suppresses j, for i before j only."""
    kept = alive
    while True:
        again = alive & ~(inner & kept[:, :, None]).any(1)
        if torch.equal(again, kept):
            return kept
        kept = again


def front(chosen: torch.Tensor) -> torch.Tensor:
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
            for part in torch.split(before, _PART, 2):
                alive = alive & ~overlap(part, block).any(1)
        alive = _settled(overlap(block, block).triu_(1), alive)
        keep[:active, start : start + _BLOCK] = alive
        if limit is not None and int(keep[:, : start + _BLOCK].sum(1).min()) >= limit:
            keep[:, start + _BLOCK :] = False
            break
        places = front(alive)[:, : int(alive.sum(1).max())]
        # what is not a number overlaps nothing: it fills up the shorter rows
        block = block.masked_fill(~alive, torch.nan).gather(2, places.expand(block.shape[0], -1, -1))
        before = block if before is None else torch.cat([before, block], 2)
    result = torch.empty_like(keep)
    result[order] = keep
    return result


def groups_of(keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
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
