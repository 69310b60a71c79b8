"""Building an ONNX model from a graph, its parameters and its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from inspect import isfunction
from typing import Any

import numpy as np
import onnx
import torch

from ...base import ArgumentError, Shape, ShapeError
from ...graph import Entry, Graph, Node, infer_shapes, infer_types
from ...ndarray import NDArray, from_torch
from ...ndarray.growing_table import is_hashed
from ...ops.dtypes import name_of
from ...ops.nn.layer_shapes import channels_last
from ...ops.shapes import known
from ...ops.spec import LABEL, Onnx
from ..hints import fixed_gammas, hints_of, write_hints
from ..prediction import ModelInputs
from .call import Dim, Dims, OperatorCall, Untranslatable, Value
from .common import Builder, allowed_types, computed_in, max_inputs
from .writer import Writer, code_of, fill, live_nodes, used_values, value_info


class Translation:
    """The translation of a graph or subgraph.

    Args:
        sizes: shapes of all its values.
        types: dtype names of its variables.
        values: ONNX names of the variables of a subgraph; variables of a whole graph keep their names.
        lengths: outer values and axes of dynamic lengths.
    """

    def __init__(
        self,
        graph: Graph,
        sizes: ValueShapes,
        types: Mapping[str, str],
        parameters: KnownVariables,
        writer: Writer,
        values: Mapping[Node, str] | None = None,
        lengths: Mapping[str, tuple[str, int]] | None = None,
    ) -> None:
        self._graph = graph
        self._sizes = sizes
        self._types = infer_types(graph, types, default="float32")
        self._parameters = parameters
        self._writer = writer
        self._values: dict[tuple[Node, int], str] = {}
        self._lengths = dict(lengths or {})
        self._problems: list[str] = []
        for node in graph.inputs:
            self._values[node, 0] = node.name if values is None else values[node]
            self._note_lengths(node, 0)

    def run(self) -> list[str]:
        """Write all operators, and return the names of the graph's outputs as in `Symbol.list_outputs`."""
        self._write()
        return [self._head(node, i) for node, i in self._graph.heads]

    def _write(self) -> None:
        for node in self._graph.nodes:
            if node.op is None:
                self._take_parameter(node)
            else:
                self._translate(node)
        if self._problems:
            raise Untranslatable("\n".join(dict.fromkeys(self._problems)))

    def dims(self, node: Node, i: int = 0) -> Dims:
        """Return the shape of a node's output."""
        return self._sizes.dims(node, i)

    def dtype(self, node: Node, i: int = 0) -> str:
        """Return the dtype name of a node's output."""
        return self._types[node][i] or "float32"

    def _take_parameter(self, node: Node) -> None:
        name = self._values[node, 0]
        if name in self._parameters:
            self._parameters.check(name, self.dims(node))

    def _translate(self, node: Node) -> None:
        """Write one operator; its problems are collected until all were tried."""
        start = len(self._writer.nodes)
        try:
            output = self._written(node)
        except Untranslatable as error:
            self._problems.extend(str(error).split("\n"))
            output = [""] * node.num_outputs
        outputs = {name for written in self._writer.nodes[start:] for name in written.output}
        names = {}
        for i, value in enumerate(output):
            self._values[node, i] = value
            if value in outputs and value not in names:
                names[value] = self._values[node, i] = self._writer.fresh(node.output_names[i])
        self._writer.rename(start, names)
        for i in range(len(output)):
            self._note_lengths(node, i)

    def _note_lengths(self, node: Node, i: int) -> None:
        """Record a value of each dynamic length; an input of the graph counts only if it stays an input."""
        value = self._values[node, i]
        if value and (node.op is not None or node.name not in self._graph.labels):
            try:
                dims = self.dims(node, i)
            except Untranslatable:
                return
            for axis, dim in enumerate(dims):
                if isinstance(dim, str):
                    self._lengths.setdefault(dim, (value, axis))

    def _written(self, node: Node) -> Sequence[str]:
        record = node.op.onnx if node.op is not None else None
        if record is None or record.missing or (record.builder and record.builder not in builders()):
            reason = (record and record.missing) or "ONNX has no such operator"
            raise Untranslatable(f"{node.describe()}: {reason}")
        call = self._call(node)
        output = builders()[record.builder](call) if record.builder else translate_plainly(call, record)
        return [each.name for each in ([output] if isinstance(output, Value) else output)]

    def _call(self, node: Node) -> OperatorCall:
        if node.op is None:
            raise ArgumentError(f"{node.describe()}: expected an operator")
        declared = node.op.active_inputs(node.a, len(node.inputs))
        entries = [e for e, one in zip(node.inputs, declared) if one.kind != LABEL or node.op.loss is None]
        outputs = [(node, i) for i in range(node.num_outputs)]
        return OperatorCall(
            node,
            [self._values[entry] for entry in entries],
            [self.dims(*entry) for entry in (*entries, *outputs)],
            [self.dtype(*entry) for entry in (*entries, *outputs)],
            self._writer,
            self._parameters.elements,
            self._subgraph,
            self._lengths,
        )

    def _subgraph(
        self, writer: Writer, graph: Graph, values: Sequence[str], dims: Sequence[Dims], dtypes: Sequence[str]
    ) -> list[tuple[str, str]]:
        """Write a subgraph, and return the names and dtype names of its outputs; see `OperatorCall.run`."""
        inner = Translation(
            graph,
            self._sizes.of_body(graph, dims),
            {node.name: dtype for node, dtype in zip(graph.inputs, dtypes)},
            self._parameters,
            writer,
            dict(zip(graph.inputs, values)),
            self._lengths,
        )
        inner._write()
        return [(inner._values[head], inner.dtype(*head)) for head in graph.heads]

    def _head(self, node: Node, i: int) -> str:
        """Return the name of an output as in `Symbol.list_outputs`."""
        name, output = node.output_names[i], self._values[node, i]
        if output == name and node.op is not None:
            return name
        wanted = self._writer.fresh(name)
        self._writer.node("Identity", [output], [wanted], self._writer.fresh(f"{wanted}/Identity"), {})
        return wanted


# operators that are a single ONNX operator


def translate_plainly(c: OperatorCall, record: Onnx) -> list[Value]:
    """Write the operator named by a record, in a type that it supports."""
    dtype = _computed_in(c, record.type)
    inputs = [x.cast(dtype) for x in c.inputs[: max_inputs(record.type, c.opset)]]
    if record.scalar:
        number = c.const(c.a.scalar, dtype)
        inputs = [number, *inputs] if record.scalar == "first" else [*inputs, number]
    output = c.emit(record.type, *inputs, outputs=len(c.out_dtypes), **_attributes(c, record))
    outputs = [output] if isinstance(output, Value) else list(output)
    if record.type in _OWN_TYPE:
        return outputs
    return [Value(c, x.name, dtype).converted(wanted) for x, wanted in zip(outputs, c.out_dtypes)]


_OWN_TYPE = frozenset({"Cast", "Shape", "Size"})
"""ONNX operators whose result has another type than their input."""


def _computed_in(c: OperatorCall, operator: str) -> str:
    """Return the type in which ONNX computes an operator."""
    output = c.dtypes[0]
    wanted = c.out_dtypes[0] if operator not in _OWN_TYPE else output
    if wanted != output and wanted in allowed_types(operator, c.opset):
        return wanted
    return computed_in(operator, c.opset, output)


def _attributes(c: OperatorCall, record: Onnx) -> dict[str, Any]:
    outputs = {theirs: getattr(c.a, ours) for ours, theirs in record.rename.items()}
    if "to" in outputs:
        outputs["to"] = code_of(outputs["to"])
    return {**outputs, **record.const}


# builders, by name

_FILES = "array contrib detection image linalg math nn numpy pooling quantize random sequence"
"""Modules with builders: their public functions, and the entries of their `TABLE`."""


@cache
def builders() -> dict[str, Builder]:
    """Return all builders by name; a trailing underscore distinguishes a builder from a helper."""
    outputs: dict[str, Builder] = {}
    for file in _FILES.split():
        module = import_module(f"{__package__}.{file}")
        outputs |= getattr(module, "TABLE", {})
        for name, value in vars(module).items():
            if name[0] != "_" and isfunction(value) and value.__module__ == module.__name__:
                outputs[name.rstrip("_")] = value
    return outputs


# shapes with named dynamic lengths

Run = Mapping[str, Shape]

_COUNTED_BY_VALUES = frozenset({"_contrib_boolean_mask"})
"""Operators that select rows of their first input, whose number depends on the values."""


def given_sizes(graph: Graph, shapes: Mapping[str, Dims], base: Mapping[str, int]) -> ValueShapes:
    """Infer all shapes of a graph from shapes of variables with named dynamic lengths.

    Shape rules handle numbers only. They run for a first set of sizes and again for each name with another size: a
    length that changes depends on that name.

    Args:
        shapes: shapes of variables by name.
    """
    names = sorted({dim for shape in shapes.values() for dim in shape if isinstance(dim, str)})
    runs = [concrete(shapes, base)]
    outputs = [infer_shapes(graph, runs[0])]
    for name in names:
        run = concrete(shapes, {**base, name: 3 * base[name]})
        try:
            outputs.append(infer_shapes(graph, run))
        except ShapeError as error:
            raise Untranslatable(
                f"the length {name!r} cannot be dynamic: the graph accepts only one size ({error}); a number in "
                "an attribute fixes it, such as the shape of a Reshape (0 and -1 leave it open)"
            ) from error
    symbols = {
        tuple(base[name] * (3 if i == k + 1 else 1) for i in range(len(names) + 1)): name
        for k, name in enumerate(names)
    }
    return ValueShapes(outputs, symbols)


def concrete(shapes: Mapping[str, Dims], sizes: Mapping[str, int]) -> dict[str, Shape]:
    """Return shapes with a size for each name."""
    return {
        name: tuple(dim if isinstance(dim, int) else sizes[dim] for dim in shape)
        for name, shape in shapes.items()
    }


class ValueShapes:
    """The shapes of all values of a graph.

    Args:
        runs: results of `infer_shapes` for several sizes of the dynamic lengths.
        symbols: names of lengths by their sizes in all runs.
    """

    def __init__(
        self, runs: Sequence[Mapping[Node, list[Shape]]], symbols: dict[tuple[int, ...], str]
    ) -> None:
        self._runs = runs
        self._symbols = symbols

    def dims(self, node: Node, i: int = 0) -> Dims:
        """Return the shape of a node's output."""
        if node.op is not None and node.op.name in _COUNTED_BY_VALUES:
            return (f"{node.name}_rows", *self.dims(*node.inputs[0])[1:])
        outputs = [run[node][i] for run in self._runs]
        shapes = [shape for shape in outputs if shape is not None and known(shape)]
        if len(shapes) < len(outputs):
            raise Untranslatable(
                f"{node.describe()}: the shape of its output {i} cannot be inferred from in_shapes"
            )
        if len({len(shape) for shape in shapes}) > 1:
            raise Untranslatable(f"{node.describe()}: the number of axes of its output {i} depends on sizes")
        return tuple(self._dim(sizes) for sizes in zip(*shapes))

    def _dim(self, sizes: tuple[int, ...]) -> Dim:
        if len(set(sizes)) == 1:
            return sizes[0]
        return self._symbols.setdefault(sizes, f"length_{len(self._symbols)}")

    def of_body(self, graph: Graph, inputs: Sequence[Dims]) -> ValueShapes:
        """Return the shapes inside a subgraph.

        Args:
            inputs: shapes of its variables, in the order of ``graph.inputs``, with names of lengths from this object.
        """
        sizes = {name: vector for vector, name in self._symbols.items()}
        runs = []
        for k in range(len(self._runs)):
            given = concrete(
                {node.name: dims for node, dims in zip(graph.inputs, inputs)},
                {name: vector[k] for name, vector in sizes.items()},
            )
            runs.append(infer_shapes(graph, given))
        return ValueShapes(runs, self._symbols)


# parameters


class KnownVariables:
    """Variables with known values, by name."""

    def __init__(self, arrays: Mapping[str, NDArray]) -> None:
        # a table of ids has no dense form; the operators that read it are refused later
        self._tensors = {
            name: torch.zeros(1).expand(array.shape)
            if is_hashed(array.shape)
            else array.raw.detach().cpu().contiguous()
            for name, array in arrays.items()
        }

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def check(self, name: str, dims: Dims) -> None:
        """Reject a parameter whose shape differs from the graph's."""
        shape = tuple(self._tensors[name].shape)
        if shape != dims:
            raise ArgumentError(f"params has {name!r} of shape {shape}, but the symbol expects {dims}")

    def elements(self, name: str) -> np.ndarray[Any, Any] | None:
        """Return the elements of a parameter; None for other values. Those of bfloat16 are converted to float32."""
        output = self._tensors.get(name)
        if output is None:
            return None
        return (output.float() if output.dtype == torch.bfloat16 else output).numpy()

    def dtype(self, name: str) -> str:
        """Return the name of a parameter's type."""
        return name_of(self._tensors[name].dtype)

    def store(self, name: str, place: onnx.TensorProto) -> None:
        """Put a parameter into an empty tensor of ONNX."""
        output = self._tensors[name]
        bits = output.view(torch.uint16) if output.dtype == torch.bfloat16 else output
        fill(place, name, bits.numpy(), name_of(output.dtype))


def to_model(
    graph: Graph,
    arrays: Mapping[str, NDArray],
    inputs: ModelInputs,
    opset: int,
    fold_batchnorm: bool,
) -> onnx.ModelProto:
    """Return a graph as an ONNX model."""
    graph.check_names()
    if fold_batchnorm:
        graph, arrays = fold_batchnorms(graph, arrays)
    known = {name: arrays[name] for name in (n.name for n in graph.inputs) if name in arrays}
    known |= {name: known[name].ones_like() for name in fixed_gammas(graph) if name in known}
    parameters = KnownVariables(known)
    shapes = {name: tuple(array.shape) for name, array in known.items()}
    try:
        sizes = given_sizes(graph, {**shapes, **inputs.shapes}, inputs.sizes)
    except ShapeError:
        _check_parameters(graph, shapes, inputs)
        raise
    writer = Writer(opset)
    writer.take(node.name for node in graph.inputs)
    types = {**{name: parameters.dtype(name) for name in known}, **inputs.dtypes}
    translation = Translation(graph, sizes, types, parameters, writer)
    outputs = translation.run()
    nodes = live_nodes(writer.nodes, outputs)
    used = used_values(nodes, outputs)
    variables = [node for node in graph.inputs if node.name not in known]
    taken = [n for n in variables if n.name in inputs.shapes or n.name in used]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            nodes,
            "dpmodule",
            [value_info(n.name, translation.dtype(n), translation.dims(n)) for n in taken],
            [
                value_info(name, translation.dtype(*head), translation.dims(*head))
                for name, head in zip(outputs, graph.heads)
            ],
        ),
        opset_imports=[onnx.helper.make_opsetid("", opset)],
        ir_version=onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)]),
        producer_name="dpmodule",
    )
    # filled in place: parameters are large, and a list of tensors would be copied twice
    for name in known:
        if name in used:
            parameters.store(name, model.graph.initializer.add())
    model.graph.initializer.extend(each for name, each in writer.initializers.items() if name in used)
    write_hints(
        hints_of(graph, writer.initializers), lambda key, text: model.metadata_props.add(key=key, value=text)
    )
    return model


def _check_parameters(graph: Graph, shapes: Mapping[str, tuple[int, ...]], inputs: ModelInputs) -> None:
    """Reject parameters whose shapes differ from those inferred from the inputs."""
    output = infer_shapes(graph, concrete(inputs.shapes, inputs.sizes))
    wrong = []
    for node in graph.inputs:
        wanted, shape = output[node][0], shapes.get(node.name)
        if wanted is not None and shape is not None and not _fits(shape, wanted):
            wrong.append(f"params has {node.name!r} of shape {shape}, but the symbol expects {wanted}")
    if wrong:
        raise ArgumentError("\n".join(wrong))


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Return True if a shape matches one in which 0 is an unknown length."""
    return len(shape) == len(wanted) and all(w in (0, d) for d, w in zip(shape, wanted))


# folding BatchNorm into the preceding layer

_NORMS = frozenset({"BatchNorm", "BatchNorm_v1", "_contrib_SyncBatchNorm"})
_LAYERS = frozenset({"Convolution", "Deconvolution", "FullyConnected"})


def fold_batchnorms(graph: Graph, arrays: Mapping[str, NDArray]) -> tuple[Graph, dict[str, NDArray]]:
    """Fold BatchNorm into the preceding layers; return the network and its parameters.

    A layer is changed if its output and parameters have no other readers, and all parameters are known. It takes the
    name of the BatchNorm; its weight and bias keep their names.

    Args:
        arrays: its parameters and auxiliary states by name; not modified.
    """
    outputs = dict(arrays)
    replaced: dict[Node, Node] = {}
    for node in graph.nodes:
        layer = _layer_of(node, graph, arrays)
        if layer is not None:
            data = replaced[layer.inputs[0][0]], layer.inputs[0][1]
            replaced[node] = _folded(node, layer, data, outputs)
            continue
        inputs = tuple((replaced[child], i) for child, i in node.inputs)
        replaced[node] = node
        if inputs != node.inputs:
            replaced[node] = Node(
                node.op, node.name, node.params, node.attrs, inputs, node.source, node.subgraphs
            )
    return Graph(tuple((replaced[node], i) for node, i in graph.heads)), outputs


def _layer_of(norm: Node, graph: Graph, arrays: Mapping[str, NDArray]) -> Node | None:
    """Return the layer into which a BatchNorm can be folded; None for other nodes."""
    if norm.op is None or norm.op.name not in _NORMS or norm.a.output_mean_var:
        return None
    layer = norm.inputs[0][0]
    if layer.op is None or layer.op.name not in _LAYERS or not _same_channels(norm, layer):
        return None
    vectors = [child.name for child, _ in norm.inputs[1:]]
    weights = [child for child, _ in layer.inputs[1:]]
    known = all(name in arrays for name in (*vectors, *(weight.name for weight in weights)))
    alone = graph.readers[layer] == [norm] and all(graph.readers[weight] == [layer] for weight in weights)
    is_head = any(head is layer for head, _ in graph.heads)
    return layer if known and alone and not is_head else None


def _same_channels(norm: Node, layer: Node) -> bool:
    """Return True if BatchNorm normalizes the layer's axis of channels."""
    axis = getattr(norm.a, "axis", 1)
    if layer.op is not None and layer.op.name == "FullyConnected":
        return axis == -1 or (axis == 1 and bool(layer.a.flatten))
    rank = len(layer.a.kernel) + 2
    return bool(axis % rank == (rank - 1 if channels_last(layer.a.layout) else 1))


def _folded(norm: Node, layer: Node, data: Entry, arrays: dict[str, NDArray]) -> Node:
    """Return the folded layer, and replace the parameters of the original layer."""
    gamma, beta, mean, var = (arrays[child.name].raw.detach().double() for child, _ in norm.inputs[1:])
    scale = (torch.ones_like(gamma) if norm.a.fix_gamma else gamma) * (var + norm.a.eps).rsqrt()
    weight, *bias = (child for child, _ in layer.inputs[1:])
    old = arrays[weight.name].raw.detach()
    arrays[weight.name] = from_torch(_scaled(layer, old.double(), scale).to(old.dtype))
    shift = -mean
    if bias:
        shift = shift + arrays[bias[0].name].raw.detach().double().reshape(-1)
    else:
        bias = [Node(None, _fresh(f"{layer.name}_bias", arrays))]
    arrays[bias[0].name] = from_torch((shift * scale + beta).to(old.dtype))
    inputs = (data, (weight, 0), (bias[0], 0))
    params = {**layer.params, "no_bias": "False"}
    return Node(layer.op, norm.name, params, layer.attrs, inputs, layer.source)


def _fresh(name: str, taken: Mapping[str, NDArray]) -> str:
    while name in taken:
        name += "_folded"
    return name


def _scaled(layer: Node, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return a weight with each output channel scaled."""
    if layer.op is None or layer.op.name != "Deconvolution":
        return weight * scale.reshape(-1, *(1,) * (weight.dim() - 1))
    groups = layer.a.num_group
    by_input = scale.reshape(groups, -1).repeat_interleave(weight.shape[0] // groups, 0)
    ones = (1,) * len(layer.a.kernel)
    last = channels_last(layer.a.layout)
    return weight * by_input.reshape(by_input.shape[0], *((*ones, -1) if last else (-1, *ones)))
