"""Strongly connected components of a small graph, and how deep each lies; no recursion."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["ranks"]

Ints = NDArray[np.int64]

MERGED = 1024
"""Graphs of more components are ordered without looking for what could be joined, which takes quadratic time."""


def _components(successors: list[list[int]]) -> list[int]:
    """Number the components in reverse topological order (Tarjan's algorithm with a stack of its own)."""
    count = len(successors)
    order, low, component = [-1] * count, [0] * count, [-1] * count
    path: list[int] = []
    seen = made = 0
    for root in range(count):
        if order[root] >= 0:
            continue
        work = [(root, 0)]
        while work:
            vertex, at = work.pop()
            if at == 0:
                order[vertex] = low[vertex] = seen
                seen += 1
                path.append(vertex)
            elif component[successors[vertex][at - 1]] < 0:
                low[vertex] = min(low[vertex], low[successors[vertex][at - 1]])
            if _descend(vertex, at, successors, order, low, component, work):
                continue
            if low[vertex] == order[vertex]:
                while True:
                    member = path.pop()
                    component[member] = made
                    if member == vertex:
                        break
                made += 1
    return component


def _descend(
    vertex: int,
    at: int,
    successors: list[list[int]],
    order: list[int],
    low: list[int],
    component: list[int],
    work: list[tuple[int, int]],
) -> bool:
    """Look at the next edges of a vertex; return True when one leads to a vertex not seen before."""
    row = successors[vertex]
    while at < len(row):
        other = row[at]
        at += 1
        if order[other] < 0:
            work.append((vertex, at))
            work.append((other, 0))
            return True
        if component[other] < 0:
            low[vertex] = min(low[vertex], order[other])
    return False


def ranks(source: Ints, target: Ints, kinds: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Find the components of a graph and order them.

    Vertices of one kind outside of cycles that do not depend on each other get one depth: they can share a batch.

    Shape:
        source, target: (edges,).
        kinds: (vertices,).
        returns: three of (vertices,).

    Args:
        source: where each edge starts, one of 0 ... count - 1.
        target: where it ends.
        kinds: the kind of every vertex.

    Returns:
        For every vertex: the depth of its component (edges between components lead to greater depths), the component's
        number, and whether the component holds a cycle.

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
    representative = _merged(component_successors, groups) if total <= MERGED else list(range(total))
    depth = _depths(component_successors, representative)
    of_vertex = np.array(component, np.int64)
    return np.array(depth, np.int64)[of_vertex], of_vertex, np.array(cyclic, np.bool_)[of_vertex]


def _merged(successors: list[set[int]], groups: list[int]) -> list[int]:
    """Join vertices of one group, -1 being none, as long as no way leads from one to the other.

    Args:
        successors: of every vertex, which have smaller numbers.
        groups: the group of every vertex.

    Returns:
        For every vertex the representative of all that it was joined with.
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
        found = clusters.setdefault(groups[number], [])
        for first in found:
            bits = members[first]
            if reachable[number] & bits or reachable[first] >> number & 1:
                continue
            representative[number] = first
            members[first] = bits = bits | 1 << number
            reach = reachable[first] | reachable[number]
            reachable[first] = reachable[number] = reach
            for each in range(total):  # who reaches one of them reaches what all of them do
                if reachable[each] & bits or bits >> each & 1:
                    reachable[each] |= reach if bits >> each & 1 else reach | bits
            break
        else:
            found.append(number)
            members[number] = 1 << number
    return representative


def _depths(successors: list[set[int]], representative: list[int]) -> list[int]:
    """Return the length of the longest way to every vertex, joined ones being one.

    Args:
        successors: of every vertex.
        representative: for every vertex the one that stands for all that it was joined with.
    """
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
