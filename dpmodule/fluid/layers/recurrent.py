"""Recurrent layers."""

from __future__ import annotations

from typing import Any

from ... import symbol as sym
from ...base import ArgumentError, ShapeError
from ...symbol import Symbol
from ..variable import ParamAttr, Variable
from .inputs import fc
from .layer_helper import (
    ACTIVATIONS,
    add_layer,
    add_result,
    as_sequences,
    as_variable,
    biases,
    check_act,
    check_number,
    parameter,
    program_of,
    width_of,
)


def dynamic_lstm(
    input: Any,
    size: int,
    h_0: Any = None,
    c_0: Any = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    dtype: Any = "float32",
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Run an LSTM over sequences of gate inputs, as from ``fc(size=4 * H)``.

    Shape:
        input: sequences of 4H features, in the order candidate, input gate, forget gate, output gate.
        weight: (4H, H), the transpose of Paddle's.
        bias: (4H,), with peepholes (7H,): followed by their weights, of input, forget and output gate.
        h_0, c_0: (N, H).
        output: two sequences of H features: hidden states and cell states.

    Args:
        size: 4H.
        h_0: the hidden states before the first elements; None: zeros.
        c_0: the cell states before the first elements; None: zeros.
        bias_attr: attributes of the bias; must not be False.
        use_peepholes: whether the gates read the cell state.
        is_reverse: whether to run sequences in reverse.
        cell_activation: activation of the cell state.
        candidate_activation: activation of the candidate, such as "tanh".
        dtype: "float32".

    Raises:
        ArgumentError: `input` does not hold sequences, only one initial state is given, or `bias_attr` is False.
        ShapeError: `input` does not have `size` features, or `size` is not a multiple of 4.
    """
    layer = "dynamic_lstm"
    sequences = as_sequences(layer, input)
    if (h_0 is None) != (c_0 is None):
        raise ArgumentError(f"{layer}: only one of h_0 and c_0 is given, expected both or none")
    first = [
        as_variable(layer, each, name) for name, each in (("h_0", h_0), ("c_0", c_0)) if each is not None
    ]
    if size % 4 or width_of(layer, sequences) != size:
        raise ShapeError(
            f"{layer}: size is {size!r} and {sequences.name!r} has shape {sequences.shape}, expected 4H features "
            "with size 4H"
        )
    if bias_attr is False:
        raise ArgumentError(f"{layer}: bias_attr is False, expected None or a ParamAttr, as in Paddle")
    units, program = size // 4, program_of(layer, sequences, *first)
    own = program.unique("lstm") if name is None else name
    weight = parameter(program, f"{own}_weight", (size, units), ParamAttr.of(param_attr))
    states = sym.sequence_lstm(
        sequences.symbol,
        weight,
        *biases(program, own, units * (7 if use_peepholes else 4), bias_attr),
        *(each.symbol for each in first),
        has_state=bool(first),
        use_peepholes=use_peepholes,
        is_reverse=is_reverse,
        gate_activation=gate_activation,
        cell_activation=cell_activation,
        candidate_activation=candidate_activation,
        name=f"{own}_steps",
    )
    names = own, f"{own}_cell"
    hidden, cell = (
        add_result(layer, [sequences], part, name, shape=(-1, units)) for part, name in zip(states, names)
    )
    return hidden, cell


def dynamic_gru(
    input: Any,
    size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    candidate_activation: str = "tanh",
    h_0: Any = None,
    origin_mode: bool = False,
) -> Variable:
    """Run a GRU over sequences of gate inputs, as from ``fc(size=3 * H)``.

    Shape:
        input: sequences of 3H features, in the order update gate, reset gate, candidate.
        weight: (3H, H), the transpose of Paddle's.
        bias: (3H,).
        h_0: (N, H).
        output: sequences of H features.

    Args:
        size: H.
        bias_attr: attributes of the bias; must not be False.
        is_reverse: whether to run sequences in reverse.
        candidate_activation: activation of the candidate, such as "tanh".
        h_0: the states before the first elements; None: zeros.
        origin_mode: whether the update gate keeps the old state, not the candidate.

    Raises:
        ArgumentError: `input` does not hold sequences, or `bias_attr` is False.
        ShapeError: `input` does not have 3 `size` features.

    Source: Chung et al., "Empirical evaluation of gated recurrent neural networks on sequence modeling", 2014.
    """
    layer = "dynamic_gru"
    sequences = as_sequences(layer, input)
    first = [] if h_0 is None else [as_variable(layer, h_0, "h_0")]
    program = program_of(layer, sequences, *first)
    own = program.unique("gru")
    weight, bias = _gru_parameters(layer, program, own, sequences, 3 * size, param_attr, bias_attr)

    def made(name: str) -> Any:
        return sym.sequence_gru(
            sequences.symbol, weight, bias, *(each.symbol for each in first), is_reverse=is_reverse,
            gate_activation=gate_activation, candidate_activation=candidate_activation,
            origin_mode=origin_mode, has_state=bool(first), name=name,
        )  # fmt: skip

    return add_layer(layer, [sequences], made, own, shape=(-1, size))


def _gru_parameters(
    layer: str, program: Any, own: str, input: Variable, size: int, param_attr: Any, bias_attr: Any
) -> tuple[Symbol, Symbol]:
    """Return weight and bias of a GRU."""
    if size % 3 or width_of(layer, input) != size:
        raise ShapeError(
            f"{layer}: {input.name!r} has shape {input.shape}, expected 3H features with "
            f"{'size H' if layer == 'dynamic_gru' else 'size 3H'}, here {size} features"
        )
    if bias_attr is False:
        raise ArgumentError(f"{layer}: bias_attr is False, expected None or a ParamAttr, as in Paddle")
    weight = parameter(program, f"{own}_weight", (size, size // 3), ParamAttr.of(param_attr))
    return weight, biases(program, own, size, bias_attr)[0]


def gru_unit(
    input: Any,
    hidden: Any,
    size: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
    origin_mode: bool = False,
) -> tuple[Variable, Variable, Variable]:
    """Run one step of a GRU, with the parameters of `dynamic_gru`.

    Shape:
        input: (N, 3H), in the order update gate, reset gate, candidate.
        hidden: (N, H), the state before.
        output: (N, H) the state, (N, H) the reset state before, (N, 3H) gates and candidate.

    Args:
        size: 3H.
        activation: activation of the candidate.
        origin_mode: whether the update gate keeps the old state, not the candidate.

    Raises:
        ArgumentError: an activation is unknown, or `bias_attr` is False.
        ShapeError: `input` does not have `size` features, or `size` is not a multiple of 3.
    """
    layer = "gru_unit"
    given, state = as_variable(layer, input), as_variable(layer, hidden, "hidden")
    check_act(layer, activation)
    check_act(layer, gate_activation)
    program = program_of(layer, given, state)
    own = program.unique("gru_unit")
    weight, bias = _gru_parameters(layer, program, own, given, size, param_attr, bias_attr)
    units = size // 3
    data = sym.broadcast_add(given.symbol, sym.Reshape(bias, shape=(1, -1)))

    def part(symbol: Symbol, start: int, end: int, axis: int = 1) -> Any:
        return sym.slice_axis(symbol, axis=axis, begin=start * units, end=end * units)

    def product(left: Symbol, start: int, end: int) -> Any:
        return sym.dot(left, part(weight, start, end, axis=0), transpose_b=True)

    gates = ACTIVATIONS[gate_activation](part(data, 0, 2) + product(state.symbol, 0, 2))
    update, reset = part(gates, 0, 1), part(gates, 1, 2)
    kept = reset * state.symbol
    candidate = ACTIVATIONS[activation](part(data, 2, 3) + product(kept, 2, 3))
    old, new = (candidate, state.symbol) if origin_mode else (state.symbol, candidate)
    parts = (
        (old + update * (new - old), own, units),
        (kept, f"{own}_reset", units),
        (sym.Concat(gates, candidate, dim=1), f"{own}_gates", size),
    )
    after, reset_state, all_gates = (
        add_result(layer, [given], each, name, shape=(-1, width)) for each, name, width in parts
    )
    return after, reset_state, all_gates


def lstm_unit(
    x_t: Any,
    hidden_t_prev: Any,
    cell_t_prev: Any,
    forget_bias: float = 0.0,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Run one step of an LSTM.

    Shape:
        x_t: (N, D).
        hidden_t_prev, cell_t_prev: (N, H), states before.
        weight: (4H, D + H), in the order input gate, forget gate, output gate, candidate.
        output: (N, H), the hidden state and the cell state.

    Args:
        x_t: input of the step.
        hidden_t_prev: hidden state before.
        cell_t_prev: cell state before.
        forget_bias: number added to the forget gate.
    """
    layer = "lstm_unit"
    given = [
        as_variable(layer, each, name)
        for name, each in (
            ("x_t", x_t),
            ("hidden_t_prev", hidden_t_prev),
            ("cell_t_prev", cell_t_prev),
        )
    ]
    check_number(layer, "forget_bias", forget_bias)
    program, units = program_of(layer, *given), width_of(layer, given[2])
    own = program.unique(layer) if name is None else name
    inputs = add_layer(
        layer,
        given[:2],
        lambda name: sym.Concat(*(each.symbol for each in given[:2]), dim=1, name=name),
        f"{own}_inputs",
        shape=(-1, width_of(layer, given[0]) + width_of(layer, given[1])),
    )
    gates = fc(inputs, 4 * units, param_attr=param_attr, bias_attr=bias_attr, name=f"{own}_map").symbol
    enter, forget, leave, candidate = (
        sym.slice_axis(gates, axis=1, begin=i * units, end=(i + 1) * units) for i in range(4)
    )
    kept = sym.sigmoid(sym._internal._plus_scalar(forget, scalar=float(forget_bias)))
    inner = kept * given[2].symbol + sym.sigmoid(enter) * sym.tanh(candidate)
    cell = add_result(layer, given[2:], inner, f"{own}_cell", shape=(-1, units))
    state = sym.sigmoid(leave) * sym.tanh(inner)
    return add_result(layer, given[2:], state, own, shape=(-1, units)), cell
