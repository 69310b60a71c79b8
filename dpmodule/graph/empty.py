"""Shapes with axes of length 0, which exist only inside `util.np_shape`.

MXNet has two ways to write a shape: 0 is an unknown dimension and () an unknown shape; inside `np_shape` -1 is an
unknown dimension, None an unknown shape, 0 an axis without elements and () a scalar. Shape rules know the first one
only. Here an axis without elements is `EMPTY` on its way through them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import mode
from ..base import Shape
from ..ops.shapes import infer_shape
from ..ops.spec import Op

EMPTY = -1
"""Stands for a dimension that is known to be 0."""

# lengths that no real axis has: what a rule makes of them tells what it would make of 0
_PROBES = (1_000_003, 2_000_003)


def read_shape(shape: tuple[int, ...]) -> Shape:
    """Return a shape that a user wrote as the rules want it: 0 = unknown."""
    if mode.is_np_shape():
        return tuple(EMPTY if d == 0 else max(d, 0) for d in shape)
    return tuple(max(d, 0) for d in shape)


def shown_shape(shape: Shape) -> Shape:
    """Return a shape as a user reads it: the opposite of `read_shape`."""
    if not mode.is_np_shape():
        return shape or ()
    return shape if shape is None else tuple(-1 if d == 0 else max(d, 0) for d in shape)


def allocated(shapes: Mapping[Any, list[Shape]]) -> dict[Any, list[Shape]]:
    """Return inferred shapes as those of arrays; for graphs of which every shape is known."""
    return {
        node: [s if s is None or EMPTY not in s else tuple(max(d, 0) for d in s) for s in each]
        for node, each in shapes.items()
    }


def found_shapes(op: Op, a: Any, ins: list[Shape], outs: list[Shape]) -> tuple[list[Shape], list[Shape]]:
    """Run an operator's shape rule, also where an axis is known to have no elements."""
    if not mode.is_np_shape():
        return infer_shape(op, a, ins, outs)
    if not ins:  # an attribute says the shape, in the user's way of writing
        _, found = infer_shape(op, a, ins, outs)
        return ins, [s if s is None else read_shape(s) for s in found]
    if not any(s is not None and EMPTY in s for s in (*ins, *outs)):
        return infer_shape(op, a, ins, outs)
    one, two = (infer_shape(op, a, _with(ins, probe), _with(outs, probe)) for probe in _PROBES)
    return _at_zero(one[0], two[0]), _at_zero(one[1], two[1])


def _with(shapes: list[Shape], length: int) -> list[Shape]:
    return [s if s is None else tuple(length if d == EMPTY else d for d in s) for s in shapes]


def _at_zero(one: list[Shape], two: list[Shape]) -> list[Shape]:
    """Return what shapes found for two lengths of an axis come to at length 0; they depend on it linearly."""
    return [x if x is None or y is None else tuple(map(_dimension, x, y)) for x, y in zip(one, two)]


def _dimension(one: int, two: int) -> int:
    if one == two:
        return one
    low, high = _PROBES
    return max(one - (two - one) * low // (high - low), 0) or EMPTY
