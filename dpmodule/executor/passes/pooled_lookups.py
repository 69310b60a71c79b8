"""Fuse an embedding lookup of ragged indices with the pooling that reads it.

A document of hundreds of words becomes one row. Separately, `Embedding` writes a row for each word, which
`sequence_pool` reads again, and backward does the same with gradients. The fused step touches only the rows of the
table and the pooled rows; see `ops.sparse.lookup.PooledLookup`.

Needs:
    storage: ragged indices, a dense table; with a row-sparse table both operators run separately
    rank: ragged indices (N,); with more axes both operators run separately
    type: a table of float32 or float64 on the CPU; else both operators run separately
    layout: any
    gradients: any
"""

from __future__ import annotations

from collections import Counter

from ...ops.sparse import SparseCall
from ..lowering import Lowered, Step


def _call(step: Step, name: str) -> SparseCall | None:
    """Return a step's sparse call if it is the operator `name`, not fused by another pass; else None."""
    call = step.function
    return call if isinstance(call, SparseCall) and call.op.name == name and not step.covers else None


def _fused(lookup: Step, pool: Step) -> Step | None:
    """Return the fused step; None if the two steps cannot be fused."""
    from ...ops.sparse.lookup import POOLED, LookupPool, PooledLookup

    first, last = _call(lookup, "Embedding"), _call(pool, "sequence_pool")
    if first is None or last is None or first.stypes != ("ragged",) or pool.fixed.pool_type not in POOLED:
        return None
    fixed, covers = LookupPool(lookup.fixed, pool.fixed), (lookup.node,)
    call = PooledLookup(first, last)
    return Step(call, "pooled_lookup", fixed, lookup.inputs, pool.outputs, pool.node, covers=covers)


def pooled_lookups(low: Lowered) -> int:
    """Fuse lookups with the pooling that is their only reader.

    Returns:
        Number of fused pairs.
    """
    readers = Counter(value for step in low.steps for value in step.inputs)
    made_by = {value: step for step in low.steps for value in step.outputs}
    kept = low.kept()
    steps: dict[int, Step] = {}
    gone: set[int] = set()
    for step in low.steps:
        value = step.inputs[0] if step.inputs else -1
        lookup = made_by.get(value)
        if lookup is None or readers[value] > 1 or value in kept:
            continue
        fused = _fused(lookup, step)
        if fused is not None:
            steps[id(step)] = fused
            gone.add(id(lookup))
    low.steps = [steps.get(id(step), step) for step in low.steps if id(step) not in gone]
    return len(gone)
