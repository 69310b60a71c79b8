"""Recurrent networks on ragged values, where each row is a sequence.

`RNN` includes the input projection; `sequence_lstm` takes projected data, as in Paddle. Shape letters: N rows, T
elements of all rows, H features of the state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import OpError, Shape
from ..attrs import boolean, choice
from ..nn.layer_shapes import unify_input
from ..nn.rnn import check_states, run, weights_of
from ..registry import op
from ..spec import NEVER, Attr, Env, Onnx, Shapes, arg, param
from .dispatch import SparseRule, Stypes, add_ragged_rule, differentiated_by_torch, unchanged
from .storage import Ragged

Tensor = torch.Tensor


def _rnn_storage(a: Any, stypes: Stypes) -> Stypes:
    if stypes[0] != "ragged" or any(stype != "default" for stype in stypes[1:]):
        raise OpError(f"RNN takes ragged data with dense parameters and states, got {', '.join(stypes)}")
    if a.use_sequence_length:
        raise OpError(
            "RNN: use_sequence_length is True, expected False for ragged data, which has row lengths"
        )
    states = 1 + (a.mode == "lstm") if a.state_outputs else 0
    return ("ragged", *("default",) * states)


def packing_layout(data: Ragged, from_end: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Return the layout of torch's packed sequences: rows sorted by length, elements ordered by step.

    Returns:
        places: packed position of each element, (T,).
        order: row indices by descending length, (N,).
        batch_sizes: number of rows with an element at each step, (longest,) on the CPU.
    """
    lengths, rows = data.lengths(), data.row_numbers()
    order = lengths.argsort(descending=True, stable=True)
    ranks = torch.empty_like(order).index_copy_(0, order, torch.arange(order.numel(), device=order.device))
    steps = torch.arange(rows.numel(), device=rows.device) - data.offsets.index_select(0, rows)
    if from_end:
        steps = lengths.index_select(0, rows) - 1 - steps
    batch_sizes = steps.bincount()
    starts = batch_sizes.cumsum(0) - batch_sizes
    return starts.index_select(0, steps) + ranks.index_select(0, rows), order, batch_sizes.cpu()


def _rnn(a: Any, env: Env, data: Ragged, parameters: Tensor, *states: Tensor) -> Any:
    """Run all rows; the last states are those at each row's end, or the initial states for an empty row."""
    values = data.values
    check_states(a, data.values.new_empty(0, *data.shape), states)
    weights = weights_of(a, parameters, values.shape[-1])
    if not values.shape[0]:
        hidden = (a.projection_size or a.state_size) * (2 if a.bidirectional else 1)
        output = data.replaced(values.new_zeros(0, hidden))
        return (output, *states) if a.state_outputs else output
    positions, order, batch_sizes = packing_layout(data)
    filled = int(batch_sizes[0])
    sorted_states = [state.index_select(1, order) for state in states]
    begin = [state[:, :filled].contiguous() for state in sorted_states]
    out, *last = run(a, env, values.index_select(0, positions.argsort()), batch_sizes, begin, weights)
    output = data.replaced(out.index_select(0, positions))
    if not a.state_outputs:
        return output
    inverse_order = order.argsort()
    whole = [torch.cat([new, old[:, filled:]], 1) for new, old in zip(last, sorted_states, strict=True)]
    return (output, *(state.index_select(1, inverse_order) for state in whole))


add_ragged_rule("RNN", SparseRule(_rnn_storage, _rnn, None, unchanged, differentiated_by_torch(_rnn)))


# LSTM on projected data

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "identity": torch.clone,
}
_kind = choice(*_ACTIVATIONS)


def _lstm_shapes(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, weight, bias, *states = ins
    units = next((s[1] for s in (*outs, weight, *states) if s and len(s) == 2 and s[1]), 0)
    if not units and data and len(data) == 2:
        units = data[1] // 4
    rows = next((s[0] for s in (data, *outs, *states) if s and s[0]), 0)
    data = unify_input("data", data, (rows, 4 * units), weight)
    weight = unify_input("weight", weight, (4 * units, units), data)
    bias = unify_input("bias", bias, (units * (7 if a.use_peepholes else 4),), data)
    states = [unify_input("initial state", shape, (rows, units), data) for shape in states]
    return [data, weight, bias, *states], [
        unify_input("output", shape, (rows, units), data) for shape in outs
    ]


class _LSTMStep:
    """One step of the LSTM."""

    def __init__(self, a: Any, bias: Tensor, units: int) -> None:
        self._gate = _ACTIVATIONS[a.gate_activation]
        self._cell = _ACTIVATIONS[a.cell_activation]
        self._candidate = _ACTIVATIONS[a.candidate_activation]
        self._peepholes = torch.split(bias[4 * units :], units) if a.use_peepholes else None

    def step(self, gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Return hidden state and cell state after a step.

        Args:
            gates: (n, 4H), before the activations.
            cell: (n, H), before the step.
        """
        candidate, enter, forget, leave = gates.chunk(4, 1)
        if self._peepholes is not None:
            for_enter, for_forget, for_leave = self._peepholes
            enter, forget = torch.addcmul(enter, cell, for_enter), torch.addcmul(forget, cell, for_forget)
        kept = cell * self._gate(forget)
        cell = torch.addcmul(kept, self._candidate(candidate), self._gate(enter))
        if self._peepholes is not None:
            leave = torch.addcmul(leave, cell, for_leave)
        return self._gate(leave) * self._cell(cell), cell


def _lstm(
    a: Any, env: Env, data: Ragged, weight: Tensor, bias: Tensor, *first: Tensor
) -> tuple[Ragged, Ragged]:
    units = weight.shape[1]
    values = data.values
    if not values.shape[0]:
        empty = data.replaced(values.new_zeros(0, units))
        return empty, empty
    positions, rows, batch_sizes = packing_layout(data, a.is_reverse)
    mapped = values.index_select(0, positions.argsort()) + bias[: 4 * units]
    cell_of = _LSTMStep(a, bias, units)
    states, cells = [], []
    filled = int(batch_sizes[0])
    state = cell = values.new_zeros(filled, units)
    if first:
        state, cell = (each.index_select(0, rows[:filled]) for each in first)
    turned = weight.t()
    for gates in torch.split(mapped, batch_sizes.tolist()):
        count = gates.shape[0]
        state, cell = cell_of.step(torch.addmm(gates, state[:count], turned), cell[:count])
        states.append(state)
        cells.append(cell)
    unpacked = (torch.cat(parts).index_select(0, positions) for parts in (states, cells))
    hidden, inner = map(data.replaced, unpacked)
    return hidden, inner


@op(
    "sequence_lstm",
    [
        arg("data", NEVER),
        param("weight"),
        param("bias"),
        arg("state", NEVER, when=lambda a: a.has_state),
        arg("state_cell", NEVER, when=lambda a: a.has_state),
    ],
    {
        "use_peepholes": Attr(boolean, "let the gates read the cell state", True),
        "is_reverse": Attr(boolean, "run rows backwards", False),
        "gate_activation": Attr(_kind, "activation of the three gates", "sigmoid"),
        "cell_activation": Attr(_kind, "activation of the cell state", "tanh"),
        "candidate_activation": Attr(_kind, "activation of the new cell input", "tanh"),
        "has_state": Attr(boolean, "pass initial states", False),
    },
    outputs=("output", "cell"),
    infer=_lstm_shapes,
    batch=NEVER,
    onnx=Onnx(missing="works on rows of different lengths, which ONNX lacks"),
)
def sequence_lstm(a: Any, env: Env, data: Tensor, weight: Tensor, bias: Tensor, *states: Tensor) -> Any:
    """Run an LSTM over each row of projected data; `RNN` includes the projection.

    With the candidate c, the gates i, f, o before their activations, and the peephole weights p::

        c, i, f, o = data + weight . h + bias
        s = cell_activation's argument = candidate(c) * gate(i + p_i * s) + s * gate(f + p_f * s)
        h = gate(o + p_o * s) * cell_activation(s)

    Shape:
        data: (N, 4H), ragged, in the order c, i, f, o.
        weight: (4H, H).
        bias: (4H,); with peepholes (7H,), followed by p_i, p_f, p_o.
        state, state_cell: (N, H), h and s before the first element, only with has_state; otherwise zeros.
        output: (N, H), ragged: h after each element.
        cell: (N, H), ragged: s after each element.

    Raises:
        OpError: the data is dense.

    Source: Paddle 1.x `fluid.layers.dynamic_lstm`, whose weight is the transpose of this one.
    """
    raise _storage_error()


def _storage_error() -> OpError:
    return OpError(
        "sequence_lstm takes ragged data with a dense weight and bias; declare its variable with stype='ragged'"
    )


def _lstm_storage(a: Any, stypes: Stypes) -> Stypes:
    if stypes[0] != "ragged" or any(stype != "default" for stype in stypes[1:]):
        raise _storage_error()
    return "ragged", "ragged"


add_ragged_rule(
    "sequence_lstm",
    SparseRule(_lstm_storage, _lstm, None, unchanged, differentiated_by_torch(_lstm)),
    alone=lambda a: True,
)


# GRU on projected data


def _gru_shapes(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, weight, bias, *state = ins
    units = next((s[1] for s in (outs[0], weight, *state) if s and len(s) == 2 and s[1]), 0)
    if not units and data and len(data) == 2:
        units = data[1] // 3
    rows = next((s[0] for s in (data, outs[0], *state) if s and s[0]), 0)
    data = unify_input("data", data, (rows, 3 * units), weight)
    weight = unify_input("weight", weight, (3 * units, units), data)
    bias = unify_input("bias", bias, (3 * units,), data)
    state = [unify_input("state", one, (rows, units), data) for one in state]
    return [data, weight, bias, *state], [unify_input("output", outs[0], (rows, units), data)]


def _gru(a: Any, env: Env, data: Ragged, weight: Tensor, bias: Tensor, *first: Tensor) -> Ragged:
    units, values = weight.shape[1], data.values
    if not values.shape[0]:
        return data.replaced(values.new_zeros(0, units))
    gate, activation = _ACTIVATIONS[a.gate_activation], _ACTIVATIONS[a.candidate_activation]
    positions, order, batch_sizes = packing_layout(data, a.is_reverse)
    mapped = values.index_select(0, positions.argsort()) + bias
    for_gates, for_candidate = weight[: 2 * units].t(), weight[2 * units :].t()
    filled = int(batch_sizes[0])
    state = first[0].index_select(0, order[:filled]) if first else values.new_zeros(filled, units)
    states = []
    for step in torch.split(mapped, batch_sizes.tolist()):
        state = state[: step.shape[0]]
        update, reset = gate(torch.addmm(step[:, : 2 * units], state, for_gates)).chunk(2, 1)
        candidate = activation(torch.addmm(step[:, 2 * units :], reset * state, for_candidate))
        old, new = (state, candidate) if a.origin_mode else (candidate, state)
        state = torch.lerp(new, old, update)
        states.append(state)
    return data.replaced(torch.cat(states).index_select(0, positions))


@op(
    "sequence_gru",
    [arg("data", NEVER), param("weight"), param("bias"), arg("state", NEVER, when=lambda a: a.has_state)],
    {
        "is_reverse": Attr(boolean, "run rows backwards", False),
        "gate_activation": Attr(_kind, "activation of both gates", "sigmoid"),
        "candidate_activation": Attr(_kind, "activation of the candidate", "tanh"),
        "origin_mode": Attr(boolean, "let the update gate keep the old state, not the candidate", False),
        "has_state": Attr(boolean, "pass initial states", False),
    },
    infer=_gru_shapes,
    batch=NEVER,
    onnx=Onnx(missing="works on rows of different lengths, which ONNX lacks"),
)
def sequence_gru(a: Any, env: Env, data: Tensor, weight: Tensor, bias: Tensor, *state: Tensor) -> Any:
    """Run a GRU over each row of projected data; `RNN` includes the projection.

    With the update gate u, the reset gate r and the candidate c, each with its part of data, weight W and bias b::

        u, r = gate(data + W . h + b)
        c = candidate(data + W . (r * h) + b)
        h = u * c + (1 - u) * h, with origin_mode u * h + (1 - u) * c

    Shape:
        data: (N, 3H), ragged, in the order u, r, c.
        weight: (3H, H).
        bias: (3H,).
        state: (N, H), h before the first element, only with has_state; otherwise zeros.
        output: (N, H), ragged: h after each element.

    Raises:
        OpError: the data is dense.

    Source: Paddle 1.x `fluid.layers.dynamic_gru`, whose weight is the transpose of this one.
    """
    raise OpError(
        "sequence_gru takes ragged data with a dense weight, bias and state; declare its variable with stype='ragged'"
    )


def _gru_storage(a: Any, stypes: Stypes) -> Stypes:
    if stypes[0] != "ragged" or any(stype != "default" for stype in stypes[1:]):
        raise OpError(
            f"sequence_gru takes ragged data with dense parameters and states, got {', '.join(stypes)}"
        )
    return ("ragged",)


add_ragged_rule(
    "sequence_gru",
    SparseRule(_gru_storage, _gru, None, unchanged, differentiated_by_torch(_gru)),
    alone=lambda a: True,
)
