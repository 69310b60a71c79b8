"""Networks as a table (`print_summary`) and as a drawing (`plot_network`); also ``mx.viz``."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from shutil import which
from typing import Any

from ._core import lazy
from .base import ArgumentError, MissingPackageError, Shape, ShapeError, SignatureError
from .graph import Graph, Node, infer_shapes
from .graph.node import printable
from .graph.picture import LARGEST, color, detail, draw
from .ops.shapes import known, prod
from .symbol import Symbol

__all__ = ["plot_network", "print_summary"]

lazy.publish(__name__, __all__)

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

_MARKS = re.compile(r'[:<>"\\\x00-\x1f\x7f-\x9f\ud800-\udfff]')
"""Characters of node names with a meaning in Graphviz, or that its files cannot hold."""

_STATES = ("state", "state_cell")

Rows = Iterator[tuple[str, str, str, str]]


def _graph_of(symbol: Any) -> Graph:
    if not isinstance(symbol, Symbol):
        raise SignatureError(f"symbol is {type(symbol).__name__}, expected a Symbol")
    return symbol.graph


def _shapes(graph: Graph, shape: Mapping[str, Shape] | None) -> dict[Node, Any]:
    """Return the output shapes of every node; empty without input shapes."""
    if shape is None:
        return {}
    shapes = infer_shapes(graph, dict(shape))
    for node, outs in shapes.items():
        if not all(known(s) for s in outs):
            raise ShapeError(
                f"the shape of {node.describe()} does not follow from {dict(shape)}; pass the shapes of all inputs"
            )
    return shapes


def _first_read(graph: Graph, inputs: set[str]) -> dict[Node, list[Node]]:
    """Return the parameters by the first operator that reads them.

    Parameters are all variables except inputs, labels (by use, or by name), auxiliary states and states of recurrent
    layers.
    """
    inputs_and_labels = {*inputs, *graph.labels}
    seen = {n for n in graph.arguments if n.name in inputs_and_labels or n.name.endswith("label")} | {
        *graph.auxiliary
    }
    first_read: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        declared = [] if node.op is None else node.op.active_inputs(node.a, len(node.inputs))
        for number, (child, _) in enumerate(node.inputs):
            is_state = number < len(declared) and declared[number].name in _STATES
            if child.op is None and child not in seen and not is_state:
                first_read.setdefault(node, []).append(child)
            seen.add(child)
    return first_read


def _rows(graph: Graph, shapes: Mapping[Node, Any], inputs: set[str]) -> Rows:
    """Yield a row per layer; shared parameters count for the first layer."""
    parameters = _first_read(graph, inputs) if shapes else {}
    inputs = inputs - {*graph.labels}
    shown = {node for node in graph.inputs if node.name in inputs} if inputs else _data(graph)
    for node in graph.nodes:
        if node.op is None:
            if node in shown:
                yield f"{node.name}(null)", _shape_text(node, shapes), "0", ""
            continue
        count = sum(prod(shapes[p][0]) for p in parameters.get(node, ()))
        before = [c.name for c, _ in node.inputs if c.op is not None or c.name in inputs]
        before = before or [c.name for c, _ in node.inputs[:1]]
        yield f"{node.name}({node.op.name})", _shape_text(node, shapes), str(count), before[0]
        for name in before[1:]:
            yield "", "", "", name


def _data(graph: Graph) -> set[Node]:
    """Return the variables that are the first input of an operator, as data are, and not parameters."""
    first = {child for node in graph.nodes for child, _ in node.inputs[:1]}
    return {child for child in first if child.name not in graph.parameters}


def _shape_text(node: Node, shapes: Mapping[Node, Any]) -> str:
    """Return the shape of one sample of a node's first output, such as "64x8x8"."""
    return "x".join(map(str, shapes[node][0][1:])) if shapes else ""


def print_summary(
    symbol: Symbol,
    shape: Mapping[str, Shape] | None = None,
    line_length: int = 120,
    positions: Sequence[float] = (0.44, 0.64, 0.74, 1.0),
) -> None:
    """Print a table of a network: layers, shapes of one sample, numbers of parameters, previous layers.

    Parameters are counted from their inferred shapes. This is right for layers without bias, grouped convolutions and
    weights that an operator such as ``dot`` or ``transpose`` reads. A shared weight counts for the first of its layers.
    Without `shape` the counts are 0.

    Args:
        shape: shapes of the inputs by name, such as ``{"data": (1, 3, 224, 224)}``.
        line_length: width of the table in characters.
        positions: ends of the columns as fractions of `line_length` (or in characters, if the last is above 1).

    Raises:
        ArgumentError: `symbol` is not a Symbol, or `positions` does not have four numbers.
        ShapeError: the shapes given do not determine all others.
    """
    graph = _graph_of(symbol)
    if len(positions) != 4:
        raise ArgumentError(f"positions is {positions!r}, expected four numbers, one for each column")
    ends = [int(p * line_length) if positions[-1] <= 1 else int(p) for p in positions]

    def line(cells: Sequence[str]) -> str:
        text = ""
        for cell, end in zip(cells, ends):
            text = (text + printable(cell))[:end].ljust(end)
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
    """Return the label of a node in Graphviz."""
    about = detail(node)
    return f"{node.op.name}\n{about}" if node.op is not None and about else printable(node.name)


def _ids(graph: Graph) -> dict[str, str]:
    """Return Graphviz's identifier of each node: its name without ports, markup and escapes."""
    plain = {node.name for node in graph.nodes if not _MARKS.search(node.name)}
    ids = {name: name for name in plain}
    for name in dict.fromkeys(node.name for node in graph.nodes if node.name not in plain):
        candidate = mangled = _MARKS.sub("_", name)
        number = 1
        while candidate in plain:
            number += 1
            candidate = f"{mangled}_{number}"
        plain.add(candidate)
        ids[name] = candidate
    return ids


class NetworkPicture:
    """Picture that `plot_network` returns if the package graphviz is missing; notebooks show it.

    Args:
        title: name of the file that `render` writes by default.
    """

    def __init__(self, svg: str, title: str, save_format: str) -> None:
        self._svg = svg
        self._title = title
        self.format = save_format

    def _repr_svg_(self) -> str:
        """Return the picture for notebooks."""
        return self._svg

    def render(self, filename: str | PathLike[str] | None = None, *, format: str | None = None) -> str:
        """Write the picture into a file, and return its path.

        Args:
            filename: path without ending (default: the title).
            format: "svg" (default: `save_format`).
        """
        wanted = format or self.format
        if wanted != "svg":
            raise MissingPackageError(
                f"render writes {wanted} with graphviz, which is not installed; "
                'pip install "dpmodule[viz]", or take format="svg", which needs nothing'
            )
        path = f"{self._title if filename is None else os.fspath(filename)}.svg"
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._svg)
        return path


def plot_network(
    symbol: Symbol,
    title: str = "plot",
    save_format: str = "pdf",
    shape: Mapping[str, Shape] | None = None,
    dtype: Mapping[str, Any] | None = None,
    node_attrs: Mapping[str, str] | None = None,
    hide_weights: bool = True,
) -> Any:
    """Draw a network with Graphviz, or without it if it is missing.

    Args:
        title: name of the drawing and of its file.
        save_format: file format of `render`, such as "pdf", "png" or "svg".
        shape: shapes of the inputs by name; with them the edges carry shapes.
        dtype: types of the inputs by name; with them the edges carry types.
        node_attrs: Graphviz attributes of all nodes, such as ``{"fixedsize": "false"}``.
        hide_weights: True to leave out weights, biases and similar parameters.

    Returns:
        A graphviz.Digraph: show it in a notebook, or write it with ``.render(path)``. Without the package graphviz, a
        `NetworkPicture`, which notebooks show and ``.render(path, format="svg")`` writes; it ignores `dtype` and
        `node_attrs`. A Digraph without the program ``dot`` shows the same picture.

    Raises:
        ArgumentError: `symbol` is not a Symbol.
        MissingPackageError: the package graphviz is not installed, and the network is too large to be drawn without.
        ShapeError: the shapes given do not determine all others.
    """
    graph = _graph_of(symbol)
    shapes = _shapes(graph, shape)
    try:
        from graphviz import Digraph, escape
    except ImportError:
        svg = draw(graph, shapes, hide_weights)
        if svg is None:
            raise MissingPackageError(
                f"plot_network draws a network of more than {LARGEST} nodes with graphviz, which is not installed; "
                'pip install "dpmodule[viz]"'
            ) from None
        return NetworkPicture(svg, title, save_format)
    _warn_of_equal_names(graph)
    types = _edge_types(symbol, dtype)
    style = {"shape": "box", "fixedsize": "true", "width": "1.3", "height": "0.8034", "style": "filled"}
    style.update({key: str(value) for key, value in (node_attrs or {}).items()})
    dot = Digraph(name=title, format=save_format)
    hidden = {n for n in graph.nodes if hide_weights and n.op is None and n.name.endswith(_HIDDEN)}
    ids = _ids(graph)
    for node in graph.nodes:
        if node not in hidden:
            own = {"shape": "oval"} if node.op is None and "shape" not in (node_attrs or {}) else {}
            dot.node(ids[node.name], escape(_label(node)), **{**style, "fillcolor": color(node), **own})
    for node in graph.nodes:
        for child, number in node.inputs:
            if child in hidden:
                continue
            about = [_shape_of(shapes[child][number])] if shapes else []
            about += [types[child.output_names[number]]] if types else []
            dot.edge(ids[node.name], ids[child.name], label="\n".join(about), dir="back", arrowtail="open")
    if which("dot") is None:
        dot._repr_mimebundle_ = lambda *_, **__: _bundle(graph, shapes, hide_weights)
    return dot


def _bundle(graph: Graph, shapes: Mapping[Node, Any], hide_weights: bool) -> dict[str, str]:
    """Return the picture of a graph for notebooks, by MIME type; empty if it is too large."""
    svg = draw(graph, shapes, hide_weights)
    return {} if svg is None else {"image/svg+xml": svg}


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
    """Return the type of every output by name; empty without input types."""
    if dtype is None:
        return {}
    internals = symbol.get_internals()
    _, types, _ = internals.infer_type(**dtype)
    return {
        name: getattr(kind, "__name__", str(kind))
        for name, kind in zip(internals.list_outputs(), types or ())
    }
