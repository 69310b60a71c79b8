"""Merging operators that compute the same thing twice."""

from __future__ import annotations

from typing import Any

from ..ops import get as get_op
from .node import Entry, Graph, Node


def may_merge(node: Node) -> bool:
    """Say whether two nodes like this one make the same values: nothing random, no states, no user code.

    Args:
        node: any node of a graph; a variable may not merge.
    """
    op = node.op
    return op is not None and not (
        op.random or op.mutates or op.stateful or op.loss or op.owner or op.read_attrs or node.subgraphs
    )


def merge_equal(graph: Graph) -> tuple[Entry, ...]:
    """Return heads of a graph in which equal operators with equal inputs are one node.

    Two heads that come to be one value stay two: the second becomes a copy of the first.

    Args:
        graph: the graph; left alone.
    Source: MXNet 1.9.1, which does this when it binds (`MXNET_ELIMINATE_COMMON_EXPR`).
    """
    replaced: dict[Node, Node] = {}
    known: dict[Any, Node] = {}
    for node in graph.nodes:
        if node.op is None:
            replaced[node] = node
            continue
        inputs = tuple((replaced[child], i) for child, i in node.inputs)
        key = (node.op, tuple(sorted(node.all_attrs.items())), inputs)
        if may_merge(node) and key in known:
            replaced[node] = known[key]
            continue
        new = node
        if inputs != node.inputs:
            new = Node(node.op, node.name, node.params, node.attrs, inputs, node.source, node.subgraphs)
        replaced[node] = known[key] = new
    return _apart([(replaced[node], i) for node, i in graph.heads], graph.heads)


def _apart(heads: list[Entry], before: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Return heads in which those that have become one by merging are copies."""
    first: dict[Entry, Entry] = {}
    found: list[Entry] = []
    for head, old in zip(heads, before):
        if first.setdefault(head, old) == old:
            found.append(head)
        else:
            found.append((Node(get_op("_copy"), f"{old[0].name}_copy", inputs=(head,)), 0))
    return tuple(found)
