"""Tensors in shared memory: a `Segment` of many, and a MemoryError that says how much was asked for.

A tensor shared by itself costs the system an open file in every process; a network has hundreds.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

_FOLDER = "/dev/shm"
"""Where Linux has the shared memory that torch uses."""


def shared_bytes(what: str, size: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """Return zeros in shared memory.

    Shape:
        returns: (size,), uint8.

    Args:
        size: how many bytes.
        device: the CPU, or a GPU, whose memory is shared as it is.
    """
    free = _free() if torch.device(device).type == "cpu" else None
    if free is not None and size > free:
        raise out_of_memory_error(what, size)
    try:
        made: Any = torch.zeros(size, dtype=torch.uint8, device=device)
        made.share_memory_()
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise out_of_memory_error(what, size) from error
    return made  # type: ignore[no-any-return]  # torch gives its methods no types


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether an error is torch's way to say that there is no memory left."""
    reasons = [os.strerror(number) for number in (errno.ENOSPC, errno.ENOMEM)]
    return isinstance(error, RuntimeError) and any(reason in str(error) for reason in reasons)


def out_of_memory_error(what: str, size: int | None = None) -> MemoryError:
    """Return the error for memory that is not there.

    Args:
        size: how many bytes were asked for, None where that is not known.
    """
    free = _free()
    asked = (
        "there is no shared memory left" if size is None else f"{size} bytes of shared memory were asked for"
    )
    where = "" if free is None else f", {free} bytes are free in {_FOLDER}"
    return MemoryError(f"{what}: {asked}{where}; send less at a time, or enlarge it (docker run --shm-size)")


def _free() -> int | None:
    """Return how many bytes of shared memory are left, None where that cannot be told."""
    try:
        found = os.statvfs(_FOLDER)
    except (OSError, AttributeError):
        return None
    return found.f_bavail * found.f_frsize


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
