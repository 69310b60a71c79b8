"""The hot part of a pipe in Python, for where the extension is missing: what both sides share."""

from __future__ import annotations

import mmap
import select
from collections.abc import Sequence
from typing import Any

import torch

from ..errors import refused
from . import control as c
from .codes import ENDED, NEWS, READY
from .layout import DTYPES, HEAD, RECORD, Leaf, code_of

__all__ = ["Core", "SlotMemory"]


class Core:
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
        self._memory: list[SlotMemory | None] = [None] * control.slots
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
        self._memory[slot] = SlotMemory(fd, size, outline)

    def unset_slot(self, slot: int) -> None:
        """Forget the memory of a slot whose new one cannot be used."""
        self._memory[slot] = None


class SlotMemory:
    """The memory of one slot, as this process sees it."""

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
        """Return where the records begin, in words."""
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
