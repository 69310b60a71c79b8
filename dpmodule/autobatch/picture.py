"""The graph as text for graphviz."""

from __future__ import annotations

import sys
from typing import Any

from .ops.spec import shown
from .python_engine.signature import EXTRA
from .state import state

__all__ = ["graphviz_text", "print_graphviz", "print_text_graphviz"]


def graphviz_text() -> str:
    """Return the graph under construction in graphviz' language."""
    graph = state.graph
    lines = ["digraph G {", "  rankdir=LR;", "  nodesep=.05;"]
    for node in range(graph.size):
        kind = graph.signature(node).kind
        args = graph.operands(node)
        label = "result" if kind.op is EXTRA else kind.op.name.replace("\\", "\\\\").replace('"', '\\"')
        operands = ", ".join(f"v{arg}" for arg in args)
        lines.append(f'  N{node} [label="v{node} = {label}({operands}) {shown(graph.dim(node))}"];')
        lines += [f"  N{arg} -> N{node};" for arg in args]
    return "\n".join([*lines, "}"]) + "\n"


def print_text_graphviz() -> None:
    """Write the graph under construction to the standard output, in graphviz' language.

    Source: DyNet's `print_text_graphviz`.
    """
    sys.stdout.write(graphviz_text())


def print_graphviz(**kwargs: Any) -> None:
    """Do what `print_text_graphviz` does; options of DyNet's drawing are taken and do nothing.

    Args:
        **kwargs: not read.
    """
    print_text_graphviz()
