"""How operations are added to the native engine: the numbers that the extension tells, and what adds its nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ... import native
from ..arguments import TOO_LARGE

Attrs = tuple[Any, ...]
"""The attributes of an operation."""
Nodes = tuple[int, ...]
"""The operands of an operation."""


class NativeEngine(Protocol):
    """The engine in C++ (`dpmodule._native.AutobatchEngine`).

    All that add nodes return the new one's number, or -1 where the operands are not what the kernel takes.
    """

    def kernel(
        self, op: int, kind: int, nodes: Sequence[int], number: float = 0.0, integer: int = 0, /
    ) -> int:
        """Add a node."""

    def kernel_with_labels(
        self, op: int, node: int, number: float, labels: Sequence[int], integer: int = -1, /
    ) -> int:
        """Add a node that has several labels or places of its own."""

    def slide(self, op: int, nodes: Sequence[int], *window: int) -> int:
        """Add a node of windows of an image: their height and width, their steps, whether none sticks out."""

    def select(self, node: int, rows: Sequence[int], columns: Sequence[int], /) -> int:
        """Add a node of some rows and columns."""

    def strided(self, node: int, strides: Sequence[int], first: Sequence[int], end: Sequence[int], /) -> int:
        """Add a node of places with a stride, in several dimensions."""

    def arrange(
        self, kind: int, node: int, first: int, sizes: Sequence[int], steps: Sequence[int], shape: int, /
    ) -> int:
        """Add a node of the numbers that nested loops read from another one."""

    def shape(self, dims: Sequence[int], batch: int, /) -> int:
        """Return the number of a shape."""

    def dim(self, node: int, /) -> tuple[tuple[int, ...], int]:
        """Return the dimensions of a node, and the size of its minibatch."""


NodeMaker = Callable[[NativeEngine, Attrs, Nodes, Any], int]
"""Adds an operation's node: (engine, attributes, operands, own argument), and returns it.

-1 where the operands are not what the kernel takes: then the operation runs in torch, a batch at a time.
"""

LAST_AXIS = 29
"""A set of axes is a number of 32 bits, one of which is for the minibatch."""


class _Numbers(dict[str, int]):
    """The numbers of names; without the extension, where nobody uses them, each is -1."""

    def __missing__(self, name: str) -> int:
        if native.core is not None:
            raise KeyError(name)
        return -1


def _numbers(what: str) -> _Numbers:
    return _Numbers({} if native.core is None else native.core.AUTOBATCH_NUMBERS[what])


OP = _numbers("operation")
UNARY = _numbers("unary")
BINARY = _numbers("binary")
REDUCTION = _numbers("reduction")
ARRANGEMENT = _numbers("arrangement")
CONVOLUTION = _numbers("convolution")
DRAW = _numbers("draw")
SOURCES = frozenset(["normal", "uniform", "bernoulli", "gumbel", "lookup_batch"])
"""Kernels of operations that have no operands for their users."""
_KINDS = {
    "unary": UNARY,
    "unary_each": UNARY,
    "binary": BINARY,
    "broadcast": BINARY,
    "reduction": REDUCTION,
    "drawn": DRAW,
    "arrangement": ARRANGEMENT,
    "conv2d": CONVOLUTION,
}


def name_of(number: int, among: Mapping[str, int]) -> str:
    """Return the name that has a number."""
    return next(name for name, each in among.items() if each == number)


_NAMES = {
    "affine": "affine_transform",
    "concat": "concatenate",
    "concatenate_cols": "concatenate",
    "columns": "pick_range",
    "lstm": "affine_transform + lstm_step",
    "loss": "pickneglogsoftmax",
    "mean_dim": "moment_dim",
    "dot": "dot_product",
    "param": "parameter",
    "recip": "number_divided",
    "scale": "multiply_number",
    "shift": "add_number",
    "rsub": "negate + add_number",
    "add": "sum",
    "sub": "subtract",
    "mul": "cmult",
    "div": "cdiv",
    "huber": "huber_distance",
}


def kernel_name(op: int, kind: int, parameters: tuple[int, ...]) -> str:
    """Return what a kernel computes, by the names of operations, with "+" between several."""
    name = name_of(op, OP)
    if name == "affine" and len(parameters) == 2 and parameters[0] < 0:
        return "multiply"
    if name == "concat" and kind < 0:
        return {-2: "lookup_batch", -3: "pick_batch_elems"}.get(kind, "concatenate_to_batch")
    if name == "reduction" and len(parameters) > 2:
        return name_of(kind, REDUCTION).removesuffix("_dim") if parameters[2] == 1 else "fold_rows"
    if name == "columns" and kind < 0:
        return "pick"
    if name == "log_softmax" and len(parameters) > 2:
        return "log_softmax_restricted"
    if name == "hinge" and kind == 2:
        return "hinge_dim"
    if name in ("loss", "hinge") and kind == 1:
        return f"{_NAMES.get(name, name)}_batch"
    name = name_of(kind, _KINDS[name]) if name in _KINDS else name
    return _NAMES.get(name, name)


def plain(name: str, kind: int = 0) -> NodeMaker:
    """Return the maker of a kernel, of a kind if it has several, that takes the operands and the node's own number."""
    op = OP[name]
    return lambda engine, attrs, args, aux: engine.kernel(op, kind, args, 0.0, int(aux or 0))


def unary(name: str) -> NodeMaker:
    """Return the maker of a function of every element, and of the attribute or the node's own number if it has one."""
    op, kind = OP["unary"], UNARY[name]
    return lambda engine, attrs, args, aux: engine.kernel(op, kind, args, float((*attrs, aux)[0] or 0.0))


def binary(name: str) -> NodeMaker:
    """Return the maker of a function of the elements of two operands."""
    op, kind = OP["binary"], BINARY[name]
    return lambda engine, attrs, args, aux: engine.kernel(op, kind, args) if len(args) == 2 else -1


def labelled(name: str) -> NodeMaker:
    """Return the maker of a loss whose node has a label for every element of the minibatch."""
    op = OP[name]
    return lambda engine, attrs, args, aux: engine.kernel_with_labels(
        op, args[0], attrs[0] if attrs else 0.0, aux
    )


def drawn(name: str) -> NodeMaker:
    """Return the maker of dropout or noise; attributes are its rate and perhaps a dimension."""
    kind = DRAW[name]

    def make(engine: NativeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
        rate, *axis = attrs
        fits = all(0 <= each < TOO_LARGE for each in axis)
        return engine.kernel(OP["drawn"], kind, args, rate, *axis) if fits else -1

    return make


def along(name: str) -> NodeMaker:
    """Return the maker of a kernel along a dimension, the attribute, or the first one."""
    op = OP[name]

    def make(engine: NativeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
        axis = attrs[0] if attrs else 0
        return engine.kernel(op, axis, args) if 0 <= axis <= LAST_AXIS else -1

    return make


def chain(engine: NativeEngine, first: int, *steps: tuple[NodeMaker | None, Any]) -> int:
    """Apply one operation after the other; -1 where the engine does not take one.

    Args:
        steps: the kernels of operations, each with its second operand, None for none.
    """
    found = first
    for kernel, other in steps:
        if found >= 0 and kernel is not None:
            found = kernel(engine, (), (found,) if other is None else (found, other), None)
    return found


def fits(engine: NativeEngine, *args: int) -> bool:
    """Say whether minibatches have one size, or none."""
    return len({engine.dim(arg)[1] for arg in args} - {1}) < 2


class NodeLayout:
    """How the numbers of a node lie in memory.

    Attributes:
        d: its dimensions.
        steps: how far apart the numbers of each dimension lie.
    """

    def __init__(self, engine: NativeEngine, node: int) -> None:
        self.d, self.batch = engine.dim(node)
        self.steps: list[int] = []
        self.size = 1
        for size in reversed(self.d):
            self.steps.insert(0, self.size)
            self.size *= size


def arranged(
    engine: NativeEngine,
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


def view_as(engine: NativeEngine, x: int, dims: tuple[int, ...]) -> int:
    """Return an operand with other dimensions, its numbers where they are."""
    batch = engine.dim(x)[1]
    return arranged(engine, "reshape", x, [(math.prod(dims) * batch, 1)], (dims, batch))


def reduced(
    engine: NativeEngine, kind: str, x: int, axes: Sequence[int], is_batch: bool, divisor: int = 0
) -> int:
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
    return _reduction(engine, kind, _group_axes(engine, x, layout, known, is_batch), {0}, False, divisor)


def _reduction(engine: NativeEngine, kind: str, x: int, axes: set[int], is_batch: bool, divisor: int) -> int:
    bits = sum(2 << axis for axis in axes) + is_batch
    return engine.kernel(OP["reduction"], REDUCTION[kind], (x,), divisor, bits)


def _group_axes(engine: NativeEngine, x: int, layout: NodeLayout, axes: set[int], is_batch: bool) -> int:
    """Return a node whose first dimension is all those that `reduced` is given; elsewhere they lie unevenly."""
    loops = list(zip(layout.d, layout.steps))
    inside = [loops[axis] for axis in axes]
    outside = [loop for axis, loop in enumerate(loops) if axis not in axes]
    batch = 1 if is_batch else layout.batch
    count = math.prod(size for size, _ in inside) * layout.batch // batch
    dims = [count, *(size for size, _ in outside)]
    return arranged(engine, "transpose", x, [(layout.batch, layout.size), *inside, *outside], (dims, batch))
