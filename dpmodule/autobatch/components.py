"""Strongly connected components of a small graph, and how deep each lies; no recursion."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["ranks"]

Ints = NDArray[np.int64]


def _components(feeds: list[list[int]]) -> list[int]:
    """Number the components in reverse topological order (Tarjan's algorithm with a stack of its own)."""
    count = len(feeds)
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
            elif component[feeds[vertex][at - 1]] < 0:
                low[vertex] = min(low[vertex], low[feeds[vertex][at - 1]])
            if _descend(vertex, at, feeds, order, low, component, work):
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
    feeds: list[list[int]],
    order: list[int],
    low: list[int],
    component: list[int],
    work: list[tuple[int, int]],
) -> bool:
    """Look at the next edges of a vertex; return True when one leads to a vertex not seen before."""
    row = feeds[vertex]
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


def ranks(source: Ints, target: Ints, count: int) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Find the components of a graph and order them.

    Args:
        source: where each edge starts, one of 0 ... count - 1.
        target: where it ends.
        count: the number of vertices.

    Returns:
        For every vertex: the depth of its component (edges between components lead to greater depths), the component's
        number, and whether the component holds a cycle.
    """
    feeds: list[list[int]] = [[] for _ in range(count)]
    edges = list(zip(source.tolist(), target.tolist()))
    for start, end in edges:
        feeds[start].append(end)
    component = _components(feeds)
    total = max(component, default=-1) + 1
    cyclic = [False] * total
    after: list[set[int]] = [set() for _ in range(total)]
    for start, end in edges:
        if component[start] == component[end]:
            cyclic[component[start]] = True
        else:
            after[component[start]].add(component[end])
    depth = [0] * total
    for number in range(total - 1, -1, -1):  # Tarjan numbers what is fed before what feeds it
        for other in after[number]:
            depth[other] = max(depth[other], depth[number] + 1)
    places = np.array(component, np.int64)
    return np.array(depth, np.int64)[places], places, np.array(cyclic, np.bool_)[places]
