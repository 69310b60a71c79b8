"""Positions in an array of several axes as one number each, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import OpError, Shape, ShapeError
from ...devices.device_transfer import beside
from ..attrs import optional, shape
from ..registry import bound
from ..shapes import output_shape
from ..spec import NEVER, Attr, Onnx, Shapes, arg

Unary = Callable[[torch.Tensor], torch.Tensor]

_SHAPE = Attr(
    optional(shape), "shape of the array that the positions are in; its first number is not used", None
)


def _sides(name: str, a: Any) -> tuple[int, ...]:
    if not a.shape:
        raise OpError(f"{name}: shape is {a.shape}, expected the shape of the array that positions are in")
    found: tuple[int, ...] = a.shape
    return found


def _strides(sides: tuple[int, ...]) -> list[int]:
    """Return how many elements one step along each axis passes over."""
    found = [1]
    for side in reversed(sides[1:]):
        found.append(found[-1] * side)
    return found[::-1]


def _infer_ravel(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    sides, data = _sides("_ravel_multi_index", a), ins[0]
    if data is not None and (len(data) != 2 or (data[0] and data[0] != len(sides))):
        raise ShapeError(
            f"_ravel_multi_index: data has shape {data}, expected ({len(sides)}, N) for positions in {sides}"
        )
    length = output_shape(outs[0], None if data is None else data[1:])
    return [None if length is None else (len(sides), *length)], [length]


@bound(
    "_ravel_multi_index",
    [arg("data")],
    {"shape": _SHAPE},
    aliases=("ravel_multi_index",),
    infer=_infer_ravel,
    batch=NEVER,
    onnx=Onnx(builder="ravel_multi_index"),
)
def ravel_multi_index(a: Any) -> Unary:
    """Turn positions along several axes into positions in the flattened array; no gradient.

    Shape:
        data: (M, N): row i holds whole positions along axis i of an array of shape `shape`, of M dimensions.
        returns: (N,), of the same type; computed in int64.

    Example:
        >>> mx.nd.ravel_multi_index(mx.nd.array([[3, 6], [4, 5]]), shape=(7, 6)).asnumpy()
        array([22., 41.], dtype=float32)

    Source: MXNet 1.9.1 `_ravel_multi_index`.
    """
    sides = _sides("_ravel_multi_index", a)
    strides = _strides(sides)

    def ravel_multi_index(data: torch.Tensor) -> torch.Tensor:
        if data.dim() != 2 or data.shape[0] != len(sides):
            raise ShapeError(
                f"_ravel_multi_index: data has shape {tuple(data.shape)}, expected ({len(sides)}, N)"
            )
        weights = beside(data, strides, torch.int64).unsqueeze(1)
        return (data.long() * weights).sum(0).to(data.dtype)

    return ravel_multi_index


def _infer_unravel(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    count = len(_sides("_unravel_index", a))
    out = None if ins[0] is None else (count, *ins[0])
    found = output_shape(outs[0], out)
    return [None if found is None else found[1:]], [found]


@bound(
    "_unravel_index",
    [arg("data")],
    {"shape": _SHAPE},
    aliases=("unravel_index",),
    infer=_infer_unravel,
    batch=NEVER,
    onnx=Onnx(builder="unravel_index"),
)
def unravel_index(a: Any) -> Unary:
    """Turn positions in a flattened array into positions along its axes; no gradient.

    Shape:
        data: (...,): whole positions in an array of shape `shape`, of M dimensions.
        returns: (M, ...), of the same type; computed in int64.

    Example:
        >>> mx.nd.unravel_index(mx.nd.array([22, 41]), shape=(7, 6)).asnumpy()
        array([[3., 6.],
               [4., 5.]], dtype=float32)

    Source: MXNet 1.9.1 `_unravel_index`.
    """
    sides = _sides("_unravel_index", a)

    def unravel_index(data: torch.Tensor) -> torch.Tensor:
        rest, found = data.long(), []
        for side in reversed(sides[1:]):
            found.append(rest.fmod(side))
            rest = rest.div(side, rounding_mode="trunc")
        return torch.stack([rest, *reversed(found)]).to(data.dtype)

    return unravel_index
