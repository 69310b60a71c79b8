"""Models of opsets before 7, upgraded by the converter of the package onnx."""

from __future__ import annotations

from typing import Any

from .check import OLDEST, Checker, versions_of
from .problems import Problems

_TARGET = OLDEST[""]


def upgraded(model: Any, path: str) -> Any:
    """Return a model of an opset before 7 in opset 7, and any other model as it is."""
    versions = versions_of(model.opset_import)
    old = versions.get("", _TARGET)
    if not 0 < old < _TARGET or model.functions:
        return model
    from onnx import version_converter

    problems = Problems(path)
    # the converter is C++ code that relies on a sound graph
    Checker(problems, {}, lambda domain, name: True).graph(model.graph, versions)
    problems.check()
    try:
        made = version_converter.convert_version(model, _TARGET)
    except Exception as error:  # it raises errors of many kinds
        why = (str(error).splitlines() or [type(error).__name__])[0]
        problems.add("", f"opset {old}, which the package onnx cannot upgrade to {_TARGET}: {why}")
        problems.check()
    _stand_up_slopes(model, made)
    return made


def _stand_up_slopes(old: Any, made: Any) -> None:
    """Give slopes of PRelu axes of size 1 after their own: before opset 7 there is one slope for each channel.

    From opset 7 on slopes broadcast, and the converter leaves them as they are.
    """
    import onnx

    nodes = [node for node in made.graph.node if node.op_type == "PRelu"]
    if not nodes:
        return
    graph = onnx.shape_inference.infer_shapes(old).graph
    ranks = {each.name: len(each.dims) for each in graph.initializer}
    ranks |= {
        each.name: len(each.type.tensor_type.shape.dim)
        for each in (*graph.input, *graph.value_info, *graph.output)
    }
    taken = {name for node in made.graph.node for name in (*node.input, *node.output)} | ranks.keys()
    for node in nodes:
        rank = ranks.get(node.input[0], 0)
        if ranks.get(node.input[1]) != 1 or rank < 3:
            continue
        name = f"{node.input[1]}_of_{node.output[0]}"
        while name in taken:
            name += "_"
        taken.add(name)
        axes = list(range(1, rank - 1))
        made.graph.node.append(onnx.helper.make_node("Unsqueeze", [node.input[1]], [name], axes=axes))
        node.input[1] = name
