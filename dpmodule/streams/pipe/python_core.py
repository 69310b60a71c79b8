"""The hot part of a pipe in Python, for where the extension is missing: taking structures apart, copying, building."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import select
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import nested
from . import control as c
from .layout import DTYPES, HEAD, OWN, RECORD, Leaf, code_of, contiguous, dense

__all__ = ["FOREIGN", "FULL", "LOOK", "SENT", "UNFIT", "ReaderCore", "WriterCore"]

SENT, FULL, UNFIT, FOREIGN, LOOK = 0, 1, 2, 3, 4
"""What `send` says: done; no slot is free; no free slot has room for this structure; a tensor is on a device; it is
time to see whether the reader is still there."""

LOOK_S = 0.1

READY, NEWS, ENDED = 1, 2, 4
"""What `wait` says, added up: there is work or a wake-up; the socket is readable; the other process has ended."""

Find = Callable[[torch.Tensor], "tuple[int, int, int, int] | None"]


class _Core:
    """What both sides share: the control block and waiting.

    Args:
        control: the shared block.
        side: `WRITER` or `READER`.
        own: the signal that wakes this side.
        other: the signal that wakes the other one.
    """

    def __init__(self, control: c.Control, side: int, own: c.Signal, other: c.Signal) -> None:
        self.frames = 0
        self._words = control.words
        self._slots = control.slots
        self._own, self._other = own, other
        self._watched = {own.read: READY}
        self.busy = False
        self._memory: list[_Memory | None] = [None] * control.slots
        control.put(side, c.SLEEPS, 1)  # always: this side sees no race between the flag and the ring

    def arm(self) -> bool:
        """Say whether there is work; if not, the next piece of it wakes the signal."""
        self._own.drain()
        return self._ready()

    def watch(self, socket: int, process: int) -> None:
        """End waiting for news from these descriptors, too; -1 for none."""
        self._watched = {self._own.read: READY}
        self._watched |= {fd: mark for fd, mark in ((socket, NEWS), (process, ENDED)) if fd >= 0}

    def wait(self, seconds: float | None) -> int:
        """Block until there is work or news, or the time is over."""
        if self._ready():
            return READY
        poll = select.poll()
        for fd in self._watched:
            poll.register(fd, select.POLLIN)
        found = 0
        for fd, _ in poll.poll(None if seconds is None else max(seconds, 0.0) * 1000.0):
            found |= self._watched[fd]
        if found & READY:
            self._own.drain()
        return found

    def _ready(self) -> bool:
        raise NotImplementedError

    def set_slot(self, slot: int, fd: int, size: int, outline: Any) -> None:
        """Use new memory for a slot."""
        self._memory[slot] = _Memory(fd, size, outline)

    def unset_slot(self, slot: int) -> None:
        """Forget the memory of a slot whose new one cannot be used."""
        self._memory[slot] = None


class _Memory:
    """The memory of one slot, as this process sees it."""

    def __init__(self, fd: int, size: int, outline: Any) -> None:
        self.map = mmap.mmap(fd, size)
        self.words = memoryview(self.map)[: size // 8 * 8].cast("q")
        self.base = torch.frombuffer(self.map, dtype=torch.uint8)
        self.outline = outline
        self.leaves, self.axes = self.words[0], self.words[1]
        self.width = RECORD + 2 * self.axes
        self.homes = [tuple(self.words[at + 2 : at + 4]) for at in self.records()]

    def records(self) -> range:
        return range(HEAD, HEAD + self.leaves * self.width, self.width)

    def describe(
        self, at: int, tensor: torch.Tensor | Leaf, strides: Sequence[int], source: int, offset: int
    ) -> None:
        """Write what a tensor is into a record."""
        words, axes = self.words, self.axes
        words[at], words[at + 1], words[at + 2] = code_of(tensor.dtype), source, offset
        words[at + 4], words[at + 5] = len(tensor.shape), tensor.nbytes
        for axis, (size, stride) in enumerate(zip(tensor.shape, strides)):
            words[at + RECORD + axis] = size
            words[at + RECORD + axes + axis] = stride

    def view(self, at: int, base: torch.Tensor) -> torch.Tensor:
        """Return the tensor of a record, within the bytes `base` of its source."""
        words, axes = self.words, self.axes
        dtype = DTYPES[words[at]]
        if dtype is None:
            raise TypeError(f"dtype number {words[at]} does not exist in torch {torch.__version__}")
        start, ndim, shape, strides = words[at + 2], words[at + 4], at + RECORD, at + RECORD + axes
        size = list(words[shape : shape + ndim])
        if 0 in size:
            return base[:0].view(dtype).as_strided(size, list(words[strides : strides + ndim]))
        step = list(words[strides : strides + ndim])
        last = 1 + sum((n - 1) * t for n, t in zip(size, step))
        return base[start : start + last * dtype.itemsize].view(dtype).as_strided(size, step)


class WriterCore(_Core):
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

    def send_wait(self, value: Any) -> int:
        """Send like `send`: here the caller waits."""
        return self.send(value)

    def _overdue(self) -> bool:
        now = time.monotonic()
        if now < self._look_at and not self._words[8 + 8 * c.READER + c.STATE]:
            return False
        self._look_at = now + LOOK_S
        return True

    def _write(self, memory: _Memory, leaves: list[torch.Tensor], leased: bool) -> bool:
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

    def _source(self, memory: _Memory, leaf: torch.Tensor, leased: bool) -> tuple[int, int] | None:
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


class _Credit:
    """Gives a slot back when the last of the blocks that a message uses is no longer in use."""

    def __init__(self, core: ReaderCore, slot: int) -> None:
        self._words, self._other = core._words, core._giver
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


class ReaderCore(_Core):
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
        credit = _Credit(self, slot)
        try:
            value = self._build(memory, credit)
        finally:
            self.skip()
            credit.drop()
        return value

    def recv_wait(self) -> Any:
        """Receive like `recv`: here the caller waits."""
        return self.recv()

    def _build(self, memory: _Memory, credit: _Credit) -> Any:
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
