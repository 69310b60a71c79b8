"""Memory layout of a slot: a head, a table of leaves, the outline, and the leaves.

All numbers are 64-bit words in native byte order, since both ends run on one machine::

    word 0 ...        leaves, axes per record, byte offset and length of the pickled outline
    word 8 ...        one record per leaf
    then              the outline, pickled
    then              the leaves, each at a multiple of 64 bytes

A record holds dtype number, source (`OWN`, or the number of a shared block), byte offset in the source, capacity in
bytes, axes, bytes in use; then the shape and the strides in elements, each with the number of axes in the head.
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
"""Smallest number of axes per record."""

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
"""The torch dtype of each dtype number, None if this version of torch lacks it."""

CODES: dict[torch.dtype, int] = {dtype: i for i, dtype in enumerate(DTYPES) if dtype is not None}

DLPACK: tuple[tuple[int, int, int], ...] = tuple((code, bits, lanes) for _, code, bits, lanes in _TYPES)


class Leaf(NamedTuple):
    """Description of a contiguous tensor, without its memory."""

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
    """Return True if the elements fill one block of memory exactly, in any order of axes."""
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
    """Capacities of the leaves of one outline: the sizes needed so far, with slack for leaves that overflowed.

    Each overflow of a leaf increases its slack, up to the third power, so that growing data is laid out again only a
    few times. Capacity that is never written uses no memory.

    Args:
        capacities: bytes of each leaf.
        overflows: number of overflows of each leaf; None for no overflows.
    """

    def __init__(
        self, outline: Any, capacities: Sequence[int], overflows: Sequence[int] | None = None
    ) -> None:
        self.outline = outline
        self.capacities = tuple(capacities)
        self._overflows = [0] * len(capacities) if overflows is None else list(overflows)

    def grown(self, needed: Sequence[int], slack: float) -> LeafCapacities:
        """Return capacities in bytes that hold `needed`, with slack for the leaves that did not fit."""
        capacities, overflows = list(self.capacities), list(self._overflows)
        for leaf, size in enumerate(needed):
            if size > capacities[leaf]:
                overflows[leaf] += 1
                factor: float = slack ** min(overflows[leaf], 3)
                capacities[leaf] = max(size, int(size * factor))
        return LeafCapacities(self.outline, capacities, overflows)


def table(outline: Any, capacities: Sequence[int], axes: int) -> tuple[bytes, int]:
    """Return the head of a slot with an empty record per leaf, and the total size of the slot in bytes."""
    axes = max(axes, MIN_AXES)
    width = RECORD + 2 * axes
    words = array.array("q", bytes(8 * (HEAD + width * len(capacities))))
    try:
        text = pickle.dumps(outline, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # for example, a class that is defined inside a function
        raise StructureError(
            f"a class of the structure cannot be pickled for another process: {error}"
        ) from error
    words[0], words[1], words[2], words[3] = len(capacities), axes, 8 * len(words), len(text)
    end = _aligned(8 * len(words) + len(text))
    for leaf, capacity in enumerate(capacities):
        at = HEAD + leaf * width
        words[at + 1], words[at + 2], words[at + 3] = OWN, end, capacity
        end = _aligned(end + capacity)
    return words.tobytes() + text, max(end, 4096)


def read_outline(fd: int) -> Any:
    """Return the outline in a slot's memory."""
    words = array.array("q", os.pread(fd, 8 * HEAD, 0))
    return pickle.loads(os.pread(fd, words[3], words[2]))


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


# the slots as the writer knows them

_MAX_OUTLINES = 8


class SlotLayout(NamedTuple):
    """Layout of one slot: its outline, the bytes of each leaf, and the number of axes per record."""

    outline: Any
    capacities: Sequence[int]
    axes: int

    def holds(self, leaves: Sequence[Leaf]) -> bool:
        """Return True if the leaves fit."""
        return all(
            leaf.nbytes <= capacity and len(leaf.shape) <= self.axes
            for leaf, capacity in zip(leaves, self.capacities)
        )


class StructureSpec(NamedTuple):
    """Structure of an acquired slot: its outline and leaves, and True if it was an argument of `acquire`."""

    outline: Any
    leaves: list[Leaf]
    is_explicit: bool


class SlotPlan(NamedTuple):
    """New memory for a slot: its head and its total size, and the state of the slot once the memory exists."""

    slot: int
    layout: SlotLayout
    head: bytes
    size: int
    sizes: LeafCapacities
    pattern: StructureSpec


class Slots:
    """The layouts of all slots.

    Args:
        slack: factor by which a leaf that has overflowed gets more bytes than it needs.
    """

    def __init__(self, count: int, slack: float) -> None:
        self._slack = slack
        self._layouts: list[SlotLayout | None] = [None] * count
        self._sizes: list[LeafCapacities] = []
        self._pattern: StructureSpec | None = None

    def plan(
        self, free: Sequence[int], outline: Any, needed: Sequence[int], leaves: Sequence[torch.Tensor | Leaf]
    ) -> SlotPlan:
        """Choose a slot and return its new layout; the layout takes effect with `use`.

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
        """Record that a slot has been laid out as planned."""
        self._layouts[plan.slot] = plan.layout
        others = [sizes for sizes in self._sizes if sizes.outline != plan.sizes.outline]
        self._sizes = [*others[-_MAX_OUTLINES + 1 :], plan.sizes]
        if self._pattern is None or not self._pattern.is_explicit:
            self._pattern = plan.pattern

    def forget(self, slot: int) -> None:
        """Record that a slot has no memory."""
        self._layouts[slot] = None

    def _rank(self, slot: int, outline: Any, capacities: Sequence[int]) -> int:
        """Return the rank of a slot: first too small ones, then unused ones, those of other outlines, then all others.

        A slot with enough room may have become free since the message did not fit into the slots that were free then.
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
        """Return the structure of the next acquired slot: that of `like`, or of the last slot if `like` is None."""
        if like is not None:
            outline, leaves = nested.parts(like)
            return StructureSpec(outline, [Leaf.of(leaf) for leaf in leaves], True)
        if self._pattern is None or self._pattern.outline is None:
            raise StateError("nothing was sent yet: pass an example of the structure with acquire(like=...)")
        return self._pattern

    def acquired(self, pattern: StructureSpec) -> None:
        """Record the pattern of an acquired slot."""
        self._pattern = pattern

    def fitting(self, free: Sequence[int], pattern: StructureSpec) -> int | None:
        """Return a free slot with the outline of a pattern and enough room, None if there is none."""
        for slot in free:
            layout = self._layouts[slot]
            if layout is not None and layout.outline == pattern.outline and layout.holds(pattern.leaves):
                return slot
        return None

    def without_overlaps(self, indices: Sequence[int], leaves: list[torch.Tensor]) -> list[torch.Tensor]:
        """Copy leaves that are in the memory of another leaf, if any leaf will be copied into the slot.

        Args:
            indices: for each leaf the leaf of the slot whose memory contains it, -1 if none does.
        """
        if all(index == i for i, index in enumerate(indices)) or min(indices, default=0) >= 0:
            return leaves
        return [
            leaf.clone() if index not in (-1, i) else leaf
            for i, (index, leaf) in enumerate(zip(indices, leaves))
        ]
