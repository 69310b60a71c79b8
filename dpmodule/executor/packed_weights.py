"""What programs work out from parameters once and keep: weights folded and laid out for the kernel that reads them.

A pack is made when the same parameters are used unchanged for the second time, so that a loop that updates them after
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

Tensors = Sequence[torch.Tensor]
_Key = tuple[Hashable, ...]

_MAX_PACKS = 4
_MAX_USES = 64


class TensorVersions:
    """Tensors, all of them watched, as they are when they are seen; none of them lives longer for it.

    Args:
        forget: called when one of them goes.
    """

    __slots__ = ("_epoch", "_sources", "_versions")

    def __init__(self, tensors: Tensors, forget: Callable[[Any], None] | None = None) -> None:
        self._sources = [weakref.ref(tensor, forget) for tensor in tensors]
        self._versions = [tensor._version for tensor in tensors]
        self._epoch = exposure.epoch()

    def are(self, tensors: Tensors) -> bool:
        """Say whether these are the very tensors, and unchanged."""
        for source, version, tensor in zip(self._sources, self._versions, tensors):
            if source() is not tensor or tensor._version != version:
                return False
        now = exposure.epoch()
        if self._epoch != now:
            if not all(map(exposure.is_watched, tensors)):
                return False
            self._epoch = now
        return True

    def are_unchanged(self) -> bool:
        """Say whether all are there, and unchanged."""
        tensors = [source() for source in self._sources]
        return all(t is not None and t._version == v for t, v in zip(tensors, self._versions))


class _PackedEntry:
    """Parameters as they were seen last, and what was made of them for uses that were seen twice."""

    __slots__ = ("packs", "seen", "uses")

    def __init__(self, key: _Key, tensors: Tensors, detail: Hashable) -> None:
        def forget(_: Any) -> None:
            entries.pop(key, None)

        self.seen = TensorVersions(tensors, forget)
        self.uses = {detail}
        self.packs: dict[Hashable, Any] = {}

    def pack(self, detail: Hashable, make: Callable[[], Any]) -> Any:
        """Return the pack for a use of the parameters, None for a new one and where there are many already."""
        if detail in self.packs:
            return self.packs[detail]
        if len(self.packs) >= _MAX_PACKS:
            return None
        if detail in self.uses:
            return self.packs.setdefault(detail, make())
        if len(self.uses) < _MAX_USES:
            self.uses.add(detail)
        return None


entries: dict[_Key, _PackedEntry] = {}
"""What is known of parameters, by what is made of them; empty in most programs."""


def packed(kind: Hashable, tensors: Tensors, make: Callable[[], Any], detail: Hashable = None) -> Any:
    """Return what is kept for some parameters; None if they are new, have changed, or cannot be watched.

    Args:
        kind: what is made of them; one thing for each kind and parameters.
        detail: for what use, if that matters; there are not more than four packs for one kind and parameters.
    """
    key = (kind, *map(id, tensors))
    entry = entries.get(key)
    if entry is not None and entry.seen.are(tensors):
        return entry.pack(detail, make)
    entries.pop(key, None)
    if all(map(exposure.is_watched, tensors)):
        entries[key] = _PackedEntry(key, tensors, detail)
    return None


def kept(kind: Hashable, tensors: Tensors, detail: Hashable = None) -> Any:
    """Return what `packed` keeps for some parameters and a use, if there is something; this does not count as a use."""
    entry = entries.get((kind, *map(id, tensors)))
    return entry.packs.get(detail) if entry is not None and entry.seen.are(tensors) else None


def drop_changed() -> None:
    """Free what was made of parameters that have changed since."""
    if entries:
        for key, entry in list(entries.items()):
            if not entry.seen.are_unchanged():
                entries.pop(key, None)


def packed_bytes() -> int:
    """Return how much memory is kept, in bytes, as far as torch can tell: padding of the kernels' is left out."""
    found = 0
    for entry in list(entries.values()):
        for pack in list(entry.packs.values()):
            found += sum(t.numel() * t.itemsize for t in pack if isinstance(t, torch.Tensor))
    return found
