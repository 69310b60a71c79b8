"""The description of a module in one line, and the summary table of a bound network."""

from __future__ import annotations

from collections.abc import Iterable

from ..base import MXNetError, dtype_name
from ..executor.cost import backward_flops, forward_flops, intermediate_bytes, item_size
from ..graph import Node, infer_shapes, infer_types
from ..graph.node import printable
from ..ops.shapes import known, prod
from .group.executor_group import DataParallelExecutorGroup
from .lifecycle import Stage
from .protocol import Trainable

_STAGES = {
    Stage.CREATED: "not bound",
    Stage.BOUND: "bound, without parameters",
    Stage.INITIALIZED: "with parameters",
    Stage.READY: "ready for updates",
}


def describe(module: Trainable, further: Iterable[str] = ()) -> str:
    """Return a line about a module: its stage, inputs and outputs.

    Args:
        module: the module; properties that it lacks are omitted.
    """
    kind = "shapes" if module.stage >= Stage.BOUND else "names"
    parts = [_text_of(module, f"{what}_{kind}") for what in ("data", "label", "output")]
    inputs = ", ".join(filter(None, parts[:2]))
    flow = f"{inputs} -> {parts[2]}" if inputs and parts[2] else inputs
    return f"<{type(module).__name__}: {'; '.join(filter(None, (_STAGES[module.stage], flow, *further)))}>"


def _text_of(module: Trainable, name: str) -> str:
    """Return a property of names, or of names and shapes, as text; "" if the module lacks it."""
    try:
        descriptions = getattr(module, name, None) or ()
    except (MXNetError, NotImplementedError):
        return ""
    return ", ".join(
        desc if isinstance(desc, str) else f"{desc[0]} {tuple(desc[1])}" for desc in descriptions
    )


def summarize(group: DataParallelExecutorGroup) -> str:
    """Return a table: operator, output shape, parameters, whether they are trained, operations, and memory.

    Operations are counted in forward on one batch, with a multiply-add as two. Memory is that of the outputs of the
    operator for one batch.
    """
    costs = _Costs(group)
    rows = [("name (operator)", "output shape", "parameters", "trained", "FLOPs", "memory")]
    counted: set[str] = set()
    total = trained = 0
    for node in group.symbol.graph.nodes:
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
        state = ("yes" if learnt else "no") if own else ""
        cost = costs.cells(node)
        title = f"{printable(node.name)} ({node.op.name})"
        rows.append((title, cost[0], f"{count:,}" if own else "", state, *cost[1:]))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    rule = "-" * len(max(lines, key=len))
    lines = [
        lines[0],
        rule,
        *lines[1:],
        rule,
        f"parameters: {total:,} ({trained:,} trained)",
        *costs.totals(),
    ]
    return "\n".join(lines)


class _Costs:
    """Operations and memory of a whole batch over all contexts, computed from shapes."""

    def __init__(self, group: DataParallelExecutorGroup) -> None:
        self._group = group
        graph = group.symbol.graph
        descs = [*group.data_shapes, *(group.label_shapes or ())]
        self._shapes = infer_shapes(graph, {d.name: d.shape for d in descs})
        given = {d.name: dtype_name(d.dtype) for d in descs}
        self._types = infer_types(graph, given, default="float32")
        self._forward = forward_flops(graph, self._shapes)
        wanted = [name for name, req in group.grad_req.items() if req != "null"]
        self._backward = sum(backward_flops(graph, self._forward, wanted).values()) if wanted else 0

    def cells(self, node: Node) -> tuple[str, str, str]:
        """Return the shapes of an operator's outputs, its operations and its memory."""
        size = self._size(node)
        flops = self._forward[node]
        shown = ", ".join(str(s) for s in self._shapes[node])
        return shown, f"{flops:,}" if flops else "", f"{size:,} B" if size else ""

    def totals(self) -> list[str]:
        """Return lines about the network."""
        group, graph = self._group, self._group.symbol.graph
        arrays = [node for node in graph.nodes if node.op is None]
        shapes = {node.name: self._shapes[node][0] for node in arrays}
        types = {node.name: self._types[node][0] or "float32" for node in arrays}
        values = intermediate_bytes(graph, shapes, types, training=bool(self._backward))
        params = [node for node in arrays if node.name in group.param_names]
        states = sum(map(self._size, (node for node in arrays if node.name in group.aux_names)))
        grads = sum(self._size(node) for node in params if group.grad_req[node.name] != "null")
        parts = {"parameters": sum(map(self._size, params)), "gradients": grads, "states": states}
        memory = ", ".join(f"{name} {size:,} B" for name, size in parts.items() if size)
        flops = f"{sum(self._forward.values()):,} forward"
        if self._backward:
            flops += f", {self._backward:,} backward (about)"
        return [
            f"FLOPs of a batch: {flops}",
            f"memory: {memory or 'no parameters'}, values of a batch {values:,} B",
        ]

    def _size(self, node: Node) -> int:
        """Return the bytes of the outputs of a node; outputs of unknown shape count 0."""
        pairs = zip(self._shapes[node], self._types[node])
        return sum(
            prod(shape) * item_size(dtype or "float32") for shape, dtype in pairs if shape and known(shape)
        )
