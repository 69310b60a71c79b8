"""Inference of shapes and types of a graph's arguments, outputs and states.

Source: MXNet 1.9.1 `Symbol.infer_shape` and `Symbol.infer_type`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, SupportsIndex

from .._core import mode
from ..attribute import BARE_KEYS, bare_suffix, is_free, stored_key
from ..base import ArgumentError, DTypeError, OpError, Shape, dtype_name, np_dtype
from ..graph import Graph, Node, infer_shapes, infer_types
from ..graph.infer import read_shape, shown_shape
from ..ops.shapes import known

InferenceResult = tuple[Any, Any, Any]
"""Lists for arguments, outputs and auxiliary states; three times None if something is unknown."""


def as_shape(name: str, shape: Sequence[SupportsIndex]) -> Shape:
    """Return a user's shape, checked."""
    try:
        return read_shape(tuple(index(d) for d in shape))
    except TypeError:
        raise DTypeError(
            f"the shape of {name} is {shape!r}, expected a tuple of integers, such as (32, 0) where 0 is "
            "an unknown dimension"
        ) from None


def _complete(shape: Shape) -> bool:
    """Return True if a shape in the user's notation is fully known."""
    if mode.is_np_shape():
        return shape is not None and -1 not in shape
    return bool(shape) and known(shape)


def _named(graph: Graph, what: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by variable name, without missing ones."""
    if args and kwargs:
        raise ArgumentError(f"{what}: pass arguments by position or by name, not both")
    names = graph.argument_names
    if len(args) > len(names):
        raise ArgumentError(f"{what}: got {len(args)} values for {len(names)} arguments: {', '.join(names)}")
    values = dict(zip(names, args)) if args else dict(kwargs)
    for key in values:
        if key not in names and key not in graph.auxiliary_names:
            raise ArgumentError(f"{what}: {key!r} is not an argument; arguments: {', '.join(names)}")
    return {k: v for k, v in values.items() if v is not None}


def partial_shapes(graph: Graph, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> InferenceResult:
    """Infer shapes as far as possible; arguments and errors as for `Symbol.infer_shape`."""
    values = _named(graph, "infer_shape", args, kwargs)
    with mode.np_shapes(graph.is_numpy):
        shapes = infer_shapes(graph, {k: as_shape(k, v) for k, v in values.items()})
        return (
            [shown_shape(shapes[n][0]) for n in graph.arguments],
            [shown_shape(shapes[node][i]) for node, i in graph.heads],
            [shown_shape(shapes[n][0]) for n in graph.auxiliary],
        )


def check_shapes(graph: Graph, shapes: InferenceResult) -> InferenceResult:
    """Return shapes if all are known, else three times None with a warning."""
    with mode.np_shapes(graph.is_numpy):
        if all(_complete(shape) for part in shapes for shape in part):
            return shapes
        return _warn_unknown(graph, shapes)


def _warn_unknown(graph: Graph, shapes: InferenceResult) -> InferenceResult:
    names = (*graph.argument_names, *graph.output_names, *graph.auxiliary_names)
    every = zip(names, (shape for part in shapes for shape in part))
    unknown = [f"{name}: {shape or 'unknown'}" for name, shape in every if not _complete(shape)]
    more = f" and {len(unknown) - 10} more" if len(unknown) > 10 else ""
    warnings.warn(
        "cannot infer every shape; pass more of them: " + ", ".join(unknown[:10]) + more, stacklevel=4
    )
    return None, None, None


def partial_types(graph: Graph, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> InferenceResult:
    """Infer types as far as possible; arguments and errors as for `Symbol.infer_type`."""
    values = _named(graph, "infer_type", args, kwargs)
    types = infer_types(graph, {k: dtype_name(v) for k, v in values.items()})

    def shown(name: str | None) -> Any:
        return None if name is None else np_dtype(name)

    return (
        [shown(types[n][0]) for n in graph.arguments],
        [shown(types[node][i]) for node, i in graph.heads],
        [shown(types[n][0]) for n in graph.auxiliary],
    )


def check_types(graph: Graph, types: InferenceResult) -> InferenceResult:
    """Return types if all are known, else three times None with a warning."""
    if any(t is None for part in types for t in part):
        unknown = [name for name, t in zip(graph.argument_names, types[0]) if t is None]
        warnings.warn(
            "cannot infer every type; pass those of more arguments: " + ", ".join(unknown[:10]),
            stacklevel=3,
        )
        return None, None, None
    return types


def shown(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return attributes with both forms of the five bare keys."""
    merged = dict(attributes)
    merged.update({k: attributes[f"__{k}__"] for k in BARE_KEYS if f"__{k}__" in attributes})
    return merged


def debug_str(graph: Graph) -> str:
    """Return a listing of every node with its inputs and attributes."""
    if len(graph.nodes) == 1 and graph.nodes[0].op is None:
        return f"Variable:{graph.nodes[0].name}\n"
    from ..graph import input_versions

    versions = input_versions(graph)
    lines = ["Symbol Outputs:"]
    lines += [f"\toutput[{k}]={node.name}({i})" for k, (node, i) in enumerate(graph.heads)]
    for node in graph.nodes:
        if node.op is None:
            lines.append(f"Variable:{node.name}")
            continue
        lines += ["--------------------", f"Op:{node.op.name}, Name={node.name}", "Inputs:"]
        for k, ((child, i), version) in enumerate(zip(node.inputs, versions[node])):
            lines.append(
                f"\targ[{k}]={child.name}({i})" + (f" version={version}" if child.op is None else "")
            )
        if attributes := node.all_attrs:
            lines += ["Attrs:", *(f"\t{k}={v}" for k, v in sorted(attributes.items()))]
    return "\n".join(lines) + "\n"


def set_attribute(node: Node, key: str, value: str) -> None:
    """Set an attribute of a node in place, including those of its operator."""
    if not isinstance(value, str):
        raise ArgumentError(f"_set_attr: {key} is {value!r}, expected a string")
    stored = stored_key(key)
    if node.op is not None and stored == key and node.op.owns(key):
        node.set_param(key, value)
    elif (
        node.op is not None
        and not is_free(stored)
        and not (node.op.accepts_any_keyword and bare_suffix(key) is None)
    ):
        raise OpError(f"{node.describe()} has no attribute {key!r}; free ones have the form __x__")
    else:
        node.attrs[stored] = value
