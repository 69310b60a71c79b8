"""Rows of different lengths, which ONNX lacks: as all elements one after the other, and the length of each row."""

from __future__ import annotations

from typing import Any

from ..base import ArgumentError
from ..executor.storage import declared_storage
from ..graph import Entry, Graph, Node
from ..ops import get as get_op
from ..ops.shapes import same

_ELEMENTWISE = frozenset({"elemwise_add", "elemwise_sub", "elemwise_mul", "elemwise_div", "Embedding"})


def without_ragged(graph: Graph) -> Graph:
    """Return a network in which each ragged variable x is two dense ones: x, all elements, and x_lengths.

    Between such a variable and `sequence_pool`, which makes dense rows of it, may stand what works element by element.
    """
    stored = declared_storage(graph)
    ragged = {node for node in graph.inputs if stored.get(node.name) == "ragged"}
    if not ragged:
        return graph
    replaced: dict[Node, Node] = {}
    lengths: dict[Node, Node] = {}
    problems: list[str] = []
    for node in graph.nodes:
        inputs = tuple((replaced[child], i) for child, i in node.inputs)
        rows = {lengths[child] for child, _ in node.inputs if child in lengths}
        replaced[node] = node
        if node in ragged:
            lengths[node] = Node(None, f"{node.name}_lengths")
            replaced[node] = Node(None, node.name, source=node.source)
        elif inputs != node.inputs:
            replaced[node] = Node(
                node.op, node.name, node.params, node.attrs, inputs, node.source, node.subgraphs
            )
        if _is_pool(node) and rows:
            replaced[node] = _pooled(node, inputs[0], rows.pop())
        elif _keeps_rows(node) and len(rows) == 1:
            lengths[node] = rows.pop()
        elif rows:
            problems.append(f"{node.describe()}: works on rows of different lengths, which ONNX lacks")
    if problems:
        raise ArgumentError("\n".join(problems))
    return Graph(tuple((replaced[node], i) for node, i in graph.heads))


def _is_pool(node: Node) -> bool:
    return node.op is not None and node.op.name == "sequence_pool" and node.a.pool_type in _DIVISORS


def _keeps_rows(node: Node) -> bool:
    """Say whether an operator works element by element."""
    if node.op is None or node.op.onnx is None or node.op.onnx.missing:
        return False
    return node.op.name in _ELEMENTWISE or (node.op.infer is same and len(node.inputs) == 1)


_DIVISORS = {"sum": "", "mean": "_copy", "sqrt": "sqrt"}
"""What of a row's length its sum is divided by, for each kind of pool."""


def _made(name: str, operator: str, *inputs: Node, **params: Any) -> Node:
    return Node(
        get_op(operator),
        name,
        {key: str(value) for key, value in params.items()},
        inputs=tuple((each, 0) for each in inputs),
    )


def _pooled(node: Node, values: Entry, lengths: Node) -> Node:
    """Return sums of rows as the product of a matrix, ones where an element belongs to a row, with the elements."""

    def step(operator: str, *inputs: Node, **params: Any) -> Node:
        return _made(f"{node.name}/{operator}{next(numbers)}", operator, *inputs, **params)

    numbers = iter(range(100))
    counts = step("Cast", lengths, dtype="float32")
    ends = step("cumsum", counts, axis=0)
    places = Node(get_op("_contrib_arange_like"), f"{node.name}/places", {"axis": "0"}, inputs=(values,))
    places = step("expand_dims", places, axis=0)
    before_end = step("broadcast_lesser", places, step("expand_dims", ends, axis=1))
    starts = step("expand_dims", step("elemwise_sub", ends, counts), axis=1)
    inside = step("broadcast_mul", before_end, step("broadcast_greater_equal", places, starts))
    divisor = _DIVISORS[node.a.pool_type]
    name = f"{node.name}/sum" if divisor else node.name
    total = Node(get_op("dot"), name, inputs=((inside, 0), values), source=node.source)
    if not divisor:
        return total
    known = step("_maximum_scalar", counts, scalar=1)
    return _made(node.name, "broadcast_div", total, step("expand_dims", step(divisor, known), axis=1))
