"""Writing a `torch.fx` module: one `fx` node for each parameter and operator of a graph."""

from __future__ import annotations

import operator
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from keyword import iskeyword
from typing import Any
from unicodedata import normalize

import torch
from torch import fx

from ..base import ArgumentError, Shape, ShapeError
from ..graph import Entry, Graph, Node, infer_shapes
from ..ops.dtypes import torch_dtype
from ..ops.fx import OperatorState, function_of, select_output
from ..ops.shapes import infer_type, known

_UNSAFE = frozenset("'\"\\")

_GLOBALS = frozenset({"self", "getattr", "torch", "device", "inf", "nan", "NoneType", "fx_pytree", "pytree"})
"""Names used in the source of `torch.fx`, which a parameter of the same name would hide."""

_FUNCTIONS = select_output.__module__.replace(".", "_")
"""Prefix of this package's functions in that source."""


@dataclass(frozen=True)
class ModulePlan:
    """Contents of a module to write.

    Shape:
        held: each as its variable.

    Attributes:
        inputs: names of the inputs, in the order of forward's parameters.
        labels: the nodes of inputs that only losses read, and of operators on them; these inputs are optional.
        held: the tensor of each parameter and auxiliary state, by name.
        is_subgraph: True for the subgraph of a loop or branch, which always returns a tuple.
    """

    graph: Graph
    inputs: Sequence[str]
    labels: Collection[Node] = ()
    held: Mapping[str, torch.Tensor] = field(default_factory=dict)
    frozen: Collection[str] = ()
    sizes: Mapping[Node, Sequence[tuple[Size, ...]]] = field(default_factory=dict)
    is_subgraph: bool = False


class _Mode(torch.nn.Module):
    """Returns the training mode of its parent module; tracers of `torch.fx` do not trace it."""

    def forward(self) -> bool:
        """Return True in training mode."""
        return self.training


def write_module(plan: ModulePlan) -> fx.GraphModule:
    """Return the module of a plan."""
    return _ModuleWriter(plan).module()


def _subgraph_module(graph: Graph) -> fx.GraphModule:
    """Return the subgraph of a loop or branch as a module, whose inputs are all variables."""
    names = [node.name for node in graph.inputs]
    sizes, missing = sizes_of(graph, {}, names, {})
    if missing:
        raise ArgumentError(
            f"to_torch: the shape of {', '.join(n.describe() for n in missing)} in a subgraph is unknown"
        )
    return write_module(ModulePlan(graph, names, sizes=sizes, is_subgraph=True))


def is_safe_in_source(part: str) -> bool:
    """Return True if `torch.fx` can write a part of a dotted name into its source.

    It writes ``self.part`` or, if the part is not an identifier, ``getattr(self, "part")``, without escaping. Python
    normalizes identifiers (NFKC), so that some names change.
    """
    if not part.isprintable() or not _UNSAFE.isdisjoint(part):
        return False
    return not part.isidentifier() or (not iskeyword(part) and normalize("NFKC", part) == part)


def _identifier(name: str, taken: set[str]) -> str:
    """Return a valid parameter name that is not in `taken`, and add it to `taken`."""
    base = re.sub(r"\W", "_", name, flags=re.ASCII) or "_"
    if base[0].isdigit() or iskeyword(base) or base in _GLOBALS or base.startswith(_FUNCTIONS):
        base = f"_{base}"
    candidate, number = base, 1
    while candidate in taken:
        number += 1
        candidate = f"{base}_{number}"
    taken.add(candidate)
    return candidate


def _is_of(node: Node, kind: torch.dtype | None) -> bool:
    """Return True if an operator without inputs makes the network's floating type."""
    if node.op is None or kind is None:
        return False
    own_type = infer_type(node.op, node.a, [], [None] * node.num_outputs)[1][0]
    return own_type is not None and torch_dtype(own_type) == kind


class _ModuleWriter:
    """Writes one module."""

    def __init__(self, plan: ModulePlan) -> None:
        self._plan = plan
        self._root = torch.nn.Module()
        self._graph = fx.Graph()
        self._values: dict[Entry, fx.Node] = {}
        self._lengths: dict[tuple[str, int], fx.Node] = {}
        self._mode: fx.Node | None = None
        self._variables = {node.name: node for node in plan.graph.inputs}
        self._used = {entry for node in plan.graph.nodes for entry in node.inputs} | set(plan.graph.heads)
        self._taken = {name.split(".")[0] for name in plan.held}

    def module(self) -> fx.GraphModule:
        """Return the module."""
        self._write_inputs()
        for node in self._plan.graph.nodes:
            if node.op is not None:
                self._write_operator(node)
            elif (node, 0) not in self._values:
                self._write_held(node.name)
        outputs = tuple(self._values[entry] for entry in self._plan.graph.heads)
        self._graph.output(outputs[0] if len(outputs) == 1 and not self._plan.is_subgraph else outputs)
        return fx.GraphModule(self._root, self._graph)

    def _write_inputs(self) -> None:
        """Write the parameters of forward; Python requires defaults for all that follow an optional one."""
        has_default = False
        taken: set[str] = set()
        for name in self._plan.inputs:
            node = self._variables[name]
            has_default = has_default or node in self._plan.labels
            default = (None,) if has_default else ()
            self._values[node, 0] = self._graph.create_node("placeholder", _identifier(name, taken), default)

    def _write_held(self, name: str) -> fx.Node:
        """Write a parameter or an auxiliary state."""
        node = self._variables[name]
        if (node, 0) in self._values:
            return self._values[node, 0]
        tensor = self._plan.held[name]
        prefix, _, last = name.rpartition(".")
        owner = self._root
        for one in prefix.split(".") if prefix else ():
            if not hasattr(owner, one):
                owner.add_module(one, torch.nn.Module())
            owner = getattr(owner, one)
        if node in self._plan.graph.auxiliary:
            owner.register_buffer(last, tensor)
        else:
            trained = tensor.is_floating_point() and name not in self._plan.frozen
            owner.register_parameter(last, torch.nn.Parameter(tensor, requires_grad=trained))
        self._values[node, 0] = fx_node = self._graph.create_node("get_attr", name, name=name)
        return fx_node

    def _write_operator(self, node: Node) -> None:
        """Write the call of an operator, and the selection of its outputs that are read."""
        op = node.op
        if op is None:
            return
        inputs = tuple(self._values[entry] for entry in node.inputs)
        keywords = {**self._attributes(node), **self._surroundings(node)}
        call = self._graph.create_node("call_function", function_of(op), inputs, keywords, name=node.name)
        if node.num_outputs == 1:
            self._values[node, 0] = call
            return
        take = select_output if node in self._plan.labels else operator.getitem
        for i, name in enumerate(node.output_names):
            if (node, i) in self._used:
                self._values[node, i] = self._graph.create_node("call_function", take, (call, i), name=name)

    def _attributes(self, node: Node) -> dict[str, Any]:
        """Return the attributes of a node as keywords."""
        if node.op is None or node.op.read_attrs is not None:
            return dict(node.params)
        return {k: getattr(node.a, k) for k in node.params if node.inputs or k not in ("dtype", "ctx")}

    def _surroundings(self, node: Node) -> dict[str, Any]:
        """Return the keywords of a call that are not attributes."""
        op = node.op
        keywords: dict[str, Any] = {}
        if op is None:
            return keywords
        if not node.inputs:
            keywords.update(self._made_like(node))
        if node in self._plan.sizes:
            keywords["out_shapes"] = tuple(
                tuple(map(self._length, shape)) for shape in self._plan.sizes[node]
            )
        if node.subgraphs:
            keywords["bodies"] = tuple(
                self._part(f"{node.name}_body", _subgraph_module(graph)) for graph in node.subgraphs
            )
        elif op.stateful:
            keywords["memory"] = self._part(f"{node.name}_memory", OperatorState())
        if op.mutates or op.loss is not None or op.stateful or (node.inputs and op.draws(node.a)):
            keywords["training"] = self._training()
        return keywords

    def _made_like(self, node: Node) -> dict[str, Any]:
        """Return the keywords for the device and type of a new tensor.

        A tensor of the network's type follows conversions of the module to another type.
        """
        kinds = ((name, t.dtype) for name, t in self._plan.held.items() if t.is_floating_point())
        name, kind = next(kinds, (next(iter([*self._plan.inputs, *self._plan.held]), None), None))
        if name is None:
            return {}
        keywords: dict[str, Any] = {
            "like": self._values.get((self._variables[name], 0)) or self._write_held(name)
        }
        if "dtype" in node.a._fields and not _is_of(node, kind):
            keywords["dtype"] = node.a.dtype
        return keywords

    def _length(self, size: Size) -> int | fx.Node:
        """Return a length: a number, or a node that reads it from an input."""
        if isinstance(size, int):
            return size
        if size not in self._lengths:
            name, axis = size
            value = self._values[self._variables[name], 0]
            self._lengths[size] = self._graph.create_node("call_method", "size", (value, axis))
        return self._lengths[size]

    def _training(self) -> fx.Node:
        """Return the node of the training mode."""
        if self._mode is None:
            name = self._own_name("is_training")
            self._root.add_module(name, _Mode())
            self._mode = self._graph.create_node("call_module", name, name="training")
        return self._mode

    def _part(self, name: str, module: torch.nn.Module) -> fx.Node:
        """Add a submodule and return its node."""
        own = self._own_name(name)
        self._root.add_module(own, module)
        return self._graph.create_node("get_attr", own, name=own)

    def _own_name(self, name: str) -> str:
        candidate = _identifier(name, self._taken)
        while hasattr(fx.GraphModule, candidate):
            candidate = _identifier(name, self._taken)
        return candidate


Size = int | tuple[str, int]
"""A length, or the input and the axis that determine it."""

_RANKS = (2, 3, 4, 1, 5)
_LENGTHS = (7919, 6133)
"""Trial lengths that no network has by chance."""

Shapes = Mapping[str, tuple[int, ...]]
NodeSizes = dict[Node, list[tuple[Size, ...]]]


def sizes_of(
    graph: Graph, held: Shapes, inputs: Sequence[str], given: Shapes
) -> tuple[NodeSizes, list[Node]]:
    """Return the output sizes that attributes do not determine, and the nodes with unknown sizes.

    Args:
        held: shapes of parameters and states.
        given: known shapes of inputs.
    """
    base = infer_shapes(graph, {**held, **given})
    left = [n for n in graph.nodes if n.op is not None and n.op.needs_shapes and not _is_settled(n)]
    sizes: dict[Node, list[list[Size]]] = {}
    for (name, axis), one, other in _trials(inputs, given):
        if all(node in sizes and _follows_inputs(sizes[node]) for node in left):
            break
        shapes = [_tried(graph, {**held, **lengths}) for lengths in (one, other)]
        if shapes[0] and shapes[1]:
            for node in left:
                _enter(sizes, node, base[node], shapes[0][node], shapes[1][node], (name, axis))
    for node in left:
        sizes.setdefault(node, [list(shape or (0,)) for shape in base[node]])
    missing = [node for node in left if any(0 in shape for shape in sizes[node])]
    return {node: [tuple(shape) for shape in shapes] for node, shapes in sizes.items()}, missing


def _is_settled(node: Node) -> bool:
    """Return True if the attributes alone determine an operator's output shapes, or if they are found at run time."""
    op = node.op
    if node.subgraphs or node.inputs or op is None or op.infer is None:
        return True
    return all(map(known, op.infer(node.a, [], [None] * node.num_outputs)[1]))


def _trials(inputs: Sequence[str], given: Shapes) -> Iterator[tuple[tuple[str, int], Shapes, Shapes]]:
    """Yield an input's axis, and two sets of input shapes with other lengths there.

    The axis may be the batch axis, which several inputs share: inputs of the same length change with it first.
    """
    names = [name for name in inputs if name in given]
    for name in names:
        for axis, length in enumerate(given[name]):
            alike = {n: given[n] for n in names if given[n][axis : axis + 1] == (length,)}
            for moved in (alike, {name: given[name]}):
                rest = {n: given[n] for n in names if n not in moved} if moved is alike else {}
                first, second = (
                    {**rest, **{n: (*s[:axis], to, *s[axis + 1 :]) for n, s in moved.items()}}
                    for to in _LENGTHS
                )
                yield (name, axis), first, second
    for rank in _RANKS:
        for axis in range(min(rank, 2)):
            for name in inputs if not names else ():
                first, second = (
                    {name: tuple(to if i == axis else 0 for i in range(rank))} for to in _LENGTHS
                )
                yield (name, axis), first, second


def _tried(graph: Graph, shapes: Shapes) -> dict[Node, list[Shape]]:
    """Return the shapes of all nodes; empty if the inputs contradict each other."""
    try:
        all_shapes = infer_shapes(graph, shapes)
    except ShapeError:
        return {}
    return {} if any(_reads_ragged(node, all_shapes) for node in graph.nodes) else all_shapes


def _reads_ragged(node: Node, shapes: dict[Node, list[Shape]]) -> bool:
    """Return True if an RNN has data of two axes, which are ragged and not supported."""
    if node.op is None or node.op.name != "RNN":
        return False
    child, output = node.inputs[0]
    data = shapes[child][output]
    return data is not None and len(data) == 2


def _follows_inputs(shapes: Sequence[Sequence[Size]]) -> bool:
    """Return True if all sizes are known, and every shape has a size that depends on an input."""
    return all(0 not in shape and any(isinstance(size, tuple) for size in shape) for shape in shapes)


def _enter(
    sizes: dict[Node, list[list[Size]]],
    node: Node,
    base: Sequence[Shape],
    one: Sequence[Shape],
    other: Sequence[Shape],
    source: tuple[str, int],
) -> None:
    """Record the sizes of a node's outputs that follow an input's axis, and the constant ones."""
    if any(a is None or b is None or len(a) != len(b) for a, b in zip(one, other)):
        return
    entries = sizes.setdefault(node, [list(b or (0,) * len(a or ())) for a, b in zip(one, base)])
    for shape, a, b in zip(entries, one, other):
        for i, pair in enumerate(zip(a or (), b or ())):
            if pair == _LENGTHS and not isinstance(shape[i], tuple):
                shape[i] = source
            elif pair[0] == pair[1] and shape[i] == 0:
                shape[i] = pair[0]
