"""Blocks of a network that come several times in a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

_LONGEST = 200
"""Operators of a block: longer ones are not looked for."""
_LEAST = 4
"""How many operators a fold has to save."""


class Repeat(NamedTuple):
    """A block that is repeated: where it begins, how many operators it has, and how often it comes."""

    start: int
    size: int
    times: int

    @property
    def end(self) -> int:
        """The first position behind the last repetition."""
        return self.start + self.size * self.times


def find_repeats(
    kinds: Sequence[int], inputs: Sequence[Sequence[int]], first: int, last: int
) -> dict[int, Repeat]:
    """Return the blocks of a part of a graph that repeat, by their first position; they do not overlap.

    Two operators count as equal when they are of one kind, and each input of the second is either as far behind it as
    that of the first, or the very same node before all repetitions. What is read behind the repetitions is of the last
    one, or the same of all.

    Args:
        kinds: what each node is, in topological order.

    Example:
        >>> find_repeats([0, 1, 2, 1, 2, 1, 2], [[], [0], [1], [2], [3], [4], [5]], 0, 7)
        {1: Repeat(start=1, size=2, times=3)}
    """
    ends: dict[int, int] = {}
    for position in range(first, len(inputs)):
        for node in inputs[position]:
            ends[node] = position
    found = []
    for size in range(1, min((last - first) // 2, _LONGEST) + 1):
        for each, end in _of_size(kinds, inputs, size, first, last):
            found += _trimmed(_best(inputs, ends, each, end), ends)
    found.sort(key=lambda each: (-each.size * (each.times - 1), each.size, each.start))
    taken = [False] * (last - first)
    chosen = {}
    for each in found:
        place = slice(each.start - first, each.end - first)
        if not any(taken[place]):
            taken[place] = [True] * (each.end - each.start)
            chosen[each.start] = each
    return chosen


def _of_size(
    kinds: Sequence[int], inputs: Sequence[Sequence[int]], size: int, first: int, last: int
) -> list[tuple[Repeat, int]]:
    """Return the repetitions of blocks of one size that are worth a fold, and how far nodes go on to be equal."""
    found = []
    start = first
    for position in range(first, last - size + 1):
        common = _common(kinds, inputs, position, size) if position + size < last else None
        if common is not None and common < start:
            continue
        count = (position - start) // size + 1
        if size * (count - 1) >= _LEAST:
            found.append((Repeat(start, size, count), position + size))
        start = position + 1 if common is None else common + 1
    return found


def _common(kinds: Sequence[int], inputs: Sequence[Sequence[int]], position: int, size: int) -> int | None:
    """Return None if a node differs from the one a block later, else the last node that both read, or -1."""
    here, there = inputs[position], inputs[position + size]
    if kinds[position] != kinds[position + size] or len(here) != len(there):
        return None
    common = -1
    for a, b in zip(here, there):
        if b - a != size:
            if a != b:
                return None
            common = max(common, a)
    return common


def _trimmed(repeat: Repeat, ends: Mapping[int, int]) -> list[Repeat]:
    """Return a repetition without first blocks of which something is read behind it that is not read of all."""
    while repeat.size * (repeat.times - 1) >= _LEAST:
        start, size, _ = repeat
        outside = [
            {i - block for i in range(block, block + size) if ends.get(i, -1) >= repeat.end}
            for block in range(start, repeat.end, size)
        ]
        if set().union(*outside[:-1]) <= set.intersection(*outside):
            return [repeat]
        repeat = Repeat(start + size, size, repeat.times - 1)
    return []


def _best(inputs: Sequence[Sequence[int]], ends: Mapping[int, int], repeat: Repeat, end: int) -> Repeat:
    """Return the repetition moved to where the fewest values leave a block."""

    def leaving(start: int) -> int:
        border, last = start + repeat.size, start + repeat.size * repeat.times
        block = range(border, border + repeat.size)
        crossing = {a for i in block for a in inputs[i] if start <= a < border}
        return len(crossing) + sum(ends.get(i, -1) >= last for i in range(last - repeat.size, last))

    starts = range(repeat.start, end - repeat.size * repeat.times + 1)
    return repeat._replace(start=min(starts, key=leaving))
