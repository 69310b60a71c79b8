"""What a graph has run, told alike for both engines: batches, and what was computed in each.

Inputs, parameters, rows of tables, random numbers, whatever has no operands, are left out: they lie there, and are read
where they are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .ops.spec import Dim, Operation, shown
from .plan import BatchPlan

FEW = 4
"""More operands of one shape are shown as one."""

__all__ = ["FEW", "RanBatch", "batches_of", "inputs_of", "known_as", "way_of"]


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


def way_of(op: Operation, attrs: tuple[Any, ...], dims: tuple[Dim, ...]) -> str:
    """Return how code of the user's is run, see `RanBatch.way`."""
    if not op.name.startswith("cell "):
        return ""
    reference, is_train, inputs = attrs
    owner = reference()
    return "" if owner is None else owner.way(is_train, [dim.d for dim in dims[:inputs]])


def batches_of(plans: Sequence[BatchPlan]) -> Iterator[RanBatch]:
    """Tell what plans have run.

    Args:
        plans: one for every request for a value.
    """
    for forward, plan in enumerate(plans):
        for step in plan.steps:
            kind, count = step.kind, len(step.nodes)
            if not kind.dims:
                continue
            yield RanBatch(
                kind=kind.index,
                operation=known_as(kind.op.name),
                dims=inputs_of(kind.op, kind.attrs, kind.dims),
                out=kind.outs[0],
                parameters=tuple(each and each[1:] for each in kind.parameters),
                others=kind.attrs,
                nodes=count,
                calls=count,
                forward=forward,
                apart=kind.op.apart,
                way=way_of(kind.op, kind.attrs, kind.dims),
            )


def known_as(name: str) -> str:
    """Return the name of an operation without what the shapes tell: how many operands there are, or a minibatch."""
    return _FORMS.get(name, name.removesuffix("_many"))


_FORMS = {"lstm_first": "lstm_step", "sum_batches": "sum_dim"}


def inputs_of(op: Operation, attrs: tuple[Any, ...], dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return the shapes of operands; a cell's parameters are not shown."""
    return dims[: attrs[2]] if op.name.startswith("cell ") else dims
