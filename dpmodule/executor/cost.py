"""How much memory a graph's intermediate values take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ..base import Shape, np_dtype
from ..graph import Graph, Node, infer_shapes, infer_types
from ..ops.shapes import known, prod
from .gradients import reached_by_gradients

__all__ = ["intermediate_bytes"]


def _item_size(dtype: str) -> int:
    return 2 if dtype == "bfloat16" else int(np_dtype(dtype)().itemsize)


def intermediate_bytes(
    graph: Graph, shapes: Mapping[str, Shape], types: Mapping[str, str], training: bool
) -> int:
    """Return the memory of the values that operators make, by their shapes, in bytes.

    Args:
        graph: the graph.
        shapes: shape of every argument and auxiliary state.
        types: dtype name of every argument and auxiliary state.
        training: whether values are kept for backward, as far as a gradient reaches them; all others go after
            their last reader, and the answer is the largest sum of what lives at one time.
    """
    outs, kinds = infer_shapes(graph, shapes), infer_types(graph, types)

    def size(node: Node) -> int:
        known_outputs = zip(outs[node], kinds[node])
        return sum(
            prod(s) * _item_size(t or "float32") for s, t in known_outputs if s is not None and known(s)
        )

    steps = [node for node in graph.nodes if node.op is not None]
    kept = reached_by_gradients(graph) if training else set()
    readers = Counter(child for node in steps for child, _ in node.inputs if child.op is not None)
    readers.update(node for node, _ in graph.heads)
    live = peak = 0
    for node in steps:
        live += size(node)
        peak = max(peak, live)
        for child, _ in node.inputs:
            if child.op is not None:
                readers[child] -= 1
                live -= size(child) if not readers[child] and child not in kept else 0
    return peak
