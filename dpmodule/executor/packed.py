"""What programs work out from parameters once and keep: weights folded and laid out for the kernel that reads them.

A pack is made when the same parameters are seen unchanged for the second time, so that a loop that updates them after
every prediction does not make one in vain, and is valid as long as torch counts no write to any of them. Parameters
whose writes cannot all be counted (see `ops.exposure`) get none. Packs belong to the parameters, not to an executor:
all that share parameters share their packs. They go when a parameter does, or when parameters have changed and are
trained or predicted with the next time.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

from ..ops import exposure

__all__ = ["drop_changed", "packed", "packed_bytes"]

Tensors = Sequence[torch.Tensor]
_Key = tuple[Hashable, ...]


class _Entry:
    """Parameters as they were seen last, and what was made of them if they were seen twice."""

    __slots__ = ("epoch", "pack", "sources", "versions")

    def __init__(self, key: _Key, tensors: Tensors) -> None:
        def forget(_: Any) -> None:
            _entries.pop(key, None)

        self.sources = [weakref.ref(tensor, forget) for tensor in tensors]
        self.versions = [tensor._version for tensor in tensors]
        self.epoch = exposure.epoch()
        self.pack: Any = None

    def fits(self, tensors: Tensors) -> bool:
        """Say whether it was made of these very tensors as they now are."""
        for source, version, tensor in zip(self.sources, self.versions, tensors):
            if source() is not tensor or tensor._version != version:
                return False
        now = exposure.epoch()
        if self.epoch != now:
            if not all(map(exposure.is_watched, tensors)):
                return False
            self.epoch = now
        return True

    def is_current(self) -> bool:
        """Say whether no parameter has changed."""
        tensors = [source() for source in self.sources]
        return all(t is not None and t._version == v for t, v in zip(tensors, self.versions))


_entries: dict[_Key, _Entry] = {}


def packed(kind: Hashable, tensors: Tensors, make: Callable[[], Any]) -> Any:
    """Return what is kept for some parameters; None if they are new, have changed, or cannot be watched.

    Args:
        kind: what is made of them; one thing for each kind and parameters.
        tensors: the parameters.
        make: makes it.
    """
    key = (kind, *map(id, tensors))
    entry = _entries.get(key)
    if entry is not None and entry.fits(tensors):
        if entry.pack is None:
            entry.pack = make()
        return entry.pack
    _entries.pop(key, None)
    if all(map(exposure.is_watched, tensors)):
        _entries[key] = _Entry(key, tensors)
    return None


def drop_changed() -> None:
    """Free what was made of parameters that have changed since."""
    if _entries:
        for key, entry in list(_entries.items()):
            if not entry.is_current():
                _entries.pop(key, None)


def packed_bytes() -> int:
    """Return how much memory is kept, in bytes, as far as torch can tell: padding of the kernels' is left out."""
    found = 0
    for entry in list(_entries.values()):
        found += sum(t.numel() * t.itemsize for t in entry.pack or () if isinstance(t, torch.Tensor))
    return found
