"""Inferring the shapes and types of a whole graph, in both directions until nothing changes.

MXNet has two ways to write a shape: 0 is an unknown dimension and () an unknown shape; inside `util.np_shape` -1 is an
unknown dimension, None an unknown shape, 0 an axis without elements and () a scalar. Shape rules support only the first
notation, in which this module represents an axis without elements as `EMPTY`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._core import mode
from ..base import DTypeError, Shape, ShapeError, dtype_from_code, dtype_name
from ..ops import attrs as attribute_types
from ..ops.shapes import infer_on_meta, infer_shape, infer_type, known, same_types, unify
from ..ops.spec import LABEL, Op
from .node import Graph, Node

EMPTY = -1
"""Represents a dimension that is known to be 0."""

# lengths that no real axis has: a rule's results for them give its result for 0
_PROBES = (1_000_003, 2_000_003)


def read_shape(shape: tuple[int, ...]) -> Shape:
    """Convert a user's shape to the rules' notation, in which 0 is unknown."""
    if mode.is_np_shape():
        return tuple(EMPTY if d == 0 else max(d, 0) for d in shape)
    return tuple(max(d, 0) for d in shape)


def shown_shape(shape: Shape) -> Shape:
    """Convert a shape to the user's notation: the inverse of `read_shape`."""
    if not mode.is_np_shape():
        return shape or ()
    return shape if shape is None else tuple(-1 if d == 0 else max(d, 0) for d in shape)


def allocated(shapes: Mapping[Any, list[Shape]]) -> dict[Any, list[Shape]]:
    """Convert inferred shapes to shapes of arrays; every shape must be known."""
    return {
        node: [s if s is None or EMPTY not in s else tuple(max(d, 0) for d in s) for s in each]
        for node, each in shapes.items()
    }


def infer_from_arrays(graph: Graph, given: Mapping[str, tuple[int, ...]]) -> dict[Node, list[Shape]]:
    """Infer the shapes of every node's outputs from the shapes of arrays, which may be empty in NumPy's meaning."""
    with mode.np_shapes(graph.is_numpy):
        return allocated(infer_shapes(graph, {name: read_shape(shape) for name, shape in given.items()}))


def infer_node_shapes(op: Op, a: Any, ins: list[Shape], outs: list[Shape]) -> tuple[list[Shape], list[Shape]]:
    """Run an operator's shape rule, which also handles axes known to be empty."""
    if not mode.is_np_shape():
        return infer_shape(op, a, ins, outs)
    if not ins:  # an attribute gives the shape, in the user's notation
        _, new_outs = infer_shape(op, a, ins, outs)
        return ins, [s if s is None else read_shape(s) for s in new_outs]
    if not any(s is not None and EMPTY in s for s in (*ins, *outs)):
        return infer_shape(op, a, ins, outs)
    if (op.infer is None or op.view) and all(
        s is not None and 0 not in s for s in ins
    ):  # runs on empty arrays
        new_outs = infer_on_meta(op, a, [tuple(max(d, 0) for d in s or ()) for s in ins], [None] * len(outs))
        return ins, [s if s is None else tuple(d or EMPTY for d in s) for s in new_outs]
    one, two = (infer_shape(op, a, _with(ins, probe), _with(outs, probe)) for probe in _PROBES)
    return _at_zero(one[0], two[0]), _at_zero(one[1], two[1])


def _with(shapes: list[Shape], length: int) -> list[Shape]:
    return [s if s is None else tuple(length if d == EMPTY else d for d in s) for s in shapes]


def _at_zero(one: list[Shape], two: list[Shape]) -> list[Shape]:
    """Extrapolate the shapes inferred for two lengths of an axis to length 0; they depend on it linearly."""
    return [x if x is None or y is None else tuple(map(_dimension, x, y)) for x, y in zip(one, two)]


def _dimension(one: int, two: int) -> int:
    if one == two:
        return one
    low, high = _PROBES
    return max(one - (two - one) * low // (high - low), 0) or EMPTY


def variable_shape(node: Node) -> Shape:
    """Return the shape a variable was declared with, None without one."""
    text = node.attrs.get("__shape__")
    try:
        return read_shape(attribute_types.shape.parse(text)) if text else None
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise ShapeError(f"{node.describe()}: __shape__ is {text!r}, expected one such as (0, 3)") from None


def variable_dtype(node: Node) -> str | None:
    """Return the dtype a variable was declared with, None without one."""
    text = node.attrs.get("__dtype__")
    if text is None or text == "-1":
        return None
    text = attribute_types.as_python3(text)
    return dtype_from_code(int(text)) if text.isdecimal() and len(text) < 4 else dtype_name(text)


def _node_shape_error(error: ShapeError, node: Node, shapes: Mapping[Node, list[Shape]]) -> ShapeError:
    """Add the node in which inference failed, and its input shapes, to an error."""
    inputs = ", ".join(f"{child.output_names[i]} {shapes[child][i]}" for child, i in node.inputs)
    return ShapeError(f"{node.describe()}: {error}; inputs: {inputs or 'none'}")


class InferredSubgraph:
    """A subgraph for the shape and type rules of its operator.

    Args:
        results: cache of inferred results of subgraphs. A rule may infer several times; without the cache the work
            would double with every level of nesting.
    """

    def __init__(self, graph: Graph, results: dict[Any, Any] | None = None) -> None:
        self.graph = graph
        self._results: dict[Any, Any] = {} if results is None else results

    @property
    def num_inputs(self) -> int:
        """Number of inputs."""
        return len(self.graph.inputs)

    def shapes(self, ins: Sequence[Shape], outs: Sequence[Shape] = ()) -> tuple[list[Shape], list[Shape]]:
        """Infer the shapes of all inputs and outputs from those of some of them."""
        key = id(self.graph), (*ins,), (*outs,)
        if key not in self._results:
            given = {node.name: shape for node, shape in zip(self.graph.inputs, ins)}
            self._results[key] = self._inputs_and_heads(_shapes_of(self.graph, given, outs, self._results))
        inputs, outputs = self._results[key]
        return list(inputs), list(outputs)

    def types(self, ins: Sequence[str | None]) -> tuple[list[str | None], list[str | None]]:
        """Infer the types of all inputs and outputs from those of some inputs."""
        key = id(self.graph), (*ins,)
        if key not in self._results:
            given = {node.name: dtype for node, dtype in zip(self.graph.inputs, ins) if dtype is not None}
            self._results[key] = self._inputs_and_heads(_types_of(self.graph, given, None, self._results))
        inputs, outputs = self._results[key]
        return list(inputs), list(outputs)

    def _inputs_and_heads(self, found: Mapping[Node, Sequence[Any]]) -> tuple[list[Any], list[Any]]:
        """Return the results for the inputs and for the outputs."""
        return [found[node][0] for node in self.graph.inputs], [found[n][i] for n, i in self.graph.heads]


def _attributes(node: Node, results: dict[Any, Any]) -> Any:
    """Return a node's attributes, with its subgraphs as `InferredSubgraph`."""
    if not node.subgraphs:
        return node.a
    return node.a._replace(bodies=tuple(InferredSubgraph(graph, results) for graph in node.subgraphs))


def _declared_shapes(graph: Graph, given: Mapping[str, Shape]) -> dict[Node, list[Shape]]:
    """Return the shapes known before any rule runs.

    As in MXNet, a complete given shape overrides a declared one, and a declared shape overrides an incomplete given one
    that contradicts it.
    """
    shapes: dict[Node, list[Shape]] = {}
    for node in graph.nodes:
        if node.op is not None:
            shapes[node] = [None] * node.num_outputs
            continue
        shape = given.get(node.name)
        if shape == () and not mode.is_np_shape():
            shape = None
        if not known(shape):
            declared = variable_shape(node)
            try:
                shape = unify(shape, declared)
            except ShapeError:
                shape = declared
        shapes[node] = [shape]
    return shapes


def infer_shapes(
    graph: Graph, given: Mapping[str, Shape], heads: Sequence[Shape] = ()
) -> dict[Node, list[Shape]]:
    """Infer the shape of every node's outputs.

    Every operator's rule runs in turn, forwards and backwards through the graph, and again whenever more is known about
    its inputs or outputs, so that every contradiction is found.

    Args:
        given: shapes of variables by name, 0 = unknown dimension, -1 = of length 0 (see `EMPTY`).
        heads: known shapes of the heads, in their order.

    Returns:
        The shapes of every node's visible outputs; None or 0 if unknown.
    """
    with mode.np_shapes(graph.is_numpy):
        return _shapes_of(graph, given, heads, {})


def _shapes_of(
    graph: Graph, given: Mapping[str, Shape], heads: Sequence[Shape], results: dict[Any, Any]
) -> dict[Node, list[Shape]]:
    """Implement `infer_shapes`; `results` is the cache of `InferredSubgraph`."""
    shapes = _declared_shapes(graph, given)
    for (node, i), shape in zip(graph.heads, heads):
        shapes[node][i] = unify(shapes[node][i], shape, f"given and required shape of {node.describe()}")
    operators = [n for n in graph.nodes if n.op is not None]
    pending = set(operators)
    forwards = True
    while pending:
        for node in operators if forwards else reversed(operators):
            if node in pending:
                pending.discard(node)
                try:
                    _run_rule(graph, node, shapes, pending, results)
                except ShapeError as error:
                    raise _node_shape_error(error, node, shapes) from error
        forwards = not forwards
    return shapes


def _run_rule(
    graph: Graph,
    node: Node,
    shapes: dict[Node, list[Shape]],
    pending: set[Node],
    results: dict[Any, Any],
) -> None:
    """Run one operator's rule, and mark the operators affected by its results."""
    outs = shapes[node]
    ins = [shapes[child][i] for child, i in node.inputs]
    found_ins, found_outs = infer_node_shapes(node.op, _attributes(node, results), ins, outs)  # type: ignore[arg-type]
    changed = False
    # merged with the known shapes, so that knowledge only grows and the loop ends
    for i, (before, inferred) in enumerate(zip(outs, found_outs)):
        if inferred != before and (after := unify(before, inferred)) != before:
            outs[i] = after
            pending.update(graph.readers.get(node, ()))
            changed = True
    for (child, i), before, inferred in zip(node.inputs, ins, found_ins):
        if inferred != before and (after := unify(shapes[child][i], inferred)) != before:
            shapes[child][i] = after
            pending.update(graph.readers[child])
            if child.op is not None:
                pending.add(child)
            changed = True
    if changed and all(map(known, outs)) and all(known(shapes[child][i]) for child, i in node.inputs):
        pending.discard(node)
    elif changed:
        pending.add(node)


def infer_types(
    graph: Graph, given: Mapping[str, str], default: str | None = None
) -> dict[Node, list[str | None]]:
    """Infer the dtype name of every node's outputs.

    Args:
        given: dtype names of variables by name.
        default: type of variables without any other information; None leaves them None.
    """
    return _types_of(graph, given, default, {})


def _types_of(
    graph: Graph, given: Mapping[str, str], default: str | None, results: dict[Any, Any]
) -> dict[Node, list[str | None]]:
    """Implement `infer_types`; `results` is the cache of `InferredSubgraph`."""
    types: dict[Node, list[Any]] = {}
    for node in graph.nodes:
        if node.op is None:
            types[node] = [given.get(node.name) or variable_dtype(node)]
        else:
            types[node] = [None] * node.num_outputs
    _propagate_types(graph, types, results)
    if default is not None:
        for node in graph.nodes:
            if node.op is None and types[node] == [None]:
                types[node] = [default]
                _propagate_types(graph, types, results)
    for node in graph.nodes:
        _check_types(node, types)
    return types


def _check_types(node: Node, types: Mapping[Node, list[Any]]) -> None:
    """Reject inputs of different types if an operator requires one type; labels may differ."""
    if node.op is None or node.op.infer_type not in (None, same_types) or len(node.inputs) < 2:
        return
    declared = node.op.active_inputs(node.a, len(node.inputs))
    types_found = {types[child][i] for (child, i), one in zip(node.inputs, declared) if one.kind != LABEL}
    if len(types_found - {None}) > 1:
        inputs = ", ".join(f"{child.output_names[i]} {types[child][i]}" for child, i in node.inputs)
        raise DTypeError(f"{node.describe()} takes inputs of one type, got {inputs}; convert with sym.cast")


def _propagate_types(graph: Graph, types: dict[Node, list[Any]], results: dict[Any, Any]) -> None:
    """Propagate types through the operators, forwards and backwards in turn, until nothing changes."""
    operators = [n for n in graph.nodes if n.op is not None]
    changed, forwards = True, True
    while changed:
        changed = False
        for node in operators if forwards else reversed(operators):
            outs = types[node]
            ins = [types[child][i] for child, i in node.inputs]
            if None not in ins and None not in outs:
                continue
            new_ins, new_outs = infer_type(node.op, _attributes(node, results), ins, outs)  # type: ignore[arg-type]
            better = [new or old for new, old in zip(new_outs, outs)]  # known types stay
            if better != outs:
                types[node] = better
                changed = True
            for (child, i), before, after in zip(node.inputs, ins, new_ins):
                if after != before and types[child][i] is None:
                    types[child][i] = after
                    changed = True
        forwards = not forwards
