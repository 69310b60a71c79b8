"""What a graph has run, told alike for both engines: batches, and what was computed in each.

Inputs, parameters, rows of tables, random numbers, whatever has no operands, are left out: they lie there, and are read
where they are needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .native_graph import NativeGraph
from .native_names import SOURCES
from .ops.spec import Dim, Op, shown

FEW = 4
"""More operands of one shape are shown as one."""

__all__ = ["RanBatch", "ran_batches"]


@dataclass(frozen=True, slots=True)
class RanBatch:
    """One batch.

    Attributes:
        kind: what could have been in it: equal for batches of one kind.
        operation: the operation's name; several with "+" between them where the engine has fused them.
        dims: the dimensions of the operands that come from outside.
        out: those of the result.
        parameters: which parameters it read, in any form that compares.
        others: what else is equal within a kind.
        nodes: how many nodes have their values from it.
        calls: how many of these are the same operation, which is what the batch is wide.
        forward: which request for a value it belongs to.
        repeats: how many operations were left out because an equal one was computed.
        apart: why the operation is never batched, "" if it may be.
        way: how code of the user's is run, "" for one call.
    """

    kind: Any
    operation: str
    dims: tuple[Dim, ...]
    out: Dim
    parameters: tuple[Any, ...]
    others: Any
    nodes: int
    calls: int
    forward: int
    repeats: int = 0
    apart: str = ""
    way: str = ""

    @property
    def label(self) -> str:
        """The operation with its shapes."""
        operands = " ".join(map(shown, self.dims))
        return (
            f"{self.operation} {operands} -> {shown(self.out)}"
            if operands
            else f"{self.operation} {shown(self.out)}"
        )


def ran_batches(graph: Any) -> list[RanBatch]:
    """Return the batches that a graph has run since it was begun, in order.

    Args:
        graph: of either engine.
    """
    return list(_native(graph) if isinstance(graph, NativeGraph) else _python(graph))


def _way(op: Op, attrs: tuple[Any, ...], dims: tuple[Dim, ...]) -> str:
    if not op.name.startswith("cell "):
        return ""
    reference, is_train, inputs = attrs
    owner = reference()
    return "" if owner is None else owner.way(is_train, [dim.d for dim in dims[:inputs]])


def _python(graph: Any) -> Iterator[RanBatch]:
    for forward, plan in enumerate(graph.plans()):
        for step in plan.steps:
            kind, count = step.kind, len(step.nodes)
            if not kind.dims:
                continue
            yield RanBatch(
                kind=kind.index,
                operation=_known(kind.op.name),
                dims=_inputs_of(kind.op, kind.attrs, kind.dims),
                out=kind.outs[0],
                parameters=tuple(each and each[1:] for each in kind.parameters),
                others=kind.attrs,
                nodes=count,
                calls=count,
                forward=forward,
                apart=kind.op.apart,
                way=_way(kind.op, kind.attrs, kind.dims),
            )


def _known(name: str) -> str:
    """Return the name of an operation without what the shapes tell: how many operands there are, or a minibatch."""
    return _FORMS.get(name, name.removesuffix("_many"))


_FORMS = {"lstm_first": "lstm_step", "sum_batches": "sum_dim"}


def _inputs_of(op: Op, attrs: tuple[Any, ...], dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return the shapes of operands; a cell's parameters are not shown."""
    return dims[: attrs[2]] if op.name.startswith("cell ") else dims


def _native(graph: NativeGraph) -> Iterator[RanBatch]:
    for signatures, count, repeats, forward, nodes in graph.machine.batches():
        operations = [graph.operation(signature) for signature in signatures]
        (*_, last) = operations
        call = last.call
        if last.name in SOURCES or (call is not None and not call.dims):
            continue
        operation = " + ".join(_known(each.name) for each in operations)
        dims = [dim for each in operations for dim in each.dims]
        dims += [graph.dim(node) for node in nodes if node >= 0]
        if len(dims) > FEW and len(set(dims)) == 1:
            del dims[1:]
        out = graph.machine.describe(signatures[-1])
        yield RanBatch(
            kind=signatures,
            operation=operation,
            dims=tuple(dims) if call is None else _inputs_of(call.op, call.attrs, call.dims),
            out=Dim(tuple(out[2]), out[3]),
            parameters=tuple(each.parameters for each in operations),
            others=tuple(each.call.attrs for each in operations if each.call is not None),
            nodes=(count + repeats) * (operation.count(" + ") + 1),
            calls=count,
            forward=forward,
            repeats=repeats,
            apart="" if call is None else call.op.apart,
            way="" if call is None else _way(call.op, call.attrs, call.dims),
        )
