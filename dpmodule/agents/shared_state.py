"""State shared by copies in several processes: counters, tables of numbers, and exact sums.

A sum of floats depends on the order of its terms. To make the sums of several workers equal those of one process to the
last digit, each is kept as an expansion: floats that do not overlap and whose sum is exact (Shewchuk, "Adaptive
Precision Floating-Point Arithmetic", 1997), and the expansions of all columns are rounded together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Any

import torch

from .._devices.shared_memory import shared_bytes
from ..base import ArgumentError, DTypeError
from ..streams.synchronization import ProcessLock, SharedCounter


class LocalCounter:
    """A counter from 0 for copies in one process and thread."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def take(self) -> int:
        """Return the next number, and increment the counter."""
        number = self._next
        self._next = number + 1
        return number

    def peek(self) -> int:
        """Return the next number."""
        return self._next

    def reset(self, number: int = 0) -> None:
        """Set the next number."""
        self._next = number

    @property
    def value(self) -> int:
        """The number taken last, -1 before the first; teachers of ParlAI read and set it."""
        return self._next - 1

    @value.setter
    def value(self, number: int) -> None:
        self._next = number + 1

    def get_lock(self) -> AbstractContextManager[None]:
        """Return a context manager to hold while `value` is changed; it does nothing here."""
        return nullcontext()

    def __deepcopy__(self, memo: Any) -> LocalCounter:
        return self


def counter_for(workers: int) -> LocalCounter | SharedCounter:
    """Return a counter for a number of workers."""
    return SharedCounter() if workers > 1 else LocalCounter()


_BYTES = 8
_TEXT_BYTES = 1024
"""Bytes of a text in a `SharedTable`: its length, and the text in UTF-8."""
_FORMATS = {int: "q", bool: "q", float: "d"}


class SharedTable(MutableMapping[Any, Any]):
    """A table of numbers, texts and tensors in shared memory, for all processes that have it, for example from `share`.

    Reading and writing a value takes no lock. To compute a new value from the old one, as in ``table["count"] += 1``,
    hold `get_lock` if another worker may do the same.

    The value of a key keeps its type; a tensor moves to shared memory, keeps its shape and element type, and is written
    in place. A text has at most 1016 bytes of UTF-8. Keys that are added or deleted later change in this process and in
    later copies of the table.

    Args:
        init_dict: initial values by key: ints of 64 bits, floats, bools, strings or torch tensors.

    Raises:
        DTypeError: a value is of another type.
        ArgumentError: a number has more than 64 bits, or a text more than 1016 bytes.
        MemoryError: there is no shared memory left.

    Example:
        >>> table = SharedTable({"count": 0, "loss": 0.5})
        >>> with table.get_lock():
        ...     table["count"] += 1
        >>> table
        SharedTable({'count': 1, 'loss': 0.5})
    """

    def __init__(self, init_dict: Mapping[Any, Any] | None = None) -> None:
        self._numbers: dict[Any, tuple[int, int, type]] = {}
        self._tensors: dict[Any, torch.Tensor] = {}
        self._texts: dict[Any, torch.Tensor] = {}
        self._memories: list[torch.Tensor] = []
        self._views: list[dict[type, Any]] = []
        self._lock = ProcessLock()
        values = dict(init_dict or {})
        self._add({key: value for key, value in values.items() if not isinstance(value, (torch.Tensor, str))})
        self.update(values)

    def _add(self, numbers: Mapping[Any, Any]) -> None:
        """Allocate shared memory for numbers with new keys."""
        for key, value in numbers.items():
            if type(value) not in _FORMATS:
                raise DTypeError(
                    f"SharedTable: {key!r} is {value!r} of type {type(value).__name__}, expected an int, a float, a "
                    "bool, a str or a torch tensor"
                )
        if numbers:
            block = len(self._memories)
            self._map(shared_bytes("a SharedTable", _BYTES * len(numbers)))
            self._numbers.update(
                {key: (block, index, type(value)) for index, (key, value) in enumerate(numbers.items())}
            )

    def _map(self, memory: torch.Tensor) -> None:
        numbers: Any = memory.numpy()
        plain = memoryview(numbers).cast("B")
        self._memories.append(memory)
        self._views.append({kind: plain.cast(code) for kind, code in _FORMATS.items()})  # type: ignore[call-overload]

    def __getitem__(self, key: Any) -> Any:
        number = self._numbers.get(key)
        if number is None:
            return _read_text(self._texts[key]) if key in self._texts else self._tensor(key)
        block, index, kind = number
        return kind(self._views[block][kind][index])

    def _tensor(self, key: Any) -> torch.Tensor:
        if key not in self._tensors:
            known = ", ".join(map(repr, self)) or "none"
            raise KeyError(f"SharedTable has no key {key!r}; its keys in this process: {known}")
        return self._tensors[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        if key in self._tensors or isinstance(value, torch.Tensor) and key not in self._numbers:
            self._set_tensor(key, value)
            return
        if key in self._texts or isinstance(value, str) and key not in self._numbers:
            self._set_text(key, value)
            return
        is_new = key not in self._numbers
        if is_new:
            self._add({key: value})
        block, index, kind = self._numbers[key]
        if type(value) is not kind:
            raise DTypeError(
                f"SharedTable: {key!r} is of type {kind.__name__}, which cannot change, got {value!r} of type "
                f"{type(value).__name__}; delete the key first to change the type"
            )
        try:
            self._views[block][kind][index] = value
        except ValueError as error:
            if is_new:
                del self._numbers[key]
            raise ArgumentError(f"SharedTable: {key!r} is {value!r}, expected at most 64 bits") from error

    def _set_text(self, key: Any, value: Any) -> None:
        if not isinstance(value, str):
            raise DTypeError(
                f"SharedTable: {key!r} is a str, which cannot change, got {value!r} of type {type(value).__name__}; "
                "delete the key first to change the type"
            )
        data = value.encode("utf-8", "surrogatepass")
        if len(data) > _TEXT_BYTES - _BYTES:
            raise ArgumentError(
                f"SharedTable: {key!r} is a text of {len(data)} bytes, expected at most {_TEXT_BYTES - _BYTES}"
            )
        if key not in self._texts:
            self._texts[key] = shared_bytes("a SharedTable", _TEXT_BYTES)
        memory: Any = self._texts[key].numpy()
        # the length comes last, so that a reader finds at worst a part of a text
        memory[_BYTES : _BYTES + len(data)] = bytearray(data)
        memory[:_BYTES].view("int64")[0] = len(data)

    def _set_tensor(self, key: Any, value: Any) -> None:
        own = self._tensors.get(key)
        if own is None:
            value.share_memory_()
            self._tensors[key] = value
        elif own is not value:
            if not isinstance(value, torch.Tensor) or _describe(value) != _describe(own):
                raise DTypeError(
                    f"SharedTable: {key!r} is {_describe(own)}, which cannot change, got {_describe(value)}; delete "
                    "the key first"
                )
            with torch.no_grad():
                own.copy_(value)

    def __delitem__(self, key: Any) -> None:
        if self._numbers.pop(key, None) is None and self._texts.pop(key, None) is None:
            self._tensor(key)
            del self._tensors[key]

    def __iter__(self) -> Iterator[Any]:
        return chain(self._numbers, self._texts, self._tensors)

    def __contains__(self, key: object) -> bool:
        return key in self._numbers or key in self._texts or key in self._tensors

    def __len__(self) -> int:
        return len(self._numbers) + len(self._texts) + len(self._tensors)

    def __repr__(self) -> str:
        return f"SharedTable({dict(self)!r})"

    def get_lock(self) -> ProcessLock:
        """Return a reentrant lock for a ``with`` statement.

        The system releases it if its process dies.
        """
        return self._lock

    def __deepcopy__(self, memo: Any) -> SharedTable:
        return self  # all copies are the same table

    def __getstate__(self) -> tuple[Any, ...]:
        return self._numbers, self._tensors, self._texts, self._memories, self._lock

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._numbers, self._tensors, self._texts, memories, self._lock = state
        self._memories, self._views = [], []
        for memory in memories:
            self._map(memory)


def _read_text(memory: torch.Tensor) -> str:
    numbers: Any = memory.numpy()
    length = int(numbers[:_BYTES].view("int64")[0])
    return bytes(numbers[_BYTES : _BYTES + length]).decode("utf-8", "surrogatepass")


def _describe(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return f"{value!r} of type {type(value).__name__}"
    return f"a tensor of shape {tuple(value.shape)} and {value.dtype}"


_SLOTS = 128
"""Largest number of names in a column."""

_NAME_BYTES = 120
_FLOATS = 40
"""Floats of an expansion: enough for the 2098 bits between the smallest and the largest number."""

_COUNT, _INTEGERS, _NONFINITE, _USED, _FIRST = range(5)
"""Indices in a slot: number of terms, sum of integers, sum of infinities and NaN, number of floats in use."""

_SLOT = _FIRST + _FLOATS
_NAME = 1 + _NAME_BYTES // 8
"""Floats of a name: its length and its bytes."""

_COLUMN = 1 + _SLOTS * (_NAME + _SLOT)
_EXACT = 2.0**52
_LARGE = 2.0**1000


class SumColumns:
    """Exact sums by name with a column for each worker, in shared memory without locks."""

    def __init__(self, columns: int = 1) -> None:
        self.columns = columns
        size = columns * _COLUMN * 8
        self._memory: Any = shared_bytes("metrics", size) if columns > 1 else bytearray(size)
        self._map()

    def _map(self) -> None:
        is_plain = isinstance(self._memory, bytearray)
        view = memoryview(self._memory if is_plain else self._memory.numpy())
        self._numbers: Any = view.cast("B").cast("d")

    def column(self, index: int) -> SumColumn:
        """Return a column; only one process or thread may add to it."""
        return SumColumn(self._numbers[index * _COLUMN : (index + 1) * _COLUMN])

    def totals(self) -> dict[str, tuple[float, int]]:
        """Return the sum and the number of terms by name over all columns, in order of appearance."""
        parts: dict[str, list[float]] = {}
        counts: dict[str, int] = {}
        for index in range(self.columns):
            for name, count, numbers in self.column(index).read():
                parts.setdefault(name, []).extend(numbers)
                counts[name] = counts.get(name, 0) + count
        return {name: (_sum(numbers), counts[name]) for name, numbers in parts.items()}

    def clear(self) -> None:
        """Reset all sums; no worker may add at the same time."""
        for index in range(self.columns):
            self.column(index).clear()

    def with_columns(self, columns: int) -> SumColumns:
        """Return sums with more columns; the first ones are copies."""
        wider = SumColumns(columns)
        wider._numbers[: len(self._numbers)] = self._numbers
        return wider

    def __getstate__(self) -> tuple[int, Any]:
        return self.columns, self._memory

    def __setstate__(self, state: tuple[int, Any]) -> None:
        self.columns, self._memory = state
        self._map()


class SumColumn:
    """Sums of one worker.

    Args:
        numbers: memory of the column, float64.
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
            and -_EXACT < numbers[at + _INTEGERS] + value < _EXACT
        ):
            numbers[at + _INTEGERS] += value
        elif -_LARGE < value < _LARGE:
            self._add_exact(at, float(value))
        else:
            numbers[at + _NONFINITE] += value

    def count(self, name: str, terms: int, total: int) -> None:
        """Add small integers to a sum, given their number and their total."""
        if not terms:
            return
        if total:
            self.add(name, total)
            terms -= 1
        at = self._slots.get(name)
        at = self._slot(name) if at is None else at
        self._numbers[at] += terms

    def _add_exact(self, at: int, value: float) -> None:
        """Add to an expansion, which keeps the sum and the rounding error of each addition."""
        numbers, first = self._numbers, at + _FIRST
        kept = first
        for index in range(first, first + int(numbers[at + _USED])):
            part = numbers[index]
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
        """Return the index of the sum of a name, which is added if it is new."""
        numbers, used = self._numbers, int(self._numbers[0])
        for index in range(used):
            if self._name(index) == name:
                break
        else:
            data = name.encode()
            if len(data) > _NAME_BYTES:
                raise ArgumentError(
                    f"the name of metric {name!r} has {len(data)} bytes, expected at most {_NAME_BYTES}"
                )
            if used == _SLOTS:
                raise ArgumentError(f"metric {name!r} is one too many; at most {_SLOTS} names are supported")
            index = used
            start = 1 + index * _NAME
            numbers[start] = len(data)
            bytes_of = numbers[start + 1 : start + _NAME].cast("B")
            bytes_of[: len(data)] = data
            numbers[0] = used + 1
        self._slots[name] = 1 + _SLOTS * _NAME + index * _SLOT
        return self._slots[name]

    def _name(self, index: int) -> str:
        start = 1 + index * _NAME
        size = int(self._numbers[start])
        return bytes(self._numbers[start + 1 : start + _NAME].cast("B")[:size]).decode()

    def read(self) -> list[tuple[str, int, Sequence[float]]]:
        """Return every name with its number of terms, and the numbers that make up its sum."""
        sums: list[tuple[str, int, Sequence[float]]] = []
        for index in range(int(self._numbers[0])):
            at = 1 + _SLOTS * _NAME + index * _SLOT
            slot = self._numbers[at : at + _SLOT].tolist()
            used = int(slot[_USED])
            sums.append(
                (
                    self._name(index),
                    int(slot[_COUNT]),
                    [slot[_INTEGERS], slot[_NONFINITE], *slot[_FIRST : _FIRST + used]],
                )
            )
        return sums

    def clear(self) -> None:
        """Reset all sums, but keep their names."""
        for index in range(int(self._numbers[0])):
            at = 1 + _SLOTS * _NAME + index * _SLOT
            for item in range(at, at + _FIRST):
                self._numbers[item] = 0.0


def _sum(numbers: Sequence[float]) -> float:
    try:
        return math.fsum(numbers)
    except (OverflowError, ValueError):  # too large, or infinities of both signs
        return sum(numbers)
