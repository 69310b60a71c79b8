"""Tensors in shared memory: where the system has none left, a MemoryError that says how much was asked for."""

from __future__ import annotations

import errno
import os
from typing import Any

import torch

__all__ = ["no_room", "refusal", "shared_bytes"]

_FOLDER = "/dev/shm"
"""Where Linux has the shared memory that torch uses."""


def shared_bytes(what: str, size: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """Return zeros in shared memory.

    Shape:
        returns: (size,), uint8.

    Args:
        what: what error messages call it.
        size: how many bytes.
        device: the CPU, or a GPU, whose memory is shared as it is.

    Raises:
        MemoryError: there is not as much shared memory left; the text has the bytes asked for and free.
    """
    free = _free() if torch.device(device).type == "cpu" else None
    if free is not None and size > free:
        raise refusal(what, size)
    try:
        made: Any = torch.zeros(size, dtype=torch.uint8, device=device)
        made.share_memory_()
    except RuntimeError as error:
        if not no_room(error):
            raise
        raise refusal(what, size) from error
    return made  # type: ignore[no-any-return]  # torch gives its methods no types


def no_room(error: BaseException) -> bool:
    """Say whether an error is torch's way to say that there is no memory left."""
    reasons = [os.strerror(number) for number in (errno.ENOSPC, errno.ENOMEM)]
    return isinstance(error, RuntimeError) and any(reason in str(error) for reason in reasons)


def refusal(what: str, size: int | None = None) -> MemoryError:
    """Return the error for memory that is not there.

    Args:
        what: what it was for.
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
