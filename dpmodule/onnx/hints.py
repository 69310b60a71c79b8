"""What our own ONNX files say beside the network, so that it trains as before when it comes back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..graph import Graph, Node

_KEY = "dpmodule"


@dataclass(frozen=True)
class Hints:
    """What ONNX has no words for.

    Attributes:
        fix_gamma: scales of BatchNorm that stay 1.
        use_global_stats: means of BatchNorm that training neither changes nor replaces by those of the batch.
        packed: vectors of parameters of RNN, and the number of their layers. The file has the weights of a layer i as
            "NAME/i/W", "NAME/i/R" and "NAME/i/B".
    """

    fix_gamma: frozenset[str] = frozenset()
    use_global_stats: frozenset[str] = frozenset()
    packed: tuple[tuple[str, int], ...] = ()


def hints_of(graph: Graph, initializers: Mapping[str, Any]) -> Hints:
    """Return the hints for a network.

    Args:
        initializers: the arrays of its file that are none of its variables, by name.
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
    """Return the attributes of a BatchNorm, None for other nodes."""
    is_norm = node.op is not None and "fix_gamma" in node.op.attrs and len(node.inputs) == 5
    return node.a if is_norm else None


def fixed_gammas(graph: Graph) -> list[str]:
    """Return the variables that are nothing but scales of BatchNorm that stay 1."""
    found = []
    for node in graph.inputs:
        readers = graph.readers.get(node, [])
        if readers and all(getattr(_norm(r), "fix_gamma", False) and r.inputs[1][0] is node for r in readers):
            found.append(node.name)
    return found


def write_hints(hints: Hints, put: Callable[[str, str], Any]) -> None:
    """Write hints, if there are any.

    Args:
        put: takes a key and a text, which the file keeps.
    """
    found = {
        "fix_gamma": sorted(hints.fix_gamma),
        "use_global_stats": sorted(hints.use_global_stats),
        "packed": dict(hints.packed),
    }
    if any(found.values()):
        put(_KEY, json.dumps({key: value for key, value in found.items() if value}))


def read_hints(texts: Mapping[str, str]) -> Hints:
    """Return the hints of a file; what cannot be understood is no hint."""
    try:
        found = json.loads(texts.get(_KEY, "{}"))
        fixed, frozen = (frozenset(map(str, found.get(k, ()))) for k in ("fix_gamma", "use_global_stats"))
        packed = tuple((str(name), int(count)) for name, count in found.get("packed", {}).items())
    except (AttributeError, RecursionError, TypeError, ValueError):
        return Hints()
    return Hints(fixed, frozen, packed)
