"""Normalization of features, and the rectifier with trained slopes."""

from __future__ import annotations

import math
from typing import Any

from ... import initializer as init
from ... import symbol as sym
from ...base import ArgumentError, ShapeError
from ..variable import ParamAttr, Variable
from .layer_helper import add_layer, as_variable, check_act, check_number, parameter, program_of, state


def layer_norm(
    input: Any,
    scale: bool = True,
    shift: bool = True,
    begin_norm_axis: int = 1,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Normalize each example to mean 0 and variance 1, then scale and shift.

    Shape:
        input: (N, ...), or with `begin_norm_axis` 1 sequences of vectors.
        scale and shift: (features,), of all normalized axes together.

    Args:
        scale: whether to multiply by a parameter that starts as 1.
        shift: whether to add a parameter that starts as 0.
        begin_norm_axis: first of the axes that are normalized together.
        epsilon: added to the variance.
        param_attr: attributes of the scale.
        bias_attr: attributes of the shift.

    Raises:
        ArgumentError: `begin_norm_axis` is not an axis after the first.
        ShapeError: the size of a normalized axis is unknown.
    Source: Ba, Kiros and Hinton, "Layer Normalization", 2016.
    """
    variable = as_variable("layer_norm", input)
    check_act("layer_norm", act)
    axes = len(variable.shape)
    if not 1 <= begin_norm_axis < axes:
        raise ArgumentError(
            f"layer_norm: begin_norm_axis is {begin_norm_axis!r} for {variable.name!r} of shape {variable.shape}, "
            f"expected 1 to {axes - 1}"
        )
    inner = variable.shape[begin_norm_axis:]
    if min(inner) < 1 or variable.lod_level and axes != 2:
        raise ShapeError(
            f"layer_norm: {variable.name!r} has the shape {variable.shape}; its normalized axes must have known sizes"
        )
    program = program_of("layer_norm", variable)
    own, size = program.unique("layer_norm") if name is None else name, (math.prod(inner),)
    gamma, beta = (
        parameter(program, f"{own}_{part}", size, ParamAttr.of(attr), initializer=init.Constant(start))
        if used
        else getattr(sym, rest)(shape=size, name=f"{own}_{part}")
        for part, used, attr, start, rest in (
            ("scale", scale, param_attr, 1.0, "ones"),
            ("shift", shift, bias_attr, 0.0, "zeros"),
        )
    )

    def made(name: str) -> Any:
        if len(inner) == 1:
            return sym.LayerNorm(variable.symbol, gamma, beta, eps=epsilon, name=name)
        rows = sym.Reshape(variable.symbol, shape=(*[0] * begin_norm_axis, -1), name=f"{name}_rows")
        normal = sym.LayerNorm(rows, gamma, beta, eps=epsilon, name=f"{name}_normal")
        return sym.reshape_like(normal, variable.symbol, name=name)

    return add_layer("layer_norm", [variable], made, own, act=act)


def batch_norm(
    input: Any,
    act: str | None = None,
    is_test: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    bias_attr: Any = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    use_global_stats: bool = False,
    fuse_with_relu: bool = False,
) -> Variable:
    """Normalize each channel over the batch to mean 0 and variance 1, then scale and shift, with an activation.

    Programs that train use the mean and the variance of the batch, and update the moving ones; other programs, such as
    a ``clone(for_test=True)``, use the moving ones.

    Shape:
        input: (N, C), (N, C, H, W), or with `data_layout` "NHWC" (N, ..., C).
        scale, shift, moving mean and variance: (C,).

    Args:
        act: name of an activation.
        is_test: whether programs that train also use the moving mean and variance.
        momentum: weight of the old moving mean and variance.
        epsilon: added to the variance.
        param_attr: attributes of the scale, which starts as 1.
        bias_attr: attributes of the shift, which starts as 0.
        data_layout: "NCHW" or "NHWC".
        in_place: ignored.
        moving_mean_name: name of the moving mean; None: made from `name`.
        moving_variance_name: name of the moving variance; None: made from `name`.
        do_model_average_for_mean_and_var: ignored.
        use_global_stats: as `is_test`.
        fuse_with_relu: ignored, as in Paddle without MKL-DNN.

    Raises:
        ArgumentError: an argument is not valid, or `input` holds sequences.
        ShapeError: the number of channels is unknown.

    Source: Ioffe and Szegedy, "Batch normalization", 2015; Paddle 1.8 `batch_norm`.
    """
    variable = as_variable("batch_norm", input)
    check_act("batch_norm", act)
    check_number("batch_norm", "momentum", momentum)
    check_number("batch_norm", "epsilon", epsilon)
    if data_layout not in ("NCHW", "NHWC"):
        raise ArgumentError(f'batch_norm: data_layout is {data_layout!r}, expected "NCHW" or "NHWC"')
    if variable.lod_level:
        raise ArgumentError(
            f"batch_norm: {variable.name!r} holds sequences; pool them first, or use layer_norm"
        )
    axis = 1 if data_layout == "NCHW" else len(variable.shape) - 1
    if not 1 <= axis < len(variable.shape) or variable.shape[axis] < 1:
        raise ShapeError(
            f"batch_norm: {variable.name!r} has the shape {variable.shape}; the number of channels must be known"
        )
    program, size = program_of("batch_norm", variable), (variable.shape[axis],)
    own = program.unique("batch_norm") if name is None else name
    gamma, beta = (
        parameter(program, f"{own}_{part}", size, ParamAttr.of(attr), initializer=init.Constant(start))
        for part, attr, start in (("scale", param_attr, 1.0), ("shift", bias_attr, 0.0))
    )
    moving = (
        state(program, given or f"{own}_{part}", size, start=start).symbol
        for part, given, start in (("mean", moving_mean_name, 0.0), ("variance", moving_variance_name, 1.0))
    )
    attributes = {"axis": axis, "eps": float(epsilon), "momentum": float(momentum), "fix_gamma": False}
    attributes["use_global_stats"] = bool(is_test or use_global_stats)

    def made(name: str) -> Any:
        return sym.BatchNorm(variable.symbol, gamma, beta, *moving, name=name, **attributes)

    return add_layer("batch_norm", [variable], made, own, act=act)


def prelu(x: Any, mode: str, param_attr: Any = None, name: str | None = None) -> Variable:
    """Multiply negative elements by trained slopes, which start as 0.25.

    Shape:
        x: (N, ...), or sequences.
        slopes: (1,), with `mode` "channel" (1, C, 1, 1), with "element" (1, ...).

    Args:
        mode: "all" for one slope, "channel" for one of each channel, "element" for one of each element.

    Raises:
        ArgumentError: the mode is unknown.
        ShapeError: an axis of the slopes has an unknown length.

    Source: He et al., "Delving deep into rectifiers", 2015; Paddle 1.8 `prelu`.
    """
    variable = as_variable("prelu", x, "x")
    inner = variable.shape[1:]
    shapes = {"all": (1,), "channel": (1, *inner[:1], *[1] * len(inner[1:])), "element": (1, *inner)}
    shape = shapes.get(mode)
    if shape is None:
        raise ArgumentError(f"prelu: mode is {mode!r}, expected one of {', '.join(shapes)}")
    if min(shape) < 1:
        raise ShapeError(
            f"prelu: {variable.name!r} has the shape {variable.shape}, of which {mode!r} needs more"
        )
    program = program_of("prelu", variable)
    own = program.unique("prelu") if name is None else name
    start = init.Constant(0.25)
    slopes = parameter(program, f"{own}_slope", shape, ParamAttr.of(param_attr), initializer=start)

    def made(name: str) -> Any:
        below = sym.negative(sym.relu(sym.negative(variable.symbol)))
        return sym.broadcast_add(
            sym.relu(variable.symbol), sym.broadcast_mul(below, slopes, name=f"{name}_below"), name=name
        )

    return add_layer("prelu", [variable], made, own)


def l2_normalize(x: Any, axis: int, epsilon: float = 1e-12, name: str | None = None) -> Variable:
    """Divide by the Euclidean norm along an axis, ``sqrt(max(sum(x ** 2), epsilon))``.

    Args:
        axis: the axis.
        epsilon: smallest square of a norm.
    """
    variable = as_variable("l2_normalize", x, "x")
    check_number("l2_normalize", "epsilon", epsilon)

    def made(name: str) -> Any:
        squares = sym.sum(sym.square(variable.symbol), axis=axis, keepdims=True)
        floor = sym._internal._maximum_scalar(squares, scalar=float(epsilon))
        return sym.broadcast_mul(variable.symbol, sym.rsqrt(floor, name=f"{name}_scale"), name=name)

    return add_layer("l2_normalize", [variable], made, name)
