"""What of a network is left for prediction: no labels, and nothing that is computed from them."""

from __future__ import annotations

from ..graph import Entry, Graph, Node
from ..ops.spec import LABEL
from .ragged import without_ragged


def prediction_graph(graph: Graph) -> Graph:
    """Return a network without its labels, and without outputs that are computed from them.

    What feeds a loss as its label becomes a variable of the loss, which nobody reads. Outputs such as CTCLoss, the
    targets of a detector or the share of right answers go if there are others: those are what the network predicts.
    Ragged variables become dense ones; see `without_ragged`.
    """
    heads = _predictions(graph)
    if len(heads) < len(graph.heads):
        graph = Graph(heads)
    replaced: dict[Node, Node] = {}
    for node in graph.nodes:
        labels = _label_places(node)
        inputs = tuple(
            (_own_label(node, k, graph), 0) if k in labels else (replaced[child], i)
            for k, (child, i) in enumerate(node.inputs)
        )
        replaced[node] = node
        if inputs != node.inputs:
            replaced[node] = Node(
                node.op, node.name, node.params, node.attrs, inputs, node.source, node.subgraphs
            )
    return without_ragged(Graph(tuple((replaced[node], i) for node, i in graph.heads)))


def _label_places(node: Node, losses: bool = True) -> set[int]:
    """Return which inputs of a loss are labels that prediction does not read; of other operators if not `losses`."""
    if node.op is None or (node.op.loss is not None) != losses or node.op.variadic is not None:
        return set()
    declared = node.op.wanted(node.a, len(node.inputs))
    return {k for k, one in enumerate(declared) if one.kind == LABEL}


def _own_label(node: Node, k: int, graph: Graph) -> Node:
    """Return the variable that becomes the label `k` of a loss: the one that it has, if nobody else reads that."""
    child = node.inputs[k][0]
    alone = child.op is None and graph.readers[child] == [node] and (child, 0) not in graph.heads
    return child if alone else Node(None, f"{node.name}/label{k}")


def _read(node: Node) -> list[Node]:
    """Return the nodes whose outputs a node reads in prediction."""
    labels = _label_places(node)
    return [child for k, (child, _) in enumerate(node.inputs) if k not in labels]


def _predictions(graph: Graph) -> tuple[Entry, ...]:
    """Return the heads that are not computed from labels; all of them if there are no others."""
    labels = _labels(graph)
    computed: set[Node] = set()
    for node in graph.nodes:
        if node in labels or _label_places(node, losses=False) or any(c in computed for c in _read(node)):
            computed.add(node)
    kept = tuple(head for head in graph.heads if head[0] not in computed)
    return kept or graph.heads


def _labels(graph: Graph) -> set[Node]:
    """Return the variables that are labels of losses, and that what the losses predict does not depend on."""
    found = {
        node.inputs[k][0] for node in graph.nodes for k in _label_places(node) if node.inputs[k][0].op is None
    }
    needed: set[Node] = set()
    waiting = [node for node, _ in graph.heads if _label_places(node)]
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting.extend(_read(node))
    return found - needed
