"""Application of operators to symbols: names, attributes, variables for missing inputs, and substitution.

Source: MXNet 1.9.1, whose order of inputs and names of nodes and variables are kept.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import attribute
from .. import name as naming
from ..attribute import bare_suffix, is_free, stored_key
from ..base import ArgumentError, OpError, dtype_code, dtype_name
from ..graph import Entry, Graph, Node
from ..ops import namespace_of
from ..ops.attrs import real, to_text
from ..ops.attrs import shape as shape_type
from ..ops.registry import split_call
from ..ops.spec import Input, Op

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def source_line() -> str:
    """Return "file:line" of the innermost caller outside this package."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back  # type: ignore[assignment]
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


def make_variable(name: str, attrs: Mapping[str, str]) -> Node:
    """Create a variable node with its attributes and those of the current scope."""
    return Node(
        None,
        name,
        attrs=attribute.current().get({stored_key(k): v for k, v in attrs.items()}),
        source=source_line(),
    )


def variable_attributes(
    name: str, attr: Mapping[str, str], arguments: Mapping[str, Any], others: Mapping[str, Any]
) -> dict[str, str]:
    """Return the stored attributes of a variable.

    Args:
        arguments: arguments of `Variable` that become attributes, by name; None if not passed.
        others: further attributes, of the form ``__x__``.
    """
    attributes: dict[str, str] = {stored_key(k): v for k, v in attr.items()}
    for key, value in attributes.items():
        if not isinstance(value, str):
            raise ArgumentError(f"Variable {name!r}: attribute {key} is {value!r}, expected a string")
    for key, value in arguments.items():
        if value is not None:
            stored, text = _VARIABLE_KEYS[key]
            try:
                attributes[stored] = text(value)
            except (ValueError, TypeError, AttributeError, KeyError) as error:
                expected = _EXPECTED.get(key, str(error))
                raise ArgumentError(f"Variable {name!r}: {key} is {value!r}, expected {expected}") from None
    for key, value in others.items():
        if not is_free(key):
            raise ArgumentError(f"Variable {name!r}: attribute {key!r} is not of the form __x__")
        attributes[key] = str(value)
    return attributes


def _number_text(value: object) -> str:
    """Return the text of a number."""
    real.parse(value)
    return str(value)


_STORAGE = {"default": "0", "row_sparse": "1", "csr": "2", "ragged": "101"}
# stored form of a variable's arguments: name and text of the attribute
_VARIABLE_KEYS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "shape": ("__shape__", lambda value: to_text(shape_type.parse(value))),
    "lr_mult": ("__lr_mult__", _number_text),
    "wd_mult": ("__wd_mult__", _number_text),
    "dtype": ("__dtype__", lambda value: str(dtype_code(dtype_name(value)))),
    "init": ("__init__", lambda value: value if isinstance(value, str) else value.dumps()),
    "stype": ("__storage_type__", lambda value: _STORAGE[value]),
}
_EXPECTED = {
    "shape": shape_type.expects,
    "lr_mult": real.expects,
    "wd_mult": real.expects,
    "init": "an initializer or its name",
    "stype": f"one of {', '.join(_STORAGE)}",
}


def _takes(op: Op, key: str, value: object) -> bool:
    """Return True if an operator accepts an undeclared keyword: not a symbol, and not ``weight_lr_mult``."""
    return op.accepts_any_keyword and bare_suffix(key) is None and not hasattr(value, "entries")


def _split_attributes(op: Op, raw: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Split keyword arguments into the operator's attributes and free ones, both as text."""
    params, free = {}, {}
    for key, value in raw.items():
        stored = stored_key(key)
        if key == stored and key not in op.attrs and op.owns(key):
            params[key] = to_text(value)
        elif key in op.attrs:
            declared = op.attrs[key]
            if value is not None or declared.default is not None:
                is_dtype = declared.type.annotation == "Any" and value is not None
                params[key] = declared.type.parse(value) if is_dtype else to_text(value)
        elif is_free(stored) or _takes(op, key, value):
            free[stored] = str(value)
        else:
            inputs = ", ".join(i.name for i in op.inputs) if isinstance(op.inputs, tuple) else "of its kind"
            raise OpError(
                f"{op.name}: unknown argument {key!r}; it takes the inputs {inputs or 'none'}, "
                f"the attributes {', '.join(op.attrs) or 'none'}, and free attributes of the form __x__"
            )
    return params, free


def _entry(op: Op, where: str, value: object) -> Entry:
    """Return the single output of an input symbol."""
    entries = getattr(value, "entries", None)
    if entries is None:
        raise OpError(f"{op.name}: input {where} is {type(value).__name__} {value!r}, expected a Symbol")
    if len(entries) != 1:
        raise OpError(
            f"{op.name}: input {where} has {len(entries)} outputs; select one with an index, such as symbol[0]"
        )
    entry: Entry = entries[0]
    return entry


def _hint(alias: str) -> str:
    """Return the base of automatic names: lower case, without the prefix of a namespace."""
    space, public = namespace_of(alias)
    return (alias if space in ("", "_internal", "random") else public).lower()


def _count_inputs(op: Op, count: int, params: dict[str, str]) -> int:
    """Return the number of inputs of a variadic operator: those passed, or more if its attribute requires it."""
    if op.variadic is None:
        return 0
    key = op.variadic.count
    if key is None:
        return count
    if op.variadic.fixed is not None and op.variadic.is_fixed(op.parse(params)):
        params.setdefault(key, str(count))
        return count
    stated = op.attrs[key].type.parse(params[key]) if key in params else op.variadic.units(count)
    total = op.variadic.total(int(stated))
    if total < count:
        raise OpError(f"{op.name}: {key} is {stated}, but {count} inputs were passed")
    params[key] = str(stated)
    return total


def _named_inputs(
    op: Op, name: str, declared: Sequence[Input], positional: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Entry]:
    """Return the inputs of a call by name."""
    names = [i.name for i in declared]
    # None means an input that does not exist with these attributes, such as a bias with no_bias=True
    if any(value is not None for value in positional[len(names) :]):
        raise OpError(
            f"{op.name} {name!r}: got {len(positional)} inputs, it takes {', '.join(names) or 'none'}"
        )
    for key in named:
        if key not in names:
            raise OpError(f"{op.name} {name!r}: input {key} does not exist with these attributes")
    entries = {
        names[i]: _entry(op, names[i], value) for i, value in enumerate(positional) if value is not None
    }
    entries.update({key: _entry(op, key, value) for key, value in named.items()})
    return entries


def apply_op(
    op: Op,
    alias: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    name: str | None,
    attr: Mapping[str, str] | None,
) -> Node:
    """Create the node of an operator call.

    Args:
        alias: called name of the operator, the base of automatic names.
        kwargs: symbols and attributes by name.
        name: name of the node; None for an automatic one.
    """
    positional, named, raw = split_call(op, args, kwargs, lambda value: hasattr(value, "entries"))
    params, attrs = _split_attributes(op, {**attribute.current().get(dict(attr or {})), **raw})
    if op.variadic is not None:
        positional = _flatten(positional)
    count = _count_inputs(op, len(positional) + len(named), params)
    declared = op.active_inputs(op.parse(params), count)
    node_name = naming.current().get(name, _hint(alias))
    named_inputs = _named_inputs(op, node_name, declared, positional, named)
    source = source_line()
    inputs = []
    for one in declared:
        entry = named_inputs.get(one.name)
        if entry is None:
            inherited = {**attrs, **params}
            entry = (Node(None, f"{node_name}_{one.name}", attrs=inherited, source=source), 0)
        if (
            one.init
            and entry[0].op is None
            and (one.name not in named_inputs or "__init__" not in entry[0].attrs)
        ):
            entry[0].attrs["__init__"] = one.init
        inputs.append(entry)
    return Node(op, node_name, params, attrs, tuple(inputs), source)


def _flatten(values: Sequence[Any]) -> list[Any]:
    """Expand symbols with several outputs, for operators with any number of inputs."""
    flat: list[Any] = []
    for value in values:
        flat.extend(value if len(getattr(value, "entries", ())) > 1 else [value])
    return flat


def substitute(
    graph: Graph, replacements: Mapping[Node, Entry], name: str | None = None
) -> tuple[Entry, ...]:
    """Return the heads of a copy of the graph in which variables are replaced by other entries.

    A variable that the replacements also read remains the same variable, so that tied weights remain tied.

    Args:
        name: new name of the head node, or None.
    """
    if name is not None and len({node for node, _ in graph.heads}) != 1:
        raise ArgumentError(f"name={name!r}: a group of several symbols cannot be renamed in a call")
    shared = Graph(tuple(replacements.values())).index
    copies: dict[Node, Entry] = {}
    for node in graph.nodes:
        if node in replacements:
            copies[node] = replacements[node]
            continue
        if node.op is None and node in shared:
            copies[node] = (node, 0)
            continue
        inputs = tuple(
            (copies[child][0], copies[child][1] if child.op is None else i) for child, i in node.inputs
        )
        new_name = name if name is not None and node is graph.heads[0][0] else node.name
        params, attrs = dict(node.params), dict(node.attrs)
        copies[node] = (Node(node.op, new_name, params, attrs, inputs, node.source, node.subgraphs), 0)
    return tuple((copies[node][0], copies[node][1] if node.op is None else i) for node, i in graph.heads)


def without_casts(graph: Graph) -> Graph:
    """Return a graph without its `amp_cast` nodes."""
    replaced: dict[Node, Entry] = {}
    if not any(node.op is not None and node.op.name == "amp_cast" for node in graph.nodes):
        return graph
    for node in graph.nodes:
        inputs = tuple((replaced[child][0], replaced[child][1] or i) for child, i in node.inputs)
        if node.op is not None and node.op.name == "amp_cast":
            replaced[node] = inputs[0]
        else:
            new = Node(node.op, node.name, node.params, node.attrs, inputs, node.source, node.subgraphs)
            replaced[node] = (new, 0)
    return Graph(tuple((replaced[node][0], replaced[node][1] or i) for node, i in graph.heads))
