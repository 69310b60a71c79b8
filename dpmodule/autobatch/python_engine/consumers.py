"""Batches that have been run, and who reads which node: what a backward pass may leave out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..ops.spec import BatchCall, Dim
from .signature import BatchStep


@dataclass(slots=True)
class Where:
    """Where an operand of a batch came from.

    Shape:
        index: (count,).
        value: (1, 1, *d).

    Args:
        index: the rows, if they are not in a row.
        parameter: the attributes (`Dim`, weak reference, is updated) of the parameter it is; rows mean nothing then.
    """

    first: int
    count: int
    index: torch.Tensor | None
    parameter: Any
    value: torch.Tensor | None = None


@dataclass(slots=True)
class Record:
    """A batch that has been run.

    Shape:
        inputs: each (nodes or 1, batch, *d).
    """

    step: BatchStep
    call: BatchCall
    inputs: list[torch.Tensor]
    wheres: list[Where]
    firsts: list[int]


Ints = NDArray[np.int64]


class Reads(NamedTuple):
    """What is known of a graph before gradients go through it.

    Shape:
        alive: (nodes,), bool.

    Attributes:
        alive: whether the root depends on a node, None where it does on all of them. The batches may hold other nodes,
            too: their gradients are zeros.
        alone: `id` of every operand that nothing else reads: its gradient is written, and not added to another.
        sums: the rows, by shape as (first, end), of all other gradients, which have to begin as zeros.
    """

    records: Sequence[Record]
    alive: NDArray[np.bool_] | None
    alone: set[int]
    sums: dict[Dim, list[tuple[int, int]]]


def reads_of(records: Sequence[Record], root: int, size: int) -> Reads:
    """Find out which batches the root depends on, and what is read by one operand only."""
    wheres, columns = _operands(records)
    uses = np.bincount(np.concatenate(columns), minlength=size) if columns else np.zeros(size, np.int64)
    alive = None
    if not _reaches_all(records, root, uses > 0):
        records, alive = _reached(records, root, size)
        wheres, columns = _operands(records)
        uses = np.bincount(np.concatenate(columns), minlength=size) if columns else np.zeros(size, np.int64)
        uses[root] += 2  # what reads it need not count
    is_written, found = np.zeros(size, np.bool_), Reads(records, alive, set(), {})
    if columns:
        is_single = uses[np.concatenate(columns)] == 1
        for where, column, is_alone in zip(wheres, columns, _all_of(is_single, columns)):
            if is_alone and where.index is None and where.count == len(column):
                found.alone.add(id(where))
                is_written[column] = True
    results, nodes = [], []
    for record in records:
        for place, first in enumerate(record.firsts):
            results.append((record.step.kind.outs[place], first))
            nodes.append(record.step.nodes + place if place else record.step.nodes)
    for (dim, first), mine, is_done in zip(results, nodes, _all_of(is_written[np.concatenate(nodes)], nodes)):
        if not is_done:
            found.sums.setdefault(dim, []).append((first, first + len(mine)))
    return found


def _reached(records: Sequence[Record], root: int, size: int) -> tuple[list[Record], NDArray[np.bool_]]:
    """Return the batches that the root depends on, and whether it does on every node."""
    found, alive = [], np.zeros(size, np.bool_)
    alive[root] = True
    for record in reversed(records):
        reached = reached_nodes(record, alive)
        count = np.count_nonzero(reached)
        if count:
            found.append(record)
            for place in range(1, len(record.firsts)):  # a memory leaves by way of its step's output, too
                alive[record.step.nodes + place] = reached
            mark_operands(record, alive, reached if count < len(reached) else None)
    return found[::-1], alive


def reached_nodes(record: Record, alive: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Say of every node of a batch whether one of its results is alive.

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
    """Set `alive` for the operands of a batch's nodes, or of those that are reached.

    Shape:
        alive: (nodes of the graph,), bool.
        reached: (nodes of the batch,), bool.
    """
    step = record.step
    args = step.args
    if reached is not None:
        if step.parts:  # they have their operands in common
            reached = np.logical_or.reduce(reached.reshape(len(step.parts), -1))
        args = args[np.repeat(reached, step.counts)] if step.kind.many else args[reached]
    alive[args] = True


def _operands(records: Sequence[Record]) -> tuple[list[Where], list[Ints]]:
    """Return where the operands that want a gradient lie, and which nodes they are."""
    wheres, columns = [], []
    for record in records:
        step = record.step
        for place, where in enumerate(record.wheres):
            if where.parameter is None and step.kind.wants[place]:
                wheres.append(where)
                columns.append(step.args if step.kind.many else step.args[:, place])
    return wheres, columns


def _reaches_all(records: Sequence[Record], root: int, is_read: NDArray[np.bool_]) -> bool:
    """Say whether all nodes but the root are read, one of their results at least."""
    for record in records:
        if len(record.firsts) > 1:
            nodes = record.step.nodes
            for place in range(1, len(record.firsts)):
                is_read[nodes] |= is_read[nodes + place]
    nodes = np.concatenate([record.step.nodes for record in records])
    unread: list[int] = nodes[~is_read[nodes]].tolist()
    return unread == [root]


def _all_of(flags: NDArray[np.bool_], parts: Sequence[Ints]) -> list[bool]:
    """Say of every part of a row of flags whether all in it are set; the parts are as long as the given ones."""
    ends = np.cumsum([len(each) for each in parts])
    found: list[bool] = np.logical_and.reduceat(flags, np.concatenate([[0], ends[:-1]])).tolist()
    return found


def merged(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Join ranges, (first, end), that touch each other."""
    first = last = 0
    for begin, end in sorted(ranges):
        if begin != last:
            if first < last:
                yield first, last
            first = begin
        last = end
    if first < last:
        yield first, last
