"""What the writer knows of its slots: which outline each was laid out for, and with how much room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ...base import StateError
from .. import nested
from .layout import MIN_AXES, Leaf, Sizes, table

__all__ = ["Layout", "Plan", "Slots"]

_MAX_OUTLINES = 8


class Layout(NamedTuple):
    """How one slot is laid out: for which outline, with how many bytes for each leaf, with room for how many axes."""

    outline: Any
    capacities: list[int]
    axes: int

    def holds(self, leaves: Sequence[Leaf]) -> bool:
        """Say whether such leaves have room."""
        return all(
            leaf.nbytes <= room and len(leaf.shape) <= self.axes
            for leaf, room in zip(leaves, self.capacities)
        )


class Plan(NamedTuple):
    """New memory for a slot: the head of it, and its bytes in all."""

    slot: int
    layout: Layout
    head: bytes
    size: int


class Slots:
    """The layouts of all slots.

    Args:
        count: how many there are.
        slack: how much more a leaf gets that has outgrown its place.
    """

    def __init__(self, count: int, slack: float) -> None:
        self._slack = slack
        self._layouts: list[Layout | None] = [None] * count
        self._sizes: list[Sizes] = []
        self.outline: Any = None
        self.leaves: list[Leaf] = []
        self._explicit = False

    def plan(
        self, free: Sequence[int], outline: Any, needed: Sequence[int], leaves: Sequence[torch.Tensor | Leaf]
    ) -> Plan:
        """Choose a slot and say how to lay it out.

        Args:
            free: the slots to choose from.
            outline: of the structure.
            needed: bytes of each leaf.
            leaves: the leaves.

        Raises:
            StructureError: the outline has a class that cannot be pickled.
        """
        capacities = list(self._grown(outline, needed))
        axes = max((len(leaf.shape) for leaf in leaves), default=0)
        slot = min(free, key=lambda slot: self._rank(slot, outline, capacities))
        layout = self._layouts[slot]
        if layout is not None and layout.outline == outline:
            axes = max(axes, layout.axes)
        if not self._explicit:
            self.outline = outline
            self.leaves = [Leaf.of(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        return Plan(slot, Layout(outline, capacities, max(axes, MIN_AXES)), *table(outline, capacities, axes))

    def use(self, plan: Plan) -> None:
        """Note that a slot has been laid out as planned."""
        self._layouts[plan.slot] = plan.layout

    def forget(self, slot: int) -> None:
        """Note that a slot has no memory."""
        self._layouts[slot] = None

    def _rank(self, slot: int, outline: Any, capacities: list[int]) -> int:
        """Order slots: one whose place has become too small, an unused one, one of another outline, then any other.

        A slot with room for it may have become free since the message did not fit into those that were.
        """
        layout = self._layouts[slot]
        if layout is None:
            return 1
        if layout.outline != outline:
            return 2
        return 3 if layout.capacities == capacities else 0

    def _grown(self, outline: Any, needed: Sequence[int]) -> Sequence[int]:
        for sizes in self._sizes:
            if sizes.outline == outline:
                return sizes.grow(needed, self._slack)
        del self._sizes[: len(self._sizes) - _MAX_OUTLINES + 1]
        self._sizes.append(Sizes(outline, needed))
        return needed

    def pattern(self, like: Any) -> None:
        """Take over what the next acquired slot is to look like; None leaves it as it is.

        Raises:
            StateError: nothing is known to take it from.
            StructureError: `like` is no nested structure.
        """
        if like is not None:
            self.outline, leaves = nested.parts(like)
            self.leaves = [Leaf.of(leaf) for leaf in leaves]
            self._explicit = True
        elif self.outline is None and not self.leaves:
            raise StateError("nothing was sent yet: say what the slot is to look like with acquire(like=...)")

    def fitting(self, free: Sequence[int]) -> int | None:
        """Return a free slot with the outline, and the room, of the pattern."""
        for slot in free:
            layout = self._layouts[slot]
            if layout is not None and layout.outline == self.outline and layout.holds(self.leaves):
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
