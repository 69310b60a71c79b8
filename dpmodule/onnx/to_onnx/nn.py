"""Layers with weights, and activation functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops.nn.deconv import margins
from ...ops.nn.rules import channels_last
from ...ops.shapes import prod
from .call import Dims, OperatorCall
from .common import move_axis, reshape
from .floats import in_floats

__all__ = [
    "activation",
    "col2im",
    "convolution",
    "deconvolution",
    "dropout",
    "embedding",
    "fully_connected",
    "im2col",
    "leaky_relu",
]


@in_floats(double=True)
def fully_connected(c: OperatorCall) -> str:
    """Gemm for matrices, MatMul for the last axis of more."""
    x, weight, *bias = c.inputs
    if bias and len(c.shapes[2]) > 1:
        bias = [c.emit("Reshape", bias[0], c.ints(-1))]
    if len(c.shapes[0]) != 2 and c.a.flatten:
        x = c.emit("Flatten", x, axis=1)
    if c.a.flatten or len(c.shapes[0]) == 2:
        return c.emit("Gemm", x, weight, *bias, transB=1)
    product = c.emit("MatMul", x, c.emit("Transpose", weight, perm=[1, 0]))
    return c.emit("Add", product, *bias) if bias else product


def _spatial(c: OperatorCall) -> tuple[int, ...]:
    """Return the lengths of the data's spatial axes, which have to be known."""
    return c.numbers(_first(c)[2:])


def _first(c: OperatorCall) -> Dims:
    """Return the data's shape with the channels second."""
    shape = c.shapes[0]
    return (shape[0], shape[-1], *shape[1:-1]) if channels_last(c.a.layout) else shape


def _through_first(c: OperatorCall, operator: str, **attributes: Any) -> str:
    """Write a layer that has its channels second in data and weight."""
    x, weight, *bias = c.inputs
    rank = len(c.shapes[0])
    last = channels_last(c.a.layout)
    if last:
        x, weight = (move_axis(c, value, rank, -1, 1) for value in (x, weight))
    found = c.emit(operator, x, weight, *bias, **attributes)
    return move_axis(c, found, rank, 1, -1) if last else found


@in_floats()
def convolution(c: OperatorCall) -> str:
    """Conv."""
    rank = len(c.a.kernel)
    return _through_first(
        c,
        "Conv",
        kernel_shape=c.a.kernel,
        strides=c.a.stride or (1,) * rank,
        dilations=c.a.dilate or (1,) * rank,
        pads=(c.a.pad or (0,) * rank) * 2,
        group=c.a.num_group,
    )


@in_floats()
def deconvolution(c: OperatorCall) -> str:
    """ConvTranspose; a target shape is reached by what is cut off and added."""
    rank = len(c.a.kernel)
    # sizes matter to a target shape only
    pads, adds = margins(c.a, _spatial(c) if any(c.a.target_shape) else (0,) * rank)
    return _through_first(
        c,
        "ConvTranspose",
        kernel_shape=c.a.kernel,
        strides=c.a.stride or (1,) * rank,
        dilations=c.a.dilate or (1,) * rank,
        pads=pads * 2,
        output_padding=adds,
        group=c.a.num_group,
    )


def _window_filters(c: OperatorCall, channels: int) -> str:
    """Return the filters of which each takes one element of the window: (channels * elements, 1, *kernel)."""
    area = prod(c.a.kernel)
    return c.const(np.tile(np.eye(area), (channels, 1)).reshape(-1, 1, *c.a.kernel))


@in_floats()
def im2col(c: OperatorCall) -> str:
    """Conv of each channel with filters that take one element of the window each."""
    rank, channels = len(c.a.kernel), c.length(1)
    found = c.emit(
        "Conv",
        c.inputs[0],
        _window_filters(c, channels),
        kernel_shape=c.a.kernel,
        strides=c.a.stride or (1,) * rank,
        dilations=c.a.dilate or (1,) * rank,
        pads=(c.a.pad or (0,) * rank) * 2,
        group=channels,
    )
    return c.emit("Reshape", found, c.ints(0, channels * prod(c.a.kernel), -1))


@in_floats()
def col2im(c: OperatorCall) -> str:
    """ConvTranspose of each channel with filters that fill one element of the window each."""
    rank, columns = len(c.a.kernel), c.length(1)
    stride, dilate = c.a.stride or (1,) * rank, c.a.dilate or (1,) * rank
    pad, size = c.a.pad or (0,) * rank, c.a.output_size
    room = [x + 2 * p - d * (k - 1) - 1 for x, p, d, k in zip(size, pad, dilate, c.a.kernel)]
    windows = c.emit("Reshape", c.inputs[0], c.ints(0, columns, *(r // s + 1 for r, s in zip(room, stride))))
    channels = columns // prod(c.a.kernel)
    return c.emit(
        "ConvTranspose",
        windows,
        _window_filters(c, channels),
        kernel_shape=c.a.kernel,
        strides=stride,
        dilations=dilate,
        pads=pad * 2,
        output_padding=[r % s for r, s in zip(room, stride)],
        group=channels,
    )


@in_floats()
def activation(c: OperatorCall) -> str:
    """One of five functions."""
    types = {
        "relu": "Relu",
        "sigmoid": "Sigmoid",
        "tanh": "Tanh",
        "softrelu": "Softplus",
        "softsign": "Softsign",
    }
    return c.emit(types[c.a.act_type], c.inputs[0])


@in_floats()
def leaky_relu(c: OperatorCall) -> str | list[str]:
    """The function that `act_type` names; rrelu has the middle slope."""
    x, kind = c.inputs[0], c.a.act_type
    if kind == "leaky":
        return c.emit("LeakyRelu", x, alpha=c.a.slope)
    if kind == "elu":
        return c.emit("Elu", x, alpha=c.a.slope)
    if kind == "selu":
        return c.emit("Selu", x)
    if kind == "gelu":
        return _gelu(c)
    if kind == "prelu":
        return c.emit("PRelu", x, _slopes(c))
    slope = c.const((c.a.lower_bound + c.a.upper_bound) / 2)
    mask = c.emit("Where", c.emit("Greater", x, c.const(0.0)), c.const(1.0), slope)
    return [c.emit("Mul", x, mask), mask]


def _gelu(c: OperatorCall) -> str:
    x = c.inputs[0]
    if c.opset >= 20:
        found = c.emit("Gelu", x)
        return found
    share = c.emit("Add", c.emit("Erf", c.emit("Mul", x, c.const(0.5**0.5))), c.const(1.0))
    found = c.emit("Mul", c.emit("Mul", x, share), c.const(0.5))
    return found


def _slopes(c: OperatorCall) -> str:
    """Return prelu's slopes, whose axes are those of the data from the first or, if it is one, the second on."""
    gamma, shape, rank = c.inputs[1], c.shapes[1], len(c.shapes[0])
    after = rank - len(shape) if len(shape) > 1 else rank - 2
    if after < 1 or shape == (1,):
        return gamma
    return reshape(c, gamma, (*shape, *(1,) * after), shape)


def dropout(c: OperatorCall) -> str:
    """Nothing is dropped in prediction."""
    if c.a.mode == "always":
        c.refuse("mode 'always' drops in prediction, too; ONNX's Dropout does so in training only")
    return c.inputs[0]


def embedding(c: OperatorCall) -> str:
    """Gather of whole numbers within the table."""
    indices, weight = c.inputs
    if c.dtypes[0] != "int64":
        indices = c.cast(indices, "int64")
    last = c.const(c.a.input_dim - 1, "int64")
    return c.emit("Gather", weight, c.emit("Clip", indices, c.const(0, "int64"), last), axis=0)
