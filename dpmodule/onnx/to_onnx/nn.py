"""Builders of layers, normalisation, softmax and the predictions of losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops.nn.conv import pads_and_adds
from ...ops.nn.layer_shapes import channels_last
from ...ops.shapes import prod
from .call import Dims, OperatorCall, Value
from .common import in_floats, move_axis, positions, reshape, windows


@in_floats(double=True)
def fully_connected(c: OperatorCall) -> Value:
    """Gemm for matrices, MatMul on the last axis of larger ranks."""
    x, weight, *bias = c.inputs
    if bias and len(c.shapes[2]) > 1:
        bias = [bias[0].reshape(-1)]
    if len(c.shapes[0]) != 2 and c.a.flatten:
        x = c.emit("Flatten", x, axis=1)
    if c.a.flatten or len(c.shapes[0]) == 2:
        return c.emit("Gemm", x, weight, *bias, transB=1)
    product = c.emit("MatMul", x, c.emit("Transpose", weight, perm=[1, 0]))
    return c.emit("Add", product, *bias) if bias else product


def _spatial(c: OperatorCall) -> tuple[int, ...]:
    """Return the lengths of the data's spatial axes, which must be known."""
    return c.numbers(_first(c)[2:])


def _first(c: OperatorCall) -> Dims:
    """Return the data's shape with channels second."""
    shape = c.shapes[0]
    return (shape[0], shape[-1], *shape[1:-1]) if channels_last(c.a.layout) else shape


def _through_first(c: OperatorCall, operator: str, **attributes: Any) -> Value:
    """Write a layer with channels second in data and weight."""
    x, weight, *bias = c.inputs
    rank = len(c.shapes[0])
    last = channels_last(c.a.layout)
    if last:
        x, weight = (move_axis(c, value, rank, -1, 1) for value in (x, weight))
    output = c.emit(operator, x, weight, *bias, **attributes)
    return move_axis(c, output, rank, 1, -1) if last else output


@in_floats()
def convolution(c: OperatorCall) -> Value:
    """Conv."""
    return _through_first(c, "Conv", **windows(c), group=c.a.num_group)


@in_floats()
def deconvolution(c: OperatorCall) -> Value:
    """ConvTranspose; a target shape is reached by cropping and padding."""
    # sizes matter only for a target shape
    pads, adds = pads_and_adds(c.a, _spatial(c) if any(c.a.target_shape) else (0,) * len(c.a.kernel))
    options = {**windows(c), "pads": pads * 2, "output_padding": adds}
    return _through_first(c, "ConvTranspose", **options, group=c.a.num_group)


def _window_filters(c: OperatorCall, channels: int) -> Value:
    """Return filters that each select one element of the window: (channels * elements, 1, *kernel)."""
    area = prod(c.a.kernel)
    return c.const(np.tile(np.eye(area), (channels, 1)).reshape(-1, 1, *c.a.kernel))


@in_floats()
def im2col(c: OperatorCall) -> Value:
    """Conv of each channel with filters that each select one element of the window."""
    channels = c.length(1)
    output: Value = c.emit("Conv", c.inputs[0], _window_filters(c, channels), **windows(c), group=channels)
    return output.reshape(0, channels * prod(c.a.kernel), -1)


@in_floats()
def col2im(c: OperatorCall) -> Value:
    """ConvTranspose of each channel with filters that each write one element of the window."""
    columns, options = c.length(1), windows(c)
    sides = zip(c.a.output_size, options["pads"], options["dilations"], c.a.kernel)
    room = [x + 2 * p - d * (k - 1) - 1 for x, p, d, k in sides]
    steps = list(zip(room, options["strides"]))
    images = c.inputs[0].reshape(0, columns, *(r // s + 1 for r, s in steps))
    channels = columns // prod(c.a.kernel)
    options |= {"output_padding": [r % s for r, s in steps], "group": channels}
    output: Value = c.emit("ConvTranspose", images, _window_filters(c, channels), **options)
    return output


@in_floats()
def activation(c: OperatorCall) -> Value:
    """The activation named by `act_type`."""
    other = {"softrelu": "Softplus", "softsign": "Softsign"}
    return c.emit(other.get(c.a.act_type, c.a.act_type.capitalize()), c.inputs[0])


@in_floats()
def leaky_relu(c: OperatorCall) -> Value | list[Value]:
    """The function named by `act_type`; rrelu has the mean slope."""
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
    mask = (x > 0.0).choose(1.0, slope)
    return [x * mask, mask]


def _gelu(c: OperatorCall) -> Value:
    x = c.inputs[0]
    if c.opset >= 20:
        return c.emit("Gelu", x)
    share = c.emit("Erf", x * 0.5**0.5) + 1.0
    return x * share * 0.5


def _slopes(c: OperatorCall) -> Value:
    """Return prelu's slopes, shaped to broadcast with the data."""
    gamma, shape, rank = c.inputs[1], c.shapes[1], len(c.shapes[0])
    after = rank - len(shape) if len(shape) > 1 else rank - 2
    if after < 1 or shape == (1,):
        return gamma
    return reshape(c, gamma, (*shape, *(1,) * after), shape)


def dropout(c: OperatorCall) -> Value:
    """Return the data, since prediction drops nothing."""
    if c.a.mode == "always":
        c.refuse("mode 'always' also drops in prediction, while ONNX's Dropout drops only in training")
    return c.inputs[0]


def embedding(c: OperatorCall) -> Value:
    """Gather with integer indices, limited to the table."""
    if c.a.input_dim is None:
        c.refuse("ONNX has no tables of ids, which hash_rows=True makes")
    indices, weight = c.inputs
    if c.dtypes[0] != "int64":
        indices = indices.cast("int64")
    last = c.const(c.a.input_dim - 1, "int64")
    return c.emit("Gather", weight, c.emit("Clip", indices, c.const(0, "int64"), last), axis=0)


# normalisation


@in_floats(double=True)
def batch_norm(c: OperatorCall) -> Value | list[Value]:
    """BatchNormalization with the moving statistics."""
    x, gamma, beta, mean, var = c.inputs
    rank, axis = len(c.shapes[0]), getattr(c.a, "axis", 1)
    known = c.value(1)
    if c.a.fix_gamma and (known is None or (known != 1).any()):
        gamma = c.const(np.ones(c.numbers(c.shapes[1])))
    x = move_axis(c, x, rank, axis, 1) if rank > 1 else c.emit("Unsqueeze", x, c.ints(0))
    output = c.emit("BatchNormalization", x, gamma, beta, mean, var, epsilon=c.a.eps, momentum=c.a.momentum)
    output = move_axis(c, output, rank, 1, axis) if rank > 1 else c.emit("Squeeze", output, c.ints(0))
    return [output, mean, _second_statistic(c, var)] if c.a.output_mean_var else output


def _second_statistic(c: OperatorCall, var: Value) -> Value:
    """Return the third output: the variance, or the reciprocal of the deviation."""
    if c.node.op is not None and c.node.op.name in ("BatchNorm_v1", "_contrib_SyncBatchNorm"):
        return var
    return c.emit("Reciprocal", c.emit("Sqrt", var + c.a.eps))


def batch_norm_with_relu(c: OperatorCall) -> Value | list[Value]:
    """BatchNormalization and Relu."""
    output = batch_norm(c)
    outputs = [output] if isinstance(output, Value) else list(output)
    return [c.emit("Relu", outputs[0]), *outputs[1:]]


@in_floats(half=False, double=True)
def layer_norm(c: OperatorCall) -> Value | list[Value]:
    """LayerNormalization from opset 17 on; plain arithmetic before, or if its statistics are read."""
    x, gamma, beta = c.inputs
    rank = len(c.shapes[0])
    axis = c.a.axis % rank
    if c.opset >= 17 and not c.a.output_mean_var:
        inner = move_axis(c, x, rank, axis, -1)
        output = c.emit("LayerNormalization", inner, gamma, beta, axis=-1, epsilon=c.a.eps)
        return move_axis(c, output, rank, -1, axis)
    mean = x.reduce("ReduceMean", axis, keepdims=True)
    rest = x - mean
    deviation = _deviation(c, rest, axis)
    vectors = [gamma, beta]
    if axis < rank - 1:
        vectors = [vector.reshape(-1, *(1,) * (rank - 1 - axis)) for vector in vectors]
    output = rest / deviation * vectors[0] + vectors[1]
    return [output, mean, deviation] if c.a.output_mean_var else output


def _deviation(c: OperatorCall, rest: Value, axis: int) -> Value:
    """Return the deviation of centred values, including `eps`."""
    variance = (rest * rest).reduce("ReduceMean", axis, keepdims=True)
    return c.emit("Sqrt", variance + c.a.eps)


@in_floats(half=False)
def instance_norm(c: OperatorCall) -> Value:
    """InstanceNormalization."""
    return c.emit("InstanceNormalization", *c.inputs, epsilon=c.a.eps)


@in_floats(half=False)
def group_norm(c: OperatorCall) -> Value | list[Value]:
    """InstanceNormalization with groups as channels; gamma and beta with a value per channel follow it."""
    x, gamma, beta = c.inputs
    groups = x.reshape(0, c.a.num_groups, -1)
    per_group = c.shapes[1] == (c.a.num_groups,)
    vectors = [gamma, beta]
    if not per_group:
        vectors = [c.const(np.full(c.a.num_groups, n, np.float32), "float32") for n in (1, 0)]
    output = c.emit("InstanceNormalization", groups, *vectors, epsilon=c.a.eps)
    whole = reshape(c, output, c.shapes[0], (c.shapes[0][0],))
    if not per_group:
        ones = (1,) * (len(c.shapes[0]) - 2)
        whole = whole * gamma.reshape(-1, *ones) + beta.reshape(-1, *ones)
    if not c.a.output_mean_var:
        return whole
    mean = groups.reduce("ReduceMean", 2, keepdims=True)
    deviation = _deviation(c, groups - mean, 2)
    return [whole, *(c.emit("Squeeze", each, c.ints(2)) for each in (mean, deviation))]


@in_floats(half=False)
def lrn(c: OperatorCall) -> Value:
    """LRN over an odd number of channels, of images."""
    shape = c.shapes[0]
    size = 2 * ((c.a.nsize - 1) // 2) + 1
    options: dict[str, Any] = {
        "size": size,
        "alpha": c.a.alpha * size / c.a.nsize,
        "beta": c.a.beta,
        "bias": c.a.knorm,
    }
    if len(shape) == 4:
        output: Value = c.emit("LRN", c.inputs[0], **options)
        return output
    image = c.inputs[0].reshape(0, 0, -1, 1)
    return reshape(c, c.emit("LRN", image, **options), shape, shape[:2])


@in_floats(half=False, double=True)
def l2_normalization(c: OperatorCall) -> Value:
    """Data divided by the square root of the sum of squares."""
    x, rank = c.inputs[0], len(c.shapes[0])
    axes = {"channel": [1], "instance": range(1, rank), "spatial": range(2, rank)}[c.a.mode]
    total = (x * x).reduce("ReduceSum", *axes, keepdims=True)
    return x / c.emit("Sqrt", total + c.a.eps)


# softmax, and predictions of losses


@in_floats(double=True)
def softmax(c: OperatorCall) -> Value:
    """Softmax or LogSoftmax, masked by sequence lengths if there are any."""
    x = c.inputs[0]
    if c.a.temperature is not None:
        x = x / c.a.temperature
    if len(c.inputs) == 1:
        return c.emit(c.type, x, axis=c.a.axis)
    axis = c.a.axis % len(c.shapes[0])
    ends = c.inputs[1].cast("int64")
    inside = positions(c, x, c.shapes[0], axis) < ends.unsqueeze(axis)
    output = c.emit("Softmax", inside.choose(x, -np.inf), axis=axis)
    return inside.choose(output, 0.0)


@in_floats(double=True)
def softmin(c: OperatorCall) -> Value:
    """Softmax of the negated data."""
    x = -c.inputs[0]
    if c.a.temperature is not None:
        x = x / c.a.temperature
    return c.emit("Softmax", x, axis=c.a.axis)


@in_floats(double=True)
def softmax_activation(c: OperatorCall) -> Value:
    """Softmax over the channels or the last axis."""
    return c.emit("Softmax", c.inputs[0], axis=1 if c.a.mode == "channel" else -1)


@in_floats(double=True)
def softmax_output(c: OperatorCall) -> Value:
    """Prediction of the loss: Softmax over the channels, the last axis, or all axes but the first."""
    x, shape = c.inputs[0], c.shapes[0]
    if c.a.multi_output or c.a.preserve_shape or len(shape) == 2:
        return c.emit("Softmax", x, axis=1 if c.a.multi_output else -1)
    rows = c.emit("Softmax", c.emit("Flatten", x, axis=1), axis=1)
    return reshape(c, rows, shape, shape[:1])


@in_floats(double=True)
def softmax_cross_entropy(c: OperatorCall) -> Value:
    """The loss for labels that are class numbers."""
    data, label = c.inputs
    classes = positions(c, data, c.shapes[0], 1)
    chosen = label.cast("int64").unsqueeze(1).equals(classes)
    output = chosen.choose(c.emit("Softmax", data, axis=1), 0.0)
    shares = c.emit("ReduceSum", output, c.ints(1), keepdims=0)
    logs = c.emit("Log", shares.then("Max", 1e-8))
    return -c.emit("ReduceSum", logs, c.ints(0), keepdims=1)
