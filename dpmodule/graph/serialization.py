"""Graphs as MXNet's ``symbol.json``: writes the format of 1.9, reads every format since 0.7."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import ops
from .._core import mode
from .._files import likely_kind
from ..attribute import bare_suffix, is_free, stored_key
from ..base import ArgumentError, FileFormatError, OpError
from ..ops import find as find_op
from ..ops import get as get_op
from ..ops.attrs import shape as shape_type
from ..ops.attrs import to_text
from ..ops.spec import AUX, Op
from .node import Entry, Graph, Node, topological_order

_VERSION = 10901
_MAX_INPUTS = 4
"""Largest number of a node's inputs that an error names."""


def to_json(graph: Graph) -> str:
    """Return the graph as JSON text that MXNet 1.9 reads."""
    about: dict[str, list[Any]] = {"mxnet_version": ["int", _VERSION]}
    if mode.is_np_shape() or graph.is_numpy:
        about["is_np_shape"] = ["int", 1]
    if names := [
        node.name for node in graph.nodes if node.op is not None and getattr(node.a, "hash_rows", False)
    ]:
        about["dpmodule_only"] = [
            "str",
            f"MXNet cannot read this file: {', '.join(names)} has hash_rows=True",
        ]
    return json.dumps({**_to_rows(graph), "attrs": about}, indent=2)


def _to_rows(graph: Graph) -> dict[str, Any]:
    """Return a graph, or a subgraph, as JSON values."""
    versions = input_versions(graph)
    nodes, row_ptr = [], [0]
    for node in graph.nodes:
        if node.op is not None and node.op.owner is not None:
            raise ArgumentError(
                f"{node.describe()} runs a torch module, which a symbol file cannot store; save only the parameters "
                "(save_params, load_params), and create the symbol from the module again"
            )
        row: dict[str, Any] = {"op": node.op.name if node.op else "null", "name": node.name}
        if attributes := node.all_attrs:
            row["attrs"] = dict(sorted(attributes.items()))
        row["inputs"] = [[graph.index[child], i, v] for (child, i), v in zip(node.inputs, versions[node])]
        if node.subgraphs:
            row["subgraphs"] = [_to_rows(inner) for inner in node.subgraphs]
        nodes.append(row)
        hidden = node.op.num_hidden(node.a) if node.op else 0
        row_ptr.append(row_ptr[-1] + node.num_outputs + hidden)
    return {
        "nodes": nodes,
        "arg_nodes": [i for i, node in enumerate(graph.nodes) if node.op is None],
        "node_row_ptr": row_ptr,
        "heads": [[graph.index[node], i, 0] for node, i in graph.heads],
    }


def input_versions(graph: Graph) -> dict[Node, list[int]]:
    """Return the version of each input of each node: the number of changes to that variable so far.

    An operator changes its auxiliary states; every node that reads a variable as a state increments its version.
    """
    counts: dict[Node, int] = {}
    versions: dict[Node, list[int]] = {}
    for node in graph.nodes:
        states = node.auxiliary_inputs
        for child, _ in states:
            counts[child] = counts.get(child, 0) + 1
        versions[node] = [counts.get(child, 0) for child, _ in node.inputs]
    return versions


def _format_error(what: str) -> FileFormatError:
    return FileFormatError(f"not a symbol file: {what}")


def _field(row: Any, key: str, kind: type, where: str) -> Any:
    """Return a field of a JSON object, checking its type."""
    if not isinstance(row, dict) or not isinstance(row.get(key), kind):
        raise _format_error(f"{where} has no {key!r} of type {kind.__name__}")
    return row[key]


def _version(text: dict[str, Any]) -> int:
    attributes = text.get("attrs", {})
    pair = attributes.get("mxnet_version") if isinstance(attributes, dict) else None
    return pair[-1] if isinstance(pair, list) and pair and isinstance(pair[-1], int) else 800


def _attributes(row: dict[str, Any], where: str) -> dict[str, str]:
    """Merge the fields in which the formats store attributes."""
    merged: dict[str, str] = {}
    for key in ("param", "attr", "attrs"):
        fields = row.get(key) or {}
        if not isinstance(fields, dict):
            raise _format_error(f"{key!r} of {where} is not an object")
        merged.update({str(k): str(v) for k, v in fields.items()})
    return merged


def _references(rows: Any, before: list[Node], where: str) -> list[Entry]:
    """Resolve ``[node, output, ...]`` entries against the nodes read so far."""
    entries = []
    for ref in rows:
        if not isinstance(ref, list) or len(ref) < 2 or not all(type(x) is int for x in ref):
            raise _format_error(f"{where} has an entry {ref!r}, expected [node, output, version]")
        number, output = ref[0], ref[1]
        if not 0 <= number < len(before):
            raise _format_error(
                f"{where} refers to node {number}, but only {len(before)} nodes come before it"
            )
        if not 0 <= output < before[number].num_outputs:
            raise _format_error(
                f"{where} refers to output {output} of {before[number].name!r}, which does not exist"
            )
        entries.append((before[number], output))
    return entries


def _upgrade_keys(attributes: dict[str, str], inputs: list[Entry], names: tuple[str, ...]) -> dict[str, str]:
    """Store the five bare keys with underscores, and move ``weight_lr_mult`` to its weight."""
    kept: dict[str, str] = {}
    for key, value in attributes.items():
        bare = bare_suffix(key)
        owner = key[: -len(bare) - 1] if bare else ""
        if bare and owner in names:
            child = inputs[names.index(owner)][0] if names.index(owner) < len(inputs) else None
            if child is not None and child.op is None:
                child.attrs[stored_key(bare)] = value
        else:
            kept[stored_key(key)] = value
    return kept


def _split_attributes(
    op: Op, attributes: dict[str, str], where: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Split attributes into the operator's own and all others."""
    params = {k: v for k, v in attributes.items() if stored_key(k) == k and op.owns(k)}
    rest = {k: v for k, v in attributes.items() if k not in params}
    unknown = [k for k in rest if not (op.accepts_any_keyword or is_free(stored_key(k)) or bare_suffix(k))]
    if unknown:
        raise OpError(
            f"{where} of the symbol file: {op.name} has no attribute {unknown[0]!r}; it takes "
            f"{', '.join(op.attrs)}, and free attributes of the form __x__"
        )
    return params, rest


def _upgrade_values(op: Op, attributes: dict[str, str], version: int) -> dict[str, str]:
    """Return attributes as version 1.9 writes them, where older versions gave them another meaning or name."""
    if version < 905 and op.name in ("argmax", "argmin") and attributes.get("axis") == "-1":
        del attributes["axis"]
    if op.name == "_npi_concatenate" and "dim" in attributes:
        attributes.setdefault("axis", attributes.pop("dim"))
    return attributes


def _subgraphs(op: Op, row: dict[str, Any], version: int, where: str) -> tuple[Graph, ...]:
    """Read the subgraphs of an operator such as a loop."""
    rows = row.get("subgraphs", [])
    if not isinstance(rows, list) or len(rows) != op.num_subgraphs:
        raise _format_error(f"{where} has no list of {op.num_subgraphs} 'subgraphs'")
    return tuple(
        Graph(_from_rows(each, version, f"subgraph {i} of {where}: ")) for i, each in enumerate(rows)
    )


def _operator_node(row: dict[str, Any], before: list[Node], version: int, where: str) -> Node:
    """Read an operator node; versions before 0.9 omit trailing inputs, which become variables."""
    name = row["op"]
    op = get_op(name)
    attributes = _upgrade_values(op, _attributes(row, where), version)
    inputs = _references(_field(row, "inputs", list, where), before, where)
    inputs = _order_states(op, attributes, inputs, where)
    params, rest = _split_attributes(op, attributes, where)
    if op.variadic is not None and op.variadic.count and op.variadic.count not in params:
        params[op.variadic.count] = str(op.variadic.units(len(inputs)))
    graphs = _subgraphs(op, row, version, where) if op.num_subgraphs else ()
    a = op.parse(params, graphs)
    if graphs and a.num_outputs != len(graphs[-1].heads):
        raise _format_error(f"{where} has {a.num_outputs} outputs, its last subgraph {len(graphs[-1].heads)}")
    _check_count(op, a, len(inputs), where)
    declared = op.active_inputs(a, len(inputs))
    rest = _upgrade_keys(rest, inputs, tuple(i.name for i in declared))
    if version < 900:
        for missing in declared[len(inputs) :]:
            inherited = {**params, **rest} if missing.kind == AUX else dict(rest)
            inputs.append((Node(None, f"{row['name']}_{missing.name}", attrs=inherited), 0))
    if len(inputs) != len(declared):
        raise _format_error(f"{where} has {len(inputs)} inputs, {op.name} takes {len(declared)}")
    if version < 904:
        for (child, _), one in zip(inputs, declared):
            if child.op is None and one.init and "__init__" not in child.attrs:
                child.attrs["__init__"] = one.init
    return Node(op, str(row["name"]), params, rest, tuple(inputs), subgraphs=graphs)


def _order_states(op: Op, attributes: dict[str, str], inputs: list[Entry], where: str) -> list[Entry]:
    """Return the inputs of a loop of MXNet 2.0 with the states in the order in which the body returns them.

    The attribute ``in_state_index``, the number of the returned state for each state among the inputs, is removed.
    """
    if op.name != "_foreach" or "in_state_index" not in attributes:
        return inputs
    order = attributes.pop("in_state_index")
    try:
        texts = (order, attributes["in_state_locs"], attributes["in_data_locs"])
        numbers, locs, data = map(shape_type.parse, texts)
        first = len(data)
        picked = [numbers.index(i) for i in range(len(locs))]
        states = [inputs[first + i] for i in picked]
    except (ValueError, TypeError, KeyError, SyntaxError, IndexError, RecursionError, MemoryError):
        raise _format_error(f"{where} has in_state_index={order}, which does not fit its states") from None
    attributes["in_state_locs"] = to_text(tuple(locs[i] for i in picked))
    return [*inputs[:first], *states, *inputs[first + len(states) :]]


def _check_count(op: Op, a: Any, inputs: int, where: str) -> None:
    """Check the attribute for the number of inputs, which may also determine the number of outputs."""
    variadic = op.variadic
    if variadic is None or not variadic.count or variadic.is_fixed(a) or op.num_subgraphs:
        return
    stated, units = getattr(a, variadic.count), variadic.units(inputs)
    if stated != units:
        raise _format_error(f"{where} has {variadic.count}={stated}, but inputs for {units}")


def _stored(attributes: dict[str, str]) -> dict[str, str]:
    return {stored_key(k): v for k, v in attributes.items()}


def _inputs_of(root: dict[str, Any], op: str) -> str:
    """Return the names of the inputs of a file's first node with an operator, as a text that follows its name."""
    nodes = root["nodes"]
    row = next((row for row in nodes if isinstance(row, dict) and row.get("op") == op), {})
    refs = row.get("inputs")
    numbers = [ref[0] for ref in refs if isinstance(ref, list) and ref] if isinstance(refs, list) else []
    rows = [nodes[i] for i in numbers if type(i) is int and 0 <= i < len(nodes)]
    names = [repr(each["name"]) for each in rows if isinstance(each, dict) and "name" in each]
    shown = ", ".join(names[:_MAX_INPUTS]) + (", ..." if names[_MAX_INPUTS:] else "")
    return f" with input{'s' * (len(names) > 1)} {shown}" if names else ""


def _origin(op: str) -> str:
    """Return where an unsupported operator comes from: the first version of MXNet that has it, if any does.

    Source: the operators that the libraries of MXNet 1.2.1 to 2.0.0b1 register.
    """
    text = Path(ops.__file__).with_name("introduced.json").read_text(encoding="utf-8")
    first = {name: version for version, names in json.loads(text).items() for name in names.split()}
    version = first.get(op)
    if version is None:
        return "MXNet itself does not have it"
    return f"in MXNet since {version}" + (" or earlier" if version == "1.2" else "")


def _refuse_unknown(root: dict[str, Any]) -> None:
    """Raise one error for all unsupported operators of a file, with the nodes that use them."""
    missing: dict[str, list[str]] = {}
    for row in _operator_rows(root):
        if find_op(row["op"]) is None:
            missing.setdefault(row["op"], []).append(str(row.get("name")))
    if missing:
        listed = "; ".join(
            f"{op} (node {nodes[0]!r}{_inputs_of(root, op)}{f' and {len(nodes) - 1} more' if nodes[1:] else ''}; "
            f"{_origin(op)})"
            for op, nodes in missing.items()
        )
        why = "".join(
            f"; the shape that {op} returns depends on the values of its data"
            for op in missing
            if op in _SHAPELESS
        )
        raise OpError(
            f"the graph uses operators that this package does not have: {listed}{why}. Write each as a CustomOp and "
            "change the file, or request it"
        )


def _operator_rows(rows: Any) -> Iterator[dict[str, Any]]:
    """Yield all valid operator nodes of a graph and its subgraphs."""
    nodes = rows.get("nodes") if isinstance(rows, dict) else None
    for row in nodes if isinstance(nodes, list) else ():
        if isinstance(row, dict) and isinstance(row.get("op"), str):
            if row["op"] != "null":
                yield row
            inner_graphs = row.get("subgraphs")
            for inner in inner_graphs if isinstance(inner_graphs, list) else ():
                yield from _operator_rows(inner)


_SHAPELESS = ("_npi_nonzero", "_npx_nonzero")

_ACTIVATIONS_OF_2 = ("log_sigmoid", "mish")

_NUMPY_FORMS = {
    "_linalg_det": "_npi_det",
    "_linalg_slogdet": "_npi_slogdet",
    **{name: f"_npx_{name}" for name in (*_ACTIVATIONS_OF_2, "masked_log_softmax", "masked_softmax")},
}
"""Operators of files in NumPy's meaning of shapes: those that give a scalar for one matrix, and names of MXNet 2.0."""


def _rename_numpy(row: dict[str, Any]) -> None:
    """Change a node of a file in NumPy's meaning of shapes to the operator that computes it here."""
    row["op"] = _NUMPY_FORMS.get(row["op"], row["op"])
    attributes = row.get("attrs")
    if isinstance(attributes, dict):
        kind = attributes.get("act_type")
        if row["op"] == "LeakyReLU" and kind == "gelu_erf":
            attributes["act_type"] = "gelu"
        elif row["op"] == "LeakyReLU" and kind == "gelu_tanh":
            row["op"] = "_npx_gelu_tanh"
            row["attrs"] = {name: value for name, value in attributes.items() if name.startswith("__")}
        elif row["op"] == "Activation" and kind in _ACTIVATIONS_OF_2:
            row["op"] = f"_npx_{attributes.pop('act_type')}"


def from_json(text: str) -> tuple[Entry, ...]:
    """Read a graph from JSON text of any MXNet version since 0.7.

    Returns:
        The heads.
    """
    try:
        root = json.loads(text)
    except (ValueError, RecursionError) as error:
        kind = likely_kind(text[:64].encode("utf-8", "replace")) if text.lstrip()[:1] != "{" else ""
        cut = getattr(error, "pos", 0) >= len(text.rstrip()) > 0
        hint = f"; {kind or 'the file is cut short'}" if kind or cut else ""
        raise _format_error(f"{error}{hint}") from None
    if not isinstance(root, dict):
        raise _format_error("it does not contain a JSON object")
    try:
        if _in_np_shape(root):
            for row in _operator_rows(root):
                _rename_numpy(row)
        _refuse_unknown(root)
        heads = _from_rows(root, _version(root))
    except RecursionError:
        raise _format_error("its subgraphs are nested too deeply") from None
    if _in_np_shape(root):
        for node in topological_order(heads):
            node.in_np_shape = True
    elif mode.is_np_shape():
        _rewrite_unknown(heads)
    return heads


def _in_np_shape(root: dict[str, Any]) -> bool:
    """Return True if a file was written inside `np_shape`, which MXNet 2.0 is for all exports."""
    about = root.get("attrs")
    return _version(root) >= 20000 or (isinstance(about, dict) and "is_np_shape" in about)


def _rewrite_unknown(heads: tuple[Entry, ...]) -> None:
    """Replace the unknown dimensions of variables by those of `np_shape`: -1 instead of 0."""
    for node in topological_order(heads):
        text = node.attrs.get("__shape__") if node.op is None else None
        if text is not None:
            try:
                shape = shape_type.parse(text)
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                continue  # an invalid shape is reported when it is used
            node.attrs["__shape__"] = to_text(tuple(d or -1 for d in shape))


def _from_rows(root: Any, version: int, place: str = "") -> tuple[Entry, ...]:
    """Read the nodes of a graph or subgraph; `place` is its prefix in messages."""
    rows = _field(root, "nodes", list, place.rstrip(": ") or "the file")
    numbered: list[Node] = []
    for number, row in enumerate(rows):
        where = f"{place}node {number}"
        op = _field(row, "op", str, where)
        name = _field(row, "name", str, where)
        where = f"{place}node {number} ({name!r})"
        if op == "null":
            numbered.append(Node(None, name, attrs=_stored(_attributes(row, where))))
        else:
            numbered.append(_operator_node(row, numbered, version, where))
    if "heads" not in root and numbered:
        return tuple((numbered[-1], i) for i in range(numbered[-1].num_outputs))
    return tuple(
        _references(_field(root, "heads", list, place.rstrip(": ") or "the file"), numbered, f"{place}heads")
    )
