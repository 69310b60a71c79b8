"""How far gradients reach in a graph: which operators they must pass, and which states they leave alone."""

from __future__ import annotations

from collections.abc import Iterable

from ..base import NodeError
from ..graph import Graph, Node


def check_differentiable(graph: Graph, wanted: Iterable[str]) -> None:
    """Refuse a graph in which a gradient would have to flow through an operator that has none."""
    if all(node.op is None or node.op.differentiable for node in graph.nodes):
        return
    leads = fed_by(graph, wanted)
    for node in reached_by_gradients(graph):
        if node in leads and node.op is not None and not node.op.differentiable:
            raise NodeError(
                f"{node.describe()} is not differentiable, but gradients of what it reads are asked for; bind "
                "with grad_req='null', or put sym.BlockGrad behind it"
            )


def fed_by(graph: Graph, wanted: Iterable[str]) -> set[Node]:
    """Return the wanted arguments and all nodes that read them, directly or through others."""
    names, found = set(wanted), set[Node]()
    for node in graph.nodes:
        if node.name in names if node.op is None else any(child in found for child, _ in node.inputs):
            found.add(node)
    return found


def resting_states(graph: Graph, wanted: Iterable[str]) -> set[str]:
    """Return the names of states that backward leaves as they are, as it has no work at the operators that own them.

    These are the states of operators below which no gradient is wanted: moving means and variances of layers that
    are not trained.

    Args:
        wanted: names of the arguments whose gradients are wanted.
    Source: MXNet 1.9.1, which updates moving means and variances in the operator's backward.
    """
    if not graph.auxiliary:
        return set()
    above, moving, resting = fed_by(graph, wanted), set[str](), set[str]()
    for node in graph.nodes:
        (moving if node in above else resting).update(state.name for state, _ in node.auxiliary_inputs)
    return resting - moving


def reached_by_gradients(graph: Graph) -> set[Node]:
    """Return the operators that gradients reach: all below the heads, but nothing from a BlockGrad on."""
    found: set[Node] = set()
    waiting = [node for node, _ in graph.heads]
    while waiting:
        node = waiting.pop()
        if node in found or node.op is None or node.op.name == "BlockGrad":
            continue
        found.add(node)
        waiting += [child for child, _ in node.inputs]
    return found
