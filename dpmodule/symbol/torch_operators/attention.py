"""Attention."""

from __future__ import annotations

import math

import torch

from ..symbol import Symbol
from .builder import SymbolBuilder
from .sizes import same
from .table import translates
from .value import NoCounterpart, TorchValue


@translates("scaled_dot_product_attention")
def _attention(
    b: SymbolBuilder,
    query: TorchValue,
    key: TorchValue,
    value: TorchValue,
    mask: TorchValue | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Symbol:
    if enable_gqa:
        key, value = (_repeated(b, v, query) for v in (key, value))
    factor = 1.0 / math.sqrt(query.dims[-1]) if scale is None else scale
    lead = query.dims[:-2]
    key, value = (b.expand(v, (*lead, *v.dims[-2:])) for v in (key, value))
    dims = (*lead, query.dims[-2], key.dims[-2])
    scores = b.value(b.op("linalg_gemm2", query, key, transpose_b=True, alpha=factor), dims, query.dtype)
    if is_causal:
        mask = _causal(b, scores)
    if mask is not None:
        scores = _masked(b, scores, mask)
    weights = b.op("softmax", scores, axis=-1)
    if dropout:
        weights = b.op("Dropout", weights, p=float(dropout))
    return b.op("linalg_gemm2", weights, value)


def _repeated(b: SymbolBuilder, value: TorchValue, query: TorchValue) -> TorchValue:
    """Repeat heads of keys or values, so that there are as many as of queries."""
    have, want = value.dims[-3], query.dims[-3]
    if same(have, want):
        return value
    if not isinstance(have, int) or not isinstance(want, int):
        raise NoCounterpart("shares heads whose number is not fixed")
    axis = value.rank - 3
    made = b.op("repeat", value, repeats=want // have, axis=axis)
    return b.value(made, (*value.dims[:axis], want, *value.dims[axis + 1 :]), value.dtype)


def _causal(b: SymbolBuilder, scores: TorchValue) -> TorchValue:
    """Return where a position may look: at itself and what comes before it."""
    rows, columns = scores.dims[-2:]
    own = b.reshape(b.indices(scores, scores.rank - 2), (rows, 1))
    other = b.reshape(b.indices(scores, scores.rank - 1), (1, columns))
    return b.value(b.op("broadcast_greater_equal", own, other), (rows, columns), torch.bool)


def _masked(b: SymbolBuilder, scores: TorchValue, mask: TorchValue) -> TorchValue:
    if not mask.is_bool:
        return b.value(b.pair("add", scores, b.cast(mask, scores.dtype)), scores.dims, scores.dtype)
    nothing = b.full(scores.dims, -math.inf, scores.dtype)
    made = b.op("where", b.expand(mask, scores.dims), scores, nothing)
    return b.value(made, scores.dims, scores.dtype)
