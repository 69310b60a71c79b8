"""`ArrayFunction`: a graph as a function of arrays, recorded as one operator of a program on arrays."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .._core import mode
from .._devices.generators import generator
from ..context import Context
from ..graph import Graph
from ..ndarray import NDArray, tape
from ..ndarray.execution import environment
from .gradients import frozen_states
from .subgraph_function import SubgraphFunction


class ArrayFunction:
    """A graph as a function of arrays.

    It runs the graph's program, with the passes of executors. While this thread records, a call is one node of the
    tape. `backward` then writes new values of auxiliary states, such as moving averages, unless no gradient passes
    their operators.

    Shape:
        arrays, returns: as the graph's inputs and outputs; they may differ from call to call.

    Source: MXNet 1.9.1 `CachedOp`, as the blocks of Gluon call it.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._body = SubgraphFunction(graph)
        self._draws = self._body.draws
        self._frozen: dict[tuple[bool, ...], frozenset[int]] = {}

    def __call__(self, arrays: Sequence[NDArray], ctx: Context) -> list[NDArray]:
        """Compute the outputs.

        Args:
            arrays: an array for each variable of the graph, in order, on `ctx`.
        """
        if mode.is_recording() and any(map(tape.in_graph, arrays)):
            return self._record(arrays, ctx)
        tensors = [
            array.raw if array.stype == "default" else array.tostype("default").raw for array in arrays
        ]
        with torch.no_grad():
            outputs, changes = self._body.compute(environment(ctx), tensors)
        _write(arrays, changes)
        return [NDArray(output, ctx) for output in outputs]

    def _record(self, arrays: Sequence[NDArray], ctx: Context) -> list[NDArray]:
        """Compute the outputs, and record them."""
        tensors, nodes = tape.inputs_of(arrays)
        for i, array in enumerate(arrays):
            if (
                array.stype == "default" and tensors[i].dtype is not array.raw.dtype
            ):  # no gradients of integers
                tensors[i] = array.raw.data
        env = environment(ctx)
        random_state = generator(ctx).get_state() if self._draws and self.graph.auxiliary else None
        with torch.enable_grad():
            outputs, changes = self._body.compute(env, tensors)
        _write(arrays, changes)
        node = tape.TapeNode(tape.TapeStep("CachedOp"), nodes)
        frozen = self._frozen_for(tuple(t.requires_grad for t in tensors))
        later = [i for i, (position, _, now) in enumerate(changes) if not now and position not in frozen]
        if later:
            states = tuple(arrays[changes[i][0]] for i in later)

            def again() -> list[torch.Tensor]:
                """Return the new values for the current states, from the random numbers of the recorded run."""
                saved = generator(ctx).get_state()
                if random_state is not None:
                    generator(ctx).set_state(random_state)
                with torch.no_grad():
                    found = self._body.compute(env, [t.data for t in tensors])[1]
                generator(ctx).set_state(saved)
                return [found[i][1] for i in later]

            values = [changes[i][1].detach() for i in later]
            node.states = tape.States(states, values, tuple(state.raw._version for state in states), again)
        results = [NDArray(output.data, ctx) for output in outputs]
        tape.attach(results, outputs, node)
        return results

    def _frozen_for(self, wanted: tuple[bool, ...]) -> frozenset[int]:
        """Return the positions of states that backward leaves, by the inputs that gradients are computed of."""
        found = self._frozen.get(wanted)
        if found is None:
            names = [node.name for node in self.graph.inputs]
            frozen = frozen_states(self.graph, (name for name, is_wanted in zip(names, wanted) if is_wanted))
            found = frozenset(i for i, name in enumerate(names) if name in frozen)
            self._frozen[wanted] = found
        return found


def _write(arrays: Sequence[NDArray], changes: Sequence[tuple[int, torch.Tensor, bool]]) -> None:
    """Write the states that operators write in forward."""
    for position, value, now in changes:
        if now:
            arrays[position].overwrite(value)
