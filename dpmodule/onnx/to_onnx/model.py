"""A whole ONNX model from a graph, its parameters and its inputs."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from ...graph import Graph
from ...ndarray import NDArray
from ..inputs import Inputs
from .fold import fold_batchnorms
from .parameters import Parameters
from .sizes import given_sizes
from .translation import Translation
from .types import value_info
from .writer import Writer, live_nodes, used_values

__all__ = ["translated"]


def translated(
    graph: Graph,
    arrays: Mapping[str, NDArray],
    inputs: Inputs,
    opset: int,
    fold_batchnorm: bool,
) -> onnx.ModelProto:
    """Return a graph as an ONNX model.

    Raises:
        Untranslatable: lists everything that ONNX has nothing for.
        ArgumentError: a parameter has another shape than the graph wants.
    """
    graph.check_names()
    if fold_batchnorm:
        graph, arrays = fold_batchnorms(graph, arrays)
    known = {name: arrays[name] for name in (n.name for n in graph.inputs) if name in arrays}
    parameters = Parameters(known)
    shapes = {name: tuple(array.shape) for name, array in known.items()}
    sizes = given_sizes(graph, {**shapes, **inputs.shapes}, inputs.sizes)
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
    # put in where they stay: parameters are large, and a list of tensors would be copied twice
    for name in known:
        if name in used:
            parameters.store(name, model.graph.initializer.add())
    model.graph.initializer.extend(each for name, each in writer.initializers.items() if name in used)
    return model
