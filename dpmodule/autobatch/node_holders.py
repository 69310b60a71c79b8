"""Who has nodes in the graph under construction, and must forget them when a part of it is taken back."""

from __future__ import annotations

from typing import Protocol

__all__ = ["entered"]


class _Holder(Protocol):
    """A parameter, or a network with its masks of dropout."""

    def leave(self, size: int) -> None:
        """Forget nodes from number `size` on: they are no longer in the graph."""


class _Entered:
    """Those that hold nodes of the graph under construction."""

    def __init__(self) -> None:
        self._held: list[_Holder] = []
        self._version = -1

    def note(self, held: _Holder, version: int) -> None:
        """Remember `held`, which has got a node in the graph of that version."""
        if version != self._version:
            self._held.clear()
            self._version = version
        self._held.append(held)

    def leave(self, size: int) -> None:
        """Let all forget their nodes from number `size` on."""
        for each in self._held:
            each.leave(size)


entered = _Entered()
