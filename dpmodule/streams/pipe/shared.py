"""Tensors in shared memory of torch's own, which the reader maps once and then sees without copies."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from ...compat import torch_private
from .frames import FORGET, SHARE, PipeFrames

__all__ = ["Found", "SharedBlocks"]

MAX_BLOCKS = 64

# torch gives them no types
_is_shared: Any = torch.Tensor.is_shared
_strategy: Any = torch.multiprocessing.get_sharing_strategy


Found = tuple[int, int, int, int]
"""Number of a block, byte offset in it, its bytes, and how many frames have been sent when the reader knows it."""


class _Block(NamedTuple):
    number: int
    size: int
    watch: Any


class SharedBlocks:
    """Which blocks of shared memory the reader knows, by their address here.

    A block is known by a weak reference to its storage: it does not keep the user's memory alive, and memory that
    comes to lie at the same address later is not taken for it. While 64 are known, tensors in others are copied.

    Args:
        frames: tells the reader.
    """

    def __init__(self, frames: PipeFrames) -> None:
        self._frames = frames
        self._blocks: dict[int, _Block] = {}
        self._next = 0

    def find(self, tensor: torch.Tensor) -> Found | None:
        """Return where a tensor lies if the reader can see it there, None if it must be copied."""
        storage = tensor.untyped_storage()
        start = storage.data_ptr()
        block = self._blocks.get(start)
        if block is None or block.watch.cdata != storage._cdata:
            block = self._add(storage, start) if _is_shared(tensor) else None
        if block is None:
            return None
        return block.number, tensor.data_ptr() - start, block.size, self._frames.count

    def purge(self) -> None:
        """Tell the reader to let go of blocks that no longer exist here."""
        for start in [start for start, block in self._blocks.items() if block.watch.expired()]:
            self._forget(start)

    def _add(self, storage: torch.UntypedStorage, start: int) -> _Block | None:
        watch = torch_private.storage_watch(storage)
        if watch is None or _strategy() != "file_descriptor":
            return None
        fd, size = torch_private.share_descriptor(storage)[:2]  # it stays the storage's
        if fd < 0:
            return None
        if start in self._blocks:
            self._forget(start)
        self.purge()
        if len(self._blocks) >= MAX_BLOCKS:
            return None
        block = self._blocks[start] = _Block(self._next, size, watch)
        self._next += 1
        self._frames.send(SHARE, block.number, size, fd)
        return block

    def _forget(self, start: int) -> None:
        block = self._blocks.pop(start)
        self._frames.send(FORGET, block.number, 0)
