"""The walk over a graph that writes it as an ONNX graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...base import ArgumentError
from ...graph import Graph, Node, infer_types
from ...ops.spec import LABEL
from .builders import builder
from .call import Dims, OperatorCall, Untranslatable
from .plain import translate_plainly
from .sizes import ValueShapes
from .writer import Writer

if TYPE_CHECKING:
    from .parameters import KnownVariables

__all__ = ["Translation"]


class Translation:
    """One graph on its way to ONNX, or a subgraph of its.

    Args:
        graph: the graph.
        sizes: shapes of all its values.
        types: dtype names of its variables.
        parameters: variables whose values are known.
        writer: where nodes go.
        values: ONNX names of variables of a subgraph; those of a whole graph keep their own.
        lengths: where dynamic lengths are found outside of a subgraph.
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
        """Write all operators, and return the names of the graph's outputs, which are those of `Symbol.list_outputs`.

        Raises:
            Untranslatable: lists every operator for which ONNX has nothing.
        """
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
        """Write one operator; what is wrong with it is kept until all have been tried."""
        start = len(self._writer.nodes)
        try:
            found = self._written(node)
        except Untranslatable as error:
            self._problems.extend(str(error).split("\n"))
            found = [""] * node.num_outputs
        made = {name for written in self._writer.nodes[start:] for name in written.output}
        names = {}
        for i, value in enumerate(found):
            self._values[node, i] = value
            if value in made and value not in names:
                names[value] = self._values[node, i] = self._writer.fresh(node.output_names[i])
        self._writer.rename(start, names)
        for i in range(len(found)):
            self._note_lengths(node, i)

    def _note_lengths(self, node: Node, i: int) -> None:
        """Remember where dynamic lengths can be read; an input of the graph counts only if it will be one."""
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
        if record is None or record.missing:
            reason = "ONNX has no such operator" if record is None else record.missing
            raise Untranslatable(f"{node.describe()}: {reason}")
        call = self._call(node)
        found = builder(record.builder)(call) if record.builder else translate_plainly(call, record)
        return (found,) if isinstance(found, str) else tuple(found)

    def _call(self, node: Node) -> OperatorCall:
        if node.op is None:
            raise ArgumentError(f"{node.describe()}: expected an operator")
        declared = node.op.wanted(node.a, len(node.inputs))
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
    ) -> list[str]:
        """Write the operators of a subgraph, and return the names of its outputs; see `OperatorCall.run`."""
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
        return [inner._values[head] for head in graph.heads]

    def _head(self, node: Node, i: int) -> str:
        """Return the name of an output, which is that of `Symbol.list_outputs`."""
        name, found = node.output_names[i], self._values[node, i]
        if found == name and node.op is not None:
            return name
        wanted = self._writer.fresh(name)
        self._writer.node("Identity", [found], [wanted], self._writer.fresh(f"{wanted}/Identity"), {})
        return wanted
