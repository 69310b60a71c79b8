"""`Node` and `Graph`, the plain data of a graph, and merging equal operators."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from ..base import ArgumentError
from ..ops import get as get_op
from ..ops.spec import AUX, DATA, LABEL, PARAM, Op

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Characters that end lines, control terminals, or are not text."""


def printable(text: str) -> str:
    """Replace control characters in text, such as a name from a file, for terminals and pages."""
    return _CONTROL.sub("\ufffd", text)


class Node:
    """A variable, or one application of an operator.

    Attributes:
        op: the operator, None for a variable.
        name: unique name in a graph that is to be bound.
        params: the operator's given attributes, as text.
        attrs: further attributes such as ``__lr_mult__``; all attributes of a variable.
        inputs: (node, output index) of each input.
        source: "file:line" of the user's code that made the node, "" if unknown.
        subgraphs: the graphs that an operator such as a loop runs.
        in_np_shape: True if it was read from a file that was written in NumPy's meaning of shapes.
    """

    __slots__ = ("_parsed", "attrs", "in_np_shape", "inputs", "name", "op", "params", "source", "subgraphs")

    def __init__(
        self,
        op: Op | None,
        name: str,
        params: dict[str, str] | None = None,
        attrs: dict[str, str] | None = None,
        inputs: tuple[Entry, ...] = (),
        source: str = "",
        subgraphs: tuple[Graph, ...] = (),
    ) -> None:
        self.op = op
        self.name = name
        self.params = params or {}
        self.attrs = attrs or {}
        self.inputs = inputs
        self.source = source
        self.subgraphs = subgraphs
        self.in_np_shape = False
        self._parsed: Any = None

    @property
    def a(self) -> Any:
        """The operator's attributes, parsed."""
        if self._parsed is None and self.op is not None:
            self._parsed = self._parse(self.params)
        return self._parsed

    def _parse(self, params: dict[str, str]) -> Any:
        if self.op is None:
            return None
        return self.op.parse(params, self.subgraphs) if self.subgraphs else self.op.parse(params)

    def every_operator(self) -> Iterator[Op]:
        """Yield the node's operator, and those of its subgraphs."""
        if self.op is not None:
            yield self.op
        for graph in self.subgraphs:
            for node in graph.nodes:
                yield from node.every_operator()

    def draws(self, is_train: bool = True) -> bool:
        """Return True if the operator, or one of its subgraphs, draws random numbers."""
        if self.op is not None and self.op.draws(self.a, is_train):
            return True
        return any(node.draws(is_train) for graph in self.subgraphs for node in graph.nodes)

    @property
    def all_attrs(self) -> dict[str, str]:
        """The operator's given attributes, and all further ones."""
        return {**self.attrs, **self.params}

    def set_param(self, key: str, value: str) -> None:
        """Change one of the operator's attributes in place."""
        if self.op is not None:
            params = {**self.params, key: value}
            self._parsed = self._parse(params)
            self.params = params

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the visible outputs, as in `Symbol.list_outputs`."""
        if self.op is None:
            return (self.name,)
        return tuple(f"{self.name}_{suffix}" for suffix in self.op.output_names(self.a))

    @property
    def num_outputs(self) -> int:
        """Number of visible outputs."""
        return 1 if self.op is None else len(self.op.output_names(self.a))

    @property
    def auxiliary_inputs(self) -> tuple[Entry, ...]:
        """The inputs that are auxiliary states of the operator."""
        if self.op is None:
            return ()
        declared = self.op.active_inputs(self.a, len(self.inputs))
        return tuple(entry for entry, one in zip(self.inputs, declared) if one.kind == AUX)

    def describe(self) -> str:
        """Return the node's operator, name and origin for messages."""
        kind = "variable" if self.op is None else self.op.name
        return f"{kind} {self.name!r}" + (f" made at {self.source}" if self.source else "")

    def __repr__(self) -> str:
        return f"<Node {self.describe()}>"


Entry = tuple[Node, int]


def topological_order(heads: tuple[Entry, ...]) -> tuple[Node, ...]:
    """Return all nodes below `heads`, inputs first, in depth-first order; a loop, so deep graphs are fine."""
    seen: set[Node] = set()
    order: list[Node] = []
    for head, _ in heads:
        stack: list[tuple[Node, int]] = [(head, 0)]
        while stack:
            node, position = stack.pop()
            if node in seen:
                continue
            if position < len(node.inputs):
                stack.append((node, position + 1))
                child = node.inputs[position][0]
                if child not in seen:
                    stack.append((child, 0))
            else:
                seen.add(node)
                order.append(node)
    return tuple(order)


class Graph:
    """All nodes below some heads, in topological order."""

    def __init__(self, heads: tuple[Entry, ...]) -> None:
        self.heads = heads
        self.nodes = topological_order(heads)
        self.index = {node: i for i, node in enumerate(self.nodes)}

    @cached_property
    def readers(self) -> dict[Node, list[Node]]:
        """The nodes that read an output of each node; contains no node without readers."""
        readers: dict[Node, list[Node]] = {}
        for node in self.nodes:
            for child, _ in node.inputs:
                readers.setdefault(child, []).append(node)
        return readers

    @cached_property
    def _variables_by_kind(self) -> dict[str, set[Node]]:
        """Variables by the kind of input they feed; a variable may be of several kinds."""
        variables: dict[str, set[Node]] = {AUX: set(), DATA: set(), LABEL: set(), PARAM: set()}
        for node in self.nodes:
            if node.op is None or node.op.variadic is not None and not node.op.variadic.group:
                continue
            for (child, _), declared in zip(node.inputs, node.op.active_inputs(node.a, len(node.inputs))):
                if child.op is None:
                    variables[declared.kind].add(child)
        return variables

    @cached_property
    def arguments(self) -> tuple[Node, ...]:
        """Variables that are arguments, in order."""
        return tuple(n for n in self.nodes if n.op is None and n not in self._variables_by_kind[AUX])

    @cached_property
    def auxiliary(self) -> tuple[Node, ...]:
        """Variables that are auxiliary states, in order."""
        return tuple(n for n in self.nodes if n.op is None and n in self._variables_by_kind[AUX])

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Names of the variables that feed a label input."""
        return tuple(n.name for n in self.arguments if n in self._variables_by_kind[LABEL])

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names of the variables that some operator declares to be parameters."""
        return tuple(n.name for n in self.arguments if n in self._variables_by_kind[PARAM])

    @cached_property
    def is_numpy(self) -> bool:
        """True if shapes have NumPy's meaning: the graph, or a part of it, was written under ``npx.set_np()``."""
        return any(
            node.in_np_shape or any(op.is_numpy for op in node.every_operator()) for node in self.nodes
        )

    @cached_property
    def inputs(self) -> tuple[Node, ...]:
        """All variables, arguments and states, in order."""
        return tuple(n for n in self.nodes if n.op is None)

    @cached_property
    def argument_names(self) -> list[str]:
        """Names of the arguments, in order."""
        return [n.name for n in self.arguments]

    @cached_property
    def auxiliary_names(self) -> list[str]:
        """Names of the auxiliary states, in order."""
        return [n.name for n in self.auxiliary]

    @cached_property
    def output_names(self) -> list[str]:
        """Names of the heads."""
        return [node.output_names[i] for node, i in self.heads]

    @property
    def key(self) -> tuple[Any, ...]:
        """Key that is equal for graphs with the same program: structure, attributes and names.

        Attributes are compared as text: 0.0 and -0.0 are equal numbers, but not equal divisors. For an operator with
        its own parser of attributes, the parsed values are part of the key, since equal text may be parsed differently
        later.
        """
        rows = tuple(
            (
                node.op and node.op.name,
                node.name,
                tuple(node.params.items()),
                tuple((self.index[child], i) for child, i in node.inputs),
                tuple(graph.key for graph in node.subgraphs),
                None if node.op is None or node.op.read_attrs is None else repr(node.a),
            )
            for node in self.nodes
        )
        return rows, tuple((self.index[node], i) for node, i in self.heads), tuple(self.auxiliary_names)

    def check_names(self) -> None:
        """Reject a graph in which two variables have the same name."""
        seen: dict[str, Node] = {}
        for node in self.nodes:
            if node.op is None:
                other = seen.setdefault(node.name, node)
                if other is not node:
                    raise ArgumentError(
                        f"two variables are named {node.name!r} ({other.describe()}; {node.describe()}); "
                        "give one another name, or use one Variable object for both"
                    )


def has_effect(node: Node, is_train: bool = True) -> bool:
    """Return True if a node draws random numbers, has states or runs user code, so that every run counts, in order.

    Args:
        node: any node of a graph; variables have no effect.
        is_train: the mode in which it runs.
    """
    op = node.op
    return op is not None and bool(
        op.draws(node.a, is_train) or op.mutates or op.stateful or op.owner or op.read_attrs or node.subgraphs
    )


def may_merge(node: Node) -> bool:
    """Return True if equal nodes compute equal values; variables never merge."""
    return node.op is not None and node.op.loss is None and not has_effect(node)


def merge_equal(graph: Graph) -> tuple[Entry, ...]:
    """Return heads of a graph in which equal operators with equal inputs are merged.

    If two heads become one value, the second becomes a copy of the first.

    Args:
        graph: the graph, which is not changed.
    Source: MXNet 1.9.1, which does this at binding (`MXNET_ELIMINATE_COMMON_EXPR`).
    """
    replaced: dict[Node, Node] = {}
    known: dict[Any, Node] = {}
    for node in graph.nodes:
        if node.op is None:
            replaced[node] = node
            continue
        inputs = tuple((replaced[child], i) for child, i in node.inputs)
        key = (node.op, tuple(sorted(node.all_attrs.items())), inputs)
        if may_merge(node) and key in known:
            replaced[node] = known[key]
            continue
        new = node
        if inputs != node.inputs:
            new = Node(node.op, node.name, node.params, node.attrs, inputs, node.source, node.subgraphs)
        replaced[node] = known[key] = new
    return _copy_merged_heads([(replaced[node], i) for node, i in graph.heads], graph.heads)


def _copy_merged_heads(heads: list[Entry], before: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Return heads in which duplicates that arose by merging are copies."""
    first: dict[Entry, Entry] = {}
    distinct: list[Entry] = []
    for head, old in zip(heads, before):
        if first.setdefault(head, old) == old:
            distinct.append(head)
        else:
            distinct.append((Node(get_op("_copy"), f"{old[0].name}_copy", inputs=(head,)), 0))
    return tuple(distinct)
