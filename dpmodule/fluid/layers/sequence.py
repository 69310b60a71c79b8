"""Layers of sequences, which are ragged arrays."""

from __future__ import annotations

from typing import Any

from ... import symbol as sym
from ...base import ArgumentError, ShapeError
from ...symbol import Symbol
from ..variable import ParamAttr, Variable
from .layer_helper import add_layer, apply, as_variable, biases, check_act, parameter, program_of, width_of

_POOLS = {"average": "mean", "sum": "sum", "sqrt": "sqrt", "max": "max", "last": "last", "first": "first"}


def _sequences(layer: str, given: Any, argument: str = "input") -> Variable:
    variable = as_variable(layer, given, argument)
    if not variable.lod_level:
        raise ArgumentError(
            f"{layer}: {argument} {variable.name!r} does not hold sequences; declare its data with lod_level=1"
        )
    return variable


def sequence_pool(input: Any, pool_type: str, is_test: bool = False) -> Variable:
    """Pool each sequence to one row; an empty sequence gives zeros.

    Args:
        pool_type: "sum", "average", "sqrt" (the sum over the root of the length), "max", "first" or "last".

    Raises:
        ArgumentError: `input` does not hold sequences, or the pooling is unknown.
    """
    sequences = _sequences("sequence_pool", input)
    kind = _POOLS.get(str(pool_type).lower())
    if kind is None:
        raise ArgumentError(f"sequence_pool: pool_type is {pool_type!r}, expected one of {', '.join(_POOLS)}")

    def made(name: str) -> Any:
        return sym.sequence_pool(sequences.symbol, pool_type=kind, name=name)

    return add_layer("sequence_pool", [sequences], made, lod_level=0)


def sequence_first_step(input: Any) -> Variable:
    """Return each sequence's first element."""
    return sequence_pool(input, "first")


def sequence_last_step(input: Any) -> Variable:
    """Return each sequence's last element."""
    return sequence_pool(input, "last")


def sequence_conv(
    input: Any,
    num_filters: int,
    filter_size: int = 3,
    filter_stride: int = 1,
    padding: Any = None,
    bias_attr: Any = None,
    param_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Apply a convolution with zero padding over each sequence, and an activation.

    Shape:
        input: sequences of D features.
        weight: (num_filters, filter_size * D), the transpose of Paddle's.
        output: sequences of num_filters features.

    Args:
        filter_size: number of elements in a window.
        filter_stride: must be 1.
        bias_attr: attributes of the bias; False: no bias.

    Raises:
        ArgumentError: `input` does not hold sequences, `filter_stride` is not 1, or the activation is unknown.
    """
    sequences = _sequences("sequence_conv", input)
    check_act("sequence_conv", act)
    if filter_stride != 1:
        raise ArgumentError(f"sequence_conv: filter_stride is {filter_stride!r}, expected 1")
    program = program_of("sequence_conv", sequences)
    own = program.unique("sequence_conv") if name is None else name
    size = (num_filters, filter_size * width_of("sequence_conv", sequences))
    weight = parameter(program, f"{own}_weight", size, ParamAttr.of(param_attr))
    bias = biases(program, own, num_filters, bias_attr)
    attributes = {"num_filters": num_filters, "filter_size": filter_size, "no_bias": not bias}

    def linear(name: str) -> Any:
        return sym.sequence_conv(sequences.symbol, weight, *bias, name=name, **attributes)

    return add_layer("sequence_conv", [sequences], linear, own, act=act, shape=(-1, num_filters))


def sequence_softmax(input: Any, use_cudnn: bool = False, name: str | None = None) -> Variable:
    """Apply softmax over each sequence."""
    layer = "sequence_softmax"
    return apply(layer, sym.sequence_softmax, [_sequences(layer, input)], name)


def sequence_reverse(x: Any, name: str | None = None) -> Variable:
    """Reverse each sequence."""
    layer = "sequence_reverse"
    return apply(layer, sym.sequence_reverse, [_sequences(layer, x, "x")], name)


def sequence_expand(x: Any, y: Any, ref_level: int = -1, name: str | None = None) -> Variable:
    """Repeat each row of x by the length of the sequence of y.

    Args:
        x: rows, or sequences.
    """
    rows, like = as_variable("sequence_expand", x, "x"), _sequences("sequence_expand", y, "y")
    return apply("sequence_expand", sym.sequence_expand, [rows, like], name)


def sequence_conv_pool(
    input: Any,
    num_filters: int,
    filter_size: int,
    param_attr: Any = None,
    act: str | None = "sigmoid",
    pool_type: str = "max",
    bias_attr: Any = None,
) -> Variable:
    """Apply `sequence_conv` with an activation, followed by `sequence_pool`.

    Args:
        filter_size: number of elements in a window.
        pool_type: as in `sequence_pool`.
        bias_attr: attributes of the bias; False: no bias.
    """
    features = sequence_conv(
        input, num_filters, filter_size, bias_attr=bias_attr, param_attr=param_attr, act=act
    )
    return sequence_pool(features, pool_type)


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
        output: two sequences of H features: hidden states and cell states.

    Args:
        size: 4H.
        h_0: must be None.
        c_0: must be None.
        bias_attr: attributes of the bias; must not be False.
        use_peepholes: whether the gates read the cell state.
        is_reverse: whether to run sequences in reverse.
        cell_activation: activation of the cell state.
        candidate_activation: activation of the candidate, such as "tanh".
        dtype: "float32".

    Raises:
        ArgumentError: `input` does not hold sequences, an initial state is given, or `bias_attr` is False.
        ShapeError: `input` does not have `size` features, or `size` is not a multiple of 4.
    """
    layer = "dynamic_lstm"
    sequences = _sequences(layer, input)
    if h_0 is not None or c_0 is not None:
        raise ArgumentError(f"{layer}: h_0 and c_0 are not supported; initial states are zeros")
    if size % 4 or width_of(layer, sequences) != size:
        raise ShapeError(
            f"{layer}: size is {size!r} and {sequences.name!r} has shape {sequences.shape}, expected 4H features "
            "with size 4H"
        )
    if bias_attr is False:
        raise ArgumentError(f"{layer}: bias_attr is False, expected None or a ParamAttr, as in Paddle")
    units, program = size // 4, program_of(layer, sequences)
    own = program.unique("lstm") if name is None else name
    weight = parameter(program, f"{own}_weight", (size, units), ParamAttr.of(param_attr))
    states = sym.sequence_lstm(
        sequences.symbol,
        weight,
        *biases(program, own, units * (7 if use_peepholes else 4), bias_attr),
        use_peepholes=use_peepholes,
        is_reverse=is_reverse,
        gate_activation=gate_activation,
        cell_activation=cell_activation,
        candidate_activation=candidate_activation,
        name=f"{own}_steps",
    )

    def entered(part: Symbol, name: str) -> Variable:
        return add_layer(
            layer, [sequences], lambda name: sym.identity(part, name=name), name, shape=(-1, units)
        )

    return entered(states[0], own), entered(states[1], f"{own}_cell")
