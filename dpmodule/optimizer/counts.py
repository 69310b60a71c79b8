"""Counts of updates in shared memory, so that the workers of one parameter store count together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

from .. import native
from ..base import StateError

if TYPE_CHECKING:
    from ..ndarray import NDArray

Key: TypeAlias = Any
"""What tells parameters apart: a position (Module), or a name (kvstore)."""

KeyOrList: TypeAlias = "Key | Sequence[Key]"
"""A parameter's key, or those of several."""

ArrayOrList: TypeAlias = "NDArray | Sequence[NDArray]"
"""An array of one parameter, or those of several."""


class CommonCounts(MutableMapping[Any, int]):
    """How many updates each parameter has received from all processes; `Optimizer` counts in it instead of a dict.

    Shape:
        memory: (P,), int64, one count for each parameter on each context.

    Args:
        positions: for the key of each parameter, where its count is.
    """

    __slots__ = ("_address", "_counts", "_memory", "_positions")

    def __init__(self, memory: torch.Tensor, positions: Mapping[Any, int]) -> None:
        self._memory = memory  # keeps the memory mapped that the address below is of
        self._counts: np.ndarray[Any, np.dtype[np.int64]] = memory.numpy()
        self._address = memory.data_ptr()
        self._positions = dict(positions)

    def __getitem__(self, key: Key) -> int:
        return int(self._counts[self._positions[key]])

    def __setitem__(self, key: Key, count: int) -> None:
        self._counts[self._position(key)] = count

    def __delitem__(self, key: Key) -> None:
        raise StateError(f"the count of parameter {key!r} is other processes' too and cannot be removed")

    def __iter__(self) -> Iterator[Any]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    def _position(self, key: Key) -> int:
        found: int | None = self._positions.get(key)
        if found is None:
            raise StateError(f"parameter {key!r} has no count in the shared store; {_has(self._positions)}")
        return found

    def advance(self, keys: Sequence[Any]) -> list[int]:
        """Count an update of each parameter and return the new counts.

        With the extension no update is lost, however many processes count at the same instant. Without it, one of two
        that count within the same microsecond may be.
        """
        positions = [self._position(key) for key in keys]
        if native.core is not None:
            counted: list[int] = native.core.count_updates(self._address, len(self._counts), positions)
            return counted
        self._counts[positions] += 1
        return [int(count) for count in self._counts[positions]]

    def largest(self) -> int:
        """Return the largest count of all parameters."""
        found: int = self._counts.max(initial=0).item()
        return found


def _has(positions: Mapping[Any, int]) -> str:
    return f"it has {', '.join(map(repr, positions)) or 'none'}"
