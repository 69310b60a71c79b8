"""The arithmetic of gates: what an LSTM and a GRU make of the linear maps of input and state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import symbol as sym
from ..symbol import Symbol

Activation = str | Callable[..., Symbol]
"""`act_type` of `sym.Activation`, or a function of symbols."""


def activate(inputs: Symbol, activation: Activation, **kwargs: Any) -> Symbol:
    """Apply an activation, given as the `act_type` of `sym.Activation` or as a function of symbols."""
    if isinstance(activation, str):
        found: Symbol = sym.Activation(inputs, act_type=activation, **kwargs)
        return found
    return activation(inputs, **kwargs)


def update_lstm(
    name: str, gates: Symbol, states: Sequence[Symbol], activation: Activation = "tanh", **kwargs: Any
) -> list[Symbol]:
    """Return the new states (hidden, cell) of an LSTM.

    Args:
        gates: input, forget, cell and output gate before activation, side by side.
        states: (hidden, cell).
        activation: of the cell gate, and of the cell on its way to the output.
    """
    parts = sym.SliceChannel(gates, num_outputs=4, name=f"{name}slice", **kwargs)
    enter = sym.Activation(parts[0], act_type="sigmoid", name=f"{name}i")
    forget = sym.Activation(parts[1], act_type="sigmoid", name=f"{name}f")
    new = activate(parts[2], activation, name=f"{name}c")
    leave = sym.Activation(parts[3], act_type="sigmoid", name=f"{name}o")
    cell = sym._internal._plus(forget * states[1], enter * new, name=f"{name}state")
    hidden = sym._internal._mul(leave, activate(cell, activation), name=f"{name}out")
    return [hidden, cell]


def update_gru(
    name: str,
    i2h: Symbol,
    h2h: Symbol,
    state: Symbol,
    activation: Activation = "tanh",
    **kwargs: Any,
) -> Symbol:
    """Return the new state of a GRU, whose reset gate acts after the linear map of the state.

    Args:
        i2h: reset, update and new gate as far as the input makes them, side by side.
    """
    i2h_r, i2h_z, i2h_n = sym.SliceChannel(i2h, num_outputs=3, name=f"{name}_i2h_slice", **kwargs)
    h2h_r, h2h_z, h2h_n = sym.SliceChannel(h2h, num_outputs=3, name=f"{name}_h2h_slice", **kwargs)
    reset = sym.Activation(i2h_r + h2h_r, act_type="sigmoid", name=f"{name}_r_act")
    update = sym.Activation(i2h_z + h2h_z, act_type="sigmoid", name=f"{name}_z_act")
    new = activate(i2h_n + reset * h2h_n, activation, name=f"{name}_h_act")
    found: Symbol = sym._internal._plus((1.0 - update) * new, update * state, name=f"{name}out")
    return found
