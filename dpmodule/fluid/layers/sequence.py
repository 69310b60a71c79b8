"""Layers over sequences, which are ragged values here."""

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
            f"{layer}: {argument} {variable.name!r} holds no sequences; declare its data with lod_level=1"
        )
    return variable


def sequence_pool(input: Any, pool_type: str, is_test: bool = False) -> Variable:
    """Make one row of each sequence; an empty one gives zeros.

    Args:
        pool_type: "sum", "average", "sqrt" (the sum over the root of the length), "max", "first" or "last".

    Raises:
        ArgumentError: `input` holds no sequences, or there is no such pooling.
    """
    given = _sequences("sequence_pool", input)
    kind = _POOLS.get(str(pool_type).lower())
    if kind is None:
        raise ArgumentError(f"sequence_pool: pool_type is {pool_type!r}, expected one of {', '.join(_POOLS)}")

    def made(name: str) -> Any:
        return sym.sequence_pool(given.symbol, pool_type=kind, name=name)

    return add_layer("sequence_pool", [given], made, lod_level=0)


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
    """Map a window around each element linearly, and apply an activation; outside of a sequence there are zeros.

    Shape:
        input: sequences of D features.
        weight: (num_filters, filter_size * D), the transpose of Paddle's.
        output: sequences of num_filters features.

    Args:
        filter_size: how many elements a window has.
        filter_stride: accepted as 1.
        bias_attr: of the bias; False: none.

    Raises:
        ArgumentError: `input` holds no sequences, `filter_stride` is not 1, or there is no such activation.
    """
    given = _sequences("sequence_conv", input)
    check_act("sequence_conv", act)
    if filter_stride != 1:
        raise ArgumentError(f"sequence_conv: filter_stride is {filter_stride!r}, expected 1")
    program = program_of("sequence_conv", given)
    own = program.unique("sequence_conv") if name is None else name
    size = (num_filters, filter_size * width_of("sequence_conv", given))
    weight = parameter(program, f"{own}_weight", size, ParamAttr.of(param_attr))
    bias = biases(program, own, num_filters, bias_attr)
    attributes = {"num_filters": num_filters, "filter_size": filter_size, "no_bias": not bias}

    def linear(name: str) -> Any:
        return sym.sequence_conv(given.symbol, weight, *bias, name=name, **attributes)

    return add_layer("sequence_conv", [given], linear, own, act=act, shape=(-1, num_filters))


def sequence_softmax(input: Any, use_cudnn: bool = False, name: str | None = None) -> Variable:
    """Take the softmax over each sequence."""
    layer = "sequence_softmax"
    return apply(layer, sym.sequence_softmax, [_sequences(layer, input)], name)


def sequence_reverse(x: Any, name: str | None = None) -> Variable:
    """Reverse each sequence."""
    layer = "sequence_reverse"
    return apply(layer, sym.sequence_reverse, [_sequences(layer, x, "x")], name)


def sequence_expand(x: Any, y: Any, ref_level: int = -1, name: str | None = None) -> Variable:
    """Repeat each row of x as often as the same sequence of y is long.

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
    """Apply `sequence_conv` with an activation, and pool what comes out.

    Args:
        filter_size: how many elements a window has.
        pool_type: as in `sequence_pool`.
        bias_attr: of the bias; False: none.
    """
    found = sequence_conv(
        input, num_filters, filter_size, bias_attr=bias_attr, param_attr=param_attr, act=act
    )
    return sequence_pool(found, pool_type)


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
    """Run an LSTM over sequences that have been mapped to its gates, as by ``fc(size=4 * H)``.

    Shape:
        input: sequences of 4H features, in the order candidate, input gate, forget gate, output gate.
        weight: (4H, H), the transpose of Paddle's.
        bias: (4H,), with peepholes (7H,): behind it their weights, of input, forget and output gate.
        output: two sequences of H features: states, and states of the cell.

    Args:
        size: 4H.
        h_0: accepted as None.
        c_0: accepted as None.
        bias_attr: how the bias is named, begun and trained, a `ParamAttr`; False only without peepholes.
        use_peepholes: whether the gates see the state of the cell.
        is_reverse: whether sequences are run from their ends.
        cell_activation: of the state of the cell.
        candidate_activation: of what is offered to the cell's state, such as "tanh".
        dtype: "float32".

    Raises:
        ArgumentError: `input` holds no sequences, there is a first state, or no bias although there are peepholes.
        ShapeError: `input` has not `size` features, or these are no four parts.
    """
    layer = "dynamic_lstm"
    given = _sequences(layer, input)
    if h_0 is not None or c_0 is not None:
        raise ArgumentError(f"{layer}: h_0 or c_0 is given; sequences begin with zeros")
    if size % 4 or width_of(layer, given) != size:
        raise ShapeError(
            f"{layer}: size is {size!r} and {given.name!r} has the shape {given.shape}, expected 4H features, size 4H"
        )
    if bias_attr is False:
        raise ArgumentError(
            f"{layer}: bias_attr is False, expected None or a ParamAttr; Paddle takes no other, too"
        )
    units, program = size // 4, program_of(layer, given)
    own = program.unique("lstm") if name is None else name
    weight = parameter(program, f"{own}_weight", (size, units), ParamAttr.of(param_attr))
    found = sym.sequence_lstm(
        given.symbol,
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
        return add_layer(layer, [given], lambda name: sym.identity(part, name=name), name, shape=(-1, units))

    return entered(found[0], own), entered(found[1], f"{own}_cell")
