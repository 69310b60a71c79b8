"""Looking up rows of a table for ragged numbers and pooling them, as one step.

The rows looked up, of which there may be hundreds for each that comes out, are never written to memory, nor are their
gradients: the gradient of a table's row is the sum of those of the pooled rows that it is part of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.functional import embedding_bag

from ..spec import Env
from .call import SparseCall
from .ragged import Ragged
from .records import Sparse, row_gradient, summed
from .rule import SparseRule, Stypes

Tensor = torch.Tensor

POOLED = frozenset({"sum", "mean", "sqrt"})
"""The kinds of pooling that are sums of rows times a number."""


class LookupPool(NamedTuple):
    """What a pooled lookup does.

    Attributes:
        pool: attributes of `sequence_pool`, of one of the kinds in `POOLED`.
    """

    lookup: Any
    pool: Any


def _whole(a: LookupPool, data: Ragged) -> Tensor:
    return data.values.long().clamp(0, a.lookup.input_dim - 1)


def _scaled(a: LookupPool, sums: Tensor, data: Ragged) -> Tensor:
    """Return sums (N, D) over rows of `data`, or their gradients, divided as the pooling says."""
    if a.pool.pool_type == "sum":
        return sums
    counts = data.lengths().clamp(min=1).to(sums.dtype).view(-1, 1)
    return sums / (counts if a.pool.pool_type == "mean" else counts.sqrt())


def _run(a: LookupPool, env: Env, data: Ragged, weight: Tensor) -> Tensor:
    sums: Tensor = embedding_bag(_whole(a, data), weight, data.offsets, mode="sum", include_last_offset=True)
    return _scaled(a, sums, data)


def _grad(
    a: LookupPool, env: Env, wanted: Sequence[bool], grads: Sequence[Tensor], data: Ragged, weight: Tensor
) -> list[Tensor | None]:
    if not wanted[1]:
        return [None, None]
    rows, totals = summed(_whole(a, data), _scaled(a, grads[0], data).contiguous(), data.row_numbers())
    if a.lookup.sparse_grad:
        return [None, row_gradient(rows, totals, weight.shape)]
    return [None, torch.zeros_like(weight).index_copy_(0, rows, totals)]


def _fits(data: Any, weight: Any) -> bool:
    """Say whether torch has the kernels: one number after the other, and a dense table of the CPU."""
    return (
        data.values.dim() == 1
        and not isinstance(weight, Sparse)
        and weight.is_cpu
        and weight.dtype in (torch.float32, torch.float64)
    )


def _storage(a: Any, stypes: Stypes) -> Stypes:
    return ("default",)


class _OneOrBoth:
    """A pooled lookup, or where torch has no kernels for it the lookup and the pooling one after the other."""

    def __init__(
        self, lookup: Callable[..., Any], pool: Callable[..., Any], fused: Callable[..., Any]
    ) -> None:
        self._lookup, self._pool, self._fused = lookup, pool, fused

    def run(self, a: LookupPool, env: Env, data: Ragged, weight: Any) -> Any:
        """Return the pooled rows, with their history where gradients are recorded."""
        if _fits(data, weight):
            return self._fused(a, env, data, weight)
        return self._pool(a.pool, env, self._lookup(a.lookup, env, data, weight))

    def recorded(self, a: LookupPool, env: Env, takes_rows: Sequence[bool], data: Ragged, weight: Any) -> Any:
        """Do the same: both ways record by themselves."""
        return self.run(a, env, data, weight)


def pooled_lookup(lookup: SparseCall, pool: SparseCall) -> SparseCall:
    """Return what does the work of an `Embedding` on ragged data and of the `sequence_pool` that reads it.

    Returns:
        A function of a `LookupPool`, an environment, ragged numbers (N,) and a table (input_dim, output_dim); its
        result is (N, output_dim).
    """
    fused = SparseCall(pool.op, SparseRule(_storage, _run, _grad), pool.stypes, lookup.takes_rows)
    both = _OneOrBoth(lookup, pool, fused)
    rule = SparseRule(_storage, both.run, recorded=both.recorded)
    return SparseCall(pool.op, rule, pool.stypes, lookup.takes_rows)
