"""Metadata in exported ONNX files, with which an imported network trains as before."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..graph import Graph, Node

_KEY = "dpmodule"


@dataclass(frozen=True)
class Hints:
    """Properties of a network that ONNX cannot express.

    Attributes:
        fix_gamma: names of BatchNorm gammas that stay 1.
        use_global_stats: names of BatchNorm means that training neither updates nor replaces by those of the batch.
        packed: parameter vectors of RNN, and their numbers of layers. The file stores the weights of layer i as
            "NAME/i/W", "NAME/i/R" and "NAME/i/B".
    """

    fix_gamma: frozenset[str] = frozenset()
    use_global_stats: frozenset[str] = frozenset()
    packed: tuple[tuple[str, int], ...] = ()


def hints_of(graph: Graph, initializers: Mapping[str, Any]) -> Hints:
    """Return the hints for a network.

    Args:
        initializers: the arrays of the file that are not variables, by name.
    """
    rnns = [n for n in graph.nodes if n.op is not None and n.op.name == "RNN"]
    packed = {
        n.inputs[1][0].name: n.a.num_layers for n in rnns if f"{n.inputs[1][0].name}/0/W" in initializers
    }
    return Hints(
        frozenset(fixed_gammas(graph)),
        frozenset(n.inputs[3][0].name for n in graph.nodes if getattr(_norm(n), "use_global_stats", False)),
        tuple(packed.items()),
    )


def _norm(node: Node) -> Any:
    """Return the attributes of a BatchNorm; None for other nodes."""
    is_norm = node.op is not None and "fix_gamma" in node.op.attrs and len(node.inputs) == 5
    return node.a if is_norm else None


def fixed_gammas(graph: Graph) -> list[str]:
    """Return the names of variables that are only used as BatchNorm gammas which stay 1."""
    names = []
    for node in graph.inputs:
        readers = graph.readers.get(node, [])
        if readers and all(getattr(_norm(r), "fix_gamma", False) and r.inputs[1][0] is node for r in readers):
            names.append(node.name)
    return names


def write_hints(hints: Hints, put: Callable[[str, str], Any]) -> None:
    """Write hints, if there are any.

    Args:
        put: stores a key and a text in the file.
    """
    values = {
        "fix_gamma": sorted(hints.fix_gamma),
        "use_global_stats": sorted(hints.use_global_stats),
        "packed": dict(hints.packed),
    }
    if any(values.values()):
        put(_KEY, json.dumps({key: value for key, value in values.items() if value}))


def read_hints(texts: Mapping[str, str]) -> Hints:
    """Return the hints of a file; invalid ones are ignored."""
    try:
        values = json.loads(texts.get(_KEY, "{}"))
        fixed, frozen = (frozenset(map(str, values.get(k, ()))) for k in ("fix_gamma", "use_global_stats"))
        packed = tuple((str(name), int(count)) for name, count in values.get("packed", {}).items())
    except (AttributeError, RecursionError, TypeError, ValueError):
        return Hints()
    return Hints(fixed, frozen, packed)
