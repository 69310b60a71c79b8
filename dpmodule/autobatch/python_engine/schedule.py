"""Scheduling of batches: components of the signature graph, and levels inside recurrent ones.

The signature graph has an edge from every signature to those that read it; its strongly connected components are the
recurrences. Outside a recurrence, all nodes of a signature, of all examples and positions, form one batch. Inside one,
a node's level counts only the edges within the component. The work is linear in nodes and edges; components are cached
from graph to graph, because programs repeat them.

Source: the schedule is original; DyNet's (Neubig, Goldberg, Dyer: "On-the-fly Operation Batching in Dynamic Computation
Graphs", 2017) searches an agenda of nodes.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .signature import EXTRA, BatchPlan, BatchStep, NodeTable, SignatureTable

Ints = NDArray[np.int64]

MIN_REPETITIONS = 4
"""Number of repetitions from which products with the same vectors are stacked."""

MAX_MERGED_COMPONENTS = 1024
"""Largest number of components to merge, which takes quadratic time."""


def _components(successors: list[list[int]]) -> list[int]:
    """Number the components in reverse topological order (Tarjan's algorithm with an explicit stack)."""
    count = len(successors)
    order, low, component = [-1] * count, [0] * count, [-1] * count
    path: list[int] = []
    component_count = 0
    visits = itertools.count()
    for root in range(count):
        work = [(root, iter(successors[root]))] if order[root] < 0 else []
        while work:
            vertex, others = work[-1]
            if order[vertex] < 0:
                order[vertex] = low[vertex] = next(visits)
                path.append(vertex)
            for other in others:
                if order[other] < 0:
                    work.append((other, iter(successors[other])))
                    break
                if component[other] < 0:
                    low[vertex] = min(low[vertex], order[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[vertex])
                if low[vertex] == order[vertex]:
                    while component[vertex] < 0:
                        component[path.pop()] = component_count
                    component_count += 1
    return component


def ranks(source: Ints, target: Ints, kinds: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Find the strongly connected components of a graph and order them.

    Independent vertices of one kind outside of cycles get the same depth, so that they can share a batch.

    Shape:
        source, target: (edges,).
        kinds: (vertices,).
        returns: three of (vertices,).

    Args:
        source: start vertex of each edge, from 0.

    Returns:
        For every vertex: the depth of its component (edges between components lead to greater depths), the component's
        number, and True if the component has a cycle.

    Source: Tarjan, "Depth-first search and linear graph algorithms", 1972.
    """
    count = len(kinds)
    successors: list[list[int]] = [[] for _ in range(count)]
    edges = list(zip(source.tolist(), target.tolist()))
    for start, end in edges:
        successors[start].append(end)
    component = _components(successors)
    total = max(component, default=-1) + 1
    cyclic = [False] * total
    component_successors: list[set[int]] = [set() for _ in range(total)]
    for start, end in edges:
        if component[start] == component[end]:
            cyclic[component[start]] = True
        else:
            component_successors[component[start]].add(component[end])
    kind_of = {component[vertex]: kind for vertex, kind in enumerate(kinds.tolist())}
    groups = [-1 if cyclic[number] else kind_of[number] for number in range(total)]
    representative = (
        _merged(component_successors, groups) if total <= MAX_MERGED_COMPONENTS else list(range(total))
    )
    depth = _depths(component_successors, representative)
    of_vertex = np.array(component, np.int64)
    return np.array(depth, np.int64)[of_vertex], of_vertex, np.array(cyclic, np.bool_)[of_vertex]


def _merged(successors: list[set[int]], groups: list[int]) -> list[int]:
    """Merge vertices of one group (-1 for none) that are not connected by a path.

    Returns:
        For every vertex, the representative of its merged set.
    """
    total = len(successors)
    reachable = [0] * total  # sets of vertices, as bits
    for number in range(total):
        for other in successors[number]:
            reachable[number] |= reachable[other] | 1 << other
    representative = list(range(total))
    members: dict[int, int] = {}
    clusters: dict[int, list[int]] = {}
    for number in range(total - 1, -1, -1):
        if groups[number] < 0:
            continue
        firsts = clusters.setdefault(groups[number], [])
        for first in firsts:
            bits = members[first]
            if reachable[number] & bits or reachable[first] >> number & 1:
                continue
            representative[number] = first
            members[first] = bits = bits | 1 << number
            reach = reachable[first] | reachable[number]
            reachable[first] = reachable[number] = reach
            for each in range(total):  # a vertex that reaches one member reaches what all members reach
                if reachable[each] & bits or bits >> each & 1:
                    reachable[each] |= reach if bits >> each & 1 else reach | bits
            break
        else:
            firsts.append(number)
            members[number] = 1 << number
    return representative


def _depths(successors: list[set[int]], representative: list[int]) -> list[int]:
    """Return the length of the longest path to every vertex, after merging."""
    total = len(successors)
    joined: list[set[int]] = [set() for _ in range(total)]
    for number, others in enumerate(successors):
        joined[representative[number]].update(representative[other] for other in others)
    waiting = [0] * total
    for others in joined:
        for other in others:
            waiting[other] += 1
    depth = [0] * total
    ready = [number for number in range(total) if representative[number] == number and not waiting[number]]
    while ready:
        number = ready.pop()
        for other in joined[number]:
            depth[other] = max(depth[other], depth[number] + 1)
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    return [depth[representative[number]] for number in range(total)]


_ranked: dict[tuple[int, bytes, bytes], tuple[Ints, Ints, NDArray[np.bool_]]] = {}


def _unique_edges(source: Ints, target: Ints, count: int) -> Ints:
    codes = source * count + target
    if count * count <= 1 << 22:
        seen = np.zeros(count * count, np.bool_)
        seen[codes] = True
        return np.flatnonzero(seen)
    return np.unique(codes)


def _levels(consumer: Ints, producer: Ints, count: int) -> Ints:
    """Return the length of the longest path to every node; edges are sorted by consumer."""
    level = [0] * count
    for node, operand in zip(consumer.tolist(), producer.tolist()):
        below = level[operand]
        if below >= level[node]:
            level[node] = below + 1
    return np.array(level, np.int64)


def make_plan(graph: NodeTable, first: int, end: int) -> BatchPlan:
    """Group nodes `first` (inclusive) to `end` (exclusive) into ordered batches."""
    numbers, begin, flat = graph.columns(first, end)
    count = end - first
    consumer = np.repeat(np.arange(count), np.diff(begin))
    producer = flat - first
    inside = producer >= 0
    if not inside.all():
        consumer, producer = consumer[inside], producer[inside]
    signatures = np.flatnonzero(np.bincount(numbers, minlength=1))
    vertex_of = np.zeros(int(signatures[-1]) + 1, np.int64)
    vertex_of[signatures] = np.arange(len(signatures))
    vertex = vertex_of[numbers]
    depth, component, recurrent = _ranks_of(graph, signatures, vertex, consumer, producer)
    level = np.zeros(count, np.int64)
    if recurrent.any():
        tied = component[vertex[consumer]] == component[vertex[producer]]
        if tied.any():
            level = _levels(consumer[tied], producer[tied], count)
    return BatchPlan(
        _batches_of(graph, first, signatures, vertex, depth[vertex], level, begin, flat), first, end
    )


def _ranks_of(
    graph: NodeTable, signatures: Ints, vertex: Ints, consumer: Ints, producer: Ints
) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Return depth, component and recurrence flag of every signature of a graph, see `ranks`."""
    edges = _unique_edges(vertex[producer], vertex[consumer], len(signatures))
    key = (graph.table.generation, signatures.tobytes(), edges.tobytes())
    cached = _ranked.get(key)
    if cached is None:
        if len(_ranked) > 512:
            _ranked.clear()
        table = graph.table
        kinds = np.array([table.signatures[index].kind.index for index in signatures.tolist()], np.int64)
        cached = _ranked[key] = ranks(edges // len(signatures), edges % len(signatures), kinds)
    return cached


def _batches_of(
    graph: NodeTable,
    first: int,
    signatures: Ints,
    vertex: Ints,
    depth: Ints,
    level: Ints,
    begin: Ints,
    flat: Ints,
) -> list[BatchStep]:
    """Return the ordered batches."""
    table = graph.table
    kinds = [table.signatures[index].kind for index in signatures.tolist()]
    kind_of = np.array([kind.index for kind in kinds], np.int64)[vertex]
    lengths = np.diff(begin)
    by_count = np.array([kind.many and not kind.op.ragged for kind in kinds])[vertex]
    stage = depth * (int(level.max()) + 1) + level
    batch = stage * len(table.kinds) + kind_of
    if by_count.any():
        batch = batch * (int(lengths.max()) + 1) + np.where(by_count, lengths, 0)
    leads: dict[tuple[int, ...], int] = {}
    lead = np.array(
        [leads.setdefault(table.signatures[index].lead, len(leads)) for index in signatures.tolist()]
    )
    order = _sorted(batch, vertex, level, lead)
    sorted_batch = batch[order]
    bounds = [0, *(np.flatnonzero(sorted_batch[1:] != sorted_batch[:-1]) + 1).tolist(), len(order)]
    args, ends = _reordered(flat, begin, lengths, order)
    nodes, firsts = order + first, order[bounds[:-1]]
    stages, indices = stage[firsts].tolist(), kind_of[firsts].tolist()
    steps = []
    for start, stop, at_stage, index in zip(bounds, bounds[1:], stages, indices):
        kind = table.kinds[index]
        if kind.op is EXTRA:
            continue
        operands = args[ends[start] : ends[stop]]
        if kind.many:
            steps.append(
                BatchStep(kind, nodes[start:stop], operands, lengths[order[start:stop]].tolist(), at_stage)
            )
        else:
            width = len(kind.dims)
            steps.append(
                BatchStep(kind, nodes[start:stop], operands.reshape(stop - start, width), stage=at_stage)
            )
    return steps


def _sorted(batch: Ints, vertex: Ints, level: Ints, lead: Ints) -> Ints:
    """Sort nodes by batch and then by `Signature.lead`, so that operands are often consecutive rows."""
    height = int(level.max()) + 1
    pair = vertex * height + level  # usually few distinct pairs, which determine the order
    first = np.full(int(pair.max()) + 1 if height < 1 << 12 else 0, -1)
    if 0 < len(first) < 1 << 16:
        first[pair] = batch
        if bool((first[pair] == batch).all()):
            pairs = np.flatnonzero(first >= 0)
            batches, leads = first[pairs], lead[pairs // height]
            order = np.lexsort((leads, batches))
            is_other = (np.diff(batches[order]) != 0) | (np.diff(leads[order]) != 0)
            rank = np.empty(len(first), np.uint16)  # sorted in linear time
            rank[pairs[order]] = np.concatenate([[0], np.cumsum(is_other)])
            return np.argsort(rank[pair], kind="stable")
    return np.lexsort((lead[vertex], batch))


def _reordered(flat: Ints, begin: Ints, lengths: Ints, order: Ints) -> tuple[Ints, list[int]]:
    """Return the operands of reordered nodes, and the offsets of each node including the end."""
    counts = lengths[order]
    ends = np.zeros(len(order) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    places = np.arange(int(ends[-1])) + np.repeat(begin[:-1][order] - ends[:-1], counts)
    return flat[places], ends.tolist()


def stack_products(steps: Sequence[BatchStep], table: SignatureTable) -> list[BatchStep]:
    """Stack steps that repeatedly multiply several matrices with the same vectors."""
    groups: dict[Any, list[BatchStep]] = {}
    for step in steps:
        stack_key = step.kind.stack_key
        if stack_key is not None and step.stage >= 0 and not _reads_one(step):
            key = step.stage, stack_key, step.args[:, -1].tobytes()
            groups.setdefault(key, []).append(step)
    wide = [group for group in groups.values() if len(group) > 1]
    times = Counter(tuple([step.kind for step in group]) for group in wide)
    first: dict[int, BatchStep] = {}
    rest: set[int] = set()
    for group in wide:
        kinds = tuple([step.kind for step in group])
        if times[kinds] >= MIN_REPETITIONS:
            nodes = np.concatenate([step.nodes for step in group])
            first[id(group[0])] = BatchStep(table.stack(kinds), nodes, group[0].args, parts=group)
            rest.update(map(id, group[1:]))
    return [first.get(id(step), step) for step in steps if id(step) not in rest]


def _reads_one(step: BatchStep) -> bool:
    """Return True if all of several nodes multiply the same vector, which is computed once."""
    vectors = step.args[:, -1]
    return len(vectors) > 1 and vectors[0] == vectors[-1] and bool((vectors == vectors[0]).all())


def make_serial_plan(graph: NodeTable, first: int, end: int) -> BatchPlan:
    """Return a plan with one batch for every node from `first` to `end` (exclusive)."""
    steps = []
    for node in range(first, end):
        kind = graph.signature(node).kind
        if kind.op is EXTRA:
            continue
        args = np.array(graph.operands(node), np.int64)
        if kind.many:
            steps.append(BatchStep(kind, np.array([node]), args, [len(args)]))
        else:
            steps.append(BatchStep(kind, np.array([node]), args[None]))
    return BatchPlan(steps, first, end)
