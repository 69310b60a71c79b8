"""Convolutions, pooling, dropout, noise, normalization, LSTM steps and devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..arguments import as_integer, flag, number_from, probability
from ..errors import ArgumentError, ForeignValueError, ShapeError, user_line
from ..expression import (
    Expression,
    apply,
    apply_to_padded,
    as_list,
    handle_of,
    node_of,
    plain,
    with_c_version,
)
from ..ops import convolution, layers
from ..ops.spec import Operation
from ..ops.unary import IDENTITY
from ..session import state
from .arithmetic import concatenate


def _pair(name: str, values: Sequence[int]) -> tuple[int, int]:
    if type(values) in (list, tuple) and len(values) == 2:  # fast path
        first, second = values
        if type(first) is int and type(second) is int and first > 0 and second > 0:
            return first, second
    found = [as_integer(each, name) for each in as_list(name, values)]
    if len(found) != 2 or min(found) < 1:
        raise ArgumentError(f"{name} is {found}, expected two positive integers (at {user_line()})")
    return found[0], found[1]


def conv2d(x: Expression, f: Expression, stride: Sequence[int], is_valid: bool = True) -> Expression:
    """Convolve an image with filters.

    Args:
        x: the image (H, W, C).
        f: the filters (h, w, C, F).
        stride: vertical and horizontal stride, in pixels.
        is_valid: False pads with zeros, so that every stride has a window.

    Returns:
        (H', W', F).
    """
    return apply(convolution.CONV2D, (x, f), (_pair("stride", stride), flag(is_valid, "is_valid")))


def conv2d_bias(
    x: Expression, f: Expression, b: Expression, stride: Sequence[int], is_valid: bool = True
) -> Expression:
    """Convolve an image with filters and add biases (F); see `conv2d`.

    Args:
        x: the image (H, W, C).
        f: the filters (h, w, C, F).
        b: the biases (F).
        stride: vertical and horizontal stride, in pixels.
        is_valid: False pads with zeros, so that every stride has a window.
    """
    return apply(convolution.CONV2D, (x, f, b), (_pair("stride", stride), flag(is_valid, "is_valid")))


def maxpooling2d(
    x: Expression, ksize: Sequence[int], stride: Sequence[int], is_valid: bool = True
) -> Expression:
    """Apply max pooling to an image.

    Args:
        x: the image (H, W, C).
        ksize: height and width of the window, in pixels.
        stride: vertical and horizontal stride, in pixels.
        is_valid: False adds windows that extend past the border.
    """
    attrs = _pair("ksize", ksize), _pair("stride", stride), flag(is_valid, "is_valid")
    return apply(convolution.MAXPOOL, (x,), attrs)


def kmax_pooling(x: Expression, k: int, d: int = 1) -> Expression:
    """Select the `k` greatest elements along a dimension `d`, in their order in `x`."""
    return apply(convolution.KMAX, (x,), (as_integer(k, "kmax_pooling: k"), as_integer(d, "kmax_pooling: d")))


def fold_rows(x: Expression, nrows: int = 2) -> Expression:
    """Sum every `nrows` adjacent rows."""
    return apply(convolution.FOLD_ROWS, (x,), (as_integer(nrows, "fold_rows: nrows"),))


def filter1d_narrow(x: Expression, y: Expression) -> Expression:
    """Convolve along the columns of a matrix.

    Args:
        x: the matrix (D, T).
        y: the filters (D, w, F).

    Returns:
        (F, T - w + 1).
    """
    return apply(convolution.FILTER1D, (x, y))


def kmh_ngram(x: Expression, v: int) -> Expression:
    """Sum every `v` consecutive columns."""
    return apply(convolution.NGRAM, (x,), (as_integer(v, "kmh_ngram: v"),))


def circ_conv(u: Expression, v: Expression) -> Expression:
    """Compute the circular convolution of two vectors."""
    return apply(convolution.CIRC_CONV, (u, v))


def circ_corr(u: Expression, v: Expression) -> Expression:
    """Compute the circular correlation of two vectors."""
    return apply(convolution.CIRC_CORR, (u, v))


def _drawn(op: Operation, operands: Sequence[Expression], attrs: tuple[Any, ...]) -> Expression:
    """Add a random operation; each node gets its own argument, so that it keeps its own draw."""
    return apply(op, operands, attrs, op.name)


def _rate(p: float) -> float:
    return probability(p, "dropout rate")


@with_c_version
def dropout(x: Expression, p: float) -> Expression:
    """Set elements to zero with probability `p`, and divide the others by 1 - p.

    Args:
        p: the probability; 0 returns `x`.

    Raises:
        ArgumentError: `p` is not a probability.
    """
    rate = _rate(p)
    return _drawn(layers.DROPOUT, (x,), (rate,)) if rate else handle_of(node_of(x), state.graph.version)


@with_c_version
def dropout_dim(x: Expression, d: int, p: float) -> Expression:
    """Apply `dropout` to whole slices along a dimension `d`."""
    return _drawn(layers.DROPOUT_DIM, (x,), (_rate(p), as_integer(d, "dropout_dim: d")))


@with_c_version
def dropout_batch(x: Expression, p: float) -> Expression:
    """Apply `dropout` to whole elements of the minibatch."""
    return _drawn(layers.DROPOUT_BATCH, (x,), (_rate(p),))


@with_c_version
def block_dropout(x: Expression, p: float) -> Expression:
    """Apply `dropout` to the whole value."""
    return _drawn(layers.BLOCK_DROPOUT, (x,), (_rate(p),))


@with_c_version
def noise(x: Expression, stddev: float) -> Expression:
    """Add normally distributed noise.

    Args:
        stddev: standard deviation.

    Raises:
        ArgumentError: `stddev` is negative.
    """
    return _drawn(layers.NOISE, (x,), (number_from(stddev, 0.0, "noise: stddev"),))


def available_devices() -> list[str]:
    """Return the names that `to_device` takes."""
    return (
        ["CPU"] if state.options.device.type == "cpu" else ["CPU", f"GPU:{state.options.device.index or 0}"]
    )


def to_device(e: Expression, device_str: str) -> Expression:
    """Return the expression, since a graph is on one device, chosen by `configure`.

    Args:
        device_str: name of the device, such as "CPU" or "GPU:0".

    Raises:
        ArgumentError: the graph is on another device.
    """
    if not isinstance(device_str, str):
        raise ForeignValueError(
            f"to_device: {type(device_str).__name__} {device_str!r} is not a device name (at {user_line()})"
        )
    if device_str and device_str != available_devices()[-1]:
        raise ArgumentError(
            f"Invalid device name: {device_str}; this graph is on {available_devices()[-1]}, see configure(device=)"
            f" (at {user_line()})"
        )
    return apply(IDENTITY, (e,))


def _gates(
    x_t: Expression | Sequence[Expression],
    operands: tuple[Expression, ...],
    masks: tuple[Expression, ...],
    std: float,
) -> Expression:
    x = concatenate(x_t) if isinstance(x_t, (list, tuple)) else x_t
    given: list[Any] = [x, *operands, *masks]
    attrs = (number_from(std, 0.0, "weightnoise_std"), bool(masks))
    return _drawn(layers.NOISY_LSTM_GATES, given, attrs) if std else apply(layers.LSTM_GATES, given, attrs)


def vanilla_lstm_gates(
    x_t: Expression,
    h_tm1: Expression,
    Wx: Expression,
    Wh: Expression,
    b: Expression,
    weightnoise_std: float = 0.0,
) -> Expression:
    """Compute the concatenated gates of an LSTM: input, forget (with 1 added), output, candidate.

    Args:
        x_t: the input (I).
        h_tm1: the previous output (H).
        Wx: input weights (4H, I).
        Wh: recurrent weights (4H, H).
        b: biases (4H).
        weightnoise_std: standard deviation of noise added to weights and biases, drawn once per batch of steps.
    """
    return _gates(x_t, (h_tm1, Wx, Wh, b), (), weightnoise_std)


def vanilla_lstm_gates_concat(
    x_t: Sequence[Expression],
    h_tm1: Expression,
    Wx: Expression,
    Wh: Expression,
    b: Expression,
    weightnoise_std: float = 0.0,
) -> Expression:
    """Compute `vanilla_lstm_gates` for the concatenation of several inputs.

    Args:
        x_t: parts of the input (I in total).
        h_tm1: the previous output (H).
        Wx: input weights (4H, I).
        Wh: recurrent weights (4H, H).
        b: biases (4H).
        weightnoise_std: standard deviation of noise added to weights and biases, drawn once per batch of steps.
    """
    return _gates(as_list("x_t", x_t), (h_tm1, Wx, Wh, b), (), weightnoise_std)


def vanilla_lstm_gates_dropout(
    x_t: Expression,
    h_tm1: Expression,
    Wx: Expression,
    Wh: Expression,
    b: Expression,
    dropout_mask_x: Expression,
    dropout_mask_h: Expression,
    weightnoise_std: float = 0.0,
) -> Expression:
    """Compute `vanilla_lstm_gates` with dropout masks on input and previous output.

    Args:
        x_t: the input (I).
        h_tm1: the previous output (H).
        Wx: input weights (4H, I).
        Wh: recurrent weights (4H, H).
        b: biases (4H).
        dropout_mask_x: mask of the input (I).
        dropout_mask_h: mask of the previous output (H).
        weightnoise_std: standard deviation of noise added to weights and biases, drawn once per batch of steps.
    """
    return _gates(x_t, (h_tm1, Wx, Wh, b), (dropout_mask_x, dropout_mask_h), weightnoise_std)


def vanilla_lstm_gates_dropout_concat(
    x_t: Sequence[Expression],
    h_tm1: Expression,
    Wx: Expression,
    Wh: Expression,
    b: Expression,
    dropout_mask_x: Expression,
    dropout_mask_h: Expression,
    weightnoise_std: float = 0.0,
) -> Expression:
    """Compute `vanilla_lstm_gates_dropout` for the concatenation of several inputs.

    Args:
        x_t: parts of the input (I in total).
        h_tm1: the previous output (H).
        Wx: input weights (4H, I).
        Wh: recurrent weights (4H, H).
        b: biases (4H).
        dropout_mask_x: mask of the input (I).
        dropout_mask_h: mask of the previous output (H).
        weightnoise_std: standard deviation of noise added to weights and biases, drawn once per batch of steps.
    """
    return _gates(as_list("x_t", x_t), (h_tm1, Wx, Wh, b), (dropout_mask_x, dropout_mask_h), weightnoise_std)


def vanilla_lstm_c(c_tm1: Expression, gates_t: Expression) -> Expression:
    """Compute the memory (H) of an LSTM from gates (4H): input gate * candidate + forget gate * previous memory."""
    return apply(layers.LSTM_C, (c_tm1, gates_t))


def vanilla_lstm_h(c_t: Expression, gates_t: Expression) -> Expression:
    """Compute the output (H) of an LSTM from memory (H) and gates (4H): output gate * tanh(memory)."""
    return apply(layers.LSTM_H, (c_t, gates_t))


def layer_norm(x: Expression, g: Expression, b: Expression) -> Expression:
    """Compute ``g * (x - mean) / std + b``.

    Args:
        b: biases, of the same size.
    Source: Ba, Kiros, Hinton, "Layer normalization", 2016, with DyNet's standard deviation (without an epsilon).
    """
    try:
        return plain(layers.LAYER_NORM, x, g, b)
    except ShapeError as error:
        return apply_to_padded(error, layers.LAYER_NORM, (x, g, b))


def weight_norm(w: Expression, g: Expression) -> Expression:
    """Compute ``g * w / |w|``.

    Args:
        g: length of the result, a scalar.
    Source: Salimans and Kingma, "Weight normalization", 2016.
    """
    return apply(layers.WEIGHT_NORM, (w, g))
