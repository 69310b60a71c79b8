"""Tracking of memory that may be written without torch's knowledge, so that nothing about it may be cached.

torch counts the writes to a tensor and its views (``tensor._version``). Results derived from a parameter,
such as a packed copy, can be cached while the count is unchanged. Writes through NumPy arrays, DLPack, ``tensor.data``
and other processes are not counted. Therefore memory that comes from a user or is passed to one is marked permanently;
the mark is on the storage, which all views of the memory share.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch

_EXPOSED, _OWN, _WATCHED = "_dpmodule_exposed", "_dpmodule_own", "_dpmodule_watched"
_numbers = itertools.count(1)
_epoch = 0

count_write = torch.autograd.graph.increment_version
"""Count a write, unknown to torch, to one tensor or several."""


def _storages_keep_attributes() -> bool:
    """Return True if torch keeps one Python object per storage; otherwise no memory counts as tracked."""
    tensor = torch.zeros(1)
    setattr(tensor.untyped_storage(), _OWN, True)
    return getattr(tensor.data.untyped_storage(), _OWN, False)


_MARKS_STAY = _storages_keep_attributes()


def epoch() -> int:
    """Return a number that changes when watched memory is exposed; results of `writes_are_counted` hold until then."""
    return _epoch


def expose(tensor: Any) -> None:
    """Mark the memory of a tensor, which may be written without being counted from now on."""
    global _epoch
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return
    storage = tensor.untyped_storage()
    if not getattr(storage, _EXPOSED, False):
        setattr(storage, _EXPOSED, True)
        if getattr(storage, _WATCHED, False):
            _epoch = next(_numbers)  # unique, also with several threads


def mark_owned(tensor: torch.Tensor) -> torch.Tensor:
    """Mark memory that the library has allocated without torch; return the tensor."""
    setattr(tensor.untyped_storage(), _OWN, True)
    return tensor


def writes_are_counted(tensor: torch.Tensor) -> bool:
    """Return True if torch counts every write to a tensor: its memory belongs to torch or to us, and is not exposed."""
    if not _MARKS_STAY or tensor.layout is not torch.strided or tensor.is_inference():
        return False
    storage = tensor.untyped_storage()
    setattr(storage, _WATCHED, True)  # before it is asked: another thread may expose it
    if getattr(storage, _EXPOSED, False) or not (storage.resizable() or getattr(storage, _OWN, False)):
        return False
    return storage.device.type != "cpu" or not storage.is_shared()
