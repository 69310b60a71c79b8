"""Shapes of a graph's values in which some lengths are not numbers but names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...base import Shape, ShapeError
from ...graph import Graph, Node, infer_shapes
from ...ops.shapes import known
from .call import Dim, Dims, Untranslatable

__all__ = ["ValueShapes", "concrete", "given_sizes"]

Run = Mapping[str, Shape]

_COUNTED_BY_VALUES = frozenset({"_contrib_boolean_mask"})
"""Operators that return some of the rows of their first input: how many depends on values."""


def given_sizes(graph: Graph, shapes: Mapping[str, Dims], base: Mapping[str, int]) -> ValueShapes:
    """Infer all shapes of a graph from those of variables, in which names stand for lengths of any size.

    The rules of shapes know numbers only. They are run once for a first set of sizes and once more for each name,
    with another size for it: a length that changes then depends on that name.

    Args:
        graph: the graph.
        shapes: shapes of variables by name.
        base: the first size of each name.

    Raises:
        Untranslatable: the graph does not take another size, which a number in an attribute may fix.
        ShapeError: the shapes contradict each other.
    """
    names = sorted({dim for shape in shapes.values() for dim in shape if isinstance(dim, str)})
    runs = [concrete(shapes, base)]
    found = [infer_shapes(graph, runs[0])]
    for name in names:
        run = concrete(shapes, {**base, name: 3 * base[name]})
        try:
            found.append(infer_shapes(graph, run))
        except ShapeError as error:
            raise Untranslatable(
                f"the length {name!r} cannot be dynamic: the graph takes one size of it only ({error}); a number "
                "in an attribute fixes it, such as the shape of a Reshape (0 and -1 leave it open)"
            ) from error
    symbols = {
        tuple(base[name] * (3 if i == k + 1 else 1) for i in range(len(names) + 1)): name
        for k, name in enumerate(names)
    }
    return ValueShapes(found, symbols)


def concrete(shapes: Mapping[str, Dims], sizes: Mapping[str, int]) -> dict[str, Shape]:
    """Return shapes with a size in place of each name."""
    return {
        name: tuple(dim if isinstance(dim, int) else sizes[dim] for dim in shape)
        for name, shape in shapes.items()
    }


class ValueShapes:
    """The shapes of all values of a graph.

    Args:
        runs: what `infer_shapes` found for several sizes of what is dynamic.
        symbols: name of the length that took these sizes.
    """

    def __init__(
        self, runs: Sequence[Mapping[Node, list[Shape]]], symbols: dict[tuple[int, ...], str]
    ) -> None:
        self._runs = runs
        self._symbols = symbols

    def dims(self, node: Node, i: int = 0) -> Dims:
        """Return the shape of a node's output.

        Raises:
            Untranslatable: it cannot be inferred.
        """
        if node.op is not None and node.op.name in _COUNTED_BY_VALUES:
            return (f"{node.name}_rows", *self.dims(*node.inputs[0])[1:])
        found = [run[node][i] for run in self._runs]
        shapes = [shape for shape in found if shape is not None and known(shape)]
        if len(shapes) < len(found):
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
            graph: the subgraph.
            inputs: shapes of its variables, in the order of ``graph.inputs``, with lengths that this object has named.
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
