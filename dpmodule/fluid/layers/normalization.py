"""Normalization of features."""

from __future__ import annotations

import math
from typing import Any

from ... import initializer as init
from ... import symbol as sym
from ...base import ArgumentError, ShapeError
from ..variable import ParamAttr, Variable
from .layer_helper import add_layer, as_variable, check_act, parameter, program_of


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
