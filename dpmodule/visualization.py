"""Networks as a table (`print_summary`) and as a drawing (`plot_network`); also ``mx.viz``."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .base import ArgumentError, MissingPackageError, Shape, ShapeError
from .compat import lazy
from .graph import Graph, Node, infer_shapes
from .ops.shapes import known, prod
from .ops.spec import PARAM
from .symbol import Symbol

__all__ = ["plot_network", "print_summary"]

lazy.publish(__name__, __all__)

_COLORS = ("#8dd3c7", "#fb8072", "#ffffb3", "#bebada", "#80b1d3", "#fdb462", "#b3de69", "#fccde5")
_KINDS = {
    "Convolution": 1,
    "Deconvolution": 1,
    "FullyConnected": 1,
    "Activation": 2,
    "LeakyReLU": 2,
    "BatchNorm": 3,
    "Pooling": 4,
    "Flatten": 5,
    "Reshape": 5,
    "Concat": 5,
    "Softmax": 6,
}
_HIDDEN = (
    "_weight",
    "_bias",
    "_beta",
    "_gamma",
    "_moving_var",
    "_moving_mean",
    "_running_var",
    "_running_mean",
)

Rows = Iterator[tuple[str, str, str, str]]


def _graph_of(symbol: Any) -> Graph:
    if not isinstance(symbol, Symbol):
        raise ArgumentError(f"symbol is {type(symbol).__name__}, expected a Symbol")
    return symbol.graph


def _shapes(graph: Graph, shape: Mapping[str, Shape] | None) -> dict[Node, Any]:
    """Return the output shapes of every node; none without input shapes.

    Raises:
        ShapeError: the shapes given do not determine all others.
    """
    if shape is None:
        return {}
    found = infer_shapes(graph, dict(shape))
    for node, outs in found.items():
        if not all(known(s) for s in outs):
            raise ShapeError(
                f"the shape of {node.describe()} does not follow from {dict(shape)}; give those of all inputs"
            )
    return found


def _own_parameters(node: Node) -> list[Node]:
    """Return the variables that a node takes as parameters."""
    if node.op is None or node.op.variadic is not None:
        return []
    wanted = node.op.wanted(node.a)
    return [child for (child, _), i in zip(node.inputs, wanted) if child.op is None and i.kind == PARAM]


def _rows(graph: Graph, shapes: Mapping[Node, Any], inputs: set[str]) -> Rows:
    """Yield a row per layer; a parameter that several layers share counts where it comes first."""
    counted: set[Node] = set()
    parameters = {p for node in graph.nodes for p in _own_parameters(node)}
    for node in graph.nodes:
        if node.op is None:
            if node.name in inputs or (not inputs and node not in parameters and _feeds(graph, node)):
                yield f"{node.name}(null)", _shape_text(node, shapes), "0", ""
            continue
        own = [p for p in _own_parameters(node) if p not in counted]
        counted.update(own)
        count = sum(prod(shapes[p][0]) for p in own) if shapes else 0
        before = [c.name for c, _ in node.inputs if c.op is not None or c.name in inputs]
        before = before or [c.name for c, _ in node.inputs[:1]]
        yield f"{node.name}({node.op.name})", _shape_text(node, shapes), str(count), before[0]
        for name in before[1:]:
            yield "", "", "", name


def _feeds(graph: Graph, variable: Node) -> bool:
    """Say whether a variable is some operator's first input, as data are."""
    return any(n.inputs and n.inputs[0][0] is variable for n in graph.nodes if n.op is not None)


def _shape_text(node: Node, shapes: Mapping[Node, Any]) -> str:
    """Return the shape of one sample of a node's first output, such as "64x8x8"."""
    return "x".join(map(str, shapes[node][0][1:])) if shapes else ""


def print_summary(
    symbol: Symbol,
    shape: Mapping[str, Shape] | None = None,
    line_length: int = 120,
    positions: Sequence[float] = (0.44, 0.64, 0.74, 1.0),
) -> None:
    """Print a table of a network: layers, shapes of one sample, numbers of parameters, what comes before.

    Parameters are counted from their inferred shapes, so layers without bias, grouped convolutions and shared
    weights are right; without `shape` the counts are 0.

    Args:
        symbol: the network.
        shape: shapes of the inputs by name, such as ``{"data": (1, 3, 224, 224)}``.
        line_length: width of the table in characters.
        positions: where the columns end, as parts of `line_length` (or in characters, when the last is above 1).

    Raises:
        ArgumentError: `symbol` is no Symbol, or `positions` has not four numbers.
        ShapeError: the shapes given do not determine all others.
    """
    graph = _graph_of(symbol)
    if len(positions) != 4:
        raise ArgumentError(f"positions is {positions!r}, expected four numbers, one for each column")
    ends = [int(p * line_length) if positions[-1] <= 1 else int(p) for p in positions]

    def line(cells: Sequence[str]) -> str:
        text = ""
        for cell, end in zip(cells, ends):
            text = (text + cell)[:end].ljust(end)
        return text.rstrip()

    shapes = _shapes(graph, shape)
    total, lines = 0, ["_" * line_length, line(("Layer (type)", "Output Shape", "Param #", "Previous Layer"))]
    rule = "=" * line_length
    for row in _rows(graph, shapes, set(shape or ())):
        total += int(row[2] or 0)
        if row[0]:
            lines += [rule]
            rule = "_" * line_length
        lines.append(line(row))
    lines += ["=" * line_length, f"Total params: {total}", "_" * line_length]
    sys.stdout.write("\n".join(lines) + "\n")


def _label(node: Node) -> str:
    """Return what a drawing writes on a node."""
    if node.op is None:
        return node.name
    a, kind = node.a, node.op.name

    def size(value: Any) -> str:
        return "x".join(map(str, value or (1,)))

    if kind in ("Convolution", "Deconvolution"):
        return f"{kind}\n{size(a.kernel)}/{size(a.stride)}, {a.num_filter}"
    if kind == "FullyConnected":
        return f"{kind}\n{a.num_hidden}"
    if kind in ("Activation", "LeakyReLU"):
        return f"{kind}\n{a.act_type}"
    if kind == "Pooling":
        return f"{kind}\n{a.pool_type}, {size(a.kernel)}/{size(a.stride)}"
    return node.name


def _color(node: Node) -> str:
    if node.op is None:
        return _COLORS[0]
    kind = "Softmax" if "softmax" in node.op.name.lower() else node.op.name
    return _COLORS[_KINDS.get(kind, 7)]


def plot_network(
    symbol: Symbol,
    title: str = "plot",
    save_format: str = "pdf",
    shape: Mapping[str, Shape] | None = None,
    dtype: Mapping[str, Any] | None = None,
    node_attrs: Mapping[str, str] | None = None,
    hide_weights: bool = True,
) -> Any:
    """Draw a network with Graphviz.

    Args:
        symbol: the network.
        title: name of the drawing, and of the file it is rendered to.
        save_format: file format of `render`, such as "pdf", "png" or "svg".
        shape: shapes of the inputs by name; with them the edges carry shapes.
        dtype: types of the inputs by name; with them the edges carry types.
        node_attrs: Graphviz attributes of all nodes, such as ``{"fixedsize": "false"}``.
        hide_weights: leave out weights, biases and the like.

    Returns:
        graphviz.Digraph: show it in a notebook, or write it with ``.render(path)``.

    Raises:
        ArgumentError: `symbol` is no Symbol.
        MissingPackageError: the package graphviz is not installed.
        ShapeError: the shapes given do not determine all others.
    """
    graph = _graph_of(symbol)
    try:
        from graphviz import Digraph
    except ImportError:
        raise MissingPackageError(
            'plot_network draws with graphviz, which is not installed; pip install "dpmodule[viz]"'
        ) from None
    _warn_of_equal_names(graph)
    shapes = _shapes(graph, shape)
    types = _edge_types(symbol, dtype)
    look = {"shape": "box", "fixedsize": "true", "width": "1.3", "height": "0.8034", "style": "filled"}
    look.update({key: str(value) for key, value in (node_attrs or {}).items()})
    dot = Digraph(name=title, format=save_format)
    hidden = {n for n in graph.nodes if hide_weights and n.op is None and n.name.endswith(_HIDDEN)}
    for node in graph.nodes:
        if node not in hidden:
            own = {"shape": "oval"} if node.op is None and "shape" not in (node_attrs or {}) else {}
            dot.node(node.name, _label(node), **{**look, "fillcolor": _color(node), **own})
    for node in graph.nodes:
        for child, number in node.inputs:
            if child in hidden:
                continue
            about = [_shape_of(shapes[child][number])] if shapes else []
            about += [types[child.output_names[number]]] if types else []
            dot.edge(node.name, child.name, label="\n".join(about), dir="back", arrowtail="open")
    return dot


def _warn_of_equal_names(graph: Graph) -> None:
    """Warn if nodes share a name: a drawing shows them as one."""
    repeated = [name for name, count in Counter(node.name for node in graph.nodes).items() if count > 1]
    if repeated:
        warnings.warn(
            "There are multiple variables with the same name in your graph, they are drawn as one node, so that "
            f"the drawing may have cycles; repeated names: {', '.join(repeated)}",
            stacklevel=3,
        )


def _shape_of(shape: Shape) -> str:
    return "x".join(map(str, (shape or ())[1:] or (shape or ())))


def _edge_types(symbol: Symbol, dtype: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the type of every output by name; none without input types."""
    if dtype is None:
        return {}
    internals = symbol.get_internals()
    _, types, _ = internals.infer_type(**dtype)
    return {
        name: getattr(kind, "__name__", str(kind))
        for name, kind in zip(internals.list_outputs(), types or ())
    }
