"""The receiving side of a pipe in Python: building structures, and noticing when they are no longer used."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import weakref
from typing import Any

import torch

from .. import nested
from . import control as c
from .layout import OWN
from .python_core import Core, SlotMemory

__all__ = ["ReaderCore"]


class _Credit:
    """Gives a slot back when the last of the blocks that a message uses is no longer in use."""

    def __init__(self, words: memoryview, slot: int, other: _Giver) -> None:
        self._words, self._other = words, other
        self._slot, self._pid = slot, os.getpid()
        self._uses, self._drops = 1, itertools.count(1)  # the first use: the message is being built

    def block(self, source: mmap.mmap) -> torch.Tensor:
        """Return the bytes of a block as a tensor; the slot stays in use as long as its memory does."""
        token = memoryview(source)
        self._uses += 1
        weakref.finalize(token, self.drop).atexit = False
        return torch.frombuffer(token, dtype=torch.uint8)

    def drop(self) -> None:
        """Count one use less, in whatever thread."""
        if next(self._drops) == self._uses and self._pid == os.getpid():
            self._words[c.SLOTS_AT + 8 * self._slot] = 0
            self._other.give()


class ReaderCore(Core):
    """The receiving side.

    Args:
        control: the shared block.
        own: wakes this side.
        other: wakes the writer.
    """

    def __init__(self, control: c.Control, own: c.Signal, other: c.Signal) -> None:
        super().__init__(control, c.READER, own, other)
        self._giver = _Giver(other)
        self._shared: dict[int, mmap.mmap] = {}
        self.received = 0

    def _ready(self) -> bool:
        return self._words[c.HEAD] != self._words[c.TAIL]

    def peek(self) -> int:
        """Return the next message's word, 0 if there is none."""
        tail = self._words[c.TAIL]
        return self._words[c.RING_AT + tail % c.RING] if tail != self._words[c.HEAD] else 0

    def recv(self) -> Any:
        """Return the next structure; NotImplemented if there is none, or something else comes first."""
        entry = self.peek()
        if entry & 0xFF != c.DATA or entry >> 32 != self.frames:
            return NotImplemented
        slot = entry >> 8 & 0xFF
        memory = self._memory[slot]
        if memory is None:
            return NotImplemented
        credit = _Credit(self._words, slot, self._giver)
        try:
            value = self._build(memory, credit)
        finally:
            self.skip()
            credit.drop()
        return value

    recv_soon = recv_wait = recv  # here the caller does all the waiting

    def _build(self, memory: SlotMemory, credit: _Credit) -> Any:
        blocks: dict[int, torch.Tensor] = {}
        leaves = []
        for at in memory.records():
            source = memory.words[at + 1]
            if source not in blocks:
                blocks[source] = credit.block(memory.map if source == OWN else self._shared[source])
            leaves.append(memory.view(at, blocks[source]))
        self.received += 1
        return nested.unflatten(memory.outline, leaves)

    def skip(self, slot: int = -1) -> None:
        """Count the next message as taken, and give its slot back if one is named."""
        self._words[c.TAIL] += 1
        if slot >= 0:
            self._words[c.SLOTS_AT + 8 * slot] = 0
            self._other.give()

    def set_shared(self, number: int, fd: int, size: int) -> None:
        """Map a shared block."""
        self._shared[number] = mmap.mmap(fd, size)

    def forget_shared(self, number: int) -> None:
        """Let go of a shared block."""
        self._shared.pop(number, None)

    def release(self) -> None:
        """Let go of all memory; received tensors keep their own part."""
        self._memory = [None] * self._slots
        self._shared.clear()


class _Giver:
    """A signal of its own descriptor, open as long as received tensors may have to wake the writer."""

    def __init__(self, signal: c.Signal) -> None:
        self._fd = os.dup(signal.write)
        weakref.finalize(self, os.close, self._fd).atexit = False

    def give(self) -> None:
        with contextlib.suppress(OSError):  # readable already, or the writer is gone
            os.write(self._fd, b"\1\0\0\0\0\0\0\0")
