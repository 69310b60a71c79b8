"""`Inspection`: the steps, cost, memory and time of an executor's programs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

from ..base import dtype_name
from ..graph import Graph, Node, infer_types
from ..ops.shapes import prod
from . import passes
from .arrays import BoundArrays
from .cost import backward_flops, forward_flops, intermediate_bytes, item_size, working_bytes
from .explanation import ExecutorExplanation, MemoryHolder, MemoryUse, ProgramSource, StepRow
from .lowering import Lowered, Step
from .measurement import StepTimes, TrialRun, measure_memory, measure_times
from .program import Program
from .sparse_arrays import stored_bytes
from .storage_types import StorageTypes

_MAX_HOLDERS = 8
"""Number of memory holders that are reported."""


class Inspected(Protocol):
    """The methods of an executor that an inspection calls."""

    def program(self, is_train: bool) -> Program:
        """Return the program that runs in training mode, or for prediction."""

    def execution_mode(self, is_train: bool) -> str:
        """Describe how the program runs under `compile` or `cuda_graphs`; "" without these options."""

    def trial_run(self, is_train: bool) -> AbstractContextManager[TrialRun]:
        """Allow running the program inside the block any number of times, on the current arrays."""

    def held_bytes(self) -> dict[str, int]:
        """Return the memory of the arrays in bytes: "arguments", "gradients", "states" and "outputs"."""


class Inspection:
    """Explains the programs of an executor.

    Args:
        freed: names of the arguments whose gradients backward frees before it computes them again.
    """

    def __init__(self, executor: Inspected, arrays: BoundArrays, freed: Collection[str]) -> None:
        self._executor, self._arrays, self._freed = executor, arrays, freed
        bound = {**arrays.args, **arrays.aux}
        self._given = {name: dtype_name(array.dtype) for name, array in bound.items()}
        self._wanted = [name for name, grad in arrays.grads.items() if grad is not None]

    def explain(
        self,
        is_train: bool | None,
        times: bool,
        measure: bool,
        parameters: Collection[str] | None,
        repeats: int,
    ) -> ExecutorExplanation:
        """Return the explanation; see `Executor.explain`."""
        is_train = bool(self._wanted) if is_train is None else is_train
        graph, shapes = self._arrays.graph, self._arrays.shapes
        low = self._executor.program(is_train).low
        measured = None
        if times:
            with self._executor.trial_run(is_train) as run:
                measured = measure_times(run, repeats)
        names = set(graph.parameters if parameters is None else parameters)
        rows = _Rows(
            graph, shapes, self._types(), self._wanted if is_train else [], names, self._arrays.storage
        )
        covered = _covered(low)
        done = {number for numbers in covered for number in numbers}
        return ExecutorExplanation(
            is_train=is_train,
            predict=self._plan(False),
            training=self._plan(True),
            steps=tuple(
                rows.row(low, step, covered[at], _step_times(measured, at))
                for at, step in enumerate(low.steps)
            ),
            merged=tuple(n.name for i, n in enumerate(graph.nodes) if n.op is not None and i not in done),
            parameters=sum(prod(shapes[node][0]) for node in graph.inputs if node.name in names),
            flops=sum(rows.forward.values()),
            backward_flops=sum(rows.backward.values()),
            memory=self.memory(is_train, measure),
            forward_s=measured.whole_forward if measured else None,
            backward_s=measured.whole_backward if measured and measured.backward else None,
        )

    def memory(self, is_train: bool | None, measure: bool) -> MemoryUse:
        """Return the memory of the arrays and of a run; see `Executor.memory`."""
        is_train = bool(self._wanted) if is_train is None else is_train
        graph, types = self._arrays.graph, self._types()
        working = working_bytes(graph, self._arrays.shapes, types, is_train, self._wanted)
        copies = self._copied_bytes(self._executor.program(is_train).low, types)
        if measure:
            with self._executor.trial_run(is_train) as run:
                forward, backward = measure_memory(run)
        elif working.backward:  # backward reads the copies, too
            copied = sum(size for _, size in copies)
            forward, backward = working.forward + copied, working.backward + copied
        else:
            forward, backward = working.forward + max((size for _, size in copies), default=0), 0
        use = MemoryUse(
            **self._executor.held_bytes(),
            forward=forward,
            backward=backward,
            measured=measure,
            freed=sum(
                stored_bytes(grad)
                for name, grad in self._arrays.grads.items()
                if backward and grad is not None and name in self._freed
            ),
            holders=(),
        )
        holders = self._arrays_at_peak(use.peaks_in_backward)
        holders += [MemoryHolder("copy", name, size) for name, size in copies]
        held = working.held_backward if use.peaks_in_backward else working.held_forward
        holders += [MemoryHolder(what, name, size) for (what, name), size in held.items()]
        largest = sorted((holder for holder in holders if holder.nbytes), key=lambda each: -each.nbytes)
        return replace(use, holders=tuple(largest[:_MAX_HOLDERS]))

    def _arrays_at_peak(self, in_backward: bool) -> list[MemoryHolder]:
        """Return the arrays that hold memory in backward, or in forward."""
        arrays, types = self._arrays, self._types()
        freed = self._freed if in_backward else ()
        grads = {name: grad for name, grad in arrays.grads.items() if name not in freed}
        parts = ("argument", arrays.args), ("gradient array", grads), ("state", arrays.aux)
        holders = [
            MemoryHolder(what, name, stored_bytes(array))
            for what, part in parts
            for name, array in part.items()
            if array is not None
        ]
        for name, (node, i) in () if in_backward else zip(arrays.graph.output_names, arrays.graph.heads):
            size = prod(arrays.shapes[node][i] or ()) * item_size(types[node][i] or "float32")
            holders.append(MemoryHolder("output", name, size))
        return holders

    def debug_str(self) -> str:
        """Return the source of the generated functions and their memory; see `Executor.debug_str`."""
        sources = [f"# is_train={mode}\n{self._executor.program(mode).source}" for mode in (False, True)]
        shapes = {name: array.shape for name, array in {**self._arrays.args, **self._arrays.aux}.items()}
        size = intermediate_bytes(self._arrays.graph, shapes, self._given, training=bool(self._wanted))
        total = f"Total {size // 2**20} MB allocated\nTotal 0 TempSpace resource requested\n"
        return "\n".join([*sources, total])

    def _types(self) -> dict[Node, list[str | None]]:
        return infer_types(self._arrays.graph, self._given, default="float32")

    def _copied_bytes(self, low: Lowered, types: Mapping[Node, Any]) -> list[tuple[str, int]]:
        """Return the names and memory of variables that passes copy to another layout or device."""
        copies = []
        for step in low.steps:
            if (
                step.node < 0
                and len(step.inputs) == len(step.outputs) == 1
                and step.inputs[0] < low.num_variables
            ):
                node = self._arrays.graph.nodes[low.entries[step.inputs[0]][0]]
                size = prod(self._arrays.shapes[node][0]) * item_size(types[node][0] or "float32")
                copies.append((node.name, size))
        return copies

    def _plan(self, is_train: bool) -> ProgramSource:
        program = self._executor.program(is_train)
        low = program.low
        here = [entry.name for entry in passes.PASSES if (entry.training if low.recorded else entry.predict)]
        off = tuple(name for name in here if name in low.off)
        idle = tuple(name for name in here if name not in low.off and name not in low.fired)
        execution_mode = self._executor.execution_mode(is_train)
        return ProgramSource(low.recorded, program.source, dict(low.fired), idle, off, execution_mode)


def _step_times(measured: StepTimes | None, at: int) -> tuple[float | None, float | None]:
    if measured is None:
        return None, None
    return measured.forward[at], measured.backward[at] if measured.backward else None


def _covered(low: Lowered) -> list[tuple[int, ...]]:
    """Return the indices of the nodes that each step computes; every node once, with its own step if it has one."""
    left = {number for step in low.steps for number in step.covers} - {step.node for step in low.steps}
    covered = []
    taken: set[int] = set()
    for step in low.steps:
        numbers = {number for number in step.covers if number in left}
        left -= numbers
        if step.node >= 0 and step.node not in taken:
            numbers.add(step.node)
            taken.add(step.node)
        covered.append(tuple(sorted(numbers)))
    return covered


class _Rows:
    """Builds the rows of the table of steps.

    Args:
        shapes: shapes of every node's outputs.
        types: their dtype names.
    """

    def __init__(
        self,
        graph: Graph,
        shapes: Mapping[Node, Any],
        types: Mapping[Node, list[str | None]],
        wanted: Collection[str],
        parameters: Collection[str],
        storage: StorageTypes | None,
    ) -> None:
        self._storage = storage
        self._nodes = graph.nodes  # the program may belong to another graph of the same structure
        self._shapes, self._types = shapes, types
        self.forward = forward_flops(graph, shapes)
        self.backward: Mapping[Node, int] = backward_flops(graph, self.forward, wanted) if wanted else {}
        self._uncounted = set(parameters)

    def row(
        self, low: Lowered, step: Step, covered: tuple[int, ...], times: tuple[float | None, float | None]
    ) -> StepRow:
        """Return the row of one step, which computes the nodes `covered`."""
        nodes = [self._nodes[number] for number in covered]
        main = self._nodes[step.node] if step.node >= 0 else None
        shapes, dtype, nbytes = self._outputs(low, step)
        return StepRow(
            name=low.names[step.outputs[0]] if main is None else main.name,
            operator=step.name if main is None or main.op is None else main.op.name,
            nodes=tuple(node.name for node in nodes),
            shapes=shapes,
            dtype=dtype,
            parameters=sum(map(self._parameters, nodes)),
            flops=sum(self.forward[node] for node in nodes),
            backward_flops=sum(self.backward.get(node, 0) for node in nodes),
            nbytes=nbytes,
            forward_s=times[0],
            backward_s=times[1],
            ragged=main is not None and self._storage is not None and self._storage.of((main, 0)) == "ragged",
        )

    def _outputs(self, low: Lowered, step: Step) -> tuple[tuple[tuple[int, ...] | None, ...], str, int]:
        """Return shapes, type and memory of a step's results; for values that passes added, from the step's node."""
        visible = self._nodes[step.node].num_outputs if step.node >= 0 else 1
        shapes: list[tuple[int, ...] | None] = []
        dtype, nbytes = "", 0
        for position, value in enumerate(step.outputs[:visible]):
            entry = low.entries.get(value)
            if entry is None and step.node >= 0:
                entry = step.node, position
            elif entry is None and len(step.inputs) == 1:
                entry = low.entries.get(
                    step.inputs[0]
                )  # a copy, on this or another device or in another layout
            shape = None if entry is None else self._shapes[self._nodes[entry[0]]][entry[1]]
            shapes.append(shape)
            if entry is not None and shape is not None:
                item_type = self._types[self._nodes[entry[0]]][entry[1]] or "float32"
                dtype = dtype or item_type
                nbytes += prod(shape) * item_size(item_type)
        return tuple(shapes), dtype, nbytes

    def _parameters(self, node: Node) -> int:
        """Return the number of elements of the parameters that this node is the first to read."""
        names = {child.name: self._shapes[child][0] for child, _ in node.inputs if child.op is None}
        own = [name for name in names if name in self._uncounted]
        self._uncounted.difference_update(own)
        return sum(prod(names[name]) for name in own)
