"""What a symbol shows of its graph: nodes and attributes.

Source: MXNet 1.9.1 `Symbol.debug_str` and `Symbol.attr_dict`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..attribute import BARE_KEYS, bare_suffix, is_free, stored_key
from ..base import ArgumentError, OpError
from ..graph import Graph, Node


def shown(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return attributes with the five bare keys shown both ways."""
    found = dict(attributes)
    found.update({k: attributes[f"__{k}__"] for k in BARE_KEYS if f"__{k}__" in attributes})
    return found


def debug_str(graph: Graph) -> str:
    """Return a listing of every node with its inputs and attributes."""
    if len(graph.nodes) == 1 and graph.nodes[0].op is None:
        return f"Variable:{graph.nodes[0].name}\n"
    from ..graph import input_versions

    versions = input_versions(graph)
    lines = ["Symbol Outputs:"]
    lines += [f"\toutput[{k}]={node.name}({i})" for k, (node, i) in enumerate(graph.heads)]
    for node in graph.nodes:
        if node.op is None:
            lines.append(f"Variable:{node.name}")
            continue
        lines += ["--------------------", f"Op:{node.op.name}, Name={node.name}", "Inputs:"]
        for k, ((child, i), version) in enumerate(zip(node.inputs, versions[node])):
            lines.append(
                f"\targ[{k}]={child.name}({i})" + (f" version={version}" if child.op is None else "")
            )
        if attributes := node.all_attrs:
            lines += ["Attrs:", *(f"\t{k}={v}" for k, v in sorted(attributes.items()))]
    return "\n".join(lines) + "\n"


def set_attribute(node: Node, key: str, value: str) -> None:
    """Set an attribute of a node in place; an operator's own ones too."""
    if not isinstance(value, str):
        raise ArgumentError(f"_set_attr: {key} is {value!r}, expected a string")
    stored = stored_key(key)
    if node.op is not None and stored == key and node.op.owns(key):
        node.set_param(key, value)
    elif node.op is not None and not is_free(stored) and not (node.op.takes_any and bare_suffix(key) is None):
        raise OpError(f"{node.describe()} has no attribute {key!r}; free ones have the form __x__")
    else:
        node.attrs[stored] = value
