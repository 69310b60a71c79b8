"""Functions that run the subgraphs of operators such as loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from ..base import Shape
from ..graph import Graph, InferredSubgraph, Node, infer_from_arrays
from ..ops.spec import Env
from ..ops.user_code import is_user_error
from .error_location import forward_error
from .program import Program, program_of
from .storage_types import StorageTypes

_MAX_SHAPES = 256


class SubgraphFunction(InferredSubgraph):
    """A subgraph as a function of tensors, which its operator calls.

    Shape:
        tensors, returns: as the subgraph's inputs and outputs; they may differ from call to call.

    Args:
        storage: storage types, if some values are sparse or ragged; the tensors then include their records.
    """

    def __init__(self, graph: Graph, storage: StorageTypes | None = None) -> None:
        super().__init__(graph)
        self._storage = storage
        order = {node: i for i, node in enumerate(graph.inputs)}
        self._order = [order[node] for node in (*graph.arguments, *graph.auxiliary)]
        self._programs: dict[bool, Program] = {}
        self._shapes: dict[Any, Any] = {}

    def __call__(self, env: Env, tensors: Sequence[torch.Tensor], step: int = 0) -> list[torch.Tensor]:
        """Run the subgraph once.

        New values of auxiliary states, such as moving averages, are written into the state tensors.

        Args:
            step: index of the iteration of a loop; stateful operators keep a separate memo for each.

        Returns:
            The outputs.
        """
        outputs, changes = self.compute(env, tensors, step)
        for position, new, _ in changes:
            tensors[position].data.copy_(new.detach())
        return outputs

    def compute(
        self, env: Env, tensors: Sequence[torch.Tensor], step: int = 0
    ) -> tuple[list[torch.Tensor], list[tuple[int, torch.Tensor, bool]]]:
        """Run the subgraph once without writing auxiliary states.

        Returns:
            The outputs, and for each changed state its position among the inputs, its new value, and True if its
            operator writes it in forward.
        """
        recorded = torch.is_grad_enabled()
        program = self._programs.get(recorded)
        if program is None:
            program = self._programs[recorded] = program_of(
                self.graph, recorded, storage=self._storage, body=SubgraphFunction, is_subgraph=True
            )
        values = [tensors[i] for i in self._order]
        if recorded:
            first = len(self.graph.arguments)
            # the outer graph treats states as ordinary arguments, which may need gradients
            values[first:] = [state.detach() for state in values[first:]]
        try:
            outputs, _, _, mutated = program.forward(
                values, env, self._environments(program, env, tensors, step)
            )
        except Exception as error:
            if is_user_error(error):
                raise
            raise forward_error(error, program, self.graph, self._shapes_of(tensors)) from error
        changes = [
            (self._order[slot], new, now)
            for (slot, _, now), new in zip(program.low.mutated, mutated)
            if new is not None
        ]
        return list(outputs), changes

    @property
    def draws(self) -> bool:
        """True if an operator draws random numbers."""
        return any(node.draws() for node in self.graph.nodes)

    def _shapes_of(self, tensors: Sequence[torch.Tensor]) -> dict[Node, list[Shape]]:
        """Return the shapes of every node's outputs."""
        key = tuple(tuple(t.shape) for t in tensors)
        shapes: dict[Node, list[Shape]] | None = self._shapes.get(key)
        if shapes is None:
            if len(self._shapes) >= _MAX_SHAPES:  # bounds the memory when every batch has a new length
                self._shapes.clear()
            given = {node.name: shape for node, shape in zip(self.graph.inputs, key)}
            shapes = self._shapes[key] = infer_from_arrays(self.graph, given)
        return shapes

    def _environments(
        self, program: Program, env: Env, tensors: Sequence[torch.Tensor], step: int
    ) -> list[Env]:
        """Return the environments of the operators that need their output shapes or keep state."""
        if not program.shaped:
            return []
        shapes = self._shapes_of(tensors)
        memo: dict[Any, Any] = {} if env.memo is None else env.memo
        return [
            replace(
                env,
                out_shapes=tuple(tuple(s or ()) for s in shapes[self.graph.nodes[own.node]]),
                memo=memo.setdefault((self, step, own.node), {}) if own.own_env else None,
            )
            for own in program.shaped
        ]
