"""Cache of packed parameters: weights folded and laid out for the kernel that reads them.

A pack is made when the same parameters are used unchanged for the second time, so that a loop which updates them after
every prediction makes none. It is valid as long as torch counts no write to any of them. Parameters whose writes cannot
all be counted (see `write_tracking`) are not packed. Packs belong to the parameters: executors that share parameters
share their packs. A pack is freed with its parameters, or when changed parameters are used again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from operator import attrgetter
from typing import Any

import torch

from ..ops import write_tracking

Tensors = Sequence[torch.Tensor]
_Key = tuple[Hashable, ...]

_MAX_PACKS = 4
_MAX_USES = 64
_version = attrgetter("_version")


class TensorVersions:
    """Weak references to watched tensors, with their versions.

    Args:
        forget: called when one of them is freed.
    """

    __slots__ = ("_epoch", "_freed", "_ids", "_sources", "_versions")

    def __init__(self, tensors: Tensors, forget: Callable[[Any], None] | None = None) -> None:
        self._freed: list[Any] = []
        self._sources = [weakref.ref(tensor, forget or self._freed.append) for tensor in tensors]
        self._ids = list(map(id, tensors))
        self._versions = list(map(_version, tensors))
        self._epoch = write_tracking.epoch()

    def match(self, tensors: Tensors) -> bool:
        """Return True if these are the same tensors, unchanged."""
        # a loop over the references takes three times as long
        if (
            self._freed
            or list(map(id, tensors)) != self._ids
            or list(map(_version, tensors)) != self._versions
        ):
            return False
        now = write_tracking.epoch()
        if self._epoch != now:
            if not all(map(write_tracking.writes_are_counted, tensors)):
                return False
            self._epoch = now
        return True

    def are_unchanged(self) -> bool:
        """Return True if all tensors still exist, unchanged."""
        tensors = [source() for source in self._sources]
        return all(t is not None and t._version == v for t, v in zip(tensors, self._versions))


class _PackedEntry:
    """Parameters in their last known state, and the packs made for repeated uses."""

    __slots__ = ("packs", "seen", "uses")

    def __init__(self, key: _Key, tensors: Tensors, detail: Hashable) -> None:
        packs = entries  # the interpreter clears the module's name at exit, before the last tensors are freed

        def forget(_: Any) -> None:
            packs.pop(key, None)

        self.seen = TensorVersions(tensors, forget)
        self.uses = {detail}
        self.packs: dict[Hashable, Any] = {}

    def pack(self, detail: Hashable, make: Callable[[], Any]) -> Any:
        """Return the pack for a use of the parameters; None for a new use, or if there are too many packs."""
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
"""Packed parameters by kind and tensor ids; empty in most programs."""


def packed(kind: Hashable, tensors: Tensors, make: Callable[[], Any], detail: Hashable = None) -> Any:
    """Return the pack of some parameters; None if they are new, changed, or cannot be watched.

    Args:
        kind: the kind of pack.
        detail: the use, if packs differ by use; at most four packs are kept for one kind and parameters.
    """
    key = (kind, *map(id, tensors))
    entry = entries.get(key)
    if entry is not None and entry.seen.match(tensors):
        return entry.pack(detail, make)
    entries.pop(key, None)
    if all(map(write_tracking.writes_are_counted, tensors)):
        entries[key] = _PackedEntry(key, tensors, detail)
    return None


def drop_changed() -> None:
    """Free the packs of parameters that have changed."""
    if entries:
        for key, entry in list(entries.items()):
            if not entry.seen.are_unchanged():
                entries.pop(key, None)


def packed_bytes() -> int:
    """Return the memory of all packs in bytes, without the kernels' padding."""
    total = 0
    for entry in list(entries.values()):
        for pack in list(entry.packs.values()):
            total += sum(t.numel() * t.itemsize for t in pack if isinstance(t, torch.Tensor))
    return total
