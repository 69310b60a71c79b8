"""The core of a pipe, its performance-critical part: the Python version, and the choice of extension or Python."""

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

from ... import native
from ...base import StateError
from .. import nested
from ..errors import refused
from . import control as c
from .control import CHECK, ENDED, FOREIGN, FULL, NEWS, READY, SENT, UNFIT
from .layout import DLPACK, DTYPES, HEAD, OWN, RECORD, Leaf, code_of, contiguous, dense


def protocol() -> int:
    """Return the protocol of pipes made in this process."""
    has_core = native.core is not None and hasattr(native.core, "PipeWriter")
    return c.NATIVE if has_core and _exchange() is not None else c.PYTHON


def _exchange() -> Any:
    """Return torch's table of DLPack exchange functions, None in older versions of torch."""
    return getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)


def _core(control: c.Control) -> Any:
    if control.protocol == c.PYTHON:
        return None
    if protocol() != c.NATIVE:
        why = native.error or "this torch has no __dlpack_c_exchange_api__"
        raise StateError(
            f"the process that made the pipe uses the native extension, and this process does not: {why}; "
            "set DPMODULE_NATIVE=0 in both or in neither"
        )
    return native.core


def writer_core(control: c.Control, fd: int, own: c.Signal, other: c.Signal, find: Find) -> Any:
    """Return the core of a writer."""
    core = _core(control)
    if core is None:
        return WriterCore(control, own, other, find)
    return core.PipeWriter(table(), fd, own.read, other.write, find)


def reader_core(control: c.Control, fd: int, own: c.Signal, other: c.Signal) -> Any:
    """Return the core of a reader."""
    core = _core(control)
    if core is None:
        return ReaderCore(control, own, other)
    return core.PipeReader(table(), fd, own.read, other.write)


def table() -> Any:
    """Return what the core needs to know of torch."""
    methods = (torch.Tensor, torch.nn.Parameter, torch.Tensor.is_neg, torch.Tensor.is_conj, _plain)
    return _exchange(), DLPACK, DTYPES, methods


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return an ordinary tensor with the same values; it shares the memory unless values must be resolved."""
    nested.check_tensor(tensor)
    return tensor.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg()


# the core in Python: common part of both sides


class Core:
    """Common part of both cores: the control block and waiting."""

    def __init__(self, control: c.Control, side: int, own: c.Signal, other: c.Signal) -> None:
        self.frames = 0
        self._words = control.words
        self._slots = control.slots
        self._own, self._other = own, other
        self._watched = {own.read: READY}
        self.busy = False
        self._memory: list[SlotMemory | None] = [None] * control.slots
        control.put(side, c.SLEEPS, 1)  # always set: Python cannot order accesses to the flag and the ring

    def arm(self) -> bool:
        """Reset the signal, which the next piece of work wakes; return True if there is work already."""
        self._own.drain()
        return self._ready()

    def watch(self, socket: int, process: int) -> None:
        """Let `wait` also return for these descriptors; -1 for none."""
        self._watched = {self._own.read: READY}
        self._watched |= {fd: mark for fd, mark in ((socket, NEWS), (process, ENDED)) if fd >= 0}

    def wait(self, seconds: float | None) -> int:
        """Block until there is work or news, or the time has passed; return flags such as `READY`."""
        if self._ready():
            return READY
        poll = select.poll()
        for fd in self._watched:
            poll.register(fd, select.POLLIN)
        flags = 0
        for fd, _ in poll.poll(None if seconds is None else max(seconds, 0.0) * 1000.0):
            flags |= self._watched[fd]
        if flags & READY:
            self._own.drain()
        return flags

    def _ready(self) -> bool:
        raise NotImplementedError

    def set_slot(self, slot: int, fd: int, size: int, outline: Any) -> None:
        """Use new memory for a slot."""
        self._memory[slot] = SlotMemory(fd, size, outline)

    def unset_slot(self, slot: int) -> None:
        """Release the memory of a slot whose new memory cannot be used."""
        self._memory[slot] = None


class SlotMemory:
    """The memory of one slot, mapped into this process."""

    def __init__(self, fd: int, size: int, outline: Any) -> None:
        try:
            self.map = mmap.mmap(fd, size)
        except OSError as error:
            raise refused("memory of a message in a tensor pipe", error) from error
        self.words = memoryview(self.map)[: size // 8 * 8].cast("q")
        self.base = torch.frombuffer(self.map, dtype=torch.uint8)
        self.outline = outline
        self.leaves, self.axes = self.words[0], self.words[1]
        self.width = RECORD + 2 * self.axes
        self.homes = [tuple(self.words[at + 2 : at + 4]) for at in self.records()]

    def records(self) -> range:
        """Return the positions of the records, in words."""
        return range(HEAD, HEAD + self.leaves * self.width, self.width)

    def describe(
        self, at: int, tensor: torch.Tensor | Leaf, strides: Sequence[int], source: int, offset: int
    ) -> None:
        """Write the description of a tensor into a record."""
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


# the receiving side: building structures, and tracking their use


class _Credit:
    """Use count of the blocks of a message; it frees the slot when no block is in use."""

    def __init__(self, words: memoryview, slot: int, other: _CreditSignal) -> None:
        self._words, self._other = words, other
        self._slot, self._pid = slot, os.getpid()
        self._uses, self._drops = 1, itertools.count(1)  # the first use is building the message

    def block(self, source: mmap.mmap) -> torch.Tensor:
        """Return the bytes of a block as a tensor; the slot stays in use as long as the tensor's memory."""
        token = memoryview(source)
        self._uses += 1
        weakref.finalize(token, self.drop).atexit = False
        return torch.frombuffer(token, dtype=torch.uint8)

    def drop(self) -> None:
        """Decrement the use count; any thread may call this."""
        if next(self._drops) == self._uses and self._pid == os.getpid():
            self._words[c.SLOTS_AT + 8 * self._slot] = 0
            self._other.give()


class ReaderCore(Core):
    """Core of the receiving side."""

    def __init__(self, control: c.Control, own: c.Signal, other: c.Signal) -> None:
        super().__init__(control, c.READER, own, other)
        self._giver = _CreditSignal(other)
        self._shared: dict[int, mmap.mmap] = {}
        self.received = 0

    def _ready(self) -> bool:
        return self._words[c.HEAD] != self._words[c.TAIL]

    def peek(self) -> int:
        """Return the word of the next message, 0 if there is none."""
        tail = self._words[c.TAIL]
        return self._words[c.RING_AT + tail % c.RING] if tail != self._words[c.HEAD] else 0

    def recv(self) -> Any:
        """Return the next structure; NotImplemented if there is none, or if the reader must handle something first."""
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

    recv_soon = recv_wait = recv  # in Python, the caller waits

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
        """Mark the next message as taken, and free `slot` if it is not -1."""
        self._words[c.TAIL] += 1
        if slot >= 0:
            self._words[c.SLOTS_AT + 8 * slot] = 0
            self._other.give()

    def set_shared(self, number: int, fd: int, size: int) -> None:
        """Map a shared block."""
        self._shared[number] = mmap.mmap(fd, size)

    def forget_shared(self, number: int) -> None:
        """Release a shared block."""
        self._shared.pop(number, None)

    def release(self) -> None:
        """Release all memory; received tensors keep theirs."""
        self._memory = [None] * self._slots
        self._shared.clear()


class _CreditSignal:
    """Signal with a duplicated descriptor, open as long as received tensors may have to wake the writer."""

    def __init__(self, signal: c.Signal) -> None:
        self._fd = os.dup(signal.write)
        weakref.finalize(self, os.close, self._fd).atexit = False

    def give(self) -> None:
        with contextlib.suppress(OSError):  # already readable, or the writer is gone
            os.write(self._fd, b"\1\0\0\0\0\0\0\0")


# the sending side: taking structures apart, copying

LOOK_S = 0.1
"""Interval in seconds after which `send` asks its caller to check the reader."""

Find = Callable[[torch.Tensor], "tuple[int, int, int, int] | None"]
"""`SharedBlocks.find`."""


class WriterCore(Core):
    """Core of the sending side."""

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
        """Return True if `value` has a known outline; in Python, raise StructureError if it cannot be sent."""
        nested.flatten(value)
        return True

    def send(self, value: Any, leased: int = -1) -> int:
        """Send a structure if a free slot, or the leased one, has its outline and enough memory."""
        if self._overdue():
            return CHECK
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

    send_soon = send_wait = send  # in Python, the caller waits

    def _overdue(self) -> bool:
        now = time.monotonic()
        if now < self._look_at and not self._words[8 + 8 * c.READER + c.STATE]:
            return False
        self._look_at = now + LOOK_S
        return True

    def _write(self, memory: SlotMemory, leaves: list[torch.Tensor], leased: bool) -> bool:
        sources = [self._source(memory, leaf, leased) for leaf in leaves]
        for leaf, source, (_, capacity) in zip(leaves, sources, memory.homes):
            if leaf.ndim > memory.axes or (source is None and leaf.nbytes > capacity):
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
        """Return the location of a tensor that the reader can map, None for other tensors."""
        if leaf.numel() == 0 or leaf.is_conj() or leaf.is_neg():
            return None
        if leased:
            offset = leaf.data_ptr() - memory.base.data_ptr()
            if 0 <= offset < memory.base.nbytes:
                return OWN, offset
        location = self._find(leaf)
        if location is None:
            return None
        number, offset, _, self.frames = location
        return number, offset

    def leaf_indices(self, leaves: Sequence[torch.Tensor], slot: int) -> list[int]:
        """Return for each tensor the leaf of a slot whose memory contains it, -1 if none does."""
        memory = self._memory[slot]
        if memory is None:
            return [-1] * len(leaves)
        indices = []
        for leaf in leaves:
            offset = leaf.data_ptr() - memory.base.data_ptr() if leaf.numel() else -1
            inside = [i for i, (start, size) in enumerate(memory.homes) if start <= offset < start + size]
            indices.append(inside[0] if inside else -1)
        return indices

    def add_shared_range(self, start: int, size: int) -> None:
        """Do nothing: this core looks up every tensor."""

    def publish(self, kind: int, slot: int = -1) -> None:
        """Make a message visible to the reader and wake it."""
        words, head = self._words, self._words[c.HEAD]
        if slot >= 0:
            words[self._state(slot)] = 1
        words[c.RING_AT + head % c.RING] = kind | max(slot, 0) << 8 | self.frames << 32
        words[c.HEAD] = head + 1
        self._other.give()

    def lease(self, slot: int) -> Any:
        """Take a free slot and return its structure as last sent, to be filled in."""
        memory = self._memory[slot]
        if memory is None:
            raise IndexError(f"slot {slot} has no memory")
        self._words[self._state(slot)] = 1
        for at, (home, _) in zip(memory.records(), memory.homes):
            memory.words[at + 1], memory.words[at + 2] = OWN, home
        return nested.unflatten(memory.outline, [memory.view(at, memory.base) for at in memory.records()])

    def shape(self, slot: int, leaves: Sequence[Leaf]) -> None:
        """Describe contiguous tensors like `leaves` in the records of a slot that is large enough."""
        memory = self._memory[slot]
        if memory is None:
            raise IndexError(f"slot {slot} has no memory")
        for at, leaf, (home, _) in zip(memory.records(), leaves, memory.homes):
            memory.describe(at, leaf, contiguous(leaf.shape), OWN, home)

    def unlease(self, slot: int) -> None:
        """Free a leased slot without sending it."""
        self._words[self._state(slot)] = 0

    def commit(self, slot: int) -> None:
        """Send a leased slot as it is."""
        memory = self._memory[slot]
        self.zero_copy += memory.leaves if memory else 0
        self.sent += 1
        self.publish(c.DATA, slot)

    def release(self) -> None:
        """Release all memory; tensors in it keep theirs."""
        self._memory = [None] * self._slots
