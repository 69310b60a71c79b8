"""A whole ONNX model from a graph, its parameters and its inputs."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from ...base import ArgumentError, ShapeError
from ...graph import Graph, infer_shapes
from ...ndarray import NDArray
from ..hints import fixed_gammas, hints_of, write_hints
from ..inputs import ModelInputs
from .fold import fold_batchnorms
from .parameters import KnownVariables
from .sizes import concrete, given_sizes
from .translation import Translation
from .types import value_info
from .writer import Writer, live_nodes, used_values

__all__ = ["translated"]


def translated(
    graph: Graph,
    arrays: Mapping[str, NDArray],
    inputs: ModelInputs,
    opset: int,
    fold_batchnorm: bool,
) -> onnx.ModelProto:
    """Return a graph as an ONNX model.

    Raises:
        Untranslatable: lists everything that ONNX has nothing for.
        ArgumentError: parameters have other shapes than the graph wants; lists them.
    """
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
    # put in where they stay: parameters are large, and a list of tensors would be copied twice
    for name in known:
        if name in used:
            parameters.store(name, model.graph.initializer.add())
    model.graph.initializer.extend(each for name, each in writer.initializers.items() if name in used)
    write_hints(
        hints_of(graph, writer.initializers), lambda key, text: model.metadata_props.add(key=key, value=text)
    )
    return model


def _check_parameters(graph: Graph, shapes: Mapping[str, tuple[int, ...]], inputs: ModelInputs) -> None:
    """Refuse parameters whose shapes are not those that follow from the inputs' alone.

    Raises:
        ArgumentError: lists all of them.
        ShapeError: the inputs do not fit by themselves.
    """
    found = infer_shapes(graph, concrete(inputs.shapes, inputs.sizes))
    wrong = []
    for node in graph.inputs:
        wanted, shape = found[node][0], shapes.get(node.name)
        if wanted is not None and shape is not None and not _fits(shape, wanted):
            wrong.append(f"params has {node.name!r} of shape {shape}, the symbol wants {wanted}")
    if wrong:
        raise ArgumentError("\n".join(wrong))


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Say whether a shape is one in which 0 stands for a length that is not known."""
    return len(shape) == len(wanted) and all(w in (0, d) for d, w in zip(shape, wanted))
