"""How operations that pick, join and reshape become nodes of the native engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .native_names import LAST_AXIS, OP, SELECTIONS, TOO_LARGE, Maker

__all__ = ["SHAPES"]


def _concat(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    node: int = engine.kernel(OP["concat"], attrs[0], args) if 0 <= attrs[0] < TOO_LARGE else -1
    return node


def _to_batch(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    node: int = engine.kernel(OP["concat"], -1, args)
    return node


def _pick(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    if not 0 <= attrs[0] <= LAST_AXIS or not isinstance(aux, int):
        return -1
    node: int = engine.kernel(OP["view"], 0, args, attrs[0], aux)
    return node


def _range(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    axis, start, stop = attrs
    if not 0 <= axis <= LAST_AXIS or not 0 <= start < stop < TOO_LARGE:
        return -1
    node: int = engine.kernel(OP["view"], stop - start, args, axis, start)
    return node


def _pick_each(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    node: int = engine.kernel_with_labels(OP["pick_batch"], args[0], 0.0, aux) if attrs[0] == 0 else -1
    return node


def _elements(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    (places,) = attrs
    node: int = engine.kernel_with_labels(OP["view"], args[0], 0.0, places) if max(places) < TOO_LARGE else -1
    return node


def _transpose(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    node: int = engine.kernel(OP["transpose"], -1, args) if attrs[0] == (1, 0) else -1
    return node


def _reshape(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    dims, batch = engine.dim(args[0])
    target = attrs[0]
    size = math.prod(dims)
    if target.size * target.batch not in (size, size * batch):  # the minibatch may be left out
        return -1
    node: int = engine.kernel(OP["transpose"], engine.shape(target.d, target.batch), args)
    return node


def _all_of(sizes: Sequence[int]) -> list[Sequence[int]]:
    """Return the places of rows and columns of a vector or a matrix."""
    return [range(size) for size in (*sizes, 1)[:2]]


def _select(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    axis, chosen = attrs
    dims = engine.dim(args[0])[0]
    if len(dims) > 2 or axis >= len(dims) or max(chosen, default=TOO_LARGE) >= TOO_LARGE:
        return -1
    places = _all_of(dims)
    places[axis] = chosen
    node: int = engine.select(SELECTIONS.index("select"), args[0], *places)
    return node


def _strided(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    dims = engine.dim(args[0])[0]
    if len(dims) > 2 or any(len(each) > len(dims) for each in attrs):
        return -1
    steps, starts, stops = attrs
    places = _all_of(dims)
    for axis, size in enumerate(dims):
        stop = stops[axis] if axis < len(stops) else size
        start = starts[axis] if axis < len(starts) else 0
        step = steps[axis] if axis < len(steps) else 1
        if step < 1 or not 0 <= start < stop <= size:
            return -1
        places[axis] = range(start, stop, step)
    node: int = engine.select(SELECTIONS.index("strided_select"), args[0], *places)
    return node


SHAPES: dict[str, Maker] = {
    "concatenate": _concat,
    "concatenate_many": _concat,
    "concatenate_to_batch": _to_batch,
    "concatenate_to_batch_many": _to_batch,
    "pick": _pick,
    "pick_range": _range,
    "pick_batch": _pick_each,
    "pick_batch_elems": _elements,
    "select": _select,
    "strided_select": _strided,
    "transpose": _transpose,
    "reshape": _reshape,
}
"""Makers by the name of the operation."""
