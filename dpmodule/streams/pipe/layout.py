"""How a slot's memory is laid out: a head, a table of leaves, the outline, and the leaves.

All numbers are 64-bit words in the machine's order, since both ends run on one machine::

    word 0 ...        leaves, axes a record has room for, byte offset and length of the pickled outline
    word 8 ...        one record per leaf
    then              the outline, pickled
    then              the leaves, each at a multiple of 64 bytes

A record holds dtype number, source (`OWN`, or the number of a shared block), byte offset there, capacity in bytes,
axes, bytes in use; then the shape and the strides in elements, each with room for the axes of the head.
"""

from __future__ import annotations

import array
import os
import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ...base import StateError
from .. import nested
from ..errors import StructureError

HEAD = 8
RECORD = 6
OWN = -1
ALIGN = 64
MIN_AXES = 5
"""Room for this many axes is in every record."""

# name, code, bits and lanes in the DLPack standard; the position is the number in a record
_TYPES = (
    ("bool", 6, 8, 1),
    ("uint8", 1, 8, 1),
    ("int8", 0, 8, 1),
    ("int16", 0, 16, 1),
    ("int32", 0, 32, 1),
    ("int64", 0, 64, 1),
    ("float16", 2, 16, 1),
    ("float32", 2, 32, 1),
    ("float64", 2, 64, 1),
    ("bfloat16", 4, 16, 1),
    ("complex32", 5, 32, 1),
    ("complex64", 5, 64, 1),
    ("complex128", 5, 128, 1),
    ("uint16", 1, 16, 1),
    ("uint32", 1, 32, 1),
    ("uint64", 1, 64, 1),
    ("float8_e4m3fn", 10, 8, 1),
    ("float8_e4m3fnuz", 11, 8, 1),
    ("float8_e5m2", 12, 8, 1),
    ("float8_e5m2fnuz", 13, 8, 1),
    ("float8_e8m0fnu", 14, 8, 1),
    ("float4_e2m1fn_x2", 17, 4, 2),
)
DTYPES: tuple[torch.dtype | None, ...] = tuple(getattr(torch, name, None) for name, *_ in _TYPES)
"""The torch type of each dtype number, None where this torch has none."""

CODES: dict[torch.dtype, int] = {dtype: i for i, dtype in enumerate(DTYPES) if dtype is not None}

DLPACK: tuple[tuple[int, int, int], ...] = tuple((code, bits, lanes) for _, code, bits, lanes in _TYPES)


class Leaf(NamedTuple):
    """What a contiguous tensor looks like, without its memory."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    nbytes: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Leaf:
        """Describe a tensor, which may be on any device."""
        code_of(tensor.dtype)
        return cls(tensor.dtype, tuple(tensor.shape), tensor.numel() * tensor.dtype.itemsize)


def code_of(dtype: torch.dtype) -> int:
    """Return the number of a dtype."""
    if dtype not in CODES:
        raise StructureError(f"tensors of type {dtype} cannot be sent; view them as another type")
    return CODES[dtype]


def dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return True if the elements fill one block of memory exactly, in whatever order of axes."""
    expected = 1
    for stride, size in sorted((t, n) for n, t in zip(shape, strides) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def contiguous(shape: Sequence[int]) -> list[int]:
    """Return the strides, in elements, of a contiguous tensor."""
    strides, step = [1] * len(shape), 1
    for axis in reversed(range(len(shape))):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return strides


class LeafCapacities:
    """Capacities of the leaves of one outline: what they needed so far, with slack where that was not enough.

    Each time a leaf overflows it is given more room than the time before, up to the third power of the slack, so
    that data that keeps growing is laid out again only a few times. Room that is never written costs no memory.

    Args:
        capacities: bytes of each leaf.
        overflows: how often each leaf has outgrown its place; None for never.
    """

    def __init__(
        self, outline: Any, capacities: Sequence[int], overflows: Sequence[int] | None = None
    ) -> None:
        self.outline = outline
        self.capacities = tuple(capacities)
        self._overflows = [0] * len(capacities) if overflows is None else list(overflows)

    def grown(self, needed: Sequence[int], slack: float) -> LeafCapacities:
        """Return capacities in bytes that hold `needed`, those of leaves that did not fit times the slack."""
        capacities, overflows = list(self.capacities), list(self._overflows)
        for leaf, size in enumerate(needed):
            if size > capacities[leaf]:
                overflows[leaf] += 1
                factor: float = slack ** min(overflows[leaf], 3)
                capacities[leaf] = max(size, int(size * factor))
        return LeafCapacities(self.outline, capacities, overflows)


def table(outline: Any, capacities: Sequence[int], axes: int) -> tuple[bytes, int]:
    """Return the head of a slot with an empty record per leaf, and the bytes that the slot needs in all."""
    axes = max(axes, MIN_AXES)
    width = RECORD + 2 * axes
    words = array.array("q", bytes(8 * (HEAD + width * len(capacities))))
    try:
        text = pickle.dumps(outline, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # a class that is defined inside a function, for one
        raise StructureError(
            f"a class of the structure cannot be named to another process: {error}"
        ) from error
    words[0], words[1], words[2], words[3] = len(capacities), axes, 8 * len(words), len(text)
    end = _aligned(8 * len(words) + len(text))
    for leaf, capacity in enumerate(capacities):
        at = HEAD + leaf * width
        words[at + 1], words[at + 2], words[at + 3] = OWN, end, capacity
        end = _aligned(end + capacity)
    return words.tobytes() + text, max(end, 4096)


def read_outline(fd: int) -> Any:
    """Return the outline that stands in a slot's memory."""
    words = array.array("q", os.pread(fd, 8 * HEAD, 0))
    return pickle.loads(os.pread(fd, words[3], words[2]))


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


# what the writer knows of its slots

_MAX_OUTLINES = 8


class SlotLayout(NamedTuple):
    """How one slot is laid out: for which outline, with how many bytes for each leaf, with room for how many axes."""

    outline: Any
    capacities: Sequence[int]
    axes: int

    def holds(self, leaves: Sequence[Leaf]) -> bool:
        """Return True if such leaves have room."""
        return all(
            leaf.nbytes <= room and len(leaf.shape) <= self.axes
            for leaf, room in zip(leaves, self.capacities)
        )


class StructureSpec(NamedTuple):
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
    pattern: StructureSpec


class Slots:
    """The layouts of all slots.

    Args:
        slack: how much more a leaf gets that has outgrown its place.
    """

    def __init__(self, count: int, slack: float) -> None:
        self._slack = slack
        self._layouts: list[SlotLayout | None] = [None] * count
        self._sizes: list[LeafCapacities] = []
        self._pattern: StructureSpec | None = None

    def plan(
        self, free: Sequence[int], outline: Any, needed: Sequence[int], leaves: Sequence[torch.Tensor | Leaf]
    ) -> SlotPlan:
        """Choose a slot and say how to lay it out; nothing is known of that before `use`.

        Args:
            needed: bytes of each leaf.
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
        return SlotPlan(slot, layout, head, size, sizes, StructureSpec(outline, described, False))

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

    def pattern(self, like: Any) -> StructureSpec:
        """Return what the next acquired slot is to look like: `like`, or with None what the last one did."""
        if like is not None:
            outline, leaves = nested.parts(like)
            return StructureSpec(outline, [Leaf.of(leaf) for leaf in leaves], True)
        if self._pattern is None or self._pattern.outline is None:
            raise StateError("nothing was sent yet: say what the slot is to look like with acquire(like=...)")
        return self._pattern

    def acquired(self, pattern: StructureSpec) -> None:
        """Note that there is a slot of this pattern."""
        self._pattern = pattern

    def fitting(self, free: Sequence[int], pattern: StructureSpec) -> int | None:
        """Return a free slot with the outline, and the room, of a pattern."""
        for slot in free:
            layout = self._layouts[slot]
            if layout is not None and layout.outline == pattern.outline and layout.holds(pattern.leaves):
                return slot
        return None

    def without_overlaps(self, places: Sequence[int], leaves: list[torch.Tensor]) -> list[torch.Tensor]:
        """Copy leaves that are in the place of another one, if there are leaves that will be copied into the slot.

        Args:
            places: for each leaf the leaf in whose place of the slot it lies, -1 if it lies elsewhere.
        """
        if all(place == i for i, place in enumerate(places)) or min(places, default=0) >= 0:
            return leaves
        return [
            leaf.clone() if place not in (-1, i) else leaf
            for i, (place, leaf) in enumerate(zip(places, leaves))
        ]
