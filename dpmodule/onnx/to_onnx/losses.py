"""Softmax and its relatives, and what losses compute in prediction."""

from __future__ import annotations

import numpy as np

from .call import OperatorCall
from .common import positions, reshape, unsqueeze
from .floats import in_floats

__all__ = [
    "smooth_l1",
    "softmax",
    "softmax_activation",
    "softmax_cross_entropy",
    "softmax_output",
    "softmin",
]


@in_floats(double=True)
def softmax(c: OperatorCall) -> str:
    """Softmax or LogSoftmax, of what lies before the ends of sequences if there are any."""
    x = c.inputs[0]
    if c.a.temperature is not None:
        x = c.emit("Div", x, c.const(c.a.temperature))
    if len(c.inputs) == 1:
        return c.emit(c.type, x, axis=c.a.axis)
    axis = c.a.axis % len(c.shapes[0])
    ends = c.inputs[1] if c.dtypes[1] == "int64" else c.cast(c.inputs[1], "int64")
    inside = c.emit("Less", positions(c, x, c.shapes[0], axis), unsqueeze(c, ends, axis))
    found = c.emit("Softmax", c.emit("Where", inside, x, c.const(-np.inf)), axis=axis)
    return c.emit("Where", inside, found, c.const(0.0))


@in_floats(double=True)
def softmin(c: OperatorCall) -> str:
    """Softmax of the negated data."""
    x = c.emit("Neg", c.inputs[0])
    if c.a.temperature is not None:
        x = c.emit("Div", x, c.const(c.a.temperature))
    return c.emit("Softmax", x, axis=c.a.axis)


@in_floats(double=True)
def softmax_activation(c: OperatorCall) -> str:
    """Softmax over the channels or the last axis."""
    return c.emit("Softmax", c.inputs[0], axis=1 if c.a.mode == "channel" else -1)


@in_floats(double=True)
def softmax_output(c: OperatorCall) -> str:
    """The prediction of the loss: Softmax over the channels, the last axis, or all axes but the first."""
    x, shape = c.inputs[0], c.shapes[0]
    if c.a.multi_output or c.a.preserve_shape or len(shape) == 2:
        return c.emit("Softmax", x, axis=1 if c.a.multi_output else -1)
    rows = c.emit("Softmax", c.emit("Flatten", x, axis=1), axis=1)
    return reshape(c, rows, shape, shape[:1])


@in_floats(double=True)
def softmax_cross_entropy(c: OperatorCall) -> str:
    """The loss itself, of labels that are class numbers."""
    data, label = c.inputs
    classes = positions(c, data, c.shapes[0], 1)
    chosen = c.emit("Equal", unsqueeze(c, c.cast(label, "int64"), 1), classes)
    found = c.emit("Where", chosen, c.emit("Softmax", data, axis=1), c.const(0.0))
    shares = c.emit("ReduceSum", found, c.ints(1), keepdims=0)
    logs = c.emit("Log", c.emit("Max", shares, c.const(1e-8)))
    return c.emit("Neg", c.emit("ReduceSum", logs, c.ints(0), keepdims=1))


@in_floats(double=True)
def smooth_l1(c: OperatorCall) -> str:
    """A parabola around zero, straight lines outside."""
    if not c.dtypes[0].startswith(("float", "bfloat")):
        c.refuse(f"its data are {c.dtypes[0]}, expected a floating type")
    squared = (1.0 if c.a.scalar is None else c.a.scalar) ** 2
    size = c.emit("Abs", c.inputs[0])
    parabola = c.emit("Mul", c.emit("Mul", size, size), c.const(0.5 * squared))
    line = c.emit("Sub", size, c.const(0.5 / squared))
    return c.emit("Where", c.emit("Less", size, c.const(1.0 / squared)), parabola, line)
