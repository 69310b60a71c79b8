"""Operations that would give something else a second time: those that draw numbers, and those of users' code.

The native engine computes a graph once more where somebody asks for a gradient that fusion has left out. What such
operations gave the first time is kept before that, row by row, because the second time other rows may be batched
together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..base_graph import grad_call
from ..ops.spec import BatchCall, Dim, Operation

Tensor = torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A batch that has been run.

    Shape:
        inputs: each (rows or 1, batch, *d).
        values: (rows, numbers in a row).
    """

    op: Operation
    call: BatchCall
    outs: tuple[Dim, ...]
    inputs: list[Tensor]
    values: Tensor


class Kept:
    """The rows of batches that must not be run again, by the place of the argument in `Caller.node_arguments`."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[Drawn, int]] = {}

    def clear(self) -> None:
        """Forget all."""
        self._rows.clear()

    def keep(self, drawn: Drawn, places: Sequence[int]) -> None:
        """Keep a batch.

        Args:
            places: the number of each row.
        """
        self._rows.update((place, (drawn, row)) for row, place in enumerate(places))

    def rows(self, places: Sequence[int]) -> list[int]:
        """Return which rows of a batch are here.

        Args:
            places: the number of each row.
        """
        return [row for row, place in enumerate(places) if place in self._rows] if self._rows else []

    def write(self, rows: Sequence[int], places: Sequence[int], target: Tensor) -> None:
        """Write the results of those rows of a batch that are here.

        Shape:
            target: (all rows, numbers in a row).

        Args:
            places: the number of each row.
        """
        for row in rows:
            drawn, at = self._rows[places[row]]
            target[row] = drawn.values[at]

    def add_gradients(
        self,
        rows: Sequence[int],
        places: Sequence[int],
        gradients: Sequence[Tensor],
        targets: Sequence[Tensor | None],
    ) -> None:
        """Add the gradients of the operands of those rows of a batch that are here.

        Shape:
            gradients: each (all rows, batch, *d).
            targets: each (all rows or 1, batch, *d).

        Args:
            places: the number of each row.
            targets: for every operand, where its gradient goes; None for nowhere.
        """
        batches: dict[tuple[Drawn, int], list[tuple[int, int]]] = {}
        seen: Counter[int] = Counter()
        for row in rows:
            drawn, at = self._rows[places[row]]
            # nodes that were made anew, because they had failed, have the number of those before
            batches.setdefault((drawn, seen[places[row]]), []).append((row, at))
            seen[places[row]] += 1
        for (drawn, _), pairs in batches.items():
            here, there = (torch.tensor(column) for column in zip(*pairs))
            call = drawn.call
            call.wants = tuple(target is not None for target in targets)
            whole = [torch.zeros(call.count, *g.shape[1:]).index_copy_(0, there, g[here]) for g in gradients]
            for found, target in zip(grad_call(call, drawn.op, whole, drawn.inputs), targets):
                if found is None or target is None:
                    continue
                part = found if found.shape[0] == 1 else found[there]
                if target.shape[0] == 1:
                    target += part.sum(0, keepdim=True)
                else:
                    target.index_add_(0, here, part)
