"""`Backward`: from what a forward left to gradients in their arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..graph import Graph, Node
from ..ndarray import NDArray
from ..ops.sparse import densify, leaf_of
from ..ops.user_code import is_users
from ..private import run_backward
from .gradients import deliver
from .heads import asks_gradient, required, seed_at
from .locate import backward_error
from .runs import Run, Starts, heads_of
from .sparse_arrays import deliver_sparse, dense_pointers, is_sparse, value_of

__all__ = ["Backward"]


class Backward:
    """Which gradients of a graph are wanted, and how they are computed.

    Args:
        graph: what runs.
        shapes: shapes of every node's outputs.
        grads: an array for the gradient of each argument, in the graph's order; None where none is wanted.
        grad_req: "write", "add" or "null" for every argument.
        dense: whether nothing in the graph has another storage type than "default".

    Attributes:
        slots: numbers of the variables whose gradients are wanted.
        targets: their gradients' arrays.
        adds: whether a gradient is added to what its array holds.
        dense_only: whether nothing in the graph nor among the gradients has another storage type than "default".
        integers: whether gradients of integers are wanted.
    """

    def __init__(
        self,
        graph: Graph,
        shapes: Mapping[Node, Any],
        grads: Mapping[str, NDArray | None],
        grad_req: Mapping[str, str],
        dense: bool,
    ) -> None:
        self._graph = graph
        self._shapes = shapes
        wanted = [(i, name, grad) for i, (name, grad) in enumerate(grads.items()) if grad is not None]
        self.slots = [i for i, _, _ in wanted]
        self.targets = [grad for _, _, grad in wanted]
        self.adds = [grad_req[name] == "add" for _, name, _ in wanted]
        self._names = frozenset(name for _, name, _ in wanted)
        self.dense_only = dense and not any(map(is_sparse, self.targets))
        self.integers = self.dense_only and not all(t.raw.is_floating_point() for t in self.targets)
        self._ignores_gradient = [
            node.op is not None and not node.op.wants_head(node.a) for node, _ in graph.heads
        ]

    def ignores_head(self, i: int, given: torch.Tensor | None) -> bool:
        """Say whether an output ignores its gradient; looks far down only if none is given.

        Args:
            i: number of the output.
            given: the gradient that the user gave.
        """
        if given is None and not self._ignores_gradient[i]:
            self._ignores_gradient[i] = not asks_gradient(self._graph.heads[i][0], self._names)
        return self._ignores_gradient[i]

    def starts(
        self, run: Run, given: Sequence[torch.Tensor | None], outputs: Sequence[NDArray], free: bool
    ) -> Starts:
        """Return where backward starts.

        Args:
            run: what forward left.
            given: the gradient that the user gave for each output, or None.
            outputs: the outputs of that run.
            free: whether memory of the run may be written where nothing reads it any more.

        Raises:
            ArgumentError: an output that is no loss has no gradient.
            ShapeError: a gradient has another shape than its output.
        """
        low, env = run.prepared.program.low, run.prepared.env
        cut = {loss.output: (loss, rest) for loss, rest in zip(low.losses, run.rests)}
        starts = []
        for i, root in enumerate(run.roots):
            if not root.requires_grad:
                continue
            if i in cut:
                loss, made = cut[i]
                rest = [densify(run.values[n] if m is None else m.detach()) for n, m in zip(loss.rest, made)]
                seed = seed_at(loss, env, outputs[i].raw, root, rest, free)
            else:
                seed = required(self._graph.output_names[i], self.ignores_head(i, given[i]), given[i], root)
            leaf = root if self.dense_only else leaf_of(root)
            starts.append((i, leaf, seed if seed.dtype == leaf.dtype else seed.to(leaf.dtype)))
        return starts

    def gradients(self, run: Run, starts: Starts) -> list[torch.Tensor | None]:
        """Run the engine; return what it finds for each gradient array, None for what no head depends on.

        Args:
            run: what forward left.
            starts: what `starts` returned for it.

        Raises:
            NodeError: an operator's gradient failed; names the node.
        """
        roots = [root for _, root, _ in starts]
        seeds = [seed for _, _, seed in starts]
        real = [i for i, alias in enumerate(run.aliases) if alias.requires_grad]
        grads: list[torch.Tensor | None] = [None] * len(run.aliases)
        if roots and real:
            try:
                leaves = [run.aliases[i] for i in real]
                found = run_backward(roots, seeds, leaves if self.dense_only else list(map(leaf_of, leaves)))
            except Exception as error:
                if is_users(error):
                    raise
                program, env, shaped = run.prepared
                heads = heads_of(program, starts)
                raise backward_error(
                    error, program, self._graph, self._shapes, run.values, (env, shaped), heads
                ) from error
            for i, grad in zip(real, found):
                grads[i] = grad
        return grads

    def differentiate(self, run: Run, starts: Starts, outputs: Sequence[NDArray]) -> None:
        """Compute the gradients and deliver them into their arrays.

        Args:
            run: what forward left.
            starts: what `starts` returned for it.
            outputs: the outputs of that run.

        Raises:
            NodeError: an operator's gradient failed; names the node.
        """
        seeds = [seed for _, _, seed in starts]
        grads = self.gradients(run, starts)
        if self.dense_only:
            taken = [*seeds, *run.values, *(o.raw for o in outputs)]
            deliver(grads, self.targets, self.adds, taken)
            return
        taken = dense_pointers([*seeds, *run.values, *map(value_of, outputs)])
        rest = deliver_sparse(grads, self.targets, self.adds, taken)
        deliver(
            [grads[i] for i in rest], [self.targets[i] for i in rest], [self.adds[i] for i in rest], taken
        )
