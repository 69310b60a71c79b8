"""Building an ONNX model from a graph, its parameters and its inputs."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import torch

from ...base import ArgumentError, ShapeError
from ...graph import Entry, Graph, Node, infer_shapes
from ...ndarray import NDArray, from_torch
from ...ops.nn.layer_shapes import channels_last
from ..hints import fixed_gammas, hints_of, write_hints
from ..prediction import ModelInputs
from .translation import KnownVariables, Translation, concrete, given_sizes
from .writer import Writer, live_nodes, used_values, value_info


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
