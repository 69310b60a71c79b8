"""Equal parts of the examples, one for each of several processes: every num_parts-th example."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from ..base import ArgumentError


def check_part(owner: str, num_parts: int, part_index: int) -> None:
    """Refuse a part that does not exist.

    Args:
        num_parts: number of parts.
        part_index: the part that is wanted, from 0.
    """
    if num_parts < 1:
        raise ArgumentError(f"{owner}: num_parts is {num_parts}, expected at least 1")
    if not 0 <= part_index < num_parts:
        raise ArgumentError(
            f"{owner}: part_index is {part_index}, expected 0 to {num_parts - 1} (num_parts - 1)"
        )


class EveryNth:
    """One part of what an iterable yields.

    Args:
        num_parts: number of parts.
        part_index: which part, from 0: the items of numbers part_index, part_index + num_parts, ...
    """

    def __init__(self, items: Iterable[Any], num_parts: int, part_index: int) -> None:
        self._items, self._parts, self._index = items, num_parts, part_index

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self._items), self._index, None, self._parts)
