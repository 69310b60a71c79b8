"""`Writer`: the nodes, constants and element types of an ONNX graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from ...base import DTYPES

CODES: dict[str, int] = {
    dtype: onnx.TensorProto.DataType.Value(
        {"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, dtype.upper())
    )
    for dtype in DTYPES
}


def code_of(dtype: str) -> int:
    """Return ONNX's code of a dtype name."""
    return CODES[dtype]


def dtype_of(code: int) -> str:
    """Return the dtype name of ONNX's code; "float32" for an unsupported type."""
    return next((dtype for dtype, number in CODES.items() if number == code), "float32")


def value_info(name: str, dtype: str, dims: Sequence[int | str]) -> onnx.ValueInfoProto:
    """Return the declaration of an input or output."""
    return onnx.helper.make_tensor_value_info(name, CODES[dtype], dims)


def fill(found: onnx.TensorProto, name: str, array: np.ndarray[Any, Any], dtype: str) -> None:
    """Put an array into an empty tensor of ONNX.

    Args:
        array: the elements; 16-bit patterns (uint16) where `dtype` is "bfloat16".
    """
    found.name, found.data_type = name, CODES[dtype]
    found.dims.extend(array.shape)
    found.raw_data = array.tobytes()


# nodes and constants


def used_values(nodes: Iterable[onnx.NodeProto], outputs: Iterable[str]) -> set[str]:
    """Return the names of the outputs and of all values that nodes and their bodies read."""
    names = set(outputs)
    for node in nodes:
        names.update(node.input)
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                names |= used_values(graph.node, [output.name for output in graph.output])
    return names


def live_nodes(nodes: Sequence[onnx.NodeProto], outputs: Iterable[str]) -> list[onnx.NodeProto]:
    """Return the nodes on which the outputs depend, in order."""
    wanted = set(outputs)
    kept: list[onnx.NodeProto] = []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted |= used_values([node], ())
    return kept[::-1]


class Writer:
    """Nodes and constants of one ONNX graph, or of the body of a loop or branch in it.

    Args:
        scope: prefix of the names of all values and nodes.
        taken: existing names; bodies share them with outer graphs.
    """

    def __init__(self, opset: int, scope: str = "", taken: set[str] | None = None) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}
        self._scope = scope
        self._taken: set[str] = set() if taken is None else taken
        self._arguments: list[onnx.ValueInfoProto] = []
        self._constants: dict[tuple[Any, ...], str] = {}

    def body(self, scope: str) -> Writer:
        """Return a writer for the body of a loop or branch, whose names start with `scope`."""
        return Writer(self.opset, f"{self._scope}{scope}/", self._taken)

    def argument(self, dtype: str, dims: Sequence[int | str]) -> str:
        """Add an input to a body and return its name."""
        name = self.fresh(f"input{len(self._arguments)}")
        self._arguments.append(value_info(name, dtype, dims))
        return name

    def graph(self, outputs: Sequence[onnx.ValueInfoProto]) -> onnx.GraphProto:
        """Return a body with these outputs, without unused nodes and constants."""
        names = [output.name for output in outputs]
        nodes = live_nodes(self.nodes, names)
        used = used_values(nodes, names)
        constants = [each for name, each in self.initializers.items() if name in used]
        return onnx.helper.make_graph(nodes, self.fresh("body"), self._arguments, outputs, constants)

    def take(self, names: Iterable[str]) -> None:
        """Reserve names of existing values."""
        self._taken.update(names)

    def fresh(self, stem: str) -> str:
        """Return a unique name."""
        name, number = self._scope + stem, 0
        while name in self._taken:
            number += 1
            name = f"{self._scope}{stem}_{number}"
        self._taken.add(name)
        return name

    def node(
        self,
        operator: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        name: str,
        attributes: Mapping[str, Any],
        domain: str = "",
    ) -> None:
        """Write a node; attributes that are None are omitted."""
        self.nodes.append(
            onnx.helper.make_node(
                operator,
                inputs,
                outputs,
                name=name,
                domain=domain,
                **{key: value for key, value in attributes.items() if value is not None},
            )
        )

    def constant(self, array: np.ndarray[Any, Any], dtype: str, stem: str) -> str:
        """Return the name of a constant; equal small constants are shared."""
        key = (dtype, array.shape, array.tobytes()) if array.size <= 64 else None
        if key in self._constants:
            return self._constants[key]
        name = self.fresh(stem)
        self.initializers[name] = onnx.TensorProto()
        fill(self.initializers[name], name, array, dtype)
        if key is not None:
            self._constants[key] = name
        return name

    def piece(self, array: np.ndarray[Any, Any], dtype: str, name: str) -> str:
        """Return the name of a constant that is a part of a parameter; the same part has the same name."""
        tensor = onnx.TensorProto()
        fill(tensor, self._scope + name, array, dtype)
        if self.initializers.get(tensor.name) != tensor:
            tensor.name = self.fresh(name)
            self.initializers[tensor.name] = tensor
        return tensor.name

    def rename(self, start: int, names: Mapping[str, str]) -> None:
        """Rename values in the nodes from position `start`."""
        for node in self.nodes[start:]:
            for names_of_node in (node.input, node.output):
                for i, name in enumerate(names_of_node):
                    if name in names:
                        names_of_node[i] = names[name]
