"""Common parts of image operators: shape checks, random numbers, and straight-through gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from ...base import Shape, ShapeError
from ..registry import op
from ..shapes import same_types, unify
from ..spec import NEVER, Attr, Env, Infer, Onnx, Shapes, arg

Tensor = torch.Tensor

_AUGMENTS = Onnx(missing="augments training images at random")


class _StraightThrough(torch.autograd.Function):
    """Function of an image whose backward returns the head gradient, reshaped without permuting memory."""

    @staticmethod
    def forward(ctx: Any, change: Callable[[Tensor], Tensor], data: Tensor) -> Tensor:
        ctx.like = data.shape, data.dtype
        changed = change(data)
        return changed.clone() if changed is data else changed

    @staticmethod
    def backward(ctx: Any, *heads: Tensor) -> tuple[Any, ...]:
        shape, dtype = ctx.like
        return None, heads[0].reshape(shape).to(dtype)


_apply: Callable[..., Tensor] = _StraightThrough.apply


def straight_through(change: Callable[[Tensor], Tensor], data: Tensor) -> Tensor:
    """Apply a function to an image; backward returns the head gradient in its memory order, as in MXNet."""
    return _apply(change, data)


def check_rank(name: str, shape: Shape, ranks: tuple[int, ...] = (3, 4)) -> None:
    """Raise an error for data that is not an image or, if 4 is in `ranks`, a batch of images."""
    if shape is not None and len(shape) not in ranks:
        wanted = "(height, width, channels)" + (", or a batch of these" if 4 in ranks else "")
        raise ShapeError(f"{name}: data has shape {shape}, expected {wanted}")


def check_channels(name: str, shape: Shape, channels: int) -> None:
    """Raise an error for images without 1 or 3 channels."""
    if shape is not None and channels not in (0, 1, 3):
        raise ShapeError(f"{name}: data of shape {shape} has {channels} channels, expected 1 or 3")


def _check_image(name: str, shape: Shape) -> None:
    """Raise an error for data that is not one image with 1 or 3 channels."""
    check_rank(name, shape, (3,))
    if shape is not None:
        check_channels(name, shape, shape[2])


def _one_image(name: str) -> Infer:
    def infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
        shape = unify(ins[0], outs[0], "data and output")
        _check_image(name, shape)
        return [shape], [shape]

    return infer


def uniform(env: Env, low: float, high: float) -> Tensor:
    """Draw one number from [low, high), as a 0-dimensional tensor."""
    return torch.empty((), device=env.device).uniform_(low, high, generator=env.generator)


def augment(
    name: str, attrs: dict[str, Attr] | None = None, random: bool = False, onnx: Onnx = _AUGMENTS
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Declare an operator that maps an image to one of the same shape and type."""

    def declare(run: Callable[[Any, Env, Tensor], Tensor]) -> Callable[..., Tensor]:
        @wraps(run)
        def checked(a: Any, env: Env, data: Tensor) -> Tensor:
            _check_image(name, tuple(data.shape))
            return run(a, env, data)

        return op(
            name,
            [arg("data")],
            attrs,
            infer=_one_image(name),
            infer_type=same_types,
            random=random,
            batch=NEVER,
            onnx=onnx,
        )(checked)

    return declare
