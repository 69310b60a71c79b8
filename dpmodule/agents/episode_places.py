"""`EpisodePlaces`: which example each copy of a teacher is at, where its original sees it, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..base import ArgumentError
from ..devices.shared_memory import shared_bytes

__all__ = ["EpisodePlaces"]

_NUMBERS = 3
_BYTES = 8


class EpisodePlaces:
    """The place of each copy within an episode: the episode, the example in it, and whether more of it follow.

    Args:
        rows: how many copies there are: workers times rows of a batch.
        given: what `state` returned earlier, to go on from; None: no copy is within an episode.

    Raises:
        ArgumentError: that was of another number of copies.
    """

    def __init__(self, rows: int, given: Sequence[Sequence[int]] | None = None) -> None:
        self._memory = torch.zeros((rows, _NUMBERS), dtype=torch.int64)
        if given:
            if len(given) != rows:
                raise ArgumentError(f"the places are those of {len(given)} copies, and there are {rows}")
            self._memory[:] = torch.tensor(given, dtype=torch.int64)

    def expect_workers(self) -> None:
        """Move the places to where workers of other processes find them."""
        memory = shared_bytes("the places of a teacher", _BYTES * self._memory.numel())
        moved = memory.view(torch.int64).view(-1, _NUMBERS)
        moved.copy_(self._memory)
        self._memory = moved

    def row(self, number: int) -> Any:
        """Return the place of one copy, to read and write: an array of three numbers."""
        return self._memory.numpy()[number]

    def state(self) -> list[list[int]]:
        """Return all places, as plain numbers."""
        return self._memory.tolist()
