"""Gathering what `Executor.explain` tells about a program: its steps, what they cost, and how long they take."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ..base import dtype_name
from ..graph import Graph, Node, infer_types
from ..ops.shapes import prod
from ..ops.spec import PARAM
from . import passes
from .cost import item_size, working_bytes
from .explanation import Explanation, Memory, Plan, StepRow
from .flops import backward_flops, forward_flops
from .lowering import Lowered, Step
from .measuring import StepTimes, measure_memory, measure_times

if TYPE_CHECKING:
    from .inspection import InspectedRunner

__all__ = ["explain", "memory_of"]


def _wanted(executor: InspectedRunner) -> list[str]:
    """Return the names of the arguments that have gradients."""
    return [name for name, grad in executor.grad_dict.items() if grad is not None]


def _types(executor: InspectedRunner) -> dict[Node, list[str | None]]:
    names = executor.graph.argument_names
    bound = {**{name: executor.input_array(name) for name in names}, **executor.aux_dict}
    given = {name: dtype_name(array.dtype) for name, array in bound.items()}
    return infer_types(executor.graph, given, default="float32")


def memory_of(executor: InspectedRunner, is_train: bool, measure: bool) -> Memory:
    """Return the memory of an executor's arrays, and that of a run, measured or estimated.

    Raises:
        StateError: it is to be measured while a profiler runs.
    """
    if measure:
        with executor.rehearsal(is_train) as run:
            forward, backward = measure_memory(run)
    else:
        wanted, types = _wanted(executor), _types(executor)
        forward, backward = working_bytes(executor.graph, executor.node_shapes, types, is_train, wanted)
        copies = _copied_bytes(executor, executor.program(is_train).low, types)
        if backward:  # it reads them, too
            forward, backward = forward + sum(copies), backward + sum(copies)
        else:
            forward += max(copies, default=0)
    return Memory(**executor.held_bytes(), forward=forward, backward=backward, measured=measure)


def _copied_bytes(executor: InspectedRunner, low: Lowered, types: Mapping[Node, Any]) -> list[int]:
    """Return the memory of copies that passes make of variables, in another layout or place."""
    found = []
    for step in low.steps:
        if (
            step.node < 0
            and len(step.inputs) == len(step.outputs) == 1
            and step.inputs[0] < low.num_variables
        ):
            node = executor.graph.nodes[low.entries[step.inputs[0]][0]]
            found.append(prod(executor.node_shapes[node][0]) * item_size(types[node][0] or "float32"))
    return found


def explain(
    executor: InspectedRunner,
    is_train: bool,
    times: bool = False,
    measure: bool = False,
    parameters: Collection[str] | None = None,
    repeats: int = 5,
) -> Explanation:
    """Return what an executor runs; see `Executor.explain`."""
    program = executor.program(is_train)
    measured = None
    if times:
        with executor.rehearsal(is_train) as run:
            measured = measure_times(run, repeats)
    names = _declared_parameters(executor.graph) if parameters is None else set(parameters)
    rows = _Rows(executor, is_train, names)
    covered = _covered(program.low)
    steps = tuple(
        rows.row(program.low, step, covered[at], _step_times(measured, at))
        for at, step in enumerate(program.low.steps)
    )
    done = {number for numbers in covered for number in numbers}
    nodes = enumerate(executor.graph.nodes)
    return Explanation(
        is_train=is_train,
        predict=_plan(executor, False),
        training=_plan(executor, True),
        steps=steps,
        merged=tuple(node.name for number, node in nodes if node.op is not None and number not in done),
        parameters=sum(prod(executor.node_shapes[n][0]) for n in executor.graph.inputs if n.name in names),
        flops=sum(rows.forward.values()),
        backward_flops=sum(rows.backward.values()),
        memory=memory_of(executor, is_train, measure),
        forward_s=measured.whole_forward if measured else None,
        backward_s=measured.whole_backward if measured and measured.backward else None,
    )


def _step_times(measured: StepTimes | None, at: int) -> tuple[float | None, float | None]:
    if measured is None:
        return None, None
    return measured.forward[at], measured.backward[at] if measured.backward else None


def _plan(executor: InspectedRunner, is_train: bool) -> Plan:
    program = executor.program(is_train)
    low = program.low
    here = [each.name for each in passes.PASSES if (each.training if low.recorded else each.predict)]
    off = tuple(name for name in here if name in low.off)
    idle = tuple(name for name in here if name not in low.off and name not in low.fired)
    return Plan(low.recorded, program.source, dict(low.fired), idle, off, executor.way_to_run(is_train))


def _declared_parameters(graph: Graph) -> set[str]:
    """Return the names of the variables that some operator takes as a parameter."""
    found: set[str] = set()
    for node in graph.nodes:
        if node.op is None:
            continue
        declared = node.op.wanted(node.a, len(node.inputs))
        found.update(
            child.name
            for (child, _), one in zip(node.inputs, declared)
            if child.op is None and one.kind == PARAM
        )
    return found


def _covered(low: Lowered) -> list[tuple[int, ...]]:
    """Return the indices of the nodes whose work each step does; every node once, with its own step if it has one."""
    left = {number for step in low.steps for number in step.covers} - {step.node for step in low.steps}
    found = []
    taken: set[int] = set()
    for step in low.steps:
        numbers = {number for number in step.covers if number in left}
        left -= numbers
        if step.node >= 0 and step.node not in taken:
            numbers.add(step.node)
            taken.add(step.node)
        found.append(tuple(sorted(numbers)))
    return found


class _Rows:
    """Makes the rows of the table of steps.

    Args:
        executor: whose steps they are.
        is_train: whether backward follows.
        parameters: names of the variables that are parameters.
    """

    def __init__(self, executor: InspectedRunner, is_train: bool, parameters: Collection[str]) -> None:
        graph = executor.graph
        self._nodes = graph.nodes  # the program may have been made for another graph, of the same structure
        self._shapes = executor.node_shapes
        self._types = _types(executor)
        self.forward = forward_flops(graph, self._shapes)
        wanted = _wanted(executor) if is_train else []
        self.backward: Mapping[Node, int] = backward_flops(graph, self.forward, wanted) if wanted else {}
        self._uncounted = set(parameters)

    def row(
        self, low: Lowered, step: Step, covered: tuple[int, ...], times: tuple[float | None, float | None]
    ) -> StepRow:
        """Return the row of one step, which does the work of the nodes `covered`."""
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
        )

    def _outputs(self, low: Lowered, step: Step) -> tuple[tuple[tuple[int, ...] | None, ...], str, int]:
        """Return shapes, type and memory of what a step makes; of values that passes added, by the step's node."""
        visible = self._nodes[step.node].num_outputs if step.node >= 0 else 1
        shapes: list[tuple[int, ...] | None] = []
        dtype, nbytes = "", 0
        for position, value in enumerate(step.outputs[:visible]):
            entry = low.entries.get(value)
            if entry is None and step.node >= 0:
                entry = step.node, position
            elif entry is None and len(step.inputs) == 1:
                entry = low.entries.get(step.inputs[0])  # a copy, a move, another layout
            shape = None if entry is None else self._shapes[self._nodes[entry[0]]][entry[1]]
            shapes.append(shape)
            if entry is not None and shape is not None:
                kind = self._types[self._nodes[entry[0]]][entry[1]] or "float32"
                dtype = dtype or kind
                nbytes += prod(shape) * item_size(kind)
        return tuple(shapes), dtype, nbytes

    def _parameters(self, node: Node) -> int:
        """Count the elements of the parameters that this node is the first to read."""
        names = {child.name: self._shapes[child][0] for child, _ in node.inputs if child.op is None}
        own = [name for name in names if name in self._uncounted]
        self._uncounted.difference_update(own)
        return sum(prod(names[name]) for name in own)
