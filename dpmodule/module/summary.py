"""What a module says of itself: a line, and a table of a bound network."""

from __future__ import annotations

from collections.abc import Iterable

from ..base import MXNetError
from ..graph import infer_shapes
from ..ops.shapes import prod
from .executor_group import DataParallelExecutorGroup
from .protocol import Trainable
from .stage import Stage

__all__ = ["describe", "summarize"]

_STAGES = {
    Stage.CREATED: "not bound",
    Stage.BOUND: "bound, without parameters",
    Stage.INITIALIZED: "with parameters",
    Stage.READY: "ready for updates",
}


def describe(module: Trainable, further: Iterable[str] = ()) -> str:
    """Return a line about a module: how far it has come, and what goes in and comes out.

    Args:
        module: the module; what it does not tell is left out.
        further: what else there is to say.
    """
    kind = "shapes" if module.stage >= Stage.BOUND else "names"
    parts = [_told(module, f"{what}_{kind}") for what in ("data", "label", "output")]
    inputs = ", ".join(filter(None, parts[:2]))
    flow = f"{inputs} -> {parts[2]}" if inputs and parts[2] else inputs
    return f"<{type(module).__name__}: {'; '.join(filter(None, (_STAGES[module.stage], flow, *further)))}>"


def _told(module: Trainable, name: str) -> str:
    """Return names, or names and shapes, that a module has under a name, as text; "" where it has none."""
    try:
        found = getattr(module, name, None) or ()
    except (MXNetError, NotImplementedError):
        return ""
    return ", ".join(each if isinstance(each, str) else f"{each[0]} {tuple(each[1])}" for each in found)


def summarize(group: DataParallelExecutorGroup) -> str:
    """Return a table: operator, output shape, number of parameters, and whether they are trained.

    Args:
        group: a bound executor group.
    """
    graph = group.symbol.graph
    descs = [*group.data_shapes, *(group.label_shapes or ())]
    shapes = infer_shapes(graph, {d.name: d.shape for d in descs})
    rows = [("name (operator)", "output shape", "parameters", "trained")]
    counted: set[str] = set()
    total = trained = 0
    for node in graph.nodes:
        if node.op is None:
            continue
        own = [
            c.name
            for c, _ in node.inputs
            if c.op is None and c.name in group.param_names and c.name not in counted
        ]
        counted.update(own)
        count = sum(prod(group.store.array(name, 0).shape) for name in own)
        learnt = sum(prod(group.store.array(name, 0).shape) for name in own if group.grad_req[name] != "null")
        total, trained = total + count, trained + learnt
        shape = ", ".join(str(s) for s in shapes[node])
        state = ("yes" if learnt else "no") if own else ""
        rows.append((f"{node.name} ({node.op.name})", shape, f"{count:,}" if own else "", state))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    rule = "-" * len(max(lines, key=len))
    lines = [lines[0], rule, *lines[1:], rule, f"parameters: {total:,} ({trained:,} trained)"]
    return "\n".join(lines)
