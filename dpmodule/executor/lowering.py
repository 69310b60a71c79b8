"""Lowering a graph to steps: the list of torch calls that passes rewrite and that becomes a `Program`.

Values are numbered. The first numbers are the graph's variables, arguments before auxiliary states; every step numbers
its results.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Any

import torch

from ..graph import Graph, Node
from ..graph.node import has_effect
from ..ops import get as get_op
from ..ops.sparse import SparseCall, densify
from ..ops.spec import Op
from .storage_types import StorageTypes


@dataclass(slots=True, eq=False, repr=False)
class Step:
    """One call.

    Attributes:
        fixed: attribute record passed first, or None for plain torch functions.
        node: index of the graph's node, -1 for a step that a pass added.
        detach_first: the first input is detached (a cut loss).
        needs_shapes: the operator needs its inferred output shapes.
        takes_env: the function takes an `Env` (all but plain torch functions).
        own_env: the step has its own `Env`, since it runs on another context than the executor's, or keeps state.
        keeps: the step keeps state between runs of an executor, in ``Env.memo``.
        covers: indices of further nodes whose work the step does, set by passes that fuse steps.
        reuses: the step may write its result to the memory of an output of the last run, given in ``Env.memory``.
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
    """A loss that was cut: the value from which backward starts, and the rule that gives its gradient."""

    output: int
    root: int
    rest: tuple[int, ...]
    op: Op
    a: Any


@dataclass(slots=True, eq=False, repr=False)
class Lowered:
    """Steps of a graph, and their results.

    Attributes:
        mirrored: indices of the nodes whose results backward may recompute.
        mirror_parts: number of parts of the network between which results are kept; 0 without parts.
        is_subgraph: True for the subgraph of an operator, which calls it under autograd.
        steps: the calls, in order.
        mutated: (variable, new value, in forward): states to write back, in forward or in backward.
        fired: number of rewrites of each pass, by its name.
        off: names of passes that are disabled, or that do not support graphs on several devices.
        entries: node index and output index of each value; does not contain values that passes add.
    """

    graph: Graph
    recorded: bool
    num_variables: int
    steps: list[Step]
    heads: list[int]
    losses: list[LossHead] = field(default_factory=list)
    mutated: list[tuple[int, int, bool]] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    num_values: int = 0
    fired: dict[str, int] = field(default_factory=dict)
    off: frozenset[str] = frozenset()
    is_subgraph: bool = False
    mirrored: frozenset[int] = frozenset()
    mirror_parts: int = 0
    entries: dict[int, tuple[int, int]] = field(default_factory=dict)

    def operator(self, step: Step) -> tuple[Op | None, Any]:
        """Return the operator that a step runs on dense values, or the classic one for it, and its attributes.

        (None, None) for a step that a pass added or that reads sparse values, since passes leave these unchanged.
        """
        if step.node < 0 or self.is_sparse(step):
            return None, None
        node = self.graph.nodes[step.node]
        op = node.op if node.op is None or not node.op.classic else get_op(node.op.classic)
        return op, node.a

    def has_effect(self, step: Step) -> bool:
        """Return True if a step must run even if nothing reads its results, and in its order."""
        if step.node < 0:
            return step.keeps or step.own_env
        return step.keeps or has_effect(self.graph.nodes[step.node], self.recorded)

    def is_sparse(self, step: Step) -> bool:
        """Return True if a step reads sparse values, or dense copies of them."""
        return isinstance(step.function, (SparseCall, _OnDense))

    def kept(self) -> set[int]:
        """Return the values that are read outside the steps: heads, inputs of losses, and states."""
        values = {*self.heads, *(new for _, new, _ in self.mutated)}
        for loss in self.losses:
            values.update((loss.root, *loss.rest))
        return values

    def held_by_operators(self) -> set[int]:
        """Return the inputs of operators that may write them when they run, so that order matters."""
        values: set[int] = set()
        for step in self.steps:
            op = self.graph.nodes[step.node].op if step.node >= 0 else None
            if op is not None and (op.stateful or op.owner is not None):
                values.update(step.inputs)
        return values

    def readers(self) -> dict[int, list[Step]]:
        """Return the readers of each value, once per input."""
        readers: dict[int, list[Step]] = {}
        for step in self.steps:
            for value in step.inputs:
                readers.setdefault(value, []).append(step)
        return readers

    def only_readers(self, taken: Container[int]) -> Callable[[int], Step | None]:
        """Return a function that returns the only reader of a value; None if others, or `taken` ids, read it."""
        kept, readers = self.kept(), self.readers()

        def only_reader(value: int) -> Step | None:
            steps = readers.get(value, [])
            return steps[0] if len(steps) == 1 and value not in kept and id(steps[0]) not in taken else None

        return only_reader

    def new_value(self, name: str) -> int:
        """Number a new value."""
        self.names[self.num_values] = name
        self.num_values += 1
        return self.num_values - 1


class _Tied(torch.autograd.Function):
    """Returns its first input, and starts the backward of the losses that are its other inputs."""

    @staticmethod
    def forward(ctx: Any, head: torch.Tensor, *losses: torch.Tensor) -> torch.Tensor:
        ctx.losses = [(loss.shape, loss.dtype, loss.device) for loss in losses]
        return head.view_as(head)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        zeros = [torch.zeros(shape, dtype=dtype, device=device) for shape, dtype, device in ctx.losses]
        return *grads, *zeros


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
    is_subgraph: bool = False,
) -> Lowered:
    """Turn a graph into steps.

    If backward may follow, terminal losses are cut: the loss operator runs on a detached input, and backward starts at
    that input with the gradient that the operator defines. Losses with other readers keep their `autograd.Function`. If
    some losses are not heads, all keep theirs, and backward reaches these even through operators without gradient.

    Args:
        storage: storage types, if some values are sparse.
        is_subgraph: True for a subgraph, whose losses are never cut.
    """
    variables = (*graph.arguments, *graph.auxiliary)
    low = Lowered(graph, recorded, len(variables), [], [], is_subgraph=is_subgraph)
    values: dict[tuple[Node, int], int] = {(n, 0): low.new_value(n.name) for n in variables}
    head_nodes = [node for node, _ in graph.heads]
    inner = _inner_losses(graph) if recorded else []
    for number, node in enumerate(graph.nodes):
        if node.op is not None:
            cut = (
                recorded
                and not is_subgraph
                and not inner
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
    for position, entry in enumerate(graph.heads if inner else ()):
        if storage is None or storage.of(entry) == "default":
            inputs = [low.heads[position], *(values[node, 0] for node in inner)]
            low.heads[position] = low.new_value(f"head{position}")
            outputs = [low.heads[position]]
            low.steps.append(Step(_Tied.apply, "tie_losses", None, inputs, outputs, -1, takes_env=False))
    return low


def _inner_losses(graph: Graph) -> list[Node]:
    """Return the losses that are not heads.

    Source: MXNet, where an operator without gradient passes zeros on to a loss, which ignores them.
    """
    heads = {node for node, _ in graph.heads}
    return [
        node for node in graph.nodes if node.op is not None and node.op.is_loss(node.a) and node not in heads
    ]


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
        declared = op.active_inputs(a, len(inputs))
        for position, now in op.mutated_inputs(declared):
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
    """Make a step read sparse values by its sparse rule, or dense copies of them."""
    if node.op is None:
        return
    rule = storage.rules.get(node)
    if rule is not None:
        takes_rows = [child.op is None or storage.of((child, i)) != "default" for child, i in node.inputs]
        step.function = SparseCall(node.op, rule[0], rule[1], takes_rows)
        step.name, step.fixed, step.takes_env = node.op.name, node.a, True
    elif any(storage.of(entry) != "default" for entry in node.inputs):
        step.function = _OnDense(step.function)
