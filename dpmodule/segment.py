"""One piece of memory, which other processes can map, for many tensors.

A tensor shared by itself costs the system an open file in every process; a network has hundreds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from .shared_memory import shared_bytes

__all__ = ["Segment"]

_ALIGNMENT = 64
"""Bytes that the start of each tensor is a multiple of: a cache line, and the widest vector registers."""


class _Place(NamedTuple):
    """Where a tensor lies in a segment."""

    start: int
    dtype: torch.dtype
    shape: tuple[int, ...]


class Segment:
    """Copies of some tensors, side by side in one piece of shared memory.

    Sent to another process through `torch.multiprocessing`, it is the same memory there. The memory goes back to the
    system when the last process has let go of it, however that process ended. On a GPU it is shared as CUDA does:
    the process that made it must stay alive.

    Args:
        tensors: what to copy, all on one device.

    Raises:
        MemoryError: there is not as much shared memory left.
    """

    __slots__ = ("memory", "places")

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        places, end = [], 0
        for tensor in tensors:
            places.append(_Place(end, tensor.dtype, tuple(tensor.shape)))
            end += -(-tensor.numel() * tensor.itemsize // _ALIGNMENT) * _ALIGNMENT
        self.places = tuple(places)
        self.memory = shared_bytes("parameters", end, tensors[0].device)
        with torch.no_grad():
            for own, tensor in zip(self.tensors(), tensors, strict=True):
                own.copy_(tensor)

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors that lie in the segment, in the order in which they were given."""
        found = []
        for start, dtype, shape in self.places:
            size = torch.Size(shape).numel() * dtype.itemsize
            found.append(self.memory[start : start + size].view(dtype).view(shape))
        return found

    @property
    def is_shared(self) -> bool:
        """Whether it is shared memory; not so in a copy that came by plain pickling."""
        return bool(self.memory.is_cuda or self.memory.untyped_storage().is_shared())

    def __getstate__(self) -> tuple[torch.Tensor, tuple[_Place, ...]]:
        return self.memory, self.places

    def __setstate__(self, state: tuple[torch.Tensor, tuple[_Place, ...]]) -> None:
        self.memory, self.places = state
