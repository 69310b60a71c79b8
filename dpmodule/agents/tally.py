"""`SumColumns`: exact sums by name, a column for each worker, in memory that all workers map; no locks.

A sum of floats depends on the order of its terms. So that the sums of several workers equal those of one process to
the last digit, each is kept as an expansion: floats that do not overlap and whose sum is exact (Shewchuk, "Adaptive
Precision Floating-Point Arithmetic", 1997), and the expansions of all columns are rounded together, once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..base import ArgumentError
from ..devices.shared_memory import shared_bytes

_SLOTS = 128
"""How many names a column has room for."""

_NAME_BYTES = 120
_PARTS = 40
"""Floats of an expansion: those of 2098 bits, from the smallest number to the largest, overlap in no more."""

_COUNT, _WHOLE, _ODD, _USED, _FIRST = range(5)
"""Places in a slot: number of terms, sum of whole ones, sum of infinite ones and NaN, number of floats in use."""

_SLOT = _FIRST + _PARTS
_NAME = 1 + _NAME_BYTES // 8
"""Floats that a name takes: its length, and its bytes."""

_COLUMN = 1 + _SLOTS * (_NAME + _SLOT)
_EXACT = 2.0**52
_HUGE = 2.0**1000


class SumColumns:
    """Columns of sums in one block of memory."""

    def __init__(self, columns: int = 1) -> None:
        self.columns = columns
        size = columns * _COLUMN * 8
        self._memory: Any = shared_bytes("metrics", size) if columns > 1 else bytearray(size)
        self._open()

    def _open(self) -> None:
        is_plain = isinstance(self._memory, bytearray)
        view = memoryview(self._memory if is_plain else self._memory.numpy())
        self._numbers: Any = view.cast("B").cast("d")

    def column(self, index: int) -> Column:
        """Return a column to add to; one process or thread adds to it."""
        return Column(self._numbers[index * _COLUMN : (index + 1) * _COLUMN])

    def totals(self) -> dict[str, tuple[float, int]]:
        """Return the sum and the number of terms by name, over all columns, in the order in which names appeared."""
        parts: dict[str, list[float]] = {}
        counts: dict[str, int] = {}
        for index in range(self.columns):
            for name, count, numbers in self.column(index).read():
                parts.setdefault(name, []).extend(numbers)
                counts[name] = counts.get(name, 0) + count
        return {name: (_sum(numbers), counts[name]) for name, numbers in parts.items()}

    def clear(self) -> None:
        """Forget all sums, while nobody adds."""
        for index in range(self.columns):
            self.column(index).clear()

    def widened(self, columns: int) -> SumColumns:
        """Return a tally with more columns, whose first ones are as they are here."""
        found = SumColumns(columns)
        found._numbers[: len(self._numbers)] = self._numbers
        return found

    def __getstate__(self) -> tuple[int, Any]:
        return self.columns, self._memory

    def __setstate__(self, state: tuple[int, Any]) -> None:
        self.columns, self._memory = state
        self._open()


class Column:
    """One worker's sums.

    Args:
        numbers: its part of the memory, float64.
    """

    __slots__ = ("_numbers", "_slots")

    def __init__(self, numbers: memoryview) -> None:
        self._numbers: Any = numbers
        self._slots: dict[str, int] = {}

    def add(self, name: str, value: float) -> None:
        """Add a number to a sum, exactly."""
        numbers, at = self._numbers, self._slots.get(name)
        if at is None:
            at = self._slot(name)
        numbers[at] += 1
        if value == 0:
            return
        if (
            -_EXACT < value < _EXACT
            and value == int(value)
            and -_EXACT < numbers[at + _WHOLE] + value < _EXACT
        ):
            numbers[at + _WHOLE] += value
        elif -_HUGE < value < _HUGE:
            self._grow(at, float(value))
        else:
            numbers[at + _ODD] += value

    def count(self, name: str, terms: int, total: int) -> None:
        """Add a number of small whole terms to a sum at once."""
        if not terms:
            return
        if total:
            self.add(name, total)
            terms -= 1
        at = self._slots.get(name)
        at = self._slot(name) if at is None else at
        self._numbers[at] += terms

    def _grow(self, at: int, value: float) -> None:
        """Add to an expansion: the sum and the rounding error of each addition are kept."""
        numbers, first = self._numbers, at + _FIRST
        kept = first
        for place in range(first, first + int(numbers[at + _USED])):
            part = numbers[place]
            if abs(value) < abs(part):
                value, part = part, value
            high = value + part
            low = part - (high - value)
            if low:
                numbers[kept] = low
                kept += 1
            value = high
        numbers[kept] = value
        numbers[at + _USED] = kept + 1 - first

    def _slot(self, name: str) -> int:
        """Return where a name's sum begins, after making room for it if it is new."""
        numbers, used = self._numbers, int(self._numbers[0])
        for index in range(used):
            if self._name(index) == name:
                break
        else:
            data = name.encode()
            if len(data) > _NAME_BYTES:
                raise ArgumentError(
                    f"the name of a metric has {len(data)} bytes, at most {_NAME_BYTES}: {name!r}"
                )
            if used == _SLOTS:
                raise ArgumentError(f"metric {name!r} is one too many; there is room for {_SLOTS} names")
            index = used
            start = 1 + index * _NAME
            numbers[start] = len(data)
            bytes_of = numbers[start + 1 : start + _NAME].cast("B")
            bytes_of[: len(data)] = data
            numbers[0] = used + 1
        found = self._slots[name] = 1 + _SLOTS * _NAME + index * _SLOT
        return found

    def _name(self, index: int) -> str:
        start = 1 + index * _NAME
        size = int(self._numbers[start])
        return bytes(self._numbers[start + 1 : start + _NAME].cast("B")[:size]).decode()

    def read(self) -> list[tuple[str, int, Sequence[float]]]:
        """Return every name with its number of terms, and numbers whose sum is its sum."""
        found: list[tuple[str, int, Sequence[float]]] = []
        for index in range(int(self._numbers[0])):
            at = 1 + _SLOTS * _NAME + index * _SLOT
            slot = self._numbers[at : at + _SLOT].tolist()
            used = int(slot[_USED])
            found.append(
                (
                    self._name(index),
                    int(slot[_COUNT]),
                    [slot[_WHOLE], slot[_ODD], *slot[_FIRST : _FIRST + used]],
                )
            )
        return found

    def clear(self) -> None:
        """Forget all sums; their names stay."""
        for index in range(int(self._numbers[0])):
            at = 1 + _SLOTS * _NAME + index * _SLOT
            for place in range(at, at + _FIRST):
                self._numbers[place] = 0.0


def _sum(numbers: Sequence[float]) -> float:
    try:
        return math.fsum(numbers)
    except (OverflowError, ValueError):  # too large, or infinities of both signs
        return sum(numbers)
