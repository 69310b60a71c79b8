"""Shapes that the methods of arrays come to, checked.

Source: MXNet 1.9.1 `NDArray.reshape`, `split_v2`, `broadcast_to` and `squeeze`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from ..base import ArgumentError, ShapeError
from ..ops.array.codes import resolve
from ..ops.shapes import prod
from .convert import integers, wanted_shape

if TYPE_CHECKING:
    from ..types import ShapeLike


def slicer(axis: int, begin: int, length: int, squeeze: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that cuts a piece out of an axis, and drops the axis if the piece has length 1."""

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        part = tensor.narrow(axis, begin, length)
        return part.squeeze(axis) if squeeze and length == 1 else part

    return cut


def target(dims: tuple[int, ...], wanted: ShapeLike, reverse: bool) -> tuple[int, ...]:
    """Return the shape that `reshape` was asked for."""
    try:
        codes = integers(wanted)
    except TypeError:
        raise ShapeError(f"reshape: shape is {wanted!r}, expected integers") from None
    found = codes if not codes or min(codes) > 0 else resolve(dims, codes, reverse)
    if prod(found) != prod(dims):
        raise ShapeError(f"cannot reshape an array of shape {dims} and size {prod(dims)} into shape {codes}")
    return found


def bounds(length: int, given: int | tuple[int, ...]) -> list[int]:
    """Return where `split_v2` cuts an axis, its ends included."""
    if isinstance(given, int):
        if given < 1 or length % given:
            raise ShapeError(f"an axis of length {length} cannot be cut into {given} equal parts")
        return list(range(0, length + 1, length // given)) if length else [0] * (given + 1)
    if isinstance(given, tuple):
        return [0, *(slice(i).indices(length)[1] for i in given), length]
    raise ArgumentError(f"indices_or_sections is {given!r}, expected an integer or a tuple")


def broadcast(dims: tuple[int, ...], wanted: ShapeLike) -> tuple[int, ...]:
    """Return the shape that `broadcast_to` was asked for."""
    found = wanted_shape(wanted)
    offset = len(found) - len(dims)
    if offset < 0 or any(s not in (1, d) for s, d in zip(dims, found[offset:], strict=True)):
        raise ShapeError(f"cannot broadcast an array of shape {dims} to {found}")
    return found


def squeezed(dims: tuple[int, ...], axis: int | Sequence[int] | None) -> tuple[int, ...]:
    """Return a shape without some axes of length 1, or without all; one axis is left."""
    axes = (axis,) if isinstance(axis, int) else axis
    for i in axes or ():
        if not -len(dims) <= i < len(dims) or dims[i] != 1:
            raise ShapeError(f"cannot squeeze axis {i} of an array of shape {dims}")
    chosen = {i % len(dims) for i in axes} if axes is not None else {i for i, s in enumerate(dims) if s == 1}
    left = tuple(s for i, s in enumerate(dims) if i not in chosen)
    return left or (1,) * bool(dims)
