"""Tensors in shared memory: one `Segment` for many, and a MemoryError that reports the requested size.

Sharing each tensor of a network separately would cost hundreds of open files in every process.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

_FOLDER = "/dev/shm"
"""Folder of the shared memory that torch uses on Linux."""


def shared_bytes(what: str, size: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """Return zeros in shared memory.

    Shape:
        returns: (size,), uint8.

    Args:
        size: number of bytes.
        device: CPU or GPU; GPU memory is shared directly.
    """
    free = _free() if torch.device(device).type == "cpu" else None
    if free is not None and size > free:
        raise out_of_memory_error(what, size)
    try:
        zeros: Any = torch.zeros(size, dtype=torch.uint8, device=device)
        zeros.share_memory_()
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise out_of_memory_error(what, size) from error
    return zeros  # type: ignore[no-any-return]  # torch gives its methods no types


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if an error of torch means that memory is exhausted."""
    reasons = [os.strerror(number) for number in (errno.ENOSPC, errno.ENOMEM)]
    return isinstance(error, RuntimeError) and any(reason in str(error) for reason in reasons)


def out_of_memory_error(what: str, size: int | None = None) -> MemoryError:
    """Return the error for exhausted shared memory.

    Args:
        size: number of bytes that were requested, None if unknown.
    """
    free = _free()
    asked = (
        "there is no shared memory left" if size is None else f"{size} bytes of shared memory were asked for"
    )
    where = "" if free is None else f", {free} bytes are free in {_FOLDER}"
    return MemoryError(f"{what}: {asked}{where}; send less at a time, or enlarge it (docker run --shm-size)")


def _free() -> int | None:
    """Return the free bytes of shared memory, None if unknown."""
    try:
        status = os.statvfs(_FOLDER)
    except (OSError, AttributeError):
        return None
    return status.f_bavail * status.f_frsize


_ALIGNMENT = 64
"""Alignment of each tensor in bytes: a cache line, and the widest vector registers."""


class _TensorSlice(NamedTuple):
    """Offset, type and shape of a tensor in a segment."""

    start: int
    dtype: torch.dtype
    shape: tuple[int, ...]


class Segment:
    """Copies of tensors in one block of shared memory.

    Sent to another process through `torch.multiprocessing`, it is the same memory there. The memory is freed when the
    last process has released it, however that process ended. GPU memory follows CUDA's rules: the creating process
    must stay alive.
    """

    __slots__ = ("memory", "slices")

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        slices, end = [], 0
        for tensor in tensors:
            slices.append(_TensorSlice(end, tensor.dtype, tuple(tensor.shape)))
            end += -(-tensor.numel() * tensor.itemsize // _ALIGNMENT) * _ALIGNMENT
        self.slices = tuple(slices)
        self.memory = shared_bytes("parameters", end, tensors[0].device)
        with torch.no_grad():
            for own, tensor in zip(self.tensors(), tensors, strict=True):
                own.copy_(tensor)

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors of the segment in their original order."""
        tensors = []
        for start, dtype, shape in self.slices:
            size = torch.Size(shape).numel() * dtype.itemsize
            tensors.append(self.memory[start : start + size].view(dtype).view(shape))
        return tensors

    @property
    def is_shared(self) -> bool:
        """True if the memory is shared; False in a copy made by plain pickling."""
        return bool(self.memory.is_cuda or self.memory.untyped_storage().is_shared())

    def __getstate__(self) -> tuple[torch.Tensor, tuple[_TensorSlice, ...]]:
        return self.memory, self.slices

    def __setstate__(self, state: tuple[torch.Tensor, tuple[_TensorSlice, ...]]) -> None:
        self.memory, self.slices = state
