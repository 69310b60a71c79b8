"""The native engine as operations use it: its functions that add nodes, and the numbers of its operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ... import native

Attrs = tuple[Any, ...]
"""The attributes of an operation."""
Nodes = tuple[int, ...]
"""The operands of an operation."""


class Machine(Protocol):
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


Maker = Callable[[Machine, Attrs, Nodes, Any], int]
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
