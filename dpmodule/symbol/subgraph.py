"""Cutting the part of a graph that a function made out of it, to be a subgraph.

What is made inside the function carries the subgraph's name in its attributes; where such a node reads one that does
not, the graph is cut, and a variable named after what was read takes its place.

Source: MXNet 1.9.1, whose names, order of inputs and extra identity nodes are kept, so that graphs are written alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..base import ArgumentError
from ..graph import Entry, Graph, Node
from ..nesting import flatten
from .symbol import Group, Symbol, call

SUBGRAPH = "__subgraph_name__"
"""Attribute of the nodes made inside a subgraph."""


@dataclass(frozen=True)
class Cut:
    """A subgraph and where its inputs come from.

    Attributes:
        sources: what was read outside, for each input of the subgraph in order; a copy of the variable for one that
            was made inside.
    """

    graph: Graph
    sources: tuple[Entry, ...]
    own: tuple[bool, ...]

    @property
    def names(self) -> list[str]:
        """Names of the inputs."""
        return [node.name for node in self.graph.inputs]


def symbols_of(value: object, what: str) -> tuple[list[Symbol], Any]:
    """Return the single symbols in a nested list of symbols, and how they lie in it; see `nesting.flatten`."""
    return flatten(value, lambda one: list(one) if isinstance(one, Symbol) else None, what)


def input_name(symbol: Symbol) -> str:
    """Return the name of the variable that stands for a symbol inside a subgraph."""
    node, i = symbol.entries[0]
    return f"{node.name}-{i}"


def with_identities(symbols: Sequence[Symbol], name: str, others: Sequence[Symbol] = ()) -> Symbol:
    """Group outputs of a subgraph; those that are inputs too, or come from outside, get an identity behind them.

    Args:
        others: further outputs, for which a node that `symbols` has already counts like an input.
    """
    inputs = {node.name for node in Group([*symbols, *others]).graph.inputs}
    first = {each.name for each in symbols}
    found = []
    for i, each in enumerate((*symbols, *others)):
        node = each.entries[0][0]
        repeated = i >= len(symbols) and node.name in first
        foreign = node.attrs.get(SUBGRAPH) != name
        found.append(call("identity", each) if node.name in inputs or repeated or foreign else each)
    return Group(found)


def cut(symbol: Symbol, name: str) -> Cut:
    """Cut a subgraph off."""
    sources: dict[Node, Entry] = {}
    stand_ins: dict[Entry, Node] = {}
    copies: dict[Node, Node] = {}
    for node in symbol.graph.nodes:
        if node.attrs.get(SUBGRAPH) != name:
            continue
        inputs = []
        for child, i in node.inputs:
            if child in copies:
                inputs.append((copies[child], i))
                continue
            if (child, i) not in stand_ins:
                stand_ins[child, i] = made = Node(None, child.output_names[i], source=child.source)
                sources[made] = (child, i)
            inputs.append((stand_ins[child, i], 0))
        copies[node] = copy = Node(
            node.op,
            node.name,
            dict(node.params),
            dict(node.attrs),
            tuple(inputs),
            node.source,
            node.subgraphs,
        )
        if node.op is None:
            sources[copy] = (node, 0)
    graph = Graph(tuple((copies[node], i) for node, i in symbol.entries))
    _check_names(graph)
    return Cut(
        graph,
        tuple(sources[node] for node in graph.inputs),
        tuple(node.attrs.get(SUBGRAPH) == name for node in graph.inputs),
    )


def _check_names(graph: Graph) -> None:
    """Refuse a subgraph in which two inputs have one name."""
    seen: dict[str, Node] = {}
    for node in graph.inputs:
        other = seen.setdefault(node.name, node)
        if other is not node:
            raise ArgumentError(
                f"two inputs of a subgraph are named {node.name!r} ({other.describe()}; {node.describe()}); "
                "give one of them another name"
            )
