"""How operations become nodes of the native engine: what their kernels are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..arguments import TOO_LARGE
from .native_numbers import (
    ARRANGEMENT,
    BINARY,
    DRAW,
    LAST_AXIS,
    OP,
    REDUCTION,
    UNARY,
    Attrs,
    Machine,
    Maker,
    Nodes,
)
from .spec import Operation


def plain(name: str) -> Maker:
    """Return the maker of a kernel that takes the operands, and the node's own number if there is one."""
    op = OP[name]
    return lambda engine, attrs, args, aux: engine.kernel(op, 0, args, 0.0, int(aux or 0))


def unary(name: str) -> Maker:
    """Return the maker of a function of every element, and of the attribute or the node's own number if it has one."""
    op, kind = OP["unary"], UNARY[name]
    return lambda engine, attrs, args, aux: engine.kernel(op, kind, args, float((*attrs, aux)[0] or 0.0))


def binary(name: str) -> Maker:
    """Return the maker of a function of the elements of two operands."""
    op, kind = OP["binary"], BINARY[name]
    return lambda engine, attrs, args, aux: engine.kernel(op, kind, args) if len(args) == 2 else -1


def labelled(name: str) -> Maker:
    """Return the maker of a loss whose node has a label for every element of the minibatch."""
    op = OP[name]
    return lambda engine, attrs, args, aux: engine.kernel_with_labels(
        op, args[0], attrs[0] if attrs else 0.0, aux
    )


def drawn(name: str) -> Maker:
    """Return the maker of dropout or noise; attributes are its rate and perhaps a dimension."""
    kind = DRAW[name]

    def make(engine: Machine, attrs: Attrs, args: Nodes, aux: Any) -> int:
        rate, *axis = attrs
        fits = all(0 <= each < TOO_LARGE for each in axis)
        return engine.kernel(OP["drawn"], kind, args, rate, *axis) if fits else -1

    return make


def along(name: str) -> Maker:
    """Return the maker of a kernel along a dimension, the attribute, or the first one."""
    op = OP[name]

    def make(engine: Machine, attrs: Attrs, args: Nodes, aux: Any) -> int:
        axis = attrs[0] if attrs else 0
        return engine.kernel(op, axis, args) if 0 <= axis <= LAST_AXIS else -1

    return make


def chain(engine: Machine, first: int, *steps: tuple[Operation, Any]) -> int:
    """Apply one operation after the other; -1 where the engine does not take one.

    Args:
        steps: operations with kernels, each with its second operand, None for none.
    """
    found = first
    for op, other in steps:
        if found >= 0 and op.kernel is not None:
            found = op.kernel(engine, (), (found,) if other is None else (found, other), None)
    return found


def fits(engine: Machine, *args: int) -> bool:
    """Say whether minibatches have one size, or none."""
    return len({engine.dim(arg)[1] for arg in args} - {1}) < 2


class NodeLayout:
    """How the numbers of a node lie in memory.

    Attributes:
        d: its dimensions.
        steps: how far apart the numbers of each dimension lie.
    """

    def __init__(self, engine: Machine, node: int) -> None:
        self.d, self.batch = engine.dim(node)
        self.steps: list[int] = []
        self.size = 1
        for size in reversed(self.d):
            self.steps.insert(0, self.size)
            self.size *= size


def arranged(
    engine: Machine,
    kind: str,
    x: int,
    loops: Sequence[tuple[int, int]],
    dim: tuple[Sequence[int], int],
    first: int = 0,
) -> int:
    """Return the node of numbers that nested loops read from another one.

    Args:
        loops: how many numbers and how far apart, of every loop, the outermost first.
        dim: dimensions of the result, and its minibatch.
    """
    sizes, steps = zip(*loops)
    return engine.arrange(ARRANGEMENT[kind], x, first, sizes, steps, engine.shape(*dim))


def seen_as(engine: Machine, x: int, dims: tuple[int, ...]) -> int:
    """Return an operand with other dimensions, its numbers where they are."""
    batch = engine.dim(x)[1]
    return arranged(engine, "reshape", x, [(math.prod(dims) * batch, 1)], (dims, batch))


def reduced(engine: Machine, kind: str, x: int, axes: Sequence[int], is_batch: bool, divisor: int = 0) -> int:
    """Return the node of a reduction; -1 where the engine does not take it.

    Args:
        axes: along which dimensions.
        divisor: what a mean or a deviation divides by; 0 for the number of elements.
    """
    known = set(axes)
    if len(known) != len(axes) or not all(0 <= axis <= LAST_AXIS for axis in known):
        return -1
    node = _reduction(engine, kind, x, known, is_batch, divisor)
    layout = NodeLayout(engine, x)
    if node >= 0 or not (known or is_batch) or any(axis >= len(layout.d) for axis in known):
        return node
    return _reduction(engine, kind, _side_by_side(engine, x, layout, known, is_batch), {0}, False, divisor)


def _reduction(engine: Machine, kind: str, x: int, axes: set[int], is_batch: bool, divisor: int) -> int:
    bits = sum(2 << axis for axis in axes) + is_batch
    return engine.kernel(OP["reduction"], REDUCTION[kind], (x,), divisor, bits)


def _side_by_side(engine: Machine, x: int, layout: NodeLayout, axes: set[int], is_batch: bool) -> int:
    """Return a node whose first dimension is all those that `reduced` is given; elsewhere they lie unevenly."""
    loops = list(zip(layout.d, layout.steps))
    inside = [loops[axis] for axis in axes]
    outside = [loop for axis, loop in enumerate(loops) if axis not in axes]
    batch = 1 if is_batch else layout.batch
    count = math.prod(size for size, _ in inside) * layout.batch // batch
    dims = [count, *(size for size, _ in outside)]
    return arranged(engine, "transpose", x, [(layout.batch, layout.size), *inside, *outside], (dims, batch))
