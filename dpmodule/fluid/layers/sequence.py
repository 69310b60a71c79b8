"""Layers of sequences, which are ragged arrays."""

from __future__ import annotations

from typing import Any

from ... import symbol as sym
from ...base import ArgumentError
from ..variable import ParamAttr, Variable
from .layer_helper import (
    add_layer,
    apply,
    as_sequences,
    as_variable,
    biases,
    check_act,
    parameter,
    program_of,
    width_of,
)

_POOLS = {"average": "mean", "sum": "sum", "sqrt": "sqrt", "max": "max", "last": "last", "first": "first"}


def sequence_pool(input: Any, pool_type: str, is_test: bool = False, pad_value: float = 0.0) -> Variable:
    """Pool each sequence to one row; an empty sequence gives zeros.

    Args:
        pool_type: "sum", "average", "sqrt" (the sum over the root of the length), "max", "first" or "last".
        pad_value: must be 0.

    Raises:
        ArgumentError: `input` does not hold sequences, the pooling is unknown, or `pad_value` is not 0.
    """
    sequences = as_sequences("sequence_pool", input)
    if pad_value != 0:
        raise ArgumentError(f"sequence_pool: pad_value is {pad_value!r}, expected 0")
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
    padding_start: int | None = None,
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
        padding: ignored; sequences are always padded.
        padding_start: place of the first element of a window, seen from its element; None: ``-(filter_size // 2)``.
        bias_attr: attributes of the bias; False: no bias.

    Raises:
        ArgumentError: `input` does not hold sequences, `filter_stride` is not 1, or the activation is unknown.
    """
    sequences = as_sequences("sequence_conv", input)
    check_act("sequence_conv", act)
    if filter_stride != 1:
        raise ArgumentError(f"sequence_conv: filter_stride is {filter_stride!r}, expected 1")
    program = program_of("sequence_conv", sequences)
    own = program.unique("sequence_conv") if name is None else name
    size = (num_filters, filter_size * width_of("sequence_conv", sequences))
    weight = parameter(program, f"{own}_weight", size, ParamAttr.of(param_attr))
    bias = biases(program, own, num_filters, bias_attr)
    attributes = {
        "num_filters": num_filters,
        "filter_size": filter_size,
        "padding_start": padding_start,
        "no_bias": not bias,
    }

    def linear(name: str) -> Any:
        return sym.sequence_conv(sequences.symbol, weight, *bias, name=name, **attributes)

    return add_layer("sequence_conv", [sequences], linear, own, act=act, shape=(-1, num_filters))


def sequence_softmax(input: Any, use_cudnn: bool = False, name: str | None = None) -> Variable:
    """Apply softmax over each sequence."""
    layer = "sequence_softmax"
    return apply(layer, sym.sequence_softmax, [as_sequences(layer, input)], name)


def sequence_reverse(x: Any, name: str | None = None) -> Variable:
    """Reverse each sequence."""
    layer = "sequence_reverse"
    return apply(layer, sym.sequence_reverse, [as_sequences(layer, x, "x")], name)


def sequence_expand(x: Any, y: Any, ref_level: int = -1, name: str | None = None) -> Variable:
    """Repeat each row of x by the length of the sequence of y.

    Args:
        x: rows, or sequences.
    """
    rows, like = as_variable("sequence_expand", x, "x"), as_sequences("sequence_expand", y, "y")
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
