"""Checking a model before its translation: operators, attributes, names, order; and collecting problems."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ...base import FileFormatError

DOMAINS = ("", "ai.onnx.ml")
OLDEST = {"": 7, "ai.onnx.ml": 1}
"""Oldest supported version of each domain's operators; older models are upgraded."""
_MAX_NODES = 250_000
_MAX_DEPTH = 32
MAX_CALLS = 64
"""Maximal depth of calls between functions."""

# the field of an attribute for each AttributeProto.AttributeType
_FIELDS = {
    1: "f",
    2: "i",
    3: "s",
    4: "t",
    5: "g",
    6: "floats",
    7: "ints",
    8: "strings",
    9: "tensors",
    10: "graphs",
}


def versions_of(imports: Any) -> dict[str, int]:
    """Return the version of each domain's operators; the main domain is ""."""
    return {"" if opset.domain == "ai.onnx" else opset.domain: opset.version for opset in imports}


def domain_of(node: Any) -> str:
    """Return the domain of a node's operator; the main domain is ""."""
    return "" if node.domain == "ai.onnx" else str(node.domain)


def place_of(node: Any) -> str:
    """Return the description of a node for messages."""
    name = node.name or (node.output[0] if node.output else "")
    return f"node {name!r} ({f'{node.domain}.' if node.domain else ''}{node.op_type})"


def _are_texts(values: Iterable[Any]) -> bool:
    """Return True if all names are text; names that are not UTF-8 are bytes."""
    return all(isinstance(value, str) for value in values)


def _texts_of(node: Any) -> Iterator[Any]:
    yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
    for attribute in node.attribute:
        yield attribute.name
        yield attribute.ref_attr_name


def graphs_of(node: Any) -> Iterator[Any]:
    """Yield the subgraphs of a node."""
    for attribute in node.attribute:
        if attribute.type == 5:
            yield attribute.g
        elif attribute.type == 10:
            yield from attribute.graphs


class Checker:
    """Checks the graphs of a model, and sorts the nodes of each.

    Args:
        is_known: returns True if an operator has a translator: ``(domain, type) -> bool``.
    """

    def __init__(self, problems: Problems, functions: Mapping[tuple[str, str], Any], is_known: Any) -> None:
        self._problems, self._functions, self._is_known = problems, functions, is_known
        self._count = 0
        self._expanded: dict[tuple[str, str], int] = {}
        self._reads: dict[int, frozenset[str]] = {}
        self._alive: list[Any] = []  # messages that are identified by id
        self.orders: dict[int, list[Any]] = {}
        """The sorted nodes of each graph, by its id."""

    def versions(self, imports: Any) -> dict[str, int]:
        """Check the operator versions that a model imports, and return them."""
        import onnx.defs

        imported = versions_of(imports)
        if not _are_texts(imported):
            self._problems.add("", "a domain that is not valid UTF-8")
            return {}
        known = {domain for domain, _ in self._functions}
        for domain, version in imported.items():
            if domain not in DOMAINS:
                if domain not in known:
                    continue  # a problem only if a node uses this domain, which is reported there
            else:
                newest = onnx.defs.onnx_opset_version() if not domain else onnx.defs.onnx_ml_opset_version()
                if not OLDEST[domain] <= version <= newest:
                    name = domain or "ai.onnx"
                    self._problems.add(
                        "", f"opset {version} of {name}, expected {OLDEST[domain]} to {newest}"
                    )
        if "" not in imported and not imported:
            self._problems.add("", "the file does not declare its opset")
        return imported

    def graph(
        self, graph: Any, versions: Mapping[str, int], outer: Collection[str] = (), depth: int = 0
    ) -> None:
        """Check a graph and its subgraphs."""
        where = f"graph {graph.name!r}"
        held = [initializer.values for initializer in graph.sparse_initializer]
        if not _are_texts(
            value_info.name for value_info in (*graph.input, *graph.output, *graph.initializer, *held)
        ):
            self._problems.add(where, "names that are not valid UTF-8")
            return
        if not graph.output:
            self._problems.add(where, "it has no outputs")
        names = set(outer)
        for value_info in (*graph.input, *graph.initializer):
            if not value_info.name:
                self._problems.add(where, "an input or initializer without a name")
            names.add(value_info.name)
        names.update(tensor.name for tensor in held)
        self._nodes(graph, where, versions, names, depth)
        for output in graph.output:
            if output.name not in names:
                self._problems.add(where, f"output {output.name!r} is not computed by any node")

    def function(self, function: Any, depth: int = 0) -> None:
        """Check a function of the model."""
        where = f"function {function.name!r}"
        if not _are_texts((*function.input, *function.output, *function.attribute)):
            self._problems.add(where, "names that are not valid UTF-8")
            return
        names = set(function.input)
        self._nodes(function, where, versions_of(function.opset_import), names, depth)

    def expansion(self, graph: Any, calls: int = 0) -> int:
        """Return the number of nodes of a graph after expanding calls of functions."""
        count = len(graph.node)
        for node in graph.node:
            key = domain_of(node), node.op_type
            if key in self._functions:
                if calls == MAX_CALLS:
                    raise TooLarge(
                        f"function {node.op_type!r}: functions call each other too deeply, or recursively"
                    )
                if key not in self._expanded:
                    self._expanded[key] = self.expansion(self._functions[key], calls + 1)
                count += self._expanded[key]
            count += sum(self.expansion(inner, calls) for inner in graphs_of(node))
        if count > _MAX_NODES:
            raise TooLarge(f"more than {_MAX_NODES} nodes after expanding functions")
        return count

    def _nodes(
        self, graph: Any, where: str, versions: Mapping[str, int], names: set[str], depth: int
    ) -> None:
        nodes = list(graph.node)
        self._alive += [graph, nodes]
        self._count += len(nodes)
        if self._count > _MAX_NODES or depth > _MAX_DEPTH:
            what = (
                f"more than {_MAX_NODES} nodes"
                if depth <= _MAX_DEPTH
                else f"subgraphs nested more than {_MAX_DEPTH} deep"
            )
            self._problems.add(where, what)
            self.orders[id(graph)] = []
            names.update(name for node in nodes for name in node.output)
            return
        if not all(_are_texts(_texts_of(node)) for node in nodes):
            self._problems.add(where, "nodes with names that are not valid UTF-8")
            self.orders[id(graph)] = []
            return
        makers = self._makers(nodes, names, versions)
        self.orders[id(graph)] = self._sorted(nodes, makers, where)
        names.update(makers)
        for node in nodes:
            for inner in graphs_of(node):
                self._alive.append(inner)
                self.graph(inner, versions, names, depth + 1)

    def _makers(self, nodes: list[Any], names: set[str], versions: Mapping[str, int]) -> dict[str, Any]:
        """Check nodes and their inputs; return the node that computes each name."""
        makers: dict[str, Any] = {}
        for node in nodes:
            for name in node.output:
                if name and (name in makers or name in names):
                    self._problems.add(place_of(node), f"output {name!r} exists already")
                makers[name] = node
        for node in nodes:
            self._node(node, versions)
            for name in sorted(self.reads(node), key=str):
                if name and name not in makers and name not in names:
                    self._problems.add(place_of(node), f"reads {name!r}, which is not defined")
        return makers

    def reads(self, node: Any) -> frozenset[str]:
        """Return the names that a node or its subgraphs read."""
        names = self._reads.get(id(node))
        if names is None:
            inner = [self._free(graph) for graph in graphs_of(node)]
            names = self._reads[id(node)] = frozenset(node.input).union(*inner)
        return names

    def _free(self, graph: Any) -> set[str]:
        """Return the names that a graph reads from outer graphs."""
        nodes = list(graph.node)
        self._alive += [graph, nodes]
        own = {value_info.name for value_info in (*graph.input, *graph.initializer)}
        own.update(name for node in nodes for name in node.output)
        read = {output.name for output in graph.output}.union(*(self.reads(node) for node in nodes))
        return read - own - {""}

    def _sorted(self, nodes: list[Any], makers: Mapping[str, Any], where: str) -> list[Any]:
        """Return the nodes in topological order; a cycle is a problem."""
        waits: dict[int, int] = {}
        readers: dict[int, list[int]] = {}
        number = {id(node): i for i, node in enumerate(nodes)}
        for i, node in enumerate(nodes):
            needs = {number[id(makers[name])] for name in self.reads(node) if name and name in makers}
            waits[i] = len(needs)
            for need in needs:
                readers.setdefault(need, []).append(i)
        ready = [i for i in range(len(nodes) - 1, -1, -1) if not waits[i]]
        order = []
        while ready:
            i = ready.pop()
            order.append(nodes[i])
            for reader in reversed(readers.get(i, [])):
                waits[reader] -= 1
                if not waits[reader]:
                    ready.append(reader)
        if len(order) < len(nodes):
            rest = [place_of(nodes[i]) for i in range(len(nodes)) if waits[i]]
            shown = ", ".join(rest[:8]) + (", ..." if len(rest) > 8 else "")
            self._problems.add(where, f"a cycle: these nodes wait for each other: {shown}")
        return order

    def _node(self, node: Any, versions: Mapping[str, int]) -> None:
        domain = domain_of(node)
        if (domain, node.op_type) in self._functions:
            return
        position = place_of(node)
        if domain not in DOMAINS:
            self._problems.add(position, f"unknown domain {domain!r}")
            return
        if domain not in versions:
            self._problems.add(position, f"the file does not import an opset of {domain or 'ai.onnx'}")
            return
        schema = schema_of(node.op_type, versions[domain], domain)
        if schema is None:
            self._problems.add(
                position,
                f"opset {versions[domain]} of {domain or 'ai.onnx'} has no operator {node.op_type!r}",
            )
        elif schema.deprecated:
            self._problems.add(position, f"{node.op_type} was removed in opset {versions[domain]}")
        elif not self._is_known(domain, node.op_type) and not _has_body(schema):
            self._problems.add(position, f"{node.op_type} cannot be expressed by operators of dpmodule")
        else:
            self._fields(node, schema, position)

    def _fields(self, node: Any, schema: Any, place: str) -> None:
        """Check a node's attributes and the number of its inputs."""
        names = set()
        for attribute in node.attribute:
            names.add(attribute.name)
            declared = schema.attributes.get(attribute.name)
            wanted = None if declared is None else int(declared.type.value)
            if wanted is None:
                self._problems.add(place, f"unknown attribute {attribute.name!r}")
            elif attribute.type != wanted and not attribute.ref_attr_name:
                is_named = wanted in _FIELDS and attribute.type in _FIELDS
                got = f": {_FIELDS[attribute.type]} for {_FIELDS[wanted]}" if is_named else ""
                self._problems.add(
                    place, f"attribute {attribute.name!r} is of another type than expected{got}"
                )
        for name, declared in schema.attributes.items():
            if declared.required and name not in names:
                self._problems.add(place, f"attribute {name!r} is missing")
        if not schema.min_input <= len(node.input) <= schema.max_input:
            self._problems.add(
                place, f"{len(node.input)} inputs, expected {schema.min_input} to {schema.max_input}"
            )
        if not schema.min_output <= len(node.output) <= schema.max_output:
            self._problems.add(
                place, f"{len(node.output)} outputs, expected {schema.min_output} to {schema.max_output}"
            )


def schema_of(name: str, version: int, domain: str) -> Any:
    """Return the onnx package's schema of an operator; None if there is none."""
    import onnx.defs

    try:
        return onnx.defs.get_schema(name, version, domain)
    except (onnx.defs.SchemaError, ValueError, TypeError):
        return None


def _has_body(schema: Any) -> bool:
    return bool(schema.has_function or schema.has_context_dependent_function)


# all problems of a file are collected and reported in one error

_MAX_SHOWN = 60
"""Maximal number of problems that a message lists."""


class Unsupported(Exception):
    """Raised by a translator that cannot express a node; the text gives the reason."""


class TooLarge(Exception):
    """Raised when a file expands to too many nodes; no other problem is then reported."""


class Problems:
    """Collects the problems of a file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.found: dict[str, None] = {}

    def add(self, place: str, what: str) -> None:
        """Add a problem."""
        text = f"{place}: {what}" if place else what
        self.found[text.encode("utf-8", "backslashreplace").decode()] = None

    def check(self) -> None:
        """Raise an error if there are problems."""
        if not self.found:
            return
        shown = [f"  {problem}" for problem in list(self.found)[:_MAX_SHOWN]]
        if len(self.found) > _MAX_SHOWN:
            shown.append(f"  and {len(self.found) - _MAX_SHOWN} more")
        lines = "\n".join(shown)
        raise FileFormatError(f"{self.path}: this ONNX file cannot be imported:\n{lines}")


# models of opsets before 7, upgraded by the converter of the package onnx

_TARGET = OLDEST[""]


def upgrade_model(model: Any, path: str) -> Any:
    """Convert a model of an opset before 7 to opset 7; return any other model unchanged."""
    versions = versions_of(model.opset_import)
    old = versions.get("", _TARGET)
    if not 0 < old < _TARGET or model.functions:
        return model
    from onnx import version_converter

    problems = Problems(path)
    # the converter is C++ code that requires a valid graph
    Checker(problems, {}, lambda domain, name: True).graph(model.graph, versions)
    problems.check()
    try:
        upgraded = version_converter.convert_version(model, _TARGET)
    except Exception as error:  # the converter raises errors of many types
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        problems.add("", f"opset {old}, which the package onnx cannot upgrade to {_TARGET}: {reason}")
        problems.check()
    _move_slope_axes(model, upgraded)
    return upgraded


def _move_slope_axes(old: Any, upgraded: Any) -> None:
    """Append axes of size 1 to slopes of PRelu, which are per channel before opset 7.

    From opset 7 on slopes broadcast, but the converter does not change them.
    """
    import onnx

    nodes = [node for node in upgraded.graph.node if node.op_type == "PRelu"]
    if not nodes:
        return
    graph = onnx.shape_inference.infer_shapes(old).graph
    ranks = {initializer.name: len(initializer.dims) for initializer in graph.initializer}
    ranks |= {
        value_info.name: len(value_info.type.tensor_type.shape.dim)
        for value_info in (*graph.input, *graph.value_info, *graph.output)
    }
    taken = {name for node in upgraded.graph.node for name in (*node.input, *node.output)} | ranks.keys()
    for node in nodes:
        rank = ranks.get(node.input[0], 0)
        if ranks.get(node.input[1]) != 1 or rank < 3:
            continue
        name = f"{node.input[1]}_of_{node.output[0]}"
        while name in taken:
            name += "_"
        taken.add(name)
        axes = list(range(1, rank - 1))
        upgraded.graph.node.append(onnx.helper.make_node("Unsqueeze", [node.input[1]], [name], axes=axes))
        node.input[1] = name
