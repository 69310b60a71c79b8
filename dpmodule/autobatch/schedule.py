"""The order of batches: components of the graph of signatures, and levels inside the recurrent ones.

Draw an edge from every signature to those that it feeds, and contract what lies on a cycle: the strongly connected
components. Outside a recurrence a signature needs no levels at all: all its nodes, of all examples and positions, are
one batch. Inside one, a node's level counts the edges of that component only. The work is linear in nodes and edges;
the components are kept from graph to graph, because programs draw the same ones again and again.

Source: the schedule is this project's own; DyNet's (Neubig, Goldberg, Dyer: "On-the-fly Operation Batching in Dynamic
Computation Graphs", 2017) searches an agenda of nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .components import ranks
from .plan import NodeTable, Plan, Step
from .signature import EXTRA, Table

__all__ = ["make_plan", "side_by_side"]

Ints = NDArray[np.int64]

OFTEN = 4
"""So many times matrices must be multiplied with the same vectors that it pays to put them into one."""


_ranked: dict[tuple[int, bytes, bytes], tuple[Ints, Ints, NDArray[np.bool_]]] = {}


def _unique_edges(source: Ints, target: Ints, count: int) -> Ints:
    codes = source * count + target
    if count * count <= 1 << 22:
        seen = np.zeros(count * count, np.bool_)
        seen[codes] = True
        return np.flatnonzero(seen)
    return np.unique(codes)


def _levels(target: Ints, source: Ints, count: int) -> Ints:
    """Count, for every node, the longest way to it over the given edges, which are sorted by target."""
    level = [0] * count
    for node, feeder in zip(target.tolist(), source.tolist()):
        above = level[feeder] + 1
        if above > level[node]:
            level[node] = above
    return np.array(level, np.int64)


def make_plan(graph: NodeTable, first: int, end: int) -> Plan:
    """Group the nodes from `first` to before `end` into batches and order these."""
    numbers, begin, flat = graph.columns(first, end)
    count = end - first
    target = np.repeat(np.arange(count), np.diff(begin))
    feeder = flat - first
    inside = feeder >= 0
    if not inside.all():
        target, feeder = target[inside], feeder[inside]
    present = np.flatnonzero(np.bincount(numbers, minlength=1))
    local = np.zeros(int(present[-1]) + 1, np.int64)
    local[present] = np.arange(len(present))
    mine = local[numbers]
    depth, component, recurrent = _rank(graph, present, mine, target, feeder)
    level = np.zeros(count, np.int64)
    if recurrent.any():
        tied = component[mine[target]] == component[mine[feeder]]
        if tied.any():
            level = _levels(target[tied], feeder[tied], count)
    return Plan(_steps(graph, first, present, mine, depth[mine], level, begin, flat), first, end)


def _rank(
    graph: NodeTable, present: Ints, mine: Ints, target: Ints, feeder: Ints
) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    edges = _unique_edges(mine[feeder], mine[target], len(present))
    key = (graph.table.generation, present.tobytes(), edges.tobytes())
    found = _ranked.get(key)
    if found is None:
        if len(_ranked) > 512:
            _ranked.clear()
        table = graph.table
        kinds = np.array([table.signatures[index].kind.index for index in present.tolist()], np.int64)
        found = _ranked[key] = ranks(edges // len(present), edges % len(present), kinds)
    return found


def _steps(
    graph: NodeTable, first: int, present: Ints, mine: Ints, depth: Ints, level: Ints, begin: Ints, flat: Ints
) -> list[Step]:
    table = graph.table
    kinds = [table.signatures[index].kind for index in present.tolist()]
    kind_of = np.array([kind.index for kind in kinds], np.int64)[mine]
    lengths = np.diff(begin)
    split = np.array([kind.many and not kind.op.ragged for kind in kinds])[mine]
    stage = depth * (int(level.max()) + 1) + level
    place = stage * len(table.kinds) + kind_of
    if split.any():
        place = place * (int(lengths.max()) + 1) + np.where(split, lengths, 0)
    leads: dict[tuple[int, ...], int] = {}
    side = np.array(
        [leads.setdefault(table.signatures[index].lead, len(leads)) for index in present.tolist()]
    )
    order = _order(place, mine, level, side)
    ordered = place[order]
    bounds = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist(), len(order)]
    args, ends = _reordered(flat, begin, lengths, order)
    nodes, firsts = order + first, order[bounds[:-1]]
    stages, indices = stage[firsts].tolist(), kind_of[firsts].tolist()
    steps = []
    for start, stop, at, index in zip(bounds, bounds[1:], stages, indices):
        kind = table.kinds[index]
        if kind.op is EXTRA:
            continue
        mine_args = args[ends[start] : ends[stop]]
        if kind.many:
            steps.append(Step(kind, nodes[start:stop], mine_args, lengths[order[start:stop]].tolist(), at))
        else:
            width = len(kind.dims)
            steps.append(Step(kind, nodes[start:stop], mine_args.reshape(stop - start, width), stage=at))
    return steps


def _order(place: Ints, mine: Ints, level: Ints, side: Ints) -> Ints:
    """Sort by place, and within one by what leads to a node: who reads nodes that lie side by side reads a slice."""
    height = int(level.max()) + 1
    pair = mine * height + level  # as a rule there are few of these, and they say all
    first = np.full(int(pair.max()) + 1 if height < 1 << 12 else 0, -1)
    if 0 < len(first) < 1 << 16:
        first[pair] = place
        if bool((first[pair] == place).all()):
            present = np.flatnonzero(first >= 0)
            places, sides = first[present], side[present // height]
            order = np.lexsort((sides, places))
            is_other = (np.diff(places[order]) != 0) | (np.diff(sides[order]) != 0)
            rank = np.empty(len(first), np.uint16)  # sorted in linear time
            rank[present[order]] = np.concatenate([[0], np.cumsum(is_other)])
            return np.argsort(rank[pair], kind="stable")
    return np.lexsort((side[mine], place))


def _reordered(flat: Ints, begin: Ints, lengths: Ints, order: Ints) -> tuple[Ints, list[int]]:
    """Return the operands of nodes in another order, and where those of each node begin, as well as the end."""
    counts = lengths[order]
    ends = np.zeros(len(order) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    places = np.arange(int(ends[-1])) + np.repeat(begin[:-1][order] - ends[:-1], counts)
    return flat[places], ends.tolist()


def side_by_side(steps: Sequence[Step], table: Table) -> list[Step]:
    """Put steps together that multiply several matrices with the same vectors, where that occurs again and again.

    Args:
        steps: the steps in order.
        table: of their kinds.
    """
    groups: dict[Any, list[Step]] = {}
    for step in steps:
        beside = step.kind.beside
        if beside is not None and step.stage >= 0 and not _reads_one(step):
            key = step.stage, beside, step.args[:, -1].tobytes()
            groups.setdefault(key, []).append(step)
    wide = [group for group in groups.values() if len(group) > 1]
    times = Counter(tuple([step.kind for step in group]) for group in wide)
    first: dict[int, Step] = {}
    rest: set[int] = set()
    for group in wide:
        kinds = tuple([step.kind for step in group])
        if times[kinds] >= OFTEN:
            nodes = np.concatenate([step.nodes for step in group])
            first[id(group[0])] = Step(table.stack(kinds), nodes, group[0].args, parts=group)
            rest.update(map(id, group[1:]))
    return [first.get(id(step), step) for step in steps if id(step) not in rest]


def _reads_one(step: Step) -> bool:
    """Say whether many nodes multiply one and the same vector, which is done once for all of them."""
    vectors = step.args[:, -1]
    return len(vectors) > 1 and vectors[0] == vectors[-1] and bool((vectors == vectors[0]).all())
