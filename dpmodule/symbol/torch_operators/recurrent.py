"""Recurrent networks: whole ones, and cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..symbol import Symbol
from .builder import SymbolBuilder
from .table import TABLE
from .value import NoCounterpart, TorchValue


def _packed(b: SymbolBuilder, weights: Sequence[TorchValue], has_biases: bool, per_network: int) -> Symbol:
    """Join parameters into the flat vector of `RNN`: all weights, then all biases.

    torch lists them by layer and direction: i2h, h2h, their biases, and what projects the state.
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
            raise NoCounterpart("reads packed sequences, whose lengths are not known before it runs")
        given = [states] if isinstance(states, TorchValue) else states
        drop = 0.0 if b.training and not train else dropout
        data = b.transpose(value, (1, 0, 2)) if batch_first else value
        out, *last = _run(b, mode, data, given, weights, has_biases, num_layers, drop, bidirectional)
        return [b.op("SwapAxis", out, dim1=0, dim2=1) if batch_first else out, *last]

    return translate


def _cell(mode: str) -> Any:
    def translate(
        b: SymbolBuilder,
        value: TorchValue,
        states: TorchValue | Sequence[TorchValue],
        *weights: TorchValue | None,
    ) -> Any:
        given = [states] if isinstance(states, TorchValue) else states
        step = b.reshape(value, (1, *value.dims))
        first = [b.reshape(s, (1, *s.dims)) for s in given]
        known = [w for w in weights if w is not None]
        out = _run(b, mode, step, first, known, len(known) == 4, 1, 0.0, False)
        last = [b.op("squeeze", s, axis=0) for s in out[1:]]
        return last if mode == "lstm" else last[0]

    return translate


for _mode, _name in (("lstm", "lstm"), ("gru", "gru"), ("rnn_tanh", "rnn_tanh"), ("rnn_relu", "rnn_relu")):
    TABLE[_name] = _network(_mode)
    TABLE[f"{_name}_cell"] = _cell(_mode)
