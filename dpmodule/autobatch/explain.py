"""`explain`: what the last run computed together, what stayed alone, and where the time went."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from .errors import StateError
from .explanation import Explanation, KindRow
from .interface import RanBatch
from .state import state

__all__ = ["explain"]


def explain() -> Explanation:
    """Return what has been computed in the graph under construction, and how; print it to read it.

    In a notebook it also shows a picture: one bar for every batch, in order, as high as the batch is wide.

    Raises:
        StateError: nothing has been computed since `renew_cg`.

    Example:
        >>> import dpmodule.autobatch as dy
        >>> dy.renew_cg(autobatching=True) is dy.cg()
        True
        >>> xs = [dy.inputTensor([1.0, 2.0]) for _ in range(8)]
        >>> dy.forward([dy.tanh(x) for x in xs])
        >>> found = dy.explain()
        >>> [(row.operation, row.batches, row.largest) for row in found.rows if row.operation == "tanh"]
        [('tanh', 1, 8)]
    """
    graph = state.graph
    batches = graph.ran()
    if not batches:
        was_asked = graph.computed > 0
        raise StateError(
            "explain: only parameters, inputs, rows of tables and random numbers were asked for since renew_cg(), on"
            " which nothing has been computed; ask for the value of an operation on them"
            if was_asked
            else "explain: nothing has been computed since renew_cg(); ask for a value first, as loss.value() or"
            " loss.backward() do"
        )
    return Explanation(
        engine=graph.engine_name,
        is_batched=graph.is_batched,
        nodes=sum(batch.nodes for batch in batches),
        forwards=len({batch.forward for batch in batches}),
        rows=tuple(_rows(batches, graph.is_batched)),
        sequence=tuple((batch.operation, batch.label, batch.calls) for batch in batches),
        seconds=graph.seconds(),
    )


def _rows(batches: Sequence[RanBatch], is_batched: bool) -> list[KindRow]:
    """Return one row for every kind of node, the largest first."""
    kinds: dict[object, list[RanBatch]] = {}
    for batch in batches:
        kinds.setdefault(batch.kind, []).append(batch)
    groups = list(kinds.values())
    rows = []
    for group in groups:
        alone = sum(1 for batch in group if batch.calls == 1)
        reason = _why_alone(group, groups, is_batched) if alone else ""
        rows.append(
            KindRow(
                operation=group[0].operation,
                label=group[0].label,
                nodes=sum(batch.nodes for batch in group),
                batches=len(group),
                largest=max(batch.calls for batch in group),
                mean=sum(batch.calls for batch in group) / len(group),
                alone=alone,
                why=reason,
                way=group[0].way,
                repeats=sum(batch.repeats for batch in group),
            )
        )
    return sorted(rows, key=lambda row: (-row.nodes, row.label))


def _why_alone(group: Sequence[RanBatch], groups: Sequence[Sequence[RanBatch]], is_batched: bool) -> str:
    """Return why nodes of a kind were computed by themselves."""
    if not is_batched:
        return "batching is off; see configure(autobatch=True)"
    first = group[0]
    if first.apart:
        return f"never batched: {first.apart}"
    if len(group) > 1:
        alone = {batch.forward for batch in group if batch.calls == 1}
        within = any(sum(1 for batch in group if batch.forward == forward) > 1 for forward in alone)
        if within:
            return "others of its kind stand earlier or later: one feeds the other, on some way"
        return "others of its kind were asked for in another forward; ask for the last expression first"
    near = _nearest(first, groups)
    if near is None:
        return "the only one of its kind"
    return f"the only one of its kind; nearest: {near.label}, which has other {_difference(first, near)}"


def _nearest(batch: RanBatch, groups: Sequence[Sequence[RanBatch]]) -> RanBatch | None:
    """Return a batch of another kind that does the same operation, the one most alike."""
    others = [
        each[0] for each in groups if each[0].operation == batch.operation and each[0].kind != batch.kind
    ]
    if not others:
        return None
    return max(others, key=lambda other: SequenceMatcher(None, batch.label, other.label).ratio())


def _difference(one: RanBatch, other: RanBatch) -> str:
    if one.dims != other.dims or one.out != other.out:
        return "shapes"
    if one.parameters != other.parameters:
        return "parameters"
    return "attributes" if one.others != other.others else "operands"
