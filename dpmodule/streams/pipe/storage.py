"""What the writer knows of its slots: which outline each was laid out for, and with how much room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ...base import StateError
from .. import nested
from .layout import MIN_AXES, Leaf, LeafCapacities, table

__all__ = ["SlotLayout", "Pattern", "SlotPlan", "Slots"]

_MAX_OUTLINES = 8


class SlotLayout(NamedTuple):
    """How one slot is laid out: for which outline, with how many bytes for each leaf, with room for how many axes."""

    outline: Any
    capacities: Sequence[int]
    axes: int

    def holds(self, leaves: Sequence[Leaf]) -> bool:
        """Say whether such leaves have room."""
        return all(
            leaf.nbytes <= room and len(leaf.shape) <= self.axes
            for leaf, room in zip(leaves, self.capacities)
        )


class Pattern(NamedTuple):
    """What an acquired slot looks like: its outline and leaves, and whether `acquire` was told them."""

    outline: Any
    leaves: list[Leaf]
    is_explicit: bool


class SlotPlan(NamedTuple):
    """New memory for a slot: the head of it, and its bytes in all; and what is known once it exists."""

    slot: int
    layout: SlotLayout
    head: bytes
    size: int
    sizes: LeafCapacities
    pattern: Pattern


class Slots:
    """The layouts of all slots.

    Args:
        count: how many there are.
        slack: how much more a leaf gets that has outgrown its place.
    """

    def __init__(self, count: int, slack: float) -> None:
        self._slack = slack
        self._layouts: list[SlotLayout | None] = [None] * count
        self._sizes: list[LeafCapacities] = []
        self._pattern: Pattern | None = None

    def plan(
        self, free: Sequence[int], outline: Any, needed: Sequence[int], leaves: Sequence[torch.Tensor | Leaf]
    ) -> SlotPlan:
        """Choose a slot and say how to lay it out; nothing is known of that before `use`.

        Args:
            free: the slots to choose from.
            outline: of the structure.
            needed: bytes of each leaf.
            leaves: the leaves.

        Raises:
            StructureError: the outline has a class that cannot be pickled.
        """
        sizes = self._grown(outline, needed)
        axes = max((len(leaf.shape) for leaf in leaves), default=0)
        slot = min(free, key=lambda slot: self._rank(slot, outline, sizes.capacities))
        layout = self._layouts[slot]
        if layout is not None and layout.outline == outline:
            axes = max(axes, layout.axes)
        described = [Leaf.of(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        layout = SlotLayout(outline, sizes.capacities, max(axes, MIN_AXES))
        head, size = table(outline, sizes.capacities, axes)
        return SlotPlan(slot, layout, head, size, sizes, Pattern(outline, described, False))

    def use(self, plan: SlotPlan) -> None:
        """Note that a slot has been laid out as planned: its memory exists."""
        self._layouts[plan.slot] = plan.layout
        others = [sizes for sizes in self._sizes if sizes.outline != plan.sizes.outline]
        self._sizes = [*others[-_MAX_OUTLINES + 1 :], plan.sizes]
        if self._pattern is None or not self._pattern.is_explicit:
            self._pattern = plan.pattern

    def forget(self, slot: int) -> None:
        """Note that a slot has no memory."""
        self._layouts[slot] = None

    def _rank(self, slot: int, outline: Any, capacities: Sequence[int]) -> int:
        """Order slots: one whose place has become too small, an unused one, one of another outline, then any other.

        A slot with room for it may have become free since the message did not fit into those that were.
        """
        layout = self._layouts[slot]
        if layout is None:
            return 1
        if layout.outline != outline:
            return 2
        return 3 if layout.capacities == capacities else 0

    def _grown(self, outline: Any, needed: Sequence[int]) -> LeafCapacities:
        for sizes in self._sizes:
            if sizes.outline == outline:
                return sizes.grown(needed, self._slack)
        return LeafCapacities(outline, needed)

    def pattern(self, like: Any) -> Pattern:
        """Return what the next acquired slot is to look like: `like`, or with None what the last one did.

        Raises:
            StateError: nothing is known to take it from.
            StructureError: `like` is no nested structure.
        """
        if like is not None:
            outline, leaves = nested.parts(like)
            return Pattern(outline, [Leaf.of(leaf) for leaf in leaves], True)
        if self._pattern is None or self._pattern.outline is None:
            raise StateError("nothing was sent yet: say what the slot is to look like with acquire(like=...)")
        return self._pattern

    def acquired(self, pattern: Pattern) -> None:
        """Note that there is a slot of this pattern."""
        self._pattern = pattern

    def fitting(self, free: Sequence[int], pattern: Pattern) -> int | None:
        """Return a free slot with the outline, and the room, of a pattern."""
        for slot in free:
            layout = self._layouts[slot]
            if layout is not None and layout.outline == pattern.outline and layout.holds(pattern.leaves):
                return slot
        return None

    def untangled(self, places: Sequence[int], leaves: list[torch.Tensor]) -> list[torch.Tensor]:
        """Copy leaves that lie in the place of another one, if there are leaves that will be copied into the slot.

        Args:
            places: for each leaf the leaf in whose place of the slot it lies, -1 if it lies elsewhere.
            leaves: the leaves.
        """
        if all(place == i for i, place in enumerate(places)) or min(places, default=0) >= 0:
            return leaves
        return [
            leaf.clone() if place not in (-1, i) else leaf
            for i, (place, leaf) in enumerate(zip(places, leaves))
        ]
