"""`GrowingTable`: rows of 64-bit ids, which are made when an id is first trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..base import ArgumentError
from ..context import Context, cpu
from ..ops.shapes import HASHED_ROWS
from ..ops.sparse import RowSparse
from .row_source import FetchedArray
from .row_sparse import RowSparseNDArray

_LEAST_ROWS = 1024
_GROWTH = 1.25
_RECENT = 1 << 14
"""Number of ids, or share of all, that are kept apart before they are sorted in."""

RowsOfIds = Callable[[torch.Tensor, int], torch.Tensor]
"""``(ids, seed) -> rows``: the initial rows of ids."""


def mixed(ids: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """Return 64 bits for each id that look random, int64.

    Source: SplitMix64: Steele et al., "Fast splittable pseudorandom number generators", 2014.
    """
    found = ids + _signed(0x9E3779B97F4A7C15 * (seed + 1))
    found = (found ^ _shifted(found, 30)) * _signed(0xBF58476D1CE4E5B9)
    found = (found ^ _shifted(found, 27)) * _signed(0x94D049BB133111EB)
    return found ^ _shifted(found, 31)


def _signed(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def _shifted(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    """Return numbers shifted to the right, with zeros from the left."""
    return (numbers >> bits) & ((1 << (64 - bits)) - 1)


def uniform_rows(ids: torch.Tensor, width: int, seed: int) -> torch.Tensor:
    """Return numbers from 0 to 1, without 1, that depend on the id, the column and the seed only, (R, width)."""
    keys = mixed(ids, seed)[:, None] + torch.arange(width) * _signed(0xD1342543DE82EF95)
    return _shifted(mixed(keys, seed), 40).float() / 2**24


def normal_rows(ids: torch.Tensor, width: int, seed: int) -> torch.Tensor:
    """Return normally distributed numbers; see `uniform_rows`."""
    angle, distance = uniform_rows(ids, width, seed), 1.0 - uniform_rows(ids, width, seed + 1)
    return (-2.0 * distance.log()).sqrt() * (2.0 * math.pi * angle).cos()


class _IdMap:
    """Map from distinct ids to positions."""

    def __init__(self) -> None:
        nothing = torch.empty(0, dtype=torch.int64)
        self._levels = [(nothing, nothing)] * 2  # the second is small, and changes often

    def find(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the positions of ids, -1 for others."""
        found = torch.full_like(ids, -1)
        for keys, positions in self._levels:
            if len(keys):
                at = torch.searchsorted(keys, ids).clamp_(max=len(keys) - 1)
                found = torch.where(keys[at] == ids, positions[at], found)
        return found

    def add(self, ids: torch.Tensor, positions: torch.Tensor) -> None:
        """Add ids that are not in the map."""
        (large, recent), new = self._levels, (ids, positions)
        recent = _merged(recent, new)
        if len(recent[0]) > max(_RECENT, len(large[0]) // 8):
            large, recent = _merged(large, recent), (ids[:0], positions[:0])
        self._levels = [large, recent]


def _merged(one: Any, other: Any) -> Any:
    keys, order = torch.cat([one[0], other[0]]).sort()
    return keys, torch.cat([one[1], other[1]])[order]


class GrowingTable:
    """Rows of 64-bit ids. A row is made when its id has been trained in `min_count` steps; before, it is initial.

    Args:
        shape: nominal shape, (`HASHED_ROWS`, width).
        dtype: of the rows.
        min_count: number of steps in which an id has to be trained until it gets a row of its own.
        ttl_steps: number of steps without the id after which its row is dropped; 0: never.

    Attributes:
        values: rows by slot; some slots are free.
        initial: function of ids and `seed` that returns initial rows, by default zeros.
        step: number of steps so far.
        on_change: called after the number of slots has changed (None), or with the slots that were cleared.
    """

    def __init__(
        self, shape: Sequence[int], dtype: torch.dtype, min_count: int = 1, ttl_steps: int = 0
    ) -> None:
        self.shape = tuple(shape)
        self.min_count, self.ttl_steps = min_count, ttl_steps
        width = self.shape[1]
        self.initial: RowsOfIds = lambda ids, seed: torch.zeros(len(ids), width, dtype=torch.float32)
        self.seed = 0
        self.context: Context = cpu()
        self.on_change: Callable[[torch.Tensor | None], None] = lambda slots: None
        self.values = torch.zeros((0, *self.shape[1:]), dtype=dtype)
        self.clear()

    def clear(self) -> None:
        """Drop all rows and counts."""
        self.step = 0
        self.values = self.values.new_zeros((0, *self.shape[1:]))
        self._ids = self._last = torch.empty(0, dtype=torch.int64)
        self._free = torch.empty(0, dtype=torch.int64)
        self._slots, self._is_used = _IdMap(), torch.empty(0, dtype=torch.bool)
        self._waiting: dict[int, tuple[int, int]] = {}  # ids without rows: count and last step
        self._saved: Any = None
        self.on_change(None)

    def __len__(self) -> int:
        return int(self._is_used.sum())

    def look_up(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the rows of ids, (R, ...); those of unknown ids are initial ones."""
        self._load()
        slots = self._slots.find(rows)
        if not len(self.values):
            return self._initial(rows)
        found = self.values.index_select(0, slots.clamp(min=0))
        missing = (slots < 0).nonzero().flatten()
        if len(missing):
            found[missing] = self._initial(rows[missing])
        return found

    def _initial(self, ids: torch.Tensor) -> torch.Tensor:
        return self.initial(ids, self.seed).to(self.values.dtype)

    def slots_of(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the slots of distinct ids, -1 for those without a row."""
        return self._slots.find(ids)

    def train(self, ids: torch.Tensor) -> torch.Tensor:
        """Begin a step that trains distinct ids: make rows, drop old ones, and return the slots, -1 for no row."""
        self._load()
        self.step += 1
        if self.ttl_steps and self.step % max(1, self.ttl_steps // 4) == 0:
            self._drop_old()
        slots = self._slots.find(ids)
        new = ids[slots < 0]
        if self.min_count > 1 and len(new):
            new = new[self._often_seen(new)]
        if len(new):
            self._make(new, self._initial(new))
            slots = self._slots.find(ids)
        self._last[slots[slots >= 0]] = self.step
        return slots

    def _often_seen(self, ids: torch.Tensor) -> torch.Tensor:
        """Count ids without rows; return True for those that get one now."""
        chosen = []
        for each in ids.tolist():
            count = self._waiting.get(each, (0, 0))[0] + 1
            self._waiting[each] = count, self.step
            chosen.append(count >= self.min_count)
            if chosen[-1]:
                del self._waiting[each]
        return torch.tensor(chosen, dtype=torch.bool)

    def _make(self, ids: torch.Tensor, rows: torch.Tensor) -> None:
        missing = len(ids) - len(self._free)
        if missing > 0:
            self._grow(max(missing, int(len(self.values) * (_GROWTH - 1)), _LEAST_ROWS))
        slots, self._free = self._free[: len(ids)], self._free[len(ids) :]
        self.values[slots] = rows
        self._ids[slots], self._last[slots], self._is_used[slots] = ids, self.step, True
        self._slots.add(ids, slots)

    def _grow(self, count: int) -> None:
        """Add free slots."""
        before = len(self.values)
        self.values = torch.cat([self.values, self.values.new_zeros((count, *self.shape[1:]))])
        self._ids, self._last = (torch.cat([each, each.new_zeros(count)]) for each in (self._ids, self._last))
        self._is_used = torch.cat([self._is_used, self._is_used.new_zeros(count)])
        self._free = torch.cat([self._free, torch.arange(before, before + count)])
        self.on_change(None)

    def _drop_old(self) -> None:
        oldest = self.step - self.ttl_steps
        old = (self._is_used & (self._last < oldest)).nonzero().flatten()
        if len(old):
            self._is_used[old] = False
            self.values[old] = 0
            self._free = torch.cat([self._free, old])
            self._slots = _IdMap()
            used = self._is_used.nonzero().flatten()
            self._slots.add(self._ids[used], used)
            self.on_change(old)
        self._waiting = {key: each for key, each in self._waiting.items() if each[1] >= oldest}

    def parts(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the ids with rows, ascending, and the rows."""
        self._load()
        used = self._is_used.nonzero().flatten()
        used = used[self._ids[used].argsort()]
        return self._ids[used], self.values[used]

    def assign(self, value: Any) -> None:
        """Replace all rows by those of an array, whose row numbers are ids; files are read at their first use."""
        saved = getattr(value, "source", None)
        if hasattr(saved, "load_into"):
            self.clear()
            self._saved = saved
            return
        ids, rows = value.parts()
        self.clear()
        self.add(ids, rows.to(self.values.dtype))

    def _load(self, wanted: Callable[[torch.Tensor], torch.Tensor] | None = None) -> None:
        """Read rows from files, if `assign` has given some."""
        saved, self._saved = self._saved, None
        if saved is not None:
            saved.load_into(self, wanted or (lambda ids: torch.ones_like(ids, dtype=torch.bool)))

    def add(self, ids: torch.Tensor, rows: torch.Tensor, last: torch.Tensor | None = None) -> None:
        """Add rows of further ids.

        Args:
            last: the last step that trained each; None = the present one.
        """
        if len(ids):
            self._make(ids, rows)
        if last is not None:
            self._last[self._slots.find(ids)] = last

    def saved(self) -> dict[str, torch.Tensor]:
        """Return what is saved with `values`: ids and last steps of slots, and ids that wait for a row."""
        self._load()
        waiting = [(key, *each) for key, each in self._waiting.items()]
        return {
            "ids": self._ids,
            "used": self._is_used,
            "last": self._last,
            "waiting": torch.tensor(waiting, dtype=torch.int64).view(-1, 3),
        }

    def add_waiting(self, waiting: torch.Tensor) -> None:
        """Add ids without rows.

        Args:
            waiting: ids, counts and last steps, (R, 3) int64.
        """
        self._waiting.update({key: (count, last) for key, count, last in waiting.tolist()})

    def keep(self, wanted: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Drop the rows of ids for which a function returns False."""
        self._load(wanted)
        used = self._is_used.nonzero().flatten()
        used = used[wanted(self._ids[used])]
        ids, last, rows, step = self._ids[used], self._last[used], self.values[used], self.step
        waiting = self._waiting
        self.clear()
        self.step = step
        keys = torch.tensor(list(waiting), dtype=torch.int64)
        self._waiting = {key: waiting[key] for key in keys[wanted(keys)].tolist()}
        self.add(ids, rows, last)

    def whole(self) -> torch.Tensor:
        """Raise an error, since a table of all ids is too large."""
        raise ArgumentError(
            "a table with hash_rows=True has no dense form; read array.indices and array.data, the ids and their rows"
        )


class HashedArray(FetchedArray):
    """The rows of a `GrowingTable` as an array, whose row numbers are ids."""

    __slots__ = ()

    def __init__(self, source: Any) -> None:
        super().__init__(source, False)

    def parts(self) -> tuple[torch.Tensor, torch.Tensor]:
        ids, rows = self.source.parts()
        return ids, rows

    def fetched(self) -> RowSparseNDArray:
        """Return the rows as an array in this process, which stores those of the ids that have been trained."""
        return RowSparseNDArray.of_record(RowSparse(*self.parts(), self.shape), self.context)

    @property
    def data(self) -> Any:
        return self.fetched().data

    @property
    def indices(self) -> Any:
        return self.fetched().indices


def is_hashed(shape: Sequence[int]) -> bool:
    """Return True for the nominal shape of a table with ``hash_rows=True``."""
    return bool(shape) and shape[0] == HASHED_ROWS
