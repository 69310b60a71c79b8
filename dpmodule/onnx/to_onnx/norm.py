"""Normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from .call import OperatorCall
from .common import move_axis, reduce, reshape
from .floats import in_floats

__all__ = [
    "batch_norm",
    "batch_norm_with_relu",
    "group_norm",
    "instance_norm",
    "l2_normalization",
    "layer_norm",
    "lrn",
]


@in_floats(double=True)
def batch_norm(c: OperatorCall) -> str | list[str]:
    """BatchNormalization by the moving statistics."""
    x, gamma, beta, mean, var = c.inputs
    rank, axis = len(c.shapes[0]), getattr(c.a, "axis", 1)
    known = c.value(1)
    if c.a.fix_gamma and (known is None or (known != 1).any()):
        gamma = c.const(np.ones(c.numbers(c.shapes[1])))
    x = move_axis(c, x, rank, axis, 1) if rank > 1 else c.emit("Unsqueeze", x, c.ints(0))
    found = c.emit("BatchNormalization", x, gamma, beta, mean, var, epsilon=c.a.eps, momentum=c.a.momentum)
    found = move_axis(c, found, rank, 1, axis) if rank > 1 else c.emit("Squeeze", found, c.ints(0))
    return [found, mean, _second_statistic(c, var)] if c.a.output_mean_var else found


def _second_statistic(c: OperatorCall, var: str) -> str:
    """Return what the third output is: the variance, or one over the deviation."""
    if c.node.op is not None and c.node.op.name in ("BatchNorm_v1", "_contrib_SyncBatchNorm"):
        return var
    found = c.emit("Reciprocal", c.emit("Sqrt", c.emit("Add", var, c.const(c.a.eps))))
    return found


def batch_norm_with_relu(c: OperatorCall) -> str | list[str]:
    """BatchNormalization and Relu."""
    found = batch_norm(c)
    outputs = [found] if isinstance(found, str) else list(found)
    return [c.emit("Relu", outputs[0]), *outputs[1:]]


@in_floats(half=False, double=True)
def layer_norm(c: OperatorCall) -> str | list[str]:
    """LayerNormalization from opset 17 on, plain arithmetic where there is none or its statistics are wanted."""
    x, gamma, beta = c.inputs
    rank = len(c.shapes[0])
    axis = c.a.axis % rank
    if c.opset >= 17 and not c.a.output_mean_var:
        inner = move_axis(c, x, rank, axis, -1)
        found = c.emit("LayerNormalization", inner, gamma, beta, axis=-1, epsilon=c.a.eps)
        return move_axis(c, found, rank, -1, axis)
    mean = reduce(c, "ReduceMean", x, [axis], True)
    rest = c.emit("Sub", x, mean)
    deviation = _deviation(c, rest, axis)
    vectors = [gamma, beta]
    if axis < rank - 1:
        vectors = [c.emit("Reshape", each, c.ints(-1, *(1,) * (rank - 1 - axis))) for each in vectors]
    found = c.emit("Add", c.emit("Mul", c.emit("Div", rest, deviation), vectors[0]), vectors[1])
    return [found, mean, deviation] if c.a.output_mean_var else found


def _deviation(c: OperatorCall, rest: str, axis: int) -> str:
    """Return the deviation of what is left without the mean, with `eps` in it."""
    variance = reduce(c, "ReduceMean", c.emit("Mul", rest, rest), [axis], True)
    found = c.emit("Sqrt", c.emit("Add", variance, c.const(c.a.eps)))
    return found


@in_floats(half=False)
def instance_norm(c: OperatorCall) -> str:
    """InstanceNormalization."""
    return c.emit("InstanceNormalization", *c.inputs, epsilon=c.a.eps)


@in_floats(half=False)
def group_norm(c: OperatorCall) -> str | list[str]:
    """InstanceNormalization of groups as channels: gamma and beta have one value per group."""
    x, gamma, beta = c.inputs
    groups = c.emit("Reshape", x, c.ints(0, c.a.num_groups, -1))
    found = c.emit("InstanceNormalization", groups, gamma, beta, epsilon=c.a.eps)
    whole = reshape(c, found, c.shapes[0], (c.shapes[0][0],))
    if not c.a.output_mean_var:
        return whole
    mean = reduce(c, "ReduceMean", groups, [2], True)
    deviation = _deviation(c, c.emit("Sub", groups, mean), 2)
    return [whole, *(c.emit("Squeeze", each, c.ints(2)) for each in (mean, deviation))]


@in_floats(half=False)
def lrn(c: OperatorCall) -> str:
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
        found: str = c.emit("LRN", c.inputs[0], **options)
        return found
    image = c.emit("Reshape", c.inputs[0], c.ints(0, 0, -1, 1))
    return reshape(c, c.emit("LRN", image, **options), shape, shape[:2])


@in_floats(half=False, double=True)
def l2_normalization(c: OperatorCall) -> str:
    """The data over the root of the sum of their squares."""
    x, rank = c.inputs[0], len(c.shapes[0])
    axes = {"channel": [1], "instance": range(1, rank), "spatial": range(2, rank)}[c.a.mode]
    total = reduce(c, "ReduceSum", c.emit("Mul", x, x), axes, True)
    return c.emit("Div", x, c.emit("Sqrt", c.emit("Add", total, c.const(c.a.eps))))
