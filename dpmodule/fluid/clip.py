"""Limits of gradients, for `grad_clip` of an optimizer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

from .._core import lazy
from ..base import ArgumentError
from .program import Program, default_main_program


def _positive(kind: str, name: str, value: Any) -> float:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not (is_number and 0 < value < math.inf):
        raise ArgumentError(f"{kind}: {name} is {value!r}, expected a number above 0")
    return float(value)


class GradientClipByValue:
    """Clip each element of gradients to [-max, max].

    Args:
        max: largest value.
        min: smallest value, must be -max; None: -max.

    Raises:
        ArgumentError: `max` is not a number above 0, or `min` is not -max.
    """

    def __init__(self, max: float, min: float | None = None) -> None:
        self.max = _positive("GradientClipByValue", "max", max)
        if min is not None and min != -max:
            raise ArgumentError(f"GradientClipByValue: min is {min!r}, expected -max, {-max!r}")


class GradientClipByGlobalNorm:
    """Scale gradients so that their norm over all parameters is at most `clip_norm`.

    Of several workers that train from files, each limits the gradients of its own batches.

    Args:
        clip_norm: the largest Euclidean norm.
        group_name: must be "default_group": all parameters are one group.

    Raises:
        ArgumentError: `clip_norm` is not a number above 0, or `group_name` is not "default_group".
    """

    def __init__(self, clip_norm: float, group_name: str = "default_group") -> None:
        self.clip_norm = _positive("GradientClipByGlobalNorm", "clip_norm", clip_norm)
        if group_name != "default_group":
            raise ArgumentError(
                f'GradientClipByGlobalNorm: group_name is {group_name!r}, expected "default_group"'
            )


class GradientClipByNorm:
    """Scale the gradient of each parameter so that its norm is at most `clip_norm`.

    Of several workers that train from files, each limits the gradients of its own batches.

    Args:
        clip_norm: the largest Euclidean norm.

    Raises:
        ArgumentError: `clip_norm` is not a number above 0.
    """

    def __init__(self, clip_norm: float) -> None:
        self.clip_norm = _positive("GradientClipByNorm", "clip_norm", clip_norm)


Clip = GradientClipByValue | GradientClipByGlobalNorm | GradientClipByNorm


def set_gradient_clip(
    clip: Clip,
    param_list: Sequence[Any] | None = None,
    program: Program | None = None,
) -> None:
    """Set the limit of gradients for optimizers of a program that have none of their own.

    Call it before `minimize`.

    Args:
        clip: the limit.
        param_list: must be None: the limit is that of all parameters.
        program: the program; None: the current one.

    Raises:
        ArgumentError: `clip` is not a limit, or `param_list` is given.
    """
    check_clip("set_gradient_clip: clip", clip)
    if param_list is not None:
        raise ArgumentError(f"set_gradient_clip: param_list is {param_list!r}, expected None: all parameters")
    (program or default_main_program()).gradient_clip = clip


def append_gradient_clip_ops(params_grads: Sequence[Any]) -> Sequence[Any]:
    """Return the pairs of `append_backward` as they are; `apply_gradients` uses the limit of `set_gradient_clip`."""
    return params_grads


def check_clip(name: str, clip: Any) -> None:
    """Raise an error if an argument is not a limit."""
    if not isinstance(clip, Clip):
        raise ArgumentError(
            f"{name} is {clip!r}, expected a GradientClipByValue, GradientClipByNorm or GradientClipByGlobalNorm of "
            "fluid.clip"
        )


__all__ = [name for name in lazy.own_names(vars()) if name != "check_clip"]
lazy.publish(__name__, __all__)
