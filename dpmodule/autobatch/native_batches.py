"""What the native engine has run together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .ops.spec import Dim

__all__ = ["Batch", "batches_of"]


class Batch(NamedTuple):
    """What was run together.

    Args:
        operations: names, in order of computation; more than one where they were fused.
        dim: the shape of the result.
        rows: how many nodes of the last operation.
        level: the step of the recurrence, 0 outside of one.
        alone: for a batch of one, why; else empty.
    """

    operations: tuple[str, ...]
    dim: Dim
    rows: int
    level: int
    alone: str


def batches_of(machine: Any, name: Callable[[int, int], str]) -> list[Batch]:
    """Return what an engine has run together since `renew`, in order.

    Args:
        machine: the engine.
        name: from the numbers of an operation and of its kind to its name.
    """
    found: list[Batch] = []
    rows_of_run: dict[int, int] = {}
    raw = machine.batches()
    for _, rows, _, run in raw:
        rows_of_run[run] = rows_of_run.get(run, 0) + rows
    for signatures, rows, level, run in raw:
        described = [machine.describe(signature) for signature in signatures]
        names = tuple([name(op, kind) for op, kind, *_ in described])
        dim = Dim(tuple(described[-1][2]), described[-1][3])
        found.append(Batch(names, dim, rows, level, _why_alone(machine, rows, rows_of_run[run])))
    return found


def _why_alone(machine: Any, rows: int, rows_of_run: int) -> str:
    if rows > 1:
        return ""
    if not machine.batched:
        return "batching is off"
    if rows_of_run > 1:
        return "its kind depends on itself, and nothing else stood at this level"
    return "no other node of this kind in this part of the graph"
