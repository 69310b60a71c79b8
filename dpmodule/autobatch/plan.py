"""Plans: which nodes of a graph are computed together, and in which order; and what plans are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .signature import BatchKind, Signature, SignatureTable

__all__ = ["NodeTable", "BatchPlan", "BatchStep"]

Ints = NDArray[np.int64]


@dataclass(slots=True)
class BatchStep:
    """One batch of a plan.

    Shape:
        nodes: (N,).
        args: (N, operands), or flat for operations that take many.

    Args:
        kind: what is computed.
        nodes: the numbers of its nodes.
        args: the operands of the nodes.
        counts: for operations that take many, how many operands each node has.
        stage: steps of one stage do not depend on each other; -1 where nobody has looked.
        parts: the steps that were put together into this one, of equal length.
    """

    kind: BatchKind
    nodes: Ints
    args: Ints
    counts: list[int] = field(default_factory=list)
    stage: int = -1
    parts: list[BatchStep] = field(default_factory=list)


@dataclass(slots=True)
class BatchPlan:
    """Which nodes are computed together, and in which order; independent of values and devices.

    Args:
        steps: the batches in order.
        first: the number of the first node.
        end: one more than that of the last.
        seconds: how long it took to make.
    """

    steps: list[BatchStep]
    first: int
    end: int
    seconds: float = 0.0


class NodeTable(Protocol):
    """The nodes of a graph, as far as plans and engines go.

    Attributes:
        table: their signatures.
        aux: the nodes' own arguments (`Op.aux`), of those that have one.
    """

    table: SignatureTable
    aux: dict[int, Any]

    @property
    def size(self) -> int:
        """The number of nodes."""

    def signature(self, node: int) -> Signature:
        """Return what a node is."""

    def operands(self, node: int) -> tuple[int, ...]:
        """Return the operands of a node."""

    def columns(self, first: int, end: int) -> tuple[Ints, Ints, Ints]:
        """Return of nodes in a row the signatures, where in the third array their operands begin, and all operands.

        Shape:
            returns: (nodes,), (nodes + 1,), (operands,); int64.

        Args:
            first: the first node.
            end: one more than the last.
        """
