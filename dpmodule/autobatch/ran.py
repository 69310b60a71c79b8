"""What a graph has run, told alike for both engines: batches, and what was computed in each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .native_graph import NativeGraph
from .native_kernels import kernel_name
from .ops.source import PARAMETER
from .ops.spec import Dim, Op, shown

__all__ = ["RanBatch", "ran_batches"]


@dataclass(frozen=True, slots=True)
class RanBatch:
    """One batch.

    Attributes:
        kind: what could have been in it: equal for batches of one kind.
        operation: the operation's name; several with "+" between them where the engine has fused them.
        dims: the dimensions of the operands, as far as the engine knows them.
        out: those of the result.
        parameters: which parameters it read, in any form that compares.
        others: what else is equal within a kind.
        nodes: how many nodes were computed.
        calls: how many of these are the same operation, which is what the batch is wide.
        forward: which request for a value it belongs to.
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
            kind = step.kind
            if kind.op is PARAMETER:
                continue
            parameters = tuple(each and each[1:] for each in kind.parameters)
            way = _way(kind.op, kind.attrs, kind.dims)
            shown_dims = kind.dims[: kind.attrs[2]] if kind.op.name.startswith("cell ") else kind.dims
            count = len(step.nodes)
            yield RanBatch(
                kind=kind.index,
                operation=kind.op.name,
                dims=shown_dims,
                out=kind.outs[0],
                parameters=parameters,
                others=kind.attrs,
                nodes=count,
                calls=count,
                forward=forward,
                apart=kind.op.apart,
                way=way,
            )


def _native(graph: NativeGraph) -> Iterator[RanBatch]:
    machine = graph.machine
    forward = 0
    seen: set[tuple[int, int]] = set()
    for signatures, count, level, run in machine.batches():
        if (run, level) in seen:  # runs are numbered anew in every forward
            forward, seen = forward + 1, set()
        seen.add((run, level))
        described = [machine.describe(signature) for signature in signatures]
        names, others, apart, way = [], [], "", ""
        dims: tuple[Dim, ...] = ()
        for op, kind, _, _, _ in described:
            name = kernel_name(op, kind)
            if name == "call":
                call = graph.call_kind(kind)
                name, apart = call.op.name, call.op.apart
                dims = call.dims[: call.attrs[2]] if name.startswith("cell ") else call.dims
                way = _way(call.op, call.attrs, call.dims)
                others.append(call.attrs)
            names.append(name)
        yield RanBatch(
            kind=signatures,
            operation=" + ".join(names),
            dims=dims,
            out=Dim(tuple(described[-1][2]), described[-1][3]),
            parameters=tuple(each[4] for each in described),
            others=tuple(others),
            nodes=count * len(signatures),
            calls=count,
            forward=forward,
            apart=apart,
            way=way,
        )
