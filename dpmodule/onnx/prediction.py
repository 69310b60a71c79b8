"""The prediction part of a network: no labels, nothing computed from them, dense inputs; and its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base import ArgumentError, did_you_mean, dtype_name
from ..executor.storage_types import declared_storage_types
from ..graph import Entry, Graph, Node
from ..ndarray import NDArray
from ..ops import get as get_op
from ..ops.shapes import same
from ..ops.spec import LABEL
from ..symbol import Symbol


def prediction_graph(graph: Graph) -> Graph:
    """Return a network `without_labels`, and with dense variables in place of ragged ones; see `without_ragged`."""
    return without_ragged(without_labels(graph))


def without_labels(graph: Graph) -> Graph:
    """Return a network without its labels, and without outputs that are computed from them.

    The label of a loss becomes a variable that prediction does not read. Outputs computed from labels, such as CTCLoss,
    targets of a detector or an accuracy, are removed if there are others.
    """
    heads = _predictions(graph)
    if len(heads) < len(graph.heads):
        graph = Graph(heads)
    replaced: dict[Node, Node] = {}
    for node in graph.nodes:
        labels = _label_indices(node)
        inputs = tuple(
            (_own_label(node, k, graph), 0) if k in labels else (replaced[child], i)
            for k, (child, i) in enumerate(node.inputs)
        )
        replaced[node] = node
        if inputs != node.inputs:
            replaced[node] = Node(
                node.op, node.name, node.params, node.attrs, inputs, node.source, node.subgraphs
            )
    return Graph(tuple((replaced[node], i) for node, i in graph.heads))


def _label_indices(node: Node, losses: bool = True) -> set[int]:
    """Return the indices of the label inputs of a loss; of other operators if not `losses`."""
    if node.op is None or (node.op.loss is not None) != losses or node.op.variadic is not None:
        return set()
    declared = node.op.active_inputs(node.a, len(node.inputs))
    return {k for k, one in enumerate(declared) if one.kind == LABEL}


def _own_label(node: Node, k: int, graph: Graph) -> Node:
    """Return the variable for the label `k` of a loss: the current one, if it has no other reader."""
    child = node.inputs[k][0]
    alone = child.op is None and graph.readers[child] == [node] and (child, 0) not in graph.heads
    return child if alone else Node(None, f"{node.name}/label{k}")


def _read(node: Node) -> list[Node]:
    """Return the nodes whose outputs a node reads in prediction."""
    labels = _label_indices(node)
    return [child for k, (child, _) in enumerate(node.inputs) if k not in labels]


def _predictions(graph: Graph) -> tuple[Entry, ...]:
    """Return the heads that are not computed from labels; all heads if there are none."""
    labels = _labels(graph)
    computed: set[Node] = set()
    for node in graph.nodes:
        if node in labels or _label_indices(node, losses=False) or any(c in computed for c in _read(node)):
            computed.add(node)
    kept = tuple(head for head in graph.heads if head[0] not in computed)
    return kept or graph.heads


def _labels(graph: Graph) -> set[Node]:
    """Return the labels of losses on which no prediction depends."""
    labels = {
        node.inputs[k][0]
        for node in graph.nodes
        for k in _label_indices(node)
        if node.inputs[k][0].op is None
    }
    needed: set[Node] = set()
    waiting = [node for node, _ in graph.heads if _label_indices(node)]
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting.extend(_read(node))
    return labels - needed


# ragged values, which ONNX lacks, as the elements of all rows and the length of each row

_ELEMENTWISE = frozenset({"elemwise_add", "elemwise_sub", "elemwise_mul", "elemwise_div", "Embedding"})


def without_ragged(graph: Graph) -> Graph:
    """Return a network in which each ragged variable x is two dense ones: x, all elements, and x_lengths.

    Only elementwise operators may come between such a variable and `sequence_pool`, whose result is dense.
    """
    stored = declared_storage_types(graph)
    ragged = {node for node in graph.inputs if stored.get(node.name) == "ragged"}
    if not ragged:
        return graph
    replaced: dict[Node, Node] = {}
    lengths: dict[Node, Node] = {}
    problems: list[str] = []
    for node in graph.nodes:
        inputs = tuple((replaced[child], i) for child, i in node.inputs)
        rows = {lengths[child] for child, _ in node.inputs if child in lengths}
        replaced[node] = node
        if node in ragged:
            lengths[node] = Node(None, f"{node.name}_lengths")
            replaced[node] = Node(None, node.name, source=node.source)
        elif inputs != node.inputs:
            replaced[node] = Node(
                node.op, node.name, node.params, node.attrs, inputs, node.source, node.subgraphs
            )
        if _is_pool(node) and rows:
            replaced[node] = _pooled(node, inputs[0], rows.pop())
        elif _keeps_rows(node) and len(rows) == 1:
            lengths[node] = rows.pop()
        elif rows:
            problems.append(f"{node.describe()}: works on rows of different lengths, which ONNX lacks")
    if problems:
        raise ArgumentError("\n".join(problems))
    return Graph(tuple((replaced[node], i) for node, i in graph.heads))


def _is_pool(node: Node) -> bool:
    return node.op is not None and node.op.name == "sequence_pool" and node.a.pool_type in _DIVISORS


def _keeps_rows(node: Node) -> bool:
    """Return True if an operator works element by element."""
    if node.op is None or node.op.onnx is None or node.op.onnx.missing:
        return False
    return node.op.name in _ELEMENTWISE or (node.op.infer is same and len(node.inputs) == 1)


_DIVISORS = {"sum": "", "mean": "_copy", "sqrt": "sqrt"}
"""Operator on a row's length that gives the divisor of its sum, for each kind of pool."""


def _made(name: str, operator: str, *inputs: Node, **params: Any) -> Node:
    return Node(
        get_op(operator),
        name,
        {key: str(value) for key, value in params.items()},
        inputs=tuple((each, 0) for each in inputs),
    )


def _pooled(node: Node, values: Entry, lengths: Node) -> Node:
    """Return the pooled rows: the product of the elements with a 0/1 matrix that assigns elements to rows."""

    def step(operator: str, *inputs: Node, **params: Any) -> Node:
        return _made(f"{node.name}/{operator}{next(numbers)}", operator, *inputs, **params)

    numbers = iter(range(100))
    counts = step("Cast", lengths, dtype="float32")
    ends = step("cumsum", counts, axis=0)
    indices = Node(get_op("_contrib_arange_like"), f"{node.name}/places", {"axis": "0"}, inputs=(values,))
    indices = step("expand_dims", indices, axis=0)
    before_end = step("broadcast_lesser", indices, step("expand_dims", ends, axis=1))
    starts = step("expand_dims", step("elemwise_sub", ends, counts), axis=1)
    inside = step("broadcast_mul", before_end, step("broadcast_greater_equal", indices, starts))
    divisor = _DIVISORS[node.a.pool_type]
    name = f"{node.name}/sum" if divisor else node.name
    total = Node(get_op("dot"), name, inputs=((inside, 0), values), source=node.source)
    if not divisor:
        return total
    known = step("_maximum_scalar", counts, scalar=1)
    return _made(node.name, "broadcast_div", total, step("expand_dims", step(divisor, known), axis=1))


# inputs of an exported model: names, shapes and types

Dims = tuple[int | str, ...]


@dataclass(frozen=True)
class ModelInputs:
    """The inputs of a model.

    Attributes:
        shapes: shape of each input by name; a name in place of a length makes it dynamic.
        dtypes: type names by name.
        sizes: an example length for each name of a dynamic length.
    """

    shapes: Mapping[str, Dims]
    dtypes: Mapping[str, str]
    sizes: Mapping[str, int]


def describe_inputs(
    symbol: Symbol,
    params: Mapping[str, NDArray],
    shapes: Any,
    types: Any,
    dynamic: Any = False,
    dynamic_shapes: Any = None,
) -> ModelInputs:
    """Return the inputs of a symbol from the arguments of `export_model`."""
    names = input_names(symbol, params)
    shape_of = _by_name("in_shapes", names, shapes)
    dtypes = types if isinstance(types, (list, tuple)) else [types] * len(names)
    if len(dtypes) != len(names):
        raise ArgumentError(f"in_types has {len(dtypes)} types, expected one for each of the inputs {names}")
    sizes: dict[str, int] = {}
    axes = {name: _batch_axis(symbol, name, len(shape_of[name])) for name in names}
    marked = _dynamic_axes(axes, shape_of, dynamic, dynamic_shapes)
    dims = {name: _dims(name, shape_of[name], marked[name], sizes) for name in names}
    return ModelInputs(dims, {name: dtype_name(each) for name, each in zip(names, dtypes)}, sizes)


def input_names(symbol: Symbol, params: Mapping[str, NDArray]) -> list[str]:
    """Return the arguments that are neither parameters nor labels of losses, in order."""
    graph = prediction_graph(symbol.graph)
    labels = set(graph.labels)
    return [name for name in graph.argument_names if name not in params and name not in labels]


def _batch_axis(symbol: Symbol, name: str, axes: int) -> int:
    """Return the batch axis of an input with some number of axes: 1 for data and states of an RNN operator, else 0."""
    read = (node.inputs for node in symbol.graph.nodes if node.op is not None and node.op.name == "RNN")
    is_rnn = axes == 3 and any(each.op is None and each.name == name for inputs in read for each, _ in inputs)
    return int(is_rnn)


def _by_name(what: str, names: Sequence[str], shapes: Any) -> dict[str, Sequence[Any]]:
    if isinstance(shapes, Mapping):
        for name in shapes:
            if name not in names:
                raise ArgumentError(
                    f"{what} names {name!r}; the inputs are {names}{did_you_mean(name, names)}"
                )
        shapes = [shapes.get(name) for name in names]
    if shapes is None or len(shapes) != len(names) or None in shapes:
        count = "none" if shapes is None else len([s for s in shapes if s is not None])
        raise ArgumentError(
            f"{what}: got {count}, expected a shape for each of the inputs {names}; inputs are the "
            "arguments that are not in params (is one of them missing there?)"
        )
    if names and not isinstance(shapes[0], (list, tuple)):
        raise ArgumentError(f"{what} is {shapes!r}, expected a list of shapes, one for each of {names}")
    return dict(zip(names, shapes))


DynamicAxes = dict[str, dict[int, str]]


def _dynamic_axes(
    axes: Mapping[str, int], given: Mapping[str, Any], dynamic: Any, dynamic_shapes: Any
) -> DynamicAxes:
    """Return the names of dynamic lengths, by input and axis; `axes` has the batch axes of all inputs."""
    names = list(axes)
    if isinstance(dynamic, Mapping):
        return _dynamic_axes_by_name(names, given, dynamic)
    if dynamic not in (True, False, None):
        raise ArgumentError(
            f"dynamic is {dynamic!r}, expected True, False, or axes by input as {{'data': {{0: 'batch'}}}}"
        )
    marked: DynamicAxes = {name: {} for name in names}
    for name in names:
        marked[name].update(_names_in(name, given[name]))
    if dynamic and dynamic_shapes is None:
        for name, axis in axes.items():
            marked[name].setdefault(axis, "batch")
    elif dynamic:
        for name, shape in _by_name("dynamic_input_shapes", names, dynamic_shapes).items():
            pairs = list(zip(shape, given[name]))
            if len(shape) != len(given[name]) or any(isinstance(d, int) and d != size for d, size in pairs):
                raise ArgumentError(
                    f"dynamic_input_shapes has {tuple(shape)} for {name!r} of {tuple(given[name])}"
                )
            marked[name].update(_names_in(name, shape))
    return marked


def _dynamic_axes_by_name(
    names: Sequence[str], given: Mapping[str, Any], dynamic: Mapping[Any, Any]
) -> DynamicAxes:
    marked: DynamicAxes = {name: _names_in(name, given[name]) for name in names}
    for name, axes in dynamic.items():
        if name not in marked:
            raise ArgumentError(
                f"dynamic names {name!r}; the inputs are {list(names)}{did_you_mean(name, names)}"
            )
        if not isinstance(axes, Mapping):
            axes = {axis: f"{name}_{axis}" for axis in axes}
        for axis, mark in axes.items():
            if not isinstance(axis, int) or not -len(given[name]) <= axis < len(given[name]):
                raise ArgumentError(
                    f"dynamic[{name!r}] names axis {axis!r}, the shape is {tuple(given[name])}"
                )
            if not isinstance(mark, str) or not mark:
                raise ArgumentError(f"dynamic[{name!r}][{axis}] is {mark!r}, expected a name for the length")
            marked[name][axis % len(given[name])] = mark
    return marked


def _names_in(name: str, shape: Sequence[Any]) -> dict[int, str]:
    return {
        axis: str(dim) if dim is not None else "batch" if axis == 0 else f"{name}_{axis}"
        for axis, dim in enumerate(shape)
        if dim is None or isinstance(dim, str)
    }


def _dims(name: str, shape: Sequence[Any], marks: Mapping[int, str], sizes: dict[str, int]) -> Dims:
    """Return a shape with names for dynamic lengths, and record an example length of each."""
    dims: list[int | str] = []
    for axis, dim in enumerate(shape):
        mark = marks.get(axis)
        if mark is None:
            if not isinstance(dim, int) or dim < 1:
                raise ArgumentError(
                    f"in_shapes has {tuple(shape)} for {name!r}, expected lengths of at least 1"
                )
            dims.append(dim)
            continue
        # different lengths for different names, so that inference can distinguish them
        size = dim if isinstance(dim, int) and dim > 0 else 2 + 2 * len(sizes)
        if isinstance(dim, int) and sizes.get(mark, size) != size:
            raise ArgumentError(
                f"the name {mark!r} is used for lengths {sizes[mark]} and {size} (axis {axis} of {name!r})"
            )
        sizes.setdefault(mark, size)
        dims.append(mark)
    return tuple(dims)
