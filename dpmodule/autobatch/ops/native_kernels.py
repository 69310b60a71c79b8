"""Nodes of the native engine: numbers of its kernels, and functions that add nodes."""

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


class NodeEngine(Protocol):
    """The engine in C++ (`dpmodule._native.AutobatchEngine`).

    Methods that add a node return its number, or -1 if the kernel does not support the operands.
    """

    def kernel(
        self, op: int, kind: int, nodes: Sequence[int], number: float = 0.0, integer: int = 0, /
    ) -> int:
        """Add a node."""

    def kernel_with_labels(
        self, op: int, node: int, number: float, labels: Sequence[int], integer: int = -1, /
    ) -> int:
        """Add a node with several labels or indices."""

    def slide(self, op: int, nodes: Sequence[int], *window: int) -> int:
        """Add a node of sliding windows: height, width, vertical and horizontal stride, and `is_valid`."""

    def select(self, node: int, rows: Sequence[int], columns: Sequence[int], /) -> int:
        """Add a node that selects rows and columns."""

    def strided(self, node: int, strides: Sequence[int], first: Sequence[int], end: Sequence[int], /) -> int:
        """Add a node that selects with strides in several dimensions."""

    def arrange(
        self, kind: int, node: int, first: int, sizes: Sequence[int], steps: Sequence[int], shape: int, /
    ) -> int:
        """Add a node of the elements that nested loops read from another node."""

    def shape(self, dims: Sequence[int], batch: int, /) -> int:
        """Return the number of a shape."""

    def dim(self, node: int, /) -> tuple[tuple[int, ...], int]:
        """Return the dimensions of a node, and the size of its minibatch."""


NodeMaker = Callable[[NodeEngine, Attrs, Nodes, Any], int]
"""A function (engine, attributes, operands, node argument) that adds a node and returns its number.

It returns -1 if the kernel does not support the operands, in which case the operation runs in torch.
"""

LAST_AXIS = 29
"""Last axis in a 32-bit set of axes, which also has a bit for the minibatch."""


class _Numbers(dict[str, int]):
    """Numbers by name; without the extension, where they are unused, -1 for every name."""

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
"""Kernels of operations without operands."""
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
    """Return the name of a number."""
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
    """Return the names of the operations that a kernel computes, joined with "+"."""
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
    """Return the node maker of a kernel whose only other argument is the node's own number."""
    op = OP[name]
    return lambda engine, attrs, args, aux: engine.kernel(op, kind, args, 0.0, int(aux or 0))


def unary(name: str) -> NodeMaker:
    """Return the node maker of an elementwise function, with an attribute or node argument as its parameter."""
    op, kind = OP["unary"], UNARY[name]
    return lambda engine, attrs, args, aux: engine.kernel(op, kind, args, float((*attrs, aux)[0] or 0.0))


def binary(name: str) -> NodeMaker:
    """Return the node maker of an elementwise function of two operands."""
    op, kind = OP["binary"], BINARY[name]
    return lambda engine, attrs, args, aux: engine.kernel(op, kind, args) if len(args) == 2 else -1


def labelled(name: str) -> NodeMaker:
    """Return the node maker of a loss with one label per element of the minibatch."""
    op = OP[name]
    return lambda engine, attrs, args, aux: engine.kernel_with_labels(
        op, args[0], attrs[0] if attrs else 0.0, aux
    )


def drawn(name: str) -> NodeMaker:
    """Return the node maker of dropout or noise, whose attributes are the rate and optionally a dimension."""
    kind = DRAW[name]

    def make(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
        rate, *axis = attrs
        fits = all(0 <= each < TOO_LARGE for each in axis)
        return engine.kernel(OP["drawn"], kind, args, rate, *axis) if fits else -1

    return make


def along(name: str) -> NodeMaker:
    """Return the node maker of a kernel along a dimension, given by the attribute or else the first."""
    op = OP[name]

    def make(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
        axis = attrs[0] if attrs else 0
        return engine.kernel(op, axis, args) if 0 <= axis <= LAST_AXIS else -1

    return make


def chain(engine: NodeEngine, first: int, *steps: tuple[NodeMaker | None, Any]) -> int:
    """Apply operations in sequence; return -1 if the engine does not support one.

    Args:
        steps: kernels of operations, each with its second operand or None.
    """
    found = first
    for kernel, other in steps:
        if found >= 0 and kernel is not None:
            found = kernel(engine, (), (found,) if other is None else (found, other), None)
    return found


def fits(engine: NodeEngine, *args: int) -> bool:
    """Return True if the minibatches can be broadcast."""
    return len({engine.dim(arg)[1] for arg in args} - {1}) < 2


class NodeLayout:
    """Memory layout of a node.

    Attributes:
        d: its dimensions.
        steps: stride of each dimension.
    """

    def __init__(self, engine: NodeEngine, node: int) -> None:
        self.d, self.batch = engine.dim(node)
        self.steps: list[int] = []
        self.size = 1
        for size in reversed(self.d):
            self.steps.insert(0, self.size)
            self.size *= size


def arranged(
    engine: NodeEngine,
    kind: str,
    x: int,
    loops: Sequence[tuple[int, int]],
    dim: tuple[Sequence[int], int],
    first: int = 0,
) -> int:
    """Add a node of the elements that nested loops read from another node.

    Args:
        loops: count and stride of every loop, the outermost first.
        dim: dimensions and minibatch of the result.
    """
    sizes, steps = zip(*loops)
    return engine.arrange(ARRANGEMENT[kind], x, first, sizes, steps, engine.shape(*dim))


def view_as(engine: NodeEngine, x: int, dims: tuple[int, ...]) -> int:
    """Reshape an operand in memory order."""
    batch = engine.dim(x)[1]
    return arranged(engine, "reshape", x, [(math.prod(dims) * batch, 1)], (dims, batch))


def reduced(
    engine: NodeEngine, kind: str, x: int, axes: Sequence[int], is_batch: bool, divisor: int = 0
) -> int:
    """Add a reduction; return -1 if the engine does not support it.

    Args:
        axes: the reduced dimensions.
        divisor: divisor of a mean or deviation; 0 for the number of elements.
    """
    known = set(axes)
    if len(known) != len(axes) or not all(0 <= axis <= LAST_AXIS for axis in known):
        return -1
    node = _reduction(engine, kind, x, known, is_batch, divisor)
    layout = NodeLayout(engine, x)
    if node >= 0 or not (known or is_batch) or any(axis >= len(layout.d) for axis in known):
        return node
    return _reduction(engine, kind, _group_axes(engine, x, layout, known, is_batch), {0}, False, divisor)


def _reduction(engine: NodeEngine, kind: str, x: int, axes: set[int], is_batch: bool, divisor: int) -> int:
    bits = sum(2 << axis for axis in axes) + is_batch
    return engine.kernel(OP["reduction"], REDUCTION[kind], (x,), divisor, bits)


def _group_axes(engine: NodeEngine, x: int, layout: NodeLayout, axes: set[int], is_batch: bool) -> int:
    """Move the reduced axes into one leading dimension, for axes that are not evenly strided."""
    loops = list(zip(layout.d, layout.steps))
    inside = [loops[axis] for axis in axes]
    outside = [loop for axis, loop in enumerate(loops) if axis not in axes]
    batch = 1 if is_batch else layout.batch
    count = math.prod(size for size, _ in inside) * layout.batch // batch
    dims = [count, *(size for size, _ in outside)]
    return arranged(engine, "transpose", x, [(layout.batch, layout.size), *inside, *outside], (dims, batch))
