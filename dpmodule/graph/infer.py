"""Shapes and types of a whole graph, propagated in both directions until nothing changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base import Shape, ShapeError, dtype_from_code, dtype_name
from ..ops import attrs as attribute_types
from ..ops.infer import infer_shape, infer_type
from ..ops.shapes import known, unify
from .node import Graph, Node

__all__ = ["infer_shapes", "infer_types", "variable_dtype", "variable_shape"]


def variable_shape(node: Node) -> Shape:
    """Return the shape a variable was declared with, None without one."""
    text = node.attrs.get("__shape__")
    return attribute_types.shape.parse(text) if text else None


def variable_dtype(node: Node) -> str | None:
    """Return the dtype a variable was declared with, None without one."""
    text = node.attrs.get("__dtype__")
    if text is None or text == "-1":
        return None
    return dtype_from_code(int(text)) if text.isdigit() else dtype_name(text)


def _located(error: ShapeError, node: Node, shapes: Mapping[Node, list[Shape]]) -> ShapeError:
    """Say in which node inference failed, and what came in."""
    inputs = ", ".join(f"{child.output_names[i]} {shapes[child][i]}" for child, i in node.inputs)
    return ShapeError(f"{node.describe()}: {error}; inputs: {inputs or 'none'}")


def infer_shapes(graph: Graph, given: Mapping[str, Shape]) -> dict[Node, list[Shape]]:
    """Infer the shape of every node's outputs.

    Args:
        graph: the graph.
        given: shapes of variables by name, 0 = unknown dimension.

    Returns:
        For every node the shapes of its visible outputs; None or 0 where nothing is known.

    Raises:
        ShapeError: a contradiction; the text names the node and the line that made it.
    """
    shapes: dict[Node, list[Shape]] = {}
    for node in graph.nodes:
        if node.op is None:
            shape = given.get(node.name)
            shapes[node] = [unify(shape or None, variable_shape(node), f"given and declared shape of {node.name!r}")]
        else:
            shapes[node] = [None] * node.num_outputs
    operators = [n for n in graph.nodes if n.op is not None]
    changed, forwards = True, True
    while changed:
        changed = False
        for node in operators if forwards else reversed(operators):
            outs = shapes[node]
            ins = [shapes[child][i] for child, i in node.inputs]
            if not forwards and all(known(s) for s in ins) and all(known(s) for s in outs):
                continue
            try:
                new_ins, new_outs = infer_shape(node.op, node.a, ins, outs)  # type: ignore[arg-type]
                if new_outs != outs:
                    shapes[node] = list(new_outs)
                    changed = True
                if new_ins != ins:
                    for (child, i), shape in zip(node.inputs, new_ins):
                        shapes[child][i] = unify(shapes[child][i], shape)
                    changed = True
            except ShapeError as error:
                raise _located(error, node, shapes) from error
        if all(known(s) for each in shapes.values() for s in each):
            break
        forwards = not forwards
    return shapes


def infer_types(graph: Graph, given: Mapping[str, str], default: str | None = None) -> dict[Node, list[str | None]]:
    """Infer the dtype name of every node's outputs.

    Args:
        graph: the graph.
        given: dtype names of variables by name.
        default: type of variables about which nothing else is known; None leaves them None.
    """
    types: dict[Node, list[Any]] = {}
    for node in graph.nodes:
        if node.op is None:
            types[node] = [given.get(node.name) or variable_dtype(node)]
        else:
            types[node] = [None] * node.num_outputs
    _propagate_types(graph, types)
    if default is not None:
        for node in graph.nodes:
            if node.op is None and types[node] == [None]:
                types[node] = [default]
                _propagate_types(graph, types)
    return types


def _propagate_types(graph: Graph, types: dict[Node, list[Any]]) -> None:
    """Carry types along the operators, forwards and backwards in turn, until nothing changes."""
    operators = [n for n in graph.nodes if n.op is not None]
    changed, forwards = True, True
    while changed:
        changed = False
        for node in operators if forwards else reversed(operators):
            outs = types[node]
            ins = [types[child][i] for child, i in node.inputs]
            if None not in ins and None not in outs:
                continue
            new_ins, new_outs = infer_type(node.op, node.a, ins, outs)  # type: ignore[arg-type]
            if new_outs != outs:
                types[node] = list(new_outs)
                changed = True
            for (child, i), before, after in zip(node.inputs, ins, new_ins):
                if after != before and types[child][i] is None:
                    types[child][i] = after
                    changed = True
        forwards = not forwards
