"""Inputs of a cell that its symbol declares ragged: an example is one row of any length, which its first axis is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from ..base import ShapeError
from ..executor.storage import Storage, declared_storage, storage_of
from ..graph import Graph, Node
from ..ops.sparse import Ragged
from .errors import user_line

__all__ = ["RaggedInputs"]

Shape = tuple[int, ...]


class RaggedInputs:
    """Which inputs and outputs of a cell are ragged, and how rows of examples become ragged values and back.

    Args:
        graph: what the cell runs.

    Attributes:
        names: of the ragged inputs.
        storage: storage types of the graph's values; None if all of them are dense.
        nodes: the operators that read ragged values, all of which work row by row.

    Raises:
        OpError: an operator does not take the ragged values that reach it.
    """

    def __init__(self, graph: Graph) -> None:
        declared = declared_storage(graph)
        self.names = frozenset(name for name, stype in declared.items() if stype == "ragged")
        self.storage: Storage | None = None
        self.nodes: frozenset[Node] = frozenset()
        self._sources: list[frozenset[str]] = []
        if self.names:
            self._follow(graph)

    def _follow(self, graph: Graph) -> None:
        """Find out which values are ragged, and which inputs say how long the rows of each output are."""
        storage = storage_of(graph, dict.fromkeys(self.names, "ragged"))
        if storage is None:
            return
        self.storage, reads = storage, set()
        found: dict[Node, frozenset[str]] = {}
        for node in graph.nodes:
            ragged = [child for child, i in node.inputs if storage.of((child, i)) == "ragged"]
            reads |= {node} if ragged else set()
            own = frozenset([node.name]) & self.names if node.op is None else frozenset()
            found[node] = own.union(*(found[child] for child in ragged))
        self.nodes = frozenset(reads)
        is_ragged = [storage.of(head) == "ragged" for head in graph.heads]
        self._sources = [
            found[node] if is_one else frozenset() for is_one, (node, _) in zip(is_ragged, graph.heads)
        ]

    def without_lengths(self, examples: Mapping[str, Shape]) -> dict[str, Shape]:
        """Return the shapes of examples as the graph knows them: those of ragged ones without the row's length.

        Raises:
            ShapeError: a row has no axis for its elements.
        """
        for name in self.names & examples.keys():
            if not examples[name]:
                raise ShapeError(
                    f"an example of the ragged {name} has no axes, expected (length, ...) (at {user_line()})"
                )
        return {name: shape[1:] if name in self.names else shape for name, shape in examples.items()}

    def with_lengths(self, outputs: Sequence[Shape], examples: Mapping[str, Shape], name: str) -> list[Shape]:
        """Return the shapes of outputs for one example, those of ragged ones with the row's length.

        Args:
            outputs: as the graph knows them.
            examples: shape of each input for one example.
            name: the cell.

        Raises:
            ShapeError: an output follows from rows of different lengths.
        """
        found = []
        for i, shape in enumerate(outputs):
            lengths = {examples[source][0] for source in (self._sources[i] if self._sources else ())}
            if len(lengths) > 1:
                raise ShapeError(
                    f"{name}: an output follows from rows of lengths {sorted(lengths)} (at {user_line()})"
                )
            found.append((*lengths, *shape))
        return found

    def value(self, name: str, rows: torch.Tensor) -> torch.Tensor | Ragged:
        """Return examples of an input as the symbol reads them.

        Shape:
            rows: (examples, length, ...) of a ragged input, else (examples, ...).
            returns: of a ragged input (examples, None, ...), else as `rows`.

        Args:
            name: the input.
            rows: the examples.
        """
        if name not in self.names:
            return rows
        count, length = rows.shape[:2]
        return Ragged(rows.flatten(0, 1), torch.arange(count + 1, device=rows.device) * length)

    @staticmethod
    def rows(value: torch.Tensor | Ragged) -> torch.Tensor:
        """Return an output with one row an example.

        Shape:
            value: of a ragged output (examples, None, ...), else (examples, ...).
            returns: (examples, length, ...) of a ragged output, else as `value`.
        """
        if not isinstance(value, Ragged):
            return value
        values, count = value.values, value.shape[0]
        return values.reshape(count, values.shape[0] // count, *values.shape[1:])
