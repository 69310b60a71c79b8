"""BatchNorm multiplied into the layer before it."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ...graph import Entry, Graph, Node
from ...ndarray import NDArray, from_torch
from ...ops.nn.rules import channels_last

__all__ = ["fold_batchnorms"]

_NORMS = frozenset({"BatchNorm", "BatchNorm_v1", "_contrib_SyncBatchNorm"})
_LAYERS = frozenset({"Convolution", "Deconvolution", "FullyConnected"})


def fold_batchnorms(graph: Graph, arrays: Mapping[str, NDArray]) -> tuple[Graph, dict[str, NDArray]]:
    """Return a network in which layers do what BatchNorm after them did in prediction, and its parameters.

    A layer is changed where nobody else reads its output or its parameters, and all of them are known. It takes the
    name of the BatchNorm, and its weight and bias keep theirs.

    Args:
        graph: the network; left alone.
        arrays: its parameters and auxiliary states by name; left alone.
    """
    found = dict(arrays)
    replaced: dict[Node, Node] = {}
    for node in graph.nodes:
        layer = _layer_of(node, graph, arrays)
        if layer is not None:
            data = replaced[layer.inputs[0][0]], layer.inputs[0][1]
            replaced[node] = _folded(node, layer, data, found)
            continue
        inputs = tuple((replaced[child], i) for child, i in node.inputs)
        replaced[node] = node
        if inputs != node.inputs:
            replaced[node] = Node(
                node.op, node.name, node.params, node.attrs, inputs, node.source, node.subgraphs
            )
    return Graph(tuple((replaced[node], i) for node, i in graph.heads)), found


def _layer_of(norm: Node, graph: Graph, arrays: Mapping[str, NDArray]) -> Node | None:
    """Return the layer into which a node can be multiplied, if it is a BatchNorm behind one."""
    if norm.op is None or norm.op.name not in _NORMS or norm.a.output_mean_var:
        return None
    layer = norm.inputs[0][0]
    if layer.op is None or layer.op.name not in _LAYERS or not _same_channels(norm, layer):
        return None
    vectors = [child.name for child, _ in norm.inputs[1:]]
    weights = [child for child, _ in layer.inputs[1:]]
    known = all(name in arrays for name in (*vectors, *(each.name for each in weights)))
    alone = graph.readers[layer] == [norm] and all(graph.readers[each] == [layer] for each in weights)
    is_head = any(head is layer for head, _ in graph.heads)
    return layer if known and alone and not is_head else None


def _same_channels(norm: Node, layer: Node) -> bool:
    """Say whether BatchNorm has its channels on the axis on which the layer puts its own."""
    axis = getattr(norm.a, "axis", 1)
    if layer.op is not None and layer.op.name == "FullyConnected":
        return axis == -1 or (axis == 1 and bool(layer.a.flatten))
    rank = len(layer.a.kernel) + 2
    return bool(axis % rank == (rank - 1 if channels_last(layer.a.layout) else 1))


def _folded(norm: Node, layer: Node, data: Entry, arrays: dict[str, NDArray]) -> Node:
    """Return the layer that does both, and put its parameters in place of those of the layer before."""
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
    """Return a weight that makes each output channel so many times as large."""
    if layer.op is None or layer.op.name != "Deconvolution":
        return weight * scale.reshape(-1, *(1,) * (weight.dim() - 1))
    groups = layer.a.num_group
    by_input = scale.reshape(groups, -1).repeat_interleave(weight.shape[0] // groups, 0)
    ones = (1,) * len(layer.a.kernel)
    last = channels_last(layer.a.layout)
    return weight * by_input.reshape(by_input.shape[0], *((*ones, -1) if last else (-1, *ones)))
