"""What operations use of the native engine to add their nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

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
        """Add a node.

        Args:
            op: which kernel, one of `native_names.OP`.
            kind: which of those that the kernel computes.
            nodes: the operands.
            number: what belongs to the kernel.
            integer: likewise.
        """

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
