"""The ONNX graph that is being written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from .types import tensor

__all__ = ["Writer"]


class Writer:
    """Nodes and constants of one ONNX graph, or of the body of a loop or branch in it.

    Args:
        opset: version of ONNX's operators.
        outer: the writer of the graph around; names are unique over all of them.
    """

    def __init__(self, opset: int, outer: Writer | None = None) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}
        self._taken: set[str] = set() if outer is None else outer._names()
        self._constants: dict[tuple[Any, ...], str] = {}

    def _names(self) -> set[str]:
        return self._taken

    def take(self, names: Iterable[str]) -> None:
        """Keep names for values that have them already."""
        self._taken.update(names)

    def fresh(self, stem: str) -> str:
        """Return a name that no other value or node has."""
        name, number = stem, 0
        while name in self._taken:
            number += 1
            name = f"{stem}_{number}"
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
        """Write a node. Attributes that are None are left out."""
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
        """Return the name of a constant; equal small ones are written once."""
        key = (dtype, array.shape, array.tobytes()) if array.size <= 64 else None
        if key in self._constants:
            return self._constants[key]
        name = self.fresh(stem)
        self.initializers[name] = tensor(name, array, dtype)
        if key is not None:
            self._constants[key] = name
        return name

    def rename(self, start: int, names: Mapping[str, str]) -> None:
        """Give values other names in the nodes from position `start`."""
        for node in self.nodes[start:]:
            for names_of_node in (node.input, node.output):
                for i, name in enumerate(names_of_node):
                    if name in names:
                        names_of_node[i] = names[name]
