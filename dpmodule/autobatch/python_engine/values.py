"""Memory of node values: one arena, a growing tensor, per shape, and the row of every node in its arena.

A batch's result is a slice of an arena, and operands of one shape are gathered from one tensor. A record of an executed
batch includes the locations of its operands; `find_reads` determines which nodes a backward pass reaches and which
gradients have one reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..._core import torch_private
from ..ops.spec import BatchCall, Dim
from .signature import BatchKind, BatchStep, StackedParameters


@dataclass(slots=True)
class OperandLocation:
    """Location of an operand of a batch.

    Shape:
        index: (count,).
        value: (1, 1, *d).

    Args:
        index: the rows, if they are not consecutive.
        parameter: attributes (`Dim`, weak reference, is updated) if the operand is a parameter, without rows.
    """

    first: int
    count: int
    index: torch.Tensor | None
    parameter: Any
    value: torch.Tensor | None = None


@dataclass(slots=True)
class Record:
    """An executed batch.

    Shape:
        inputs: each (nodes or 1, batch, *d).
    """

    step: BatchStep
    call: BatchCall
    inputs: list[torch.Tensor]
    locations: list[OperandLocation]
    firsts: list[int]


Ints = NDArray[np.int64]


class Reads(NamedTuple):
    """Analysis of a graph before a backward pass.

    Shape:
        alive: (nodes,), bool.

    Attributes:
        alive: True for nodes on which the root depends; None if it depends on all nodes. Other nodes in the batches
            have zero gradients.
        alone: `id` of every operand location with a single reader, whose gradient is written, not accumulated.
        sums: rows of all other gradients, as (first, end) by shape, which must be initialized with zeros.
    """

    records: Sequence[Record]
    alive: NDArray[np.bool_] | None
    alone: set[int]
    sums: dict[Dim, list[tuple[int, int]]]


def find_reads(records: Sequence[Record], root: int, size: int) -> Reads:
    """Determine which batches the root depends on, and which nodes have a single reader."""
    locations, columns = _operands(records)
    uses = np.bincount(np.concatenate(columns), minlength=size) if columns else np.zeros(size, np.int64)
    alive = None
    if not _reaches_all(records, root, uses > 0):
        records, alive = _reached(records, root, size)
        locations, columns = _operands(records)
        uses = np.bincount(np.concatenate(columns), minlength=size) if columns else np.zeros(size, np.int64)
        uses[root] += 2  # the gradient of the root must be accumulated
    is_written, reads = np.zeros(size, np.bool_), Reads(records, alive, set(), {})
    if columns:
        is_single = uses[np.concatenate(columns)] == 1
        for where, column, is_alone in zip(locations, columns, _all_of(is_single, columns)):
            if is_alone and where.index is None and where.count == len(column):
                reads.alone.add(id(where))
                is_written[column] = True
    results, nodes = [], []
    for record in records:
        for place, first in enumerate(record.firsts):
            results.append((record.step.kind.outs[place], first))
            nodes.append(record.step.nodes + place if place else record.step.nodes)
    for (dim, first), mine, is_done in zip(results, nodes, _all_of(is_written[np.concatenate(nodes)], nodes)):
        if not is_done:
            reads.sums.setdefault(dim, []).append((first, first + len(mine)))
    return reads


def _reached(records: Sequence[Record], root: int, size: int) -> tuple[list[Record], NDArray[np.bool_]]:
    """Return the batches on which the root depends, and a flag for every node."""
    reached_records, alive = [], np.zeros(size, np.bool_)
    alive[root] = True
    for record in reversed(records):
        reached = reached_nodes(record, alive)
        count = np.count_nonzero(reached)
        # DyNet updates the row of a lookup even if nothing reads it
        if count or not record.step.args.size:
            reached_records.append(record)
            for place in range(1, len(record.firsts)):  # results of one step are reached together
                alive[record.step.nodes + place] = reached
            mark_operands(record, alive, reached if count < len(reached) else None)
    return reached_records[::-1], alive


def reached_nodes(record: Record, alive: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a flag for every node of a batch, True if one of its results is alive.

    Shape:
        alive: (nodes of the graph,), bool.
        returns: (nodes of the batch,), bool.
    """
    nodes = record.step.nodes
    found = alive[nodes]
    for place in range(1, len(record.firsts)):
        found |= alive[nodes + place]
    return found


def mark_operands(record: Record, alive: NDArray[np.bool_], reached: NDArray[np.bool_] | None) -> None:
    """Set `alive` for the operands of a batch's nodes, or only of the reached ones.

    Shape:
        alive: (nodes of the graph,), bool.
        reached: (nodes of the batch,), bool.
    """
    step = record.step
    args = step.args
    if reached is not None:
        if step.parts:  # the parts share their operands
            reached = np.logical_or.reduce(reached.reshape(len(step.parts), -1))
        args = args[np.repeat(reached, step.counts)] if step.kind.many else args[reached]
    alive[args] = True


def _operands(records: Sequence[Record]) -> tuple[list[OperandLocation], list[Ints]]:
    """Return the locations and nodes of operands that need a gradient."""
    locations, columns = [], []
    for record in records:
        step = record.step
        for place, where in enumerate(record.locations):
            if where.parameter is None and step.kind.wants[place]:
                locations.append(where)
                columns.append(step.args if step.kind.many else step.args[:, place])
    return locations, columns


def _reaches_all(records: Sequence[Record], root: int, is_read: NDArray[np.bool_]) -> bool:
    """Return True if all nodes except the root are read, at least one of their results."""
    for record in records:
        if len(record.firsts) > 1:
            nodes = record.step.nodes
            for place in range(1, len(record.firsts)):
                is_read[nodes] |= is_read[nodes + place]
    nodes = np.concatenate([record.step.nodes for record in records])
    unread: list[int] = nodes[~is_read[nodes]].tolist()
    return unread == [root]


def _all_of(flags: NDArray[np.bool_], parts: Sequence[Ints]) -> list[bool]:
    """Return, for every part of an array of flags, True if all its flags are set; `parts` gives the lengths."""
    ends = np.cumsum([len(each) for each in parts])
    found: list[bool] = np.logical_and.reduceat(flags, np.concatenate([[0], ends[:-1]])).tolist()
    return found


def merged(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Merge adjacent ranges (first, end)."""
    first = last = 0
    for begin, end in sorted(ranges):
        if begin != last:
            if first < last:
                yield first, last
            first = begin
        last = end
    if first < last:
        yield first, last


Tensor = torch.Tensor


class MemoryPool:
    """Memory reused from graph to graph, since the system must clear new memory first.

    Memory that the last graph did not use is released, and memory still referenced elsewhere is not reused.
    """

    LIMIT = 1 << 26
    """Limit of the kept memory, in bytes."""

    __slots__ = ("_free",)

    def __init__(self) -> None:
        self._free: dict[Any, Tensor] = {}

    def take(self, key: Any, shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
        """Return an uninitialized tensor of a shape, or with more rows.

        Shape:
            returns: `shape`, or more rows.

        Args:
            key: the key given to `refill`, which identifies the shape of rows.
            shape: shape of the tensor.
        """
        found = self._free.pop(key, None)
        if found is not None and len(found) >= shape[0] and found.dtype is dtype and found.device == device:
            return found
        with torch.inference_mode(False):  # later graphs write to it, too
            return torch.empty(shape, device=device, dtype=dtype)

    def refill(self, tensors: Iterable[tuple[Any, Tensor]]) -> None:
        """Replace the kept tensors.

        Shape:
            tensors: each (rows, batch, *d).
        """
        self._free = {}
        room = self.LIMIT
        for key, tensor in tensors:
            storage = tensor.untyped_storage()
            room -= storage.nbytes()
            # two references: the tensor and `storage`; on other devices torch caches memory itself
            if room >= 0 and tensor.device.type == "cpu" and torch_private.storage_uses(storage._cdata) == 2:
                self._free[key] = tensor


class Arena:
    """The values of all nodes of one shape.

    Rows are only added. When the tensor grows, earlier slices keep the old one alive; they remain valid because no row
    is written twice.

    Shape:
        tensor: (rows, batch, *d).

    Args:
        dim: shape of the nodes.
    """

    __slots__ = ("_pool", "device", "dim", "dtype", "tensor", "used")

    def __init__(self, dim: Dim, device: torch.device, dtype: torch.dtype, pool: MemoryPool) -> None:
        self.dim, self.device, self.dtype, self._pool = dim, device, dtype, pool
        self.tensor = torch.empty(0, dim.batch, *dim.d, device=device, dtype=dtype)
        self.used = 0

    def reserve(self, count: int) -> None:
        """Reserve memory for `count` more rows."""
        need = self.used + count
        room = self.tensor.shape[0]
        if need <= room:
            return
        shape = (max(need, 2 * room if room else need), self.dim.batch, *self.dim.d)
        larger = self._pool.take(self.dim, shape, self.device, self.dtype)
        larger[: self.used] = self.tensor[: self.used]
        self.tensor = larger

    def take(self, count: int) -> int:
        """Return the first of `count` new rows, reserved by `reserve`."""
        first = self.used
        self.used += count
        return first


_Column = tuple[int, int, bool, bool, Tensor]
"""(First row, count, True if consecutive, True if all equal, all rows)."""


class Values:
    """The values of a graph's nodes.

    Shape:
        arenas: (rows, batch, *d), by the shape of the nodes.
        rows: (nodes,), int64.

    Attributes:
        arenas: by shape.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype, pool: MemoryPool) -> None:
        self._device, self._dtype, self._pool = device, dtype, pool
        self.arenas: dict[Dim, Arena] = {}
        self.rows: Ints = np.zeros(256, np.int64)

    def assign_rows(self, steps: Sequence[BatchStep], end: int) -> list[list[int]]:
        """Assign consecutive rows to the results of batches.

        Returns:
            The first row of every result of every batch.
        """
        if end > len(self.rows):
            self.rows = np.concatenate([self.rows, np.zeros(max(end, len(self.rows)), np.int64)])
        need: dict[Dim, int] = {}
        for step in steps:
            for dim in step.kind.outs:
                need[dim] = need.get(dim, 0) + len(step.nodes)
        for dim, count in need.items():
            if dim not in self.arenas:
                self.arenas[dim] = Arena(dim, self._device, self._dtype, self._pool)
            self.arenas[dim].reserve(count)
        assigned, nodes, firsts = [], [], []
        for step in steps:
            mine = [self.arenas[dim].take(len(step.nodes)) for dim in step.kind.outs]
            nodes += [step.nodes + place if place else step.nodes for place in range(len(mine))]
            firsts += mine
            assigned.append(mine)
        if nodes:
            counts = np.array([len(each) for each in nodes])
            before = np.cumsum(counts) - counts
            self.rows[np.concatenate(nodes)] = np.arange(counts.sum()) + np.repeat(firsts - before, counts)
        return assigned

    def locate(self, steps: Sequence[BatchStep]) -> list[list[OperandLocation]]:
        """Return the location of every operand of batches: consecutive rows, one row for all, or an index.

        All operands are located together with one index, since single steps would take longer than a product.
        """
        columns = []
        locations_of_kind: dict[int, list[OperandLocation]] = {}
        for step in steps:
            kind = step.kind
            if kind.many:
                columns.append(step.args)
            else:
                columns += [step.args[:, place] for place in kind.computed]
            if kind.index not in locations_of_kind:
                parameters = kind.parameters[: 1 if kind.many else None]
                locations_of_kind[kind.index] = [self._parameter_location(each) for each in parameters]
        found = [locations_of_kind[step.kind.index].copy() for step in steps]
        if columns:
            located = self._columns(columns)
            for step, locations in zip(steps, found):
                self._fill(step.kind, locations, located)
        return found

    def _columns(self, columns: list[Ints]) -> Iterator[_Column]:
        sizes = [len(each) for each in columns]
        counts = np.array(sizes)
        starts = np.cumsum(counts) - counts
        rows = self.rows[np.concatenate(columns)]
        strides = np.empty_like(rows)
        np.subtract(rows[1:], rows[:-1], out=strides[:-1])
        strides[starts[1:] - 1] = strides[-1] = -1
        in_row = np.add.reduceat(strides == 1, starts, dtype=np.int64) == counts - 1
        equal = np.add.reduceat(strides == 0, starts, dtype=np.int64) == counts - 1
        index = torch.split(torch.from_numpy(rows).to(self._device), sizes)
        return zip(rows[starts].tolist(), sizes, in_row.tolist(), equal.tolist(), index)

    def _parameter_location(self, parameter: Any) -> OperandLocation:
        """Return the location of a parameter, or a placeholder for other operands."""
        if parameter is None:
            return OperandLocation(0, 0, None, None)
        if type(parameter) is StackedParameters:
            return OperandLocation(
                0, 1, None, parameter, torch.stack([self._value(each) for each in parameter])
            )
        return OperandLocation(0, 1, None, parameter, self._value(parameter)[None, None])

    def _value(self, parameter: Any) -> Tensor:
        storage = parameter[1]()
        storage.check_fits(self._device, self._dtype)
        found: Tensor = storage.tensor
        return found

    @staticmethod
    def _fill(kind: BatchKind, locations: list[OperandLocation], columns: Iterator[_Column]) -> None:
        for output_index in (0,) if kind.many else kind.computed:
            first, count, in_row, equal, index = next(columns)
            if in_row:
                locations[output_index] = OperandLocation(first, count, None, None)
            elif equal and not kind.many:
                locations[output_index] = OperandLocation(first, 1, None, None)
            else:
                locations[output_index] = OperandLocation(first, count, index, None)

    def read(self, where: OperandLocation, dim: Dim) -> Tensor:
        """Return an operand.

        Shape:
            returns: (nodes or 1, batch, *d).
        """
        if where.value is not None:
            return where.value
        source = self.arenas[dim].tensor
        if where.index is not None:
            return source.index_select(0, where.index)
        return source[where.first : where.first + where.count]
