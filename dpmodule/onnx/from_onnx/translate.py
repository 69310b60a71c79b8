"""`GraphTranslator`: translates the nodes of an ONNX graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ...base import MXNetError
from . import array, control, image, index, layers, linear, math, rnn, types
from .build import GraphBuilder, GraphScope, NodeCall, Translator
from .check import (
    MAX_CALLS,
    Checker,
    Problems,
    TooLarge,
    Unsupported,
    domain_of,
    place_of,
    schema_of,
    versions_of,
)
from .read import UNSIGNED, tensor_of
from .types import assign_types, of_type, prepare_uint64
from .value import OnnxValue

_MAX_NODES = 500_000
"""Maximal number of translated nodes, including those of functions and of bodies that are translated twice."""

_FAILED = object()
"""Placeholder for the outputs of a node that could not be translated."""

_ERRORS = (
    MXNetError,
    ArithmeticError,
    AttributeError,
    IndexError,
    KeyError,
    MemoryError,
    RecursionError,
    RuntimeError,
    TypeError,
    ValueError,
)


class GraphNames:
    """Values of the names of a graph."""

    def __init__(self, parent: GraphNames | None = None) -> None:
        self._own: dict[str, Any] = {}
        self._parent = parent

    def find(self, name: str) -> Any:
        """Return the value of a name."""
        names: GraphNames | None = self
        while names is not None:
            if name in names._own:
                return names._own[name]
            names = names._parent
        return _FAILED

    def put(self, name: str, value: Any) -> None:
        """Set the value of a name."""
        if name:
            self._own[name] = value


class GraphTranslator:
    """Translates the nodes of a model.

    Args:
        checker: provides the order of the nodes of each graph.
    """

    def __init__(
        self,
        builder: GraphBuilder,
        checker: Checker,
        problems: Problems,
        table: Mapping[tuple[str, str], Translator],
        functions: Mapping[tuple[str, str], Any],
        folder: str,
    ) -> None:
        self._b, self._checker, self._problems = builder, checker, problems
        self._table, self._functions, self._folder = table, functions, folder
        self._calls = self._count = 0
        self._read: set[str] = set()

    def initializers(self, graph: Any, names: GraphNames, is_main: bool) -> None:
        """Translate the initializers of a graph."""
        for proto in graph.initializer:
            try:
                tensor = tensor_of(proto, self._folder)
            except ValueError as error:
                self._problems.add(f"initializer {proto.name!r}", str(error))
                names.put(proto.name, _FAILED)
                continue
            trains = tensor.is_floating_point() and tensor.dim() > 0 and tensor.numel() > 0
            name = proto.name if is_main else self._b.reserve(proto.name)
            names.put(proto.name, of_type(self._b.parameter(name, tensor, trains), proto.data_type))
        for proto in graph.sparse_initializer:
            self._problems.add(f"initializer {proto.values.name!r}", "it is sparse, expected a dense array")

    def nodes(self, graph: Any, names: GraphNames, versions: Mapping[str, int]) -> None:
        """Translate a graph's nodes."""
        order = self._checker.orders.get(id(graph), graph.node)
        self._read.update(output.name for output in graph.output)
        self._read.update(*map(self._checker.reads, order))
        for node in order:
            self._node(node, names, versions)

    def _node(self, node: Any, names: GraphNames, versions: Mapping[str, int]) -> None:
        inputs = [names.find(name) if name else None for name in node.input]
        self._count += 1
        if self._count > _MAX_NODES:
            raise TooLarge(
                f"more than {_MAX_NODES} nodes, including those of functions and of bodies translated twice"
            )
        if any(each is _FAILED for each in inputs):
            result: list[Any] = [_FAILED] * len(node.output)
        else:
            result = self._translate_or_report(node, inputs, names, versions)
        for name, value in zip(node.output, result):
            names.put(name, value)

    def _translate_or_report(
        self, node: Any, inputs: list[Any], names: GraphNames, versions: Mapping[str, int]
    ) -> list[Any]:
        outer = self._b.label
        self._b.label = next((name for name in node.output if name), node.name) or node.op_type
        try:
            result = self._translate_node(node, inputs, names, versions)
            values = list(result) if isinstance(result, (list, tuple)) else [result]
            if any(name and name in self._read for name in node.output[len(values) :]):
                raise Unsupported(f"only the first {len(values)} of its outputs are supported")
        except Unsupported as error:
            self._problems.add(place_of(node), str(error))
            values = [_FAILED] * len(node.output)
        except _ERRORS as error:
            self._problems.add(place_of(node), f"{type(error).__name__}: {error}")
            values = [_FAILED] * len(node.output)
        finally:
            self._b.label = outer
        return values

    def _translate_node(
        self, node: Any, inputs: list[Any], names: GraphNames, versions: Mapping[str, int]
    ) -> Any:
        domain = domain_of(node)
        function = self._functions.get((domain, node.op_type))
        if function is not None:
            return self._translate_call(function, node, inputs)
        schema = schema_of(node.op_type, versions.get(domain, 1), domain)
        translator = self._table.get((domain, node.op_type))
        if translator is None:
            return self._translate_definition(schema, node, inputs, versions.get(domain, 1))
        call = NodeCall(
            self._b,
            node.op_type,
            inputs,
            _attributes(node, schema),
            schema.since_version,
            [bool(name) and name in self._read for name in node.output],
            lambda graph, values, **kwargs: self.body(graph, values, names, versions, **kwargs),
            lambda proto: tensor_of(proto, self._folder),
        )
        first = len(self._b.fresh)
        call.inputs = prepare_uint64(self._b, node.op_type, inputs)
        result = translator(call)
        if not domain:
            values = assign_types(self._b, node.op_type, schema, inputs, call.attrs, result)
            result = values if isinstance(result, (list, tuple)) else values[0]
        self._name(result, node, first)
        del self._b.fresh[first:]
        return result

    def _name(self, made: Any, node: Any, first: int) -> None:
        """Name the node of a result after ONNX's name of the result."""
        values = made if isinstance(made, (list, tuple)) else [made]
        fresh = set(self._b.fresh[first:])
        for value, name in zip(values, node.output):
            entry = value.entry if isinstance(value, OnnxValue) else None
            if entry is not None and name and entry[0] in fresh:
                fresh.discard(entry[0])
                is_single = len(values) == 1 or entry[0].num_outputs == 1
                wanted = name if is_single else node.name or name
                entry[0].name = self._b.reserve(wanted.removesuffix("_output") if is_single else wanted)

    def _translate_call(
        self, function: Any, node: Any, inputs: Sequence[Any], usual: Mapping[str, Any] = MappingProxyType({})
    ) -> list[Any]:
        """Translate the nodes of a function in place of its call."""
        if self._calls >= MAX_CALLS:
            raise Unsupported("functions call each other too deeply, or recursively")
        self._calls += 1
        try:
            names = GraphNames()
            for i, name in enumerate(function.input):
                names.put(name, inputs[i] if i < len(inputs) else None)
            attributes = {attribute.name: attribute for attribute in node.attribute}
            defaults = {**usual, **{attribute.name: attribute for attribute in function.attribute_proto}}
            versions = versions_of(function.opset_import)
            order = self._checker.orders.get(id(function), list(function.node))
            self._read.update(function.output, *map(self._checker.reads, order))
            for inner in order:
                self._node(_with_attributes(inner, {**defaults, **attributes}), names, versions)
            return [names.find(name) for name in function.output]
        finally:
            self._calls -= 1

    def _translate_definition(self, schema: Any, node: Any, inputs: Sequence[Any], version: int) -> list[Any]:
        """Translate an operator by the function with which ONNX defines it."""
        import onnx

        if schema is None or not (schema.has_function or schema.has_context_dependent_function):
            raise Unsupported(f"{node.op_type} cannot be expressed by operators of dpmodule")
        if schema.has_function:
            body = schema.function_body
        else:
            types = []
            for value in inputs:
                code = value.type if isinstance(value, OnnxValue) else 1
                dims = value.dims[0] if isinstance(value, OnnxValue) else ()
                types.append(onnx.helper.make_tensor_type_proto(code, dims).SerializeToString())
            text = schema.get_context_dependent_function(node.SerializeToString(), types)
            body = onnx.FunctionProto.FromString(text)
        if not body.opset_import:
            body.opset_import.add(domain="", version=version)
        defaults = {n: d.default_value for n, d in schema.attributes.items() if d.default_value.type}
        return self._translate_call(body, node, inputs, defaults)

    def body(
        self,
        graph: Any,
        inputs: Sequence[Any],
        names: GraphNames,
        versions: Mapping[str, int],
        scope: GraphScope | None = None,
    ) -> list[Any]:
        """Translate a subgraph of a node.

        Args:
            scope: the graph in which its nodes are made; None means the graph of the node.

        Returns:
            Its outputs.
        """
        inner, outer = GraphNames(names), self._b.scope
        self._b.scope = scope or outer
        try:
            for each, value in zip(graph.input, inputs):
                is_array = isinstance(value, OnnxValue)
                inner.put(each.name, of_type(value, each.type.tensor_type.elem_type) if is_array else value)
            self.initializers(graph, inner, False)
            self.nodes(graph, inner, versions)
            outputs = [inner.find(output.name) for output in graph.output]
        finally:
            self._b.scope = outer
        if any(output is _FAILED for output in outputs):
            raise Unsupported(f"its graph {graph.name!r} cannot be translated")
        return outputs

    def outputs(self, graph: Any, names: GraphNames) -> list[OnnxValue] | None:
        """Return the values of a graph's outputs; None if one could not be translated."""
        values = []
        for output in graph.output:
            value = names.find(output.name)
            if isinstance(value, list):
                self._problems.add(f"output {output.name!r}", "it is a sequence, expected an array")
            elif value is not _FAILED and value is not None:
                values.append(self._declared(output, value))
        return values if len(values) == len(graph.output) else None

    def _declared(self, declared: Any, value: OnnxValue) -> OnnxValue:
        """Return an output in the unsigned type that the file declares for it."""
        b, dtype = self._b, UNSIGNED.get(declared.type.tensor_type.elem_type)
        if dtype is None or value.dtype == dtype:
            return value
        source = value.again()
        source.entry, source.scope, source.known, source.recipe = b.entry(value), b.scope, None, None
        result = source.cast(dtype)
        name = declared.name.removesuffix("_output")
        if result.entry is not None and source.entry is not None and source.entry[0].name == name:
            source.entry[0].name, result.entry[0].name = b.reserve(f"{name}_signed"), name
        return result


def _with_attributes(node: Any, given: Mapping[str, Any]) -> Any:
    """Return a function's node with the attributes of a call."""
    import onnx

    if not any(attribute.ref_attr_name for attribute in node.attribute):
        return node
    copied = onnx.NodeProto()
    copied.CopyFrom(node)
    del copied.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            copied.attribute.append(attribute)
        elif attribute.ref_attr_name in given:
            copy = onnx.AttributeProto()
            copy.CopyFrom(given[attribute.ref_attr_name])
            copy.name = attribute.name
            copied.attribute.append(copy)
    return copied


def _attributes(node: Any, schema: Any) -> dict[str, Any]:
    """Return a node's attributes and the defaults of missing ones."""
    import onnx

    values = {
        name: _plain(onnx.helper.get_attribute_value(declared.default_value))
        for name, declared in schema.attributes.items()
        if declared.default_value.type
    }
    for attribute in node.attribute:
        values[attribute.name] = _plain(onnx.helper.get_attribute_value(attribute))
    return values


def _plain(value: Any) -> Any:
    """Return texts as str, and repeated fields as lists."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, (list, tuple)) or type(value).__name__.startswith("Repeated"):
        return [_plain(item) for item in value]
    return value


# all translators, by the domain and type of the ONNX operator

_MAIN = (array, control, image, index, layers, linear, math, rnn, types)

TRANSLATORS: dict[tuple[str, str], Translator] = {
    **{("", name): function for module in _MAIN for name, function in module.TABLE.items()},
    **{("ai.onnx.ml", name): function for name, function in linear.ML_TABLE.items()},
}
