"""Memory that somebody may write without torch's knowledge, which nothing may be remembered about.

torch counts the writes to a tensor and its views (``tensor._version``). What is worked out from a parameter, such as
its numbers in another order, can be kept as long as the count stays. Not counted are writes through NumPy arrays,
DLPack, ``tensor.data`` and other processes. So memory that came from a user or has been handed to one is marked, once
and for all; the mark is on the storage, which all views of the memory have in common.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch

_EXPOSED, _OWN = "_dpmodule_exposed", "_dpmodule_own"
_numbers = itertools.count(1)
_epoch = 0

count_write = torch.autograd.graph.increment_version
"""Count a write that torch has not seen, to one tensor or several."""


def _keeps_marks() -> bool:
    """Return True if this torch has one Python object for a storage, and keeps it; else no memory is watched."""
    tensor = torch.zeros(1)
    setattr(tensor.untyped_storage(), _OWN, True)
    return getattr(tensor.data.untyped_storage(), _OWN, False)


_MARKS_STAY = _keeps_marks()


def epoch() -> int:
    """Return a number that changes whenever memory is exposed; until then `writes_are_counted` gives the same answers."""
    return _epoch


def expose(tensor: Any) -> None:
    """Mark the memory of a tensor: from now on somebody may write it without being counted."""
    global _epoch
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return
    storage = tensor.untyped_storage()
    if not getattr(storage, _EXPOSED, False):
        setattr(storage, _EXPOSED, True)
        _epoch = next(_numbers)  # never the same twice, whatever threads do


def mark_owned(tensor: torch.Tensor) -> torch.Tensor:
    """Say that a tensor's memory is the library's although torch has not allocated it; return the tensor."""
    setattr(tensor.untyped_storage(), _OWN, True)
    return tensor


def writes_are_counted(tensor: torch.Tensor) -> bool:
    """Return True if torch counts every write to a tensor: its memory is torch's or ours, and nobody else has it."""
    if not _MARKS_STAY or tensor.layout is not torch.strided or tensor.is_inference():
        return False
    storage = tensor.untyped_storage()
    if getattr(storage, _EXPOSED, False) or not (storage.resizable() or getattr(storage, _OWN, False)):
        return False
    return storage.device.type != "cpu" or not storage.is_shared()
