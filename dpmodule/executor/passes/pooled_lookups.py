"""Sum the rows of a table that ragged numbers stand for without writing them down first.

A document of hundreds of words becomes one row. By itself, `Embedding` writes a row for each word, which
`sequence_pool` reads again, and backward does the same with gradients. As one step, both only touch the rows of the
table and the pooled ones; see `ops.sparse.lookup.PooledLookup`.

Needs:
    storage: ragged numbers, a dense table; a row-sparse table is looked up and pooled as the graph says
    rank: ragged numbers (N,); of further axes they go the plain way
    type: a table of float32 or float64 on the CPU; else both operators run as they are
    layout: any
    gradients: any
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ...ops.sparse import SparseCall
from ..lowering import Lowered, Step


def _call(step: Step | None, name: str) -> SparseCall | None:
    """Return what a step calls if it is an operator on ragged data that nothing was done to yet."""
    call: Any = None if step is None else step.function
    if not isinstance(call, SparseCall) or call.op.name != name or step is None or step.covers:
        return None
    return call


def _joined(lookup: Step | None, pool: Step) -> Step | None:
    """Return the step that does the work of both, None if they are not what this is about."""
    from ...ops.sparse.lookup import POOLED, LookupPool, PooledLookup

    first, last = _call(lookup, "Embedding"), _call(pool, "sequence_pool")
    if lookup is None or first is None or last is None:
        return None
    if first.stypes != ("ragged",) or pool.fixed.pool_type not in POOLED:
        return None
    fixed = LookupPool(lookup.fixed, pool.fixed)
    return Step(
        PooledLookup(first, last),
        "pooled_lookup",
        fixed,
        lookup.inputs,
        pool.outputs,
        pool.node,
        covers=(lookup.node,),
    )


def pooled_lookups(low: Lowered) -> int:
    """Join lookups with the pooling that alone reads them.

    Returns:
        How many pairs there are.
    """
    readers = Counter(value for step in low.steps for value in step.inputs)
    made_by = {value: step for step in low.steps for value in step.outputs}
    kept = low.kept()
    steps: dict[int, Step] = {}
    gone: set[int] = set()
    for step in low.steps:
        value = step.inputs[0] if step.inputs else -1
        lookup = made_by.get(value)
        if readers[value] > 1 or value in kept:
            continue
        joined = _joined(lookup, step)
        if joined is not None:
            steps[id(step)] = joined
            gone.add(id(lookup))
    low.steps = [steps.get(id(step), step) for step in low.steps if id(step) not in gone]
    return len(gone)
