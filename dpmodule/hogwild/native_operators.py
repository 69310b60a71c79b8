"""Translation of operators to steps of the native engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from ..base import dtype_name
from ..graph.node import Node
from .native_graph import (
    Handler,
    LookupRows,
    NativeSteps,
    RunningCount,
    SlotInput,
    StepInput,
    StepValue,
    unsupported,
)

Shape = tuple[int, ...]

ACTIVATIONS = {
    "relu": "rectify",
    "sigmoid": "logistic",
    "softrelu": "softrelu",
    "softsign": "softsign",
    "tanh": "tanh",
}
"""Kernels of activation functions."""

HANDLERS: dict[str, Handler] = {}
"""Functions that create the steps of operators, by name; other operators are not supported."""


def _register(*names: str) -> Callable[[Handler], Handler]:
    """Register a function that creates the steps of operators."""

    def add(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return add


# look-ups


@_register("Embedding")
def _embedding(graph: NativeSteps, node: Node, inputs: list[StepInput], shape: Shape) -> StepInput:
    data = inputs[0] if inputs else None
    if not isinstance(data, SlotInput):
        raise unsupported(node, "its indices are computed")
    weight = node.inputs[1][0]
    table = graph.table(node, weight, data.name, node.a.sparse_grad)
    if data.ragged:
        return LookupRows(data.name, weight.name, node.a.output_dim)
    return graph.add("Lookup", [], (*data.tail, node.a.output_dim), (graph.slot(data.name), table))


@_register("sequence_pool")
def _sequence_pool(graph: NativeSteps, node: Node, inputs: list[StepInput], shape: Shape) -> StepInput:
    rows = inputs[0]
    if not isinstance(rows, LookupRows):
        raise unsupported(node, "its input is not an Embedding")
    if rows.squared and node.a.pool_type == "max":
        raise unsupported(node, "max pooling of squares")
    table = graph.parameter_number(rows.table)
    ints = (graph.slot(rows.slot), table, int(rows.squared))
    return graph.add("Pool", [], (rows.width,), ints, function=node.a.pool_type)


# dense layers


@_register("FullyConnected")
def _fully_connected(graph: NativeSteps, node: Node, inputs: list[StepInput], shape: Shape) -> StepInput:
    data = graph.matrix(node, inputs[0])
    if data.single or (not node.a.flatten and len(data.tail) > 1):
        raise unsupported(node, "flatten=False of more than two axes")
    units = node.a.num_hidden
    weight = graph.dense(node, node.inputs[1][0], (units, data.width))
    bias = -1 if node.a.no_bias else graph.dense(node, node.inputs[2][0], (units,))
    return graph.add("FullyConnected", [data], (units,), (weight, bias))


@_register("Concat")
def _concat(graph: NativeSteps, node: Node, inputs: list[StepInput], shape: Shape) -> StepInput:
    values = [graph.matrix(node, value) for value in inputs]
    rank = len(values[0].tail) + 1
    if any(value.single for value in values) or rank < 2 or node.a.dim % rank != 1:
        raise unsupported(node, f"dim={node.a.dim} of {rank} axes; only axis 1 is supported")
    return graph.add("Concat", values, shape[1:])


# element-wise


def _unary(
    graph: NativeSteps, node: Node, inputs: Sequence[StepInput], function: str, number: float = 0.0
) -> StepValue:
    data = graph.matrix(node, inputs[0])
    return graph.add("Unary", [data], data.tail, (), (number,), data.single, function)


@_register("LeakyReLU")
def _leaky_relu(graph: NativeSteps, node: Node, inputs: list[StepInput], shape: Shape) -> StepInput:
    if node.a.act_type not in ("leaky", "elu", "selu", "gelu"):
        raise unsupported(node, f"act_type={node.a.act_type!r}")
    return _unary(graph, node, inputs, node.a.act_type, node.a.slope)


_FUNCTIONS: dict[str, Callable[[Any], tuple[str, float]]] = {
    "Activation": lambda a: (ACTIVATIONS[a.act_type], 0.0),
    "relu": lambda a: ("rectify", 0.0),
    "sigmoid": lambda a: ("logistic", 0.0),
    "tanh": lambda a: ("tanh", 0.0),
    "softsign": lambda a: ("softsign", 0.0),
    "exp": lambda a: ("exp", 0.0),
    "log": lambda a: ("log", 0.0),
    "sqrt": lambda a: ("sqrt", 0.0),
    "abs": lambda a: ("abs", 0.0),
    "negative": lambda a: ("negate", 0.0),
    "_copy": lambda a: ("identity", 0.0),
    "BlockGrad": lambda a: ("nobackprop", 0.0),
    "_plus_scalar": lambda a: ("shift", a.scalar),
    "_minus_scalar": lambda a: ("shift", -a.scalar),
    "_rminus_scalar": lambda a: ("rsub", a.scalar),
    "_mul_scalar": lambda a: ("scale", a.scalar),
    "_div_scalar": lambda a: ("scale", 1.0 / a.scalar if a.scalar else math.inf),
    "_rdiv_scalar": lambda a: ("recip", a.scalar),
    "_maximum_scalar": lambda a: ("at_least", a.scalar),
    "_minimum_scalar": lambda a: ("at_most", a.scalar),
}
"""Functions from an operator's attributes to the name of its kernel and the kernel's argument."""


@_register(*_FUNCTIONS)
def _function(graph: NativeSteps, node: Node, inputs: list[StepInput], shape: Shape) -> StepInput:
    function, number = _FUNCTIONS[_name(node)](node.a)
    return _unary(graph, node, inputs, function, float(number))


@_register("square")
def _square(graph: NativeSteps, node: Node, inputs: list[StepInput], shape: Shape) -> StepInput:
    rows = inputs[0]
    if isinstance(rows, LookupRows) and not rows.squared:
        return LookupRows(rows.slot, rows.table, rows.width, squared=True)
    return _unary(graph, node, inputs, "square")


@_register("_power_scalar")
def _power(graph: NativeSteps, node: Node, inputs: list[StepInput], shape: Shape) -> StepInput:
    if node.a.scalar != 2.0:
        raise unsupported(node, f"the power {node.a.scalar}; only squares are supported")
    return _square(graph, node, inputs, shape)


@_register("clip")
def _clip(graph: NativeSteps, node: Node, inputs: list[StepInput], shape: Shape) -> StepInput:
    low = _unary(graph, node, inputs, "at_least", node.a.a_min)
    return _unary(graph, node, [low], "at_most", node.a.a_max)


@_register("Cast")
def _cast(graph: NativeSteps, node: Node, inputs: list[StepInput], shape: Shape) -> StepInput:
    name = dtype_name(node.a.dtype)
    if name in ("float32", "float64"):  # all computation is in float32
        return graph.matrix(node, inputs[0])
    if name not in ("int32", "int64"):
        raise unsupported(node, f"dtype={name}")
    return _unary(graph, node, inputs, "truncate")


@_register("Dropout")
def _dropout(graph: NativeSteps, node: Node, inputs: list[StepInput], shape: Shape) -> StepInput:
    data = graph.matrix(node, inputs[0])
    if node.a.axes:
        raise unsupported(node, f"axes={node.a.axes}")
    return graph.add("Dropout", [data], data.tail, (int(node.a.mode == "always"),), (node.a.p,), data.single)


_ALIASES = {"plus": "add", "minus": "sub"}


@_register(
    *(f"elemwise_{name}" for name in ("add", "sub", "mul", "div")),
    *(f"broadcast_{name}" for name in ("add", "plus", "sub", "minus", "mul", "div", "equal")),
    "_equal",
)
def _binary(graph: NativeSteps, node: Node, inputs: list[StepInput], shape: Shape) -> StepInput:
    name = _name(node).rpartition("_")[2]
    function = _ALIASES.get(name, name)
    if (
        len(inputs) == 2
        and function == "mul"
        and inputs[0] == inputs[1]
        and isinstance(inputs[0], LookupRows)
    ):
        return _square(graph, node, inputs, shape)
    return _combine(graph, node, function, inputs)


def _combine(graph: NativeSteps, node: Node, function: str, inputs: Sequence[StepInput]) -> StepValue:
    if len(inputs) != 2:
        raise unsupported(node, "an operand is a parameter")
    left, right = (graph.matrix(node, value) for value in inputs)
    fits = left.tail == right.tail or (len(left.tail) == len(right.tail) and 1 in (left.width, right.width))
    if left.single != right.single or not fits:
        raise unsupported(node, f"shapes (N, {left.tail}) and (N, {right.tail})")
    tail = left.tail if left.width >= right.width else right.tail
    return graph.add("Binary", [left, right], tail, single=left.single, function=function)


@_register("add_n")
def _add_n(graph: NativeSteps, node: Node, inputs: list[StepInput], shape: Shape) -> StepInput:
    total = graph.matrix(node, inputs[0])
    for value in inputs[1:]:
        total = _combine(graph, node, "add", [total, value])
    return total


# row-wise


@_register("Flatten", "Reshape", "expand_dims", "squeeze")
def _reshape(graph: NativeSteps, node: Node, inputs: list[StepInput], shape: Shape) -> StepInput:
    data = graph.matrix(node, inputs[0])
    batch = next(iter(graph.inputs.values())).shape[0]
    if data.single or not shape or shape[0] != batch or prod(shape[1:]) != data.width:
        raise unsupported(node, f"the shape {shape} does not begin with the batch axis")
    return StepValue(data.index, data.width, tuple(shape[1:]))


@_register("sum", "mean")
def _reduce(graph: NativeSteps, node: Node, inputs: list[StepInput], shape: Shape) -> StepInput:
    data = graph.matrix(node, inputs[0])
    is_mean, rank = _name(node) == "mean", len(data.tail) + 1
    given_axis = node.a.axis
    axes = sorted(
        axis % rank for axis in ((given_axis,) if isinstance(given_axis, int) else given_axis or range(rank))
    )
    if node.a.exclude or data.single:
        raise unsupported(node, "exclude" if node.a.exclude else "its input is a scalar")
    if axes == list(range(rank)) and not node.a.keepdims:
        return graph.add("Total", [data], (), (int(is_mean),), single=True)
    if not axes or axes[0] == 0 or axes != list(range(axes[0], axes[-1] + 1)):
        raise unsupported(node, f"axis={given_axis}")
    before, count, after = (prod(data.tail[a:b]) for a, b in _axis_ranges(axes, rank))
    return graph.add("Reduce", [data], shape[1:], (before, count, after), (1.0 / count if is_mean else 1.0,))


def _axis_ranges(axes: list[int], rank: int) -> list[tuple[int, int]]:
    first, last = axes[0] - 1, axes[-1]
    return [(0, first), (first, last), (last, rank)]


@_register("softmax", "log_softmax", "SoftmaxActivation")
def _softmax(graph: NativeSteps, node: Node, inputs: list[StepInput], shape: Shape) -> StepInput:
    data = graph.matrix(node, inputs[0])
    rank, name = len(data.tail) + 1, _name(node)
    has_options = getattr(node.a, "temperature", None) or getattr(node.a, "use_length", False)
    if name == "SoftmaxActivation":
        is_last = node.a.mode == "instance" and rank == 2
    else:
        is_last = node.a.axis % rank == rank - 1 and len(inputs) == 1
    if data.single or rank < 2 or has_options or not is_last:
        raise unsupported(node, "only the last axis, without temperature and length, is supported")
    return graph.add("Softmax", [data], data.tail, (data.tail[-1], int(name == "log_softmax")))


@_register("pick")
def _pick(graph: NativeSteps, node: Node, inputs: list[StepInput], shape: Shape) -> StepInput:
    if len(inputs) != 2:
        raise unsupported(node, "an operand is a parameter")
    data, index = (graph.matrix(node, value) for value in inputs)
    if node.a.mode != "clip" or len(data.tail) != 1 or node.a.axis not in (-1, 1) or index.width != 1:
        raise unsupported(node, "only one number of each row is supported")
    return graph.add("Pick", [data, index], shape[1:])


@_register("argmax")
def _argmax(graph: NativeSteps, node: Node, inputs: list[StepInput], shape: Shape) -> StepInput:
    data = graph.matrix(node, inputs[0])
    if len(data.tail) != 1 or node.a.axis not in (1, -1) or data.single:
        raise unsupported(node, f"axis={node.a.axis} of {len(data.tail) + 1} axes")
    return graph.add("Argmax", [data], shape[1:])


# losses


def _data_and_label(graph: NativeSteps, node: Node, inputs: list[StepInput]) -> tuple[StepValue, StepValue]:
    if len(inputs) != 2:
        raise unsupported(node, "its label is a parameter")
    data, label = (graph.matrix(node, value) for value in inputs)
    if data.single or label.single:
        raise unsupported(node, "an input is one number for the whole batch")
    return data, label


@_register("SoftmaxOutput")
def _softmax_output(graph: NativeSteps, node: Node, inputs: list[StepInput], shape: Shape) -> StepInput:
    data, label = _data_and_label(graph, node, inputs)
    a: Any = node.a
    for name in ("multi_output", "use_ignore", "out_grad", "smooth_alpha"):
        if getattr(a, name):
            raise unsupported(node, f"{name}={getattr(a, name)}")
    if len(data.tail) != 1 or label.width != 1 or (data.width == 1 and label.tail == data.tail):
        raise unsupported(node, "labels that are not class numbers")
    if a.normalization == "valid":
        raise unsupported(node, "normalization='valid'")
    ints = (int(a.normalization == "batch"),)
    return graph.add("SoftmaxOutput", [data, label], data.tail, ints, (a.grad_scale,))


@_register("LogisticRegressionOutput", "LinearRegressionOutput")
def _regression_output(graph: NativeSteps, node: Node, inputs: list[StepInput], shape: Shape) -> StepInput:
    data, label = _data_and_label(graph, node, inputs)
    if label.width != data.width:
        raise unsupported(node, "label and data have different sizes")
    kind = _name(node).removesuffix("RegressionOutput")
    return graph.add(kind, [data, label], data.tail, (), (node.a.grad_scale,))


@_register("_running_auc")
def _running_auc(graph: NativeSteps, node: Node, inputs: list[StepInput], shape: Shape) -> StepInput:
    data, label = _data_and_label(graph, node, inputs)
    if label.width != 1:
        raise unsupported(node, "labels that are not single numbers")
    output = graph.add("Total", [label], (), (1,), single=True)
    graph.counts.append(RunningCount(node, data, label, output))
    return output


@_register("MakeLoss", "make_loss")
def _make_loss(graph: NativeSteps, node: Node, inputs: list[StepInput], shape: Shape) -> StepInput:
    data = graph.matrix(node, inputs[0])
    normalization = getattr(node.a, "normalization", "null")
    if normalization == "valid" or (normalization == "batch" and len(data.tail) > 1):
        raise unsupported(node, f"normalization={normalization!r}")
    by_batch = normalization == "batch" and bool(data.tail)  # otherwise there is only the batch axis
    return graph.add(
        "MakeLoss", [data], data.tail, (int(by_batch),), (getattr(node.a, "grad_scale", 1.0),), data.single
    )


@_register("softmax_cross_entropy")
def _cross_entropy(graph: NativeSteps, node: Node, inputs: list[StepInput], shape: Shape) -> StepInput:
    data, label = _data_and_label(graph, node, inputs)
    return graph.add("CrossEntropy", [data, label], (), single=True)


def _name(node: Node) -> str:
    return "" if node.op is None else node.op.name
