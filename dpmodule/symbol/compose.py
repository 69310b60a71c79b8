"""Applying operators to symbols: names, attributes, variables for missing inputs, and substitution."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .. import attribute
from .. import name as naming
from ..attribute import stored_key
from ..base import ArgumentError, OpError
from ..graph import Entry, Graph, Node
from ..ops.attrs import to_text
from ..ops.signature import split_call
from ..ops.spec import Op

__all__ = ["apply_op", "make_variable", "source_line", "substitute"]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def source_line() -> str:
    """Return "file:line" of the innermost caller outside this package."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back  # type: ignore[assignment]
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


def make_variable(name: str, attrs: Mapping[str, str]) -> Node:
    """Make a variable node with the attributes of the current scope and its own."""
    return Node(None, name, attrs=attribute.current().get({stored_key(k): v for k, v in attrs.items()}), source=source_line())


def _split_attributes(op: Op, raw: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Divide keyword arguments into the operator's attributes and free ones, both as text."""
    params, free = {}, {}
    for key, value in raw.items():
        if key in op.attrs:
            if value is not None or op.attrs[key].default is not None:
                is_dtype = op.attrs[key].type.annotation == "Any"
                params[key] = op.attrs[key].type.parse(value) if is_dtype and value is not None else to_text(value)
        else:
            stored = stored_key(key)
            if not (stored.startswith("__") and stored.endswith("__")):
                raise OpError(
                    f"{op.name}: unknown argument {key!r}; it takes the inputs "
                    f"{', '.join(i.name for i in op.inputs) if not callable(op.inputs) else 'of its kind'}, "
                    f"the attributes {', '.join(op.attrs) or 'none'}, and free attributes of the form __x__"
                )
            free[stored] = str(value)
    return params, free


def _entry(op: Op, where: str, value: Any) -> Entry:
    """Return the single output that an input symbol stands for."""
    entries = getattr(value, "entries", None)
    if entries is None:
        raise OpError(f"{op.name}: input {where} is {type(value).__name__} {value!r}, expected a Symbol")
    if len(entries) != 1:
        raise OpError(
            f"{op.name}: input {where} has {len(entries)} outputs; choose one with an index, such as symbol[0]"
        )
    entry: Entry = entries[0]
    return entry


def _collect(op: Op, positional: Sequence[Any], named: Mapping[str, Any], names: Sequence[str]) -> dict[str, Entry]:
    given = {names[i]: _entry(op, names[i], value) for i, value in enumerate(positional) if value is not None}
    given.update({key: _entry(op, key, value) for key, value in named.items()})
    return given


def apply_op(
    op: Op, alias: str, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None, attr: Mapping[str, str] | None
) -> Node:
    """Make the node of an operator call.

    Args:
        op: the operator.
        alias: the name under which it was called, from which automatic names are made.
        args: symbols, then attributes, by position.
        kwargs: symbols and attributes by name.
        name: the node's name, None for an automatic one.
        attr: further attributes.

    Raises:
        OpError: an input or attribute does not fit.
    """
    positional, named, raw = split_call(op, args, kwargs)
    params, free = _split_attributes(op, raw)
    if op.variadic is not None:
        positional = _flatten(positional)
        count = len(positional) + len(named)
        if op.variadic.count:
            params[op.variadic.count] = str(count)
    else:
        count = 0
    parsed = op.parse(params)
    declared = op.wanted(parsed, count)
    names = [i.name for i in declared]
    attrs = attribute.current().get({**{stored_key(k): v for k, v in (attr or {}).items()}, **free})
    node_name = naming.current().get(name, alias.lower().lstrip("_") if alias.startswith("_contrib_") else alias.lower())
    if len(positional) > len(names):
        raise OpError(f"{op.name} {node_name!r}: got {len(positional)} inputs, it takes {', '.join(names) or 'none'}")
    for key in named:
        if key not in names:
            raise OpError(f"{op.name} {node_name!r}: input {key} does not exist under the given attributes")
    given = _collect(op, positional, named, names)
    source = source_line()
    inputs = []
    for one in declared:
        entry = given.get(one.name)
        if entry is None:
            inherited = {**attrs, **params}
            if one.init:
                inherited["__init__"] = one.init
            entry = (Node(None, f"{node_name}_{one.name}", attrs=inherited, source=source), 0)
        inputs.append(entry)
    return Node(op, node_name, params, attrs, tuple(inputs), source)


def _flatten(values: Sequence[Any]) -> list[Any]:
    """Expand symbols with several outputs; operators with any number of inputs take them all."""
    flat: list[Any] = []
    for value in values:
        flat.extend(value if len(getattr(value, "entries", ())) > 1 else [value])
    return flat


def substitute(graph: Graph, replacements: Mapping[Node, Entry], name: str | None = None) -> tuple[Entry, ...]:
    """Return the heads of a copy of the graph in which variables are replaced by other entries.

    Args:
        graph: the graph; it stays as it is.
        replacements: what comes in place of each variable.
        name: new name of the head node, if given.

    Raises:
        ArgumentError: `name` is given for a graph of several heads.
    """
    if name is not None and len({node for node, _ in graph.heads}) != 1:
        raise ArgumentError(f"name={name!r}: a group of several symbols cannot be renamed in a call")
    copies: dict[Node, Entry] = {}
    for node in graph.nodes:
        if node in replacements:
            copies[node] = replacements[node]
            continue
        inputs = tuple((copies[child][0], copies[child][1] if child.op is None else i) for child, i in node.inputs)
        new_name = name if name is not None and node is graph.heads[0][0] else node.name
        copies[node] = (Node(node.op, new_name, dict(node.params), dict(node.attrs), inputs, node.source), 0)
    return tuple((copies[node][0], copies[node][1] if node.op is None else i) for node, i in graph.heads)
