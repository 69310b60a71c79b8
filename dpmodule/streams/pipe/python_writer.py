"""The sending side of a pipe in Python: taking structures apart, copying."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import nested
from . import control as c
from .codes import FOREIGN, FULL, LOOK, SENT, UNFIT
from .layout import OWN, Leaf, contiguous, dense
from .python_core import Core, SlotMemory

__all__ = ["Find", "WriterCore"]

LOOK_S = 0.1
"""After how many seconds `send` asks for a look at the reader."""

Find = Callable[[torch.Tensor], "tuple[int, int, int, int] | None"]
"""`SharedBlocks.find`."""


class WriterCore(Core):
    """The sending side.

    Args:
        control: the shared block.
        own: wakes this side.
        other: wakes the reader.
        find: returns the number of the shared block that a tensor lies in and its byte offset there, or None.
    """

    def __init__(self, control: c.Control, own: c.Signal, other: c.Signal, find: Find) -> None:
        super().__init__(control, c.WRITER, own, other)
        self._find = find
        self._look_at = 0.0
        self.sent = self.zero_copy = self.copied = 0

    def _state(self, slot: int) -> int:
        return c.SLOTS_AT + 8 * slot

    def free_slots(self) -> list[int]:
        """Return the slots that may be written to."""
        return [slot for slot in range(self._slots) if not self._words[self._state(slot)]]

    def _ready(self) -> bool:
        return any(not self._words[self._state(slot)] for slot in range(self._slots))

    def fits(self, value: Any) -> bool:
        """Say whether this is a nested structure of a known outline (here: whether it is one at all)."""
        nested.flatten(value)
        return True

    def send(self, value: Any, leased: int = -1) -> int:
        """Send a structure if a free slot, or the leased one, has its outline and room for it."""
        if self._overdue():
            return LOOK
        slots = self.free_slots() if leased < 0 else [leased]
        outline, leaves = nested.flatten(value)
        if not slots:
            return FULL
        if any(leaf.device.type != "cpu" for leaf in leaves):
            return FOREIGN
        with torch.no_grad():
            for slot in slots:
                memory = self._memory[slot]
                if (
                    memory is not None
                    and memory.outline == outline
                    and self._write(memory, leaves, leased >= 0)
                ):
                    self.publish(c.DATA, slot)
                    self.sent += 1
                    return SENT
        return UNFIT

    send_soon = send_wait = send  # here the caller does all the waiting

    def _overdue(self) -> bool:
        now = time.monotonic()
        if now < self._look_at and not self._words[8 + 8 * c.READER + c.STATE]:
            return False
        self._look_at = now + LOOK_S
        return True

    def _write(self, memory: SlotMemory, leaves: list[torch.Tensor], leased: bool) -> bool:
        sources = [self._source(memory, leaf, leased) for leaf in leaves]
        for leaf, source, (_, room) in zip(leaves, sources, memory.homes):
            if leaf.ndim > memory.axes or (source is None and leaf.nbytes > room):
                return False
        for at, leaf, source, (home, _) in zip(memory.records(), leaves, sources, memory.homes):
            if source is not None:
                memory.describe(at, leaf, leaf.stride(), *source)
                self.zero_copy += 1
                continue
            plain = dense(leaf.shape, leaf.stride())
            memory.describe(at, leaf, leaf.stride() if plain else contiguous(leaf.shape), OWN, home)
            memory.view(at, memory.base).copy_(leaf.detach())
            self.copied += 1
        return True

    def _source(self, memory: SlotMemory, leaf: torch.Tensor, leased: bool) -> tuple[int, int] | None:
        """Return where a tensor lies if the reader can see it there."""
        if leaf.numel() == 0 or leaf.is_conj() or leaf.is_neg():
            return None
        if leased:
            offset = leaf.data_ptr() - memory.base.data_ptr()
            if 0 <= offset < memory.base.nbytes:
                return OWN, offset
        found = self._find(leaf)
        if found is None:
            return None
        number, offset, _, self.frames = found
        return number, offset

    def places(self, leaves: Sequence[torch.Tensor], slot: int) -> list[int]:
        """Return for each tensor the leaf in whose place of a slot it lies, -1 for those that lie elsewhere."""
        memory = self._memory[slot]
        if memory is None:
            return [-1] * len(leaves)
        found = []
        for leaf in leaves:
            offset = leaf.data_ptr() - memory.base.data_ptr() if leaf.numel() else -1
            inside = [i for i, (home, room) in enumerate(memory.homes) if home <= offset < home + room]
            found.append(inside[0] if inside else -1)
        return found

    def know(self, start: int, size: int) -> None:
        """Do nothing: every tensor is looked up."""

    def publish(self, kind: int, slot: int = -1) -> None:
        """Make a message visible to the reader and wake it."""
        words, head = self._words, self._words[c.HEAD]
        if slot >= 0:
            words[self._state(slot)] = 1
        words[c.RING_AT + head % c.RING] = kind | max(slot, 0) << 8 | self.frames << 32
        words[c.HEAD] = head + 1
        self._other.give()

    def lease(self, slot: int) -> Any:
        """Take a free slot and return its structure, as it was last sent, for filling in."""
        memory = self._memory[slot]
        if memory is None:
            raise IndexError(f"slot {slot} has no memory")
        self._words[self._state(slot)] = 1
        for at, (home, _) in zip(memory.records(), memory.homes):
            memory.words[at + 1], memory.words[at + 2] = OWN, home
        return nested.unflatten(memory.outline, [memory.view(at, memory.base) for at in memory.records()])

    def shape(self, slot: int, leaves: Sequence[Leaf]) -> None:
        """Describe contiguous tensors like these in the records of a slot, which has room for them."""
        memory = self._memory[slot]
        if memory is None:
            raise IndexError(f"slot {slot} has no memory")
        for at, leaf, (home, _) in zip(memory.records(), leaves, memory.homes):
            memory.describe(at, leaf, contiguous(leaf.shape), OWN, home)

    def unlease(self, slot: int) -> None:
        """Give a leased slot back unsent."""
        self._words[self._state(slot)] = 0

    def commit(self, slot: int) -> None:
        """Send a leased slot as it is."""
        memory = self._memory[slot]
        self.zero_copy += memory.leaves if memory else 0
        self.sent += 1
        self.publish(c.DATA, slot)

    def release(self) -> None:
        """Let go of all memory; what lives in it keeps its own part."""
        self._memory = [None] * self._slots
