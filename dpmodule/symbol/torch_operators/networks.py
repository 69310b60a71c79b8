"""Recurrent networks, attention and custom functions, each of which is one operator in torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ..symbol import Symbol
from ..torch_functions import applied_function
from .builder import SymbolBuilder
from .table import TABLE, translates
from .value import NoCounterpart, TorchValue, dims_of, same


def _packed(b: SymbolBuilder, weights: Sequence[TorchValue], has_biases: bool, per_network: int) -> Symbol:
    """Join parameters into the flat vector of `RNN`: all weights, then all biases.

    torch lists them by layer and direction: i2h, h2h, their biases, and the projection of the state.
    """
    matrices: list[TorchValue] = []
    biases: list[TorchValue] = []
    for i in range(0, len(weights), per_network):
        group = list(weights[i : i + per_network])
        own = group[2:4] if has_biases else [b.full(group[0].dims[:1], 0.0, group[0].dtype)] * 2
        matrices += [*group[:2], *group[4 if has_biases else 2 :]]
        biases += own
    flat = [b.reshape(w, (w.dims[0] * w.dims[1],)) for w in matrices]
    return b.op("_rnn_param_concat", *flat, *biases, dim=0)


def _run(
    b: SymbolBuilder,
    mode: str,
    value: TorchValue,
    states: Sequence[TorchValue],
    weights: Sequence[TorchValue],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    bidirectional: bool,
) -> list[Symbol]:
    """Run a network over data with the time steps first."""
    networks = num_layers * (2 if bidirectional else 1)
    size = weights[1].dims[0] // {"lstm": 4, "gru": 3}.get(mode, 1)
    projection = weights[1].dims[1] if weights[1].dims[1] != size else None
    packed = _packed(b, weights, has_biases, len(weights) // networks)
    options = {"mode": mode, "num_layers": num_layers, "state_size": size, "bidirectional": bidirectional}
    if projection is not None:
        options["projection_size"] = projection
    return list(b.op("RNN", value, packed, *states, p=float(dropout), state_outputs=True, **options))


def _network(mode: str) -> Any:
    def translate(
        b: SymbolBuilder,
        value: TorchValue,
        states: TorchValue | Sequence[TorchValue],
        weights: Sequence[TorchValue],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> list[Symbol]:
        if not isinstance(has_biases, bool):
            raise NoCounterpart("reads packed sequences, whose lengths are not known before run time")
        state_list = [states] if isinstance(states, TorchValue) else states
        drop = 0.0 if b.training and not train else dropout
        data = b.transpose(value, (1, 0, 2)) if batch_first else value
        out, *last = _run(b, mode, data, state_list, weights, has_biases, num_layers, drop, bidirectional)
        return [b.op("SwapAxis", out, dim1=0, dim2=1) if batch_first else out, *last]

    return translate


def _cell(mode: str) -> Any:
    def translate(
        b: SymbolBuilder,
        value: TorchValue,
        states: TorchValue | Sequence[TorchValue],
        *weights: TorchValue | None,
    ) -> Any:
        state_list = [states] if isinstance(states, TorchValue) else states
        step = b.reshape(value, (1, *value.dims))
        first = [b.reshape(s, (1, *s.dims)) for s in state_list]
        known = [w for w in weights if w is not None]
        out = _run(b, mode, step, first, known, len(known) == 4, 1, 0.0, False)
        last = [b.op("squeeze", s, axis=0) for s in out[1:]]
        return last if mode == "lstm" else last[0]

    return translate


for _mode, _name in (("lstm", "lstm"), ("gru", "gru"), ("rnn_tanh", "rnn_tanh"), ("rnn_relu", "rnn_relu")):
    TABLE[_name] = _network(_mode)
    TABLE[f"{_name}_cell"] = _cell(_mode)


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
        mask = _causal(b, query, key)
    if mask is not None:
        scores = _masked(b, scores, mask)
    weights = b.op("softmax", scores, axis=-1)
    if dropout:
        weights = b.op("Dropout", weights, p=float(dropout))
    return b.op("linalg_gemm2", weights, value)


def _repeated(b: SymbolBuilder, value: TorchValue, query: TorchValue) -> TorchValue:
    """Repeat heads of keys or values to the number of queries' heads."""
    have, want = value.dims[-3], query.dims[-3]
    if same(have, want):
        return value
    if not isinstance(have, int) or not isinstance(want, int):
        raise NoCounterpart("shares heads whose number is not fixed")
    axis = value.rank - 3
    repeated = b.op("repeat", value, repeats=want // have, axis=axis)
    return b.value(repeated, (*value.dims[:axis], want, *value.dims[axis + 1 :]), value.dtype)


def _causal(b: SymbolBuilder, query: TorchValue, key: TorchValue) -> TorchValue:
    """Return the causal mask: each position attends to itself and earlier ones."""
    rows, columns = query.dims[-2], key.dims[-2]
    own = b.reshape(b.indices(query, query.rank - 2), (rows, 1))
    other = b.reshape(b.indices(key, key.rank - 2), (1, columns))
    return b.value(b.op("broadcast_greater_equal", own, other), (rows, columns), torch.bool)


def _masked(b: SymbolBuilder, scores: TorchValue, mask: TorchValue) -> TorchValue:
    if not mask.is_bool:
        return b.value(b.pair("add", scores, b.cast(mask, scores.dtype)), scores.dims, scores.dtype)
    nothing = b.expand(b.full((1,) * scores.rank, -math.inf, scores.dtype), scores.dims)
    masked = b.op("where", b.expand(mask, scores.dims), scores, nothing)
    return b.value(masked, scores.dims, scores.dtype)


@translates("autograd_function")
def _autograd_function(b: SymbolBuilder, number: int, values: Sequence[TorchValue]) -> list[TorchValue]:
    applied, fakes = applied_function(number), b.result
    outputs = b.module(applied, values, len(fakes))
    return [b.value(output, dims_of(fake), applied.floating) for output, fake in zip(outputs, fakes)]
