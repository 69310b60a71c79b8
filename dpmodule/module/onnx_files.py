"""Export of modules to ONNX, with their symbols, parameters and bound shapes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._files import path_text
from ..base import ArgumentError
from ..graph import Graph
from ..io import DataDesc
from ..onnx.export import make_model, write_models
from ..onnx.prediction import describe_inputs, input_names
from ..symbol import Symbol

if TYPE_CHECKING:
    from .types import BucketKey, DynamicAxes, PathLike


class BoundNetwork:
    """A bound network for export to ONNX."""

    def __init__(self, module: Any) -> None:
        self.symbol: Symbol = module.symbol
        arg_params, aux_params = module.get_params()
        self._params = {**arg_params, **aux_params}
        described = [*module.data_shapes, *(module.label_shapes or ())]
        own = set(input_names(self.symbol, self._params))
        self.inputs: dict[str, DataDesc] = {desc.name: desc for desc in described if desc.name in own}
        self.inputs.update(_states(self.symbol, described, module.group.state_names))

    def model(self, opset: int, dynamic: DynamicAxes, fold_batchnorm: bool) -> Any:
        """Return the ONNX model."""
        names = input_names(self.symbol, self._params)
        types = [self.inputs[name].dtype for name in names if name in self.inputs]
        shapes = {name: desc.shape for name, desc in self.inputs.items()}
        marks = self._batches() if dynamic is None else dynamic
        inputs = describe_inputs(self.symbol, self._params, shapes, types, marks)
        return make_model(self.symbol, self._params, inputs, opset, fold_batchnorm)

    def _batches(self) -> dict[str, dict[int, str]]:
        """Return the batch axes of the inputs."""
        axes = {name: DataDesc.get_batch_axis(desc.layout) for name, desc in self.inputs.items()}
        return {
            name: {axis: "batch"}
            for name, axis in axes.items()
            if axis >= 0 and len(self.inputs[name].shape) > axis
        }

    def with_time(self, others: Sequence[BoundNetwork]) -> dict[str, dict[int, str]]:
        """Return the batch axes and, named "time", the axes whose lengths differ between buckets.

        Args:
            others: the same network, bound for other shapes.
        """
        marks = self._batches()
        for name, desc in self.inputs.items():
            shapes = [other.inputs[name].shape for other in others if name in other.inputs]
            for axis, size in enumerate(desc.shape):
                if any(shape[axis] != size for shape in shapes):
                    marks.setdefault(name, {}).setdefault(axis, "time")
        return marks


def _states(symbol: Symbol, described: Sequence[DataDesc], names: Sequence[str]) -> dict[str, DataDesc]:
    """Return descriptions of states, in whose layouts an "N" marks the axis that grows with the batch."""
    if not names:
        return {}
    now, greater = (
        dict(zip(symbol.list_arguments(), symbol.infer_shape_partial(**shapes)[0]))
        for shapes in (
            {desc.name: desc.shape for desc in described},
            {desc.name: _grown_shape(desc) for desc in described},
        )
    )
    marks = {
        name: "".join("N" if a != b else "-" for a, b in zip(now[name], greater[name])) for name in names
    }
    return {name: DataDesc(name, now[name], layout=marks[name]) for name in names}


def _grown_shape(desc: DataDesc) -> tuple[int, ...]:
    axis = DataDesc.get_batch_axis(desc.layout)
    return tuple(3 * size if i == axis else size for i, size in enumerate(desc.shape))


def write_one(
    bound: BoundNetwork, path: PathLike, opset: int, dynamic: DynamicAxes, fold_batchnorm: bool
) -> str:
    """Write one network, and return the path of the file."""
    name: str = path_text(path, "path")
    write_models({name: bound.model(opset, dynamic, fold_batchnorm)})
    return name


def write_buckets(
    bound: Mapping[Any, BoundNetwork], path: PathLike, opset: int, dynamic: DynamicAxes, fold_batchnorm: bool
) -> list[str]:
    """Write a file for each bucket, all or none, and return their paths."""
    stem, ending = os.path.splitext(path_text(path, "path"))
    results = {
        key: _model_or_error(network, opset, dynamic, fold_batchnorm) for key, network in bound.items()
    }
    errors = [
        f"bucket {key!r}: {result}" for key, result in results.items() if isinstance(result, ArgumentError)
    ]
    if errors:
        raise ArgumentError("\n".join(errors))
    models = {f"{stem}-{key}{ending}": model for key, model in results.items()}
    write_models(models)
    return list(models)


def _model_or_error(bound: BoundNetwork, opset: int, dynamic: DynamicAxes, fold_batchnorm: bool) -> Any:
    """Return the model of a bucket, or its error."""
    try:
        return bound.model(opset, dynamic, fold_batchnorm)
    except ArgumentError as error:
        return error


def write_one_for_all(
    bound: Mapping[Any, BoundNetwork],
    default: BucketKey,
    path: PathLike,
    opset: int,
    dynamic: DynamicAxes,
    fold_batchnorm: bool,
) -> str:
    """Write one file for all buckets, and return its path."""
    first = bound[default]
    for key, network in bound.items():
        if _structure(network.symbol.graph) != _structure(first.symbol.graph):
            raise ArgumentError(
                f"one_file: the graph of bucket {key!r} is another than that of {default!r}, as that of unrolled cells "
                "is; an RNN operator (FusedRNNCell) has the same graph for all lengths. one_file=False writes a file "
                "for each bucket"
            )
    if dynamic is None:
        dynamic = first.with_time(list(bound.values()))
        if len(bound) == 1:
            raise ArgumentError(
                f"one_file: only bucket {default!r} is bound, and nothing to compare its shapes with; name the lengths "
                'that differ, such as dynamic={"data": {0: "batch", 1: "time"}}'
            )
    return write_one(first, path, opset, dynamic, fold_batchnorm)


def _structure(graph: Graph) -> tuple[Any, ...]:
    """Return the structure of a graph without operator names, equal for equivalent graphs."""
    rows = tuple(
        (
            node.op and node.op.name,
            node.name if node.op is None else "",
            tuple(node.params.items()),
            tuple((graph.index[child], i) for child, i in node.inputs),
            tuple(map(_structure, node.subgraphs)),
        )
        for node in graph.nodes
    )
    return rows, tuple((graph.index[node], i) for node, i in graph.heads)
