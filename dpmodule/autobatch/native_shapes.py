"""How operations that pick, join and reshape become nodes of the native engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .native_names import ARRANGEMENT, LAST_AXIS, OP, TOO_LARGE, Maker

__all__ = ["SHAPES", "Layout", "arranged"]


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
    axis = attrs[0]
    node: int = (
        engine.kernel_with_labels(OP["pick_batch"], args[0], axis, aux) if 0 <= axis <= LAST_AXIS else -1
    )
    return node


def _elements(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    (places,) = attrs
    node: int = engine.kernel_with_labels(OP["view"], args[0], 0.0, places) if max(places) < TOO_LARGE else -1
    return node


class Layout:
    """How the numbers of a node lie in memory.

    Attributes:
        d: its dimensions.
        batch: the size of its minibatch.
        steps: how far apart the numbers of each dimension lie.
        size: how far apart the elements of the minibatch lie.
    """

    def __init__(self, engine: Any, node: int) -> None:
        self.d, self.batch = engine.dim(node)
        self.steps: list[int] = []
        self.size = 1
        for size in reversed(self.d):
            self.steps.insert(0, self.size)
            self.size *= size


def arranged(
    engine: Any,
    kind: str,
    x: int,
    loops: Sequence[tuple[int, int]],
    dim: tuple[Sequence[int], int],
    first: int = 0,
) -> int:
    """Return the node of numbers that nested loops read from another one.

    Args:
        engine: which one.
        kind: one of `ARRANGEMENT`.
        x: the operand.
        loops: how many numbers and how far apart, of every loop, the outermost first.
        dim: dimensions of the result, and its minibatch.
        first: where the loops begin.
    """
    sizes, steps = zip(*loops)
    node: int = engine.arrange(ARRANGEMENT[kind], x, first, sizes, steps, engine.shape(*dim))
    return node


def _transpose(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    (order,) = attrs
    if order == (1, 0):
        node: int = engine.kernel(OP["arrangement"], -1, args)
        return node
    x = Layout(engine, args[0])
    if len(order) < len(x.d) or sorted(order) != list(range(len(order))):
        return -1
    loops = [(x.d[axis], x.steps[axis]) if axis < len(x.d) else (1, 1) for axis in order]
    dims = [size for size, _ in loops]
    while len(dims) > len(x.d) and dims[-1] == 1:
        dims.pop()
    return arranged(engine, "transpose", args[0], [(x.batch, x.size), *loops], (dims, x.batch))


def _reshape(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    dims, batch = engine.dim(args[0])
    target = attrs[0]
    size = math.prod(dims)
    if target.size * target.batch not in (size, size * batch):  # the minibatch may be left out
        return -1
    node: int = engine.kernel(OP["arrangement"], engine.shape(target.d, target.batch), args)
    return node


def _select(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    axis, chosen = attrs
    dims = engine.dim(args[0])[0]
    if len(dims) > 2 or axis >= len(dims) or max(chosen, default=TOO_LARGE) >= TOO_LARGE:
        return -1
    places: list[Sequence[int]] = [range(size) for size in (*dims, 1)[:2]]
    places[axis] = chosen
    node: int = engine.select(args[0], *places)
    return node


def _strided(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    is_large = any(abs(number) >= TOO_LARGE for each in attrs for number in each)
    node: int = -1 if is_large else engine.strided(args[0], *attrs)
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
