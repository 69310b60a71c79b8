"""From a graph to steps: the list of torch calls that passes rework and that becomes a Program.

Values are numbered. The first ones are the graph's variables, arguments before auxiliary states; every step gives
numbers to what it makes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..graph import Graph, Node
from ..ops.sparse import SparseCall, densify
from ..ops.spec import Op
from .storage_types import StorageTypes


@dataclass(slots=True, eq=False, repr=False)
class Step:
    """One call.

    Attributes:
        fixed: attribute record passed first, or None for plain torch functions.
        node: index of the graph's node, -1 for a step that a pass added.
        detach_first: the first input is passed without its history (a loss head that was cut).
        needs_shapes: the operator wants its inferred output shapes.
        takes_env: the operator wants `Env` (all but plain torch functions).
        own_env: it wants an `Env` of its own: it runs on another context than the executor's, or keeps things.
        keeps: it keeps things from one run of an executor to the next, in ``Env.memo``.
        covers: indices of further nodes whose work it does, set by passes that make one step of several.
        reuses: it may put its result into the memory of an output of the last run, given in ``Env.memory``.
    """

    function: Callable[..., Any]
    name: str
    fixed: Any
    inputs: list[int]
    outputs: list[int]
    node: int
    detach_first: bool = False
    needs_shapes: bool = False
    takes_env: bool = True
    own_env: bool = False
    keeps: bool = False
    covers: tuple[int, ...] = ()
    reuses: bool = False


@dataclass(frozen=True, slots=True)
class LossHead:
    """A head cut below its loss: where backward starts, and the rule that gives the gradient there."""

    output: int
    root: int
    rest: tuple[int, ...]
    op: Op
    a: Any


@dataclass(slots=True, eq=False, repr=False)
class Lowered:
    """Steps and what they return.

    Attributes:
        mirrored: indices of the nodes whose results backward may compute again.
        mirror_parts: into how many parts they are split, which hand each other results that are kept; 0 = none.
        is_body: whether it is the subgraph of an operator, which calls it under autograd.
        steps: the calls, in order.
        mutated: (variable value, new value, at once): states to write back, in forward or in backward.
        fired: how many places each pass has rewritten, by its name.
        off: names of the passes that were switched off, or are not for graphs that live on several devices.
        entries: index of the node and number of the output that each value is; values that passes add are not in it.
    """

    graph: Graph
    recorded: bool
    num_arguments: int
    num_variables: int
    steps: list[Step]
    heads: list[int]
    losses: list[LossHead] = field(default_factory=list)
    mutated: list[tuple[int, int, bool]] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    num_values: int = 0
    fired: dict[str, int] = field(default_factory=dict)
    off: frozenset[str] = frozenset()
    is_body: bool = False
    mirrored: frozenset[int] = frozenset()
    mirror_parts: int = 0
    entries: dict[int, tuple[int, int]] = field(default_factory=dict)

    def operator(self, step: Step) -> tuple[Op | None, Any]:
        """Return the operator that a step runs on dense values, and its attributes.

        (None, None) for a step that a pass added, and for one that reads sparse values: what rewrites operators it
        knows leaves those alone.
        """
        if step.node < 0 or self.is_sparse(step):
            return None, None
        node = self.graph.nodes[step.node]
        return node.op, node.a

    def is_sparse(self, step: Step) -> bool:
        """Say whether a step reads what sparse values store, or dense copies of them."""
        return isinstance(step.function, (SparseCall, _OnDense))

    def kept(self) -> set[int]:
        """Return the values that something beside the steps reads: heads, what losses read, and states."""
        found = {*self.heads, *(new for _, new, _ in self.mutated)}
        for loss in self.losses:
            found.update((loss.root, *loss.rest))
        return found

    def held_by_operators(self) -> set[int]:
        """Return what goes into operators that may write it when they run: the order matters there."""
        found: set[int] = set()
        for step in self.steps:
            op = self.graph.nodes[step.node].op if step.node >= 0 else None
            if op is not None and (op.stateful or op.owner is not None):
                found.update(step.inputs)
        return found

    def new_value(self, name: str) -> int:
        """Number a new value."""
        self.names[self.num_values] = name
        self.num_values += 1
        return self.num_values - 1


class _OnDense:
    """An operator's function that reads dense copies of sparse values."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__name__ = getattr(function, "__name__", "run")

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*map(densify, arguments))


def lower(
    graph: Graph,
    recorded: bool,
    storage: StorageTypes | None = None,
    body: Callable[[Graph], Any] | None = None,
    is_body: bool = False,
) -> Lowered:
    """Turn a graph into steps.

    Where backward may follow, terminal loss heads are cut: the loss operator runs on a detached input, and
    backward starts at that input with the gradient the operator declares. Losses whose output others read keep
    their `autograd.Function`.

    Args:
        storage: storage types, if some values are sparse.
        is_body: whether it is a subgraph itself, whose losses are never cut.
    """
    variables = (*graph.arguments, *graph.auxiliary)
    low = Lowered(graph, recorded, len(graph.arguments), len(variables), [], [], is_body=is_body)
    values: dict[tuple[Node, int], int] = {(n, 0): low.new_value(n.name) for n in variables}
    head_nodes = [node for node, _ in graph.heads]
    for number, node in enumerate(graph.nodes):
        if node.op is not None:
            cut = (
                recorded
                and not is_body
                and node.op.is_loss(node.a)
                and node not in graph.readers
                and head_nodes.count(node) == 1
                and (storage is None or storage.of(node.inputs[0]) == "default")
            )
            a = (
                node.a._replace(bodies=tuple(map(body, node.subgraphs)))
                if node.subgraphs and body
                else node.a
            )
            _lower_node(low, values, number, node, a, cut)
            if storage is not None:
                _on_stored_parts(low.steps[-1], node, storage)
    low.heads = [values[entry] for entry in graph.heads]
    low.entries = {number: (graph.index[node], i) for (node, i), number in values.items()}
    return low


def _lower_node(
    low: Lowered, values: dict[tuple[Node, int], int], number: int, node: Node, a: Any, cut: bool
) -> None:
    """Append the step of one operator node."""
    op = node.op
    if op is None:
        return
    inputs = [values[entry] for entry in node.inputs]
    outputs = []
    for i, name in enumerate(node.output_names):
        values[node, i] = low.new_value(name.removesuffix("_output"))
        outputs.append(values[node, i])
    if op.mutates:
        declared = op.wanted(a, len(inputs))
        for position, now in op.written(declared):
            new = low.new_value(f"{node.name}_{declared[position].name}_new")
            outputs.append(new)
            if inputs[position] < low.num_variables:
                low.mutated.append((inputs[position], new, now))
    if cut and op.loss is not None:
        position = [n for n, _ in low.graph.heads].index(node)
        low.losses.append(LossHead(position, inputs[0], tuple(inputs[1:]), op, a))
        low.steps.append(Step(op.loss.forward, op.name, a, inputs, outputs, number, detach_first=True))
        return
    if op.loss is not None and not low.recorded:
        low.steps.append(Step(op.loss.forward, op.name, a, inputs, outputs, number))
        return
    function = op.bind(a) if op.bind is not None else None
    if function is not None:
        name = getattr(function, "__name__", op.name)
        low.steps.append(Step(function, name, None, inputs, outputs, number, takes_env=False))
        return
    step = Step(op.run, op.name, a, inputs, outputs, number, needs_shapes=op.needs_shapes)
    step.own_env = step.keeps = op.stateful
    low.steps.append(step)


def _on_stored_parts(step: Step, node: Node, storage: StorageTypes) -> None:
    """Let a step work on what sparse values store, or on dense copies of them."""
    if node.op is None:
        return
    found = storage.rules.get(node)
    if found is not None:
        takes_rows = [child.op is None or storage.of((child, i)) != "default" for child, i in node.inputs]
        step.function = SparseCall(node.op, found[0], found[1], takes_rows)
        step.name, step.fixed, step.takes_env = node.op.name, node.a, True
    elif any(storage.of(entry) != "default" for entry in node.inputs):
        step.function = _OnDense(step.function)
