"""Where the sizes come from of what operators make from nothing, such as the begin states of an RNN.

A program infers shapes for every batch. A module of torch takes batches of any size without inferring, so each unknown
size is traced to an axis of an input: inference is run with two other lengths of that axis, and the sizes that move
along follow it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..base import Shape, ShapeError
from ..graph import Graph, Node, infer_shapes
from ..ops.shapes import known

Size = int | tuple[str, int]
"""A length, or the input and the axis that have it."""

_RANKS = (2, 3, 4, 1, 5)
_LENGTHS = (7919, 6133)
"""Lengths that no network has by chance."""

Shapes = Mapping[str, tuple[int, ...]]
Found = dict[Node, list[tuple[Size, ...]]]


def sizes_of(graph: Graph, held: Shapes, inputs: Sequence[str], given: Shapes) -> tuple[Found, list[Node]]:
    """Return the sizes of the outputs that attributes alone do not tell, and the nodes for which some are not found.

    Args:
        held: shapes of parameters and states.
        given: shapes of inputs, as far as they are known.
    """
    base = infer_shapes(graph, {**held, **given})
    left = [n for n in graph.nodes if n.op is not None and n.op.needs_shapes and not _is_settled(n)]
    sizes: dict[Node, list[list[Size]]] = {}
    for (name, axis), one, other in _trials(inputs, given):
        if all(node in sizes and _moves(sizes[node]) for node in left):
            break
        shapes = [_tried(graph, {**held, **lengths}) for lengths in (one, other)]
        if shapes[0] and shapes[1]:
            for node in left:
                _enter(sizes, node, base[node], shapes[0][node], shapes[1][node], (name, axis))
    for node in left:
        sizes.setdefault(node, [list(shape or (0,)) for shape in base[node]])
    missing = [node for node in left if any(0 in shape for shape in sizes[node])]
    return {node: [tuple(shape) for shape in found] for node, found in sizes.items()}, missing


def _is_settled(node: Node) -> bool:
    """Say whether an operator's attributes alone tell its outputs' shapes, or whether it finds them when it runs."""
    op = node.op
    if node.subgraphs or node.inputs or op is None or op.infer is None:
        return True
    return all(map(known, op.infer(node.a, [], [None] * node.num_outputs)[1]))


def _trials(inputs: Sequence[str], given: Shapes) -> Iterator[tuple[tuple[str, int], Shapes, Shapes]]:
    """Yield an input's axis, and twice the shapes of inputs with another length there.

    The axis may be that of a batch, which several inputs have in common: those of its length move along first.
    """
    names = [name for name in inputs if name in given]
    for name in names:
        for axis, length in enumerate(given[name]):
            alike = {n: given[n] for n in names if given[n][axis : axis + 1] == (length,)}
            for moved in (alike, {name: given[name]}):
                rest = {n: given[n] for n in names if n not in moved} if moved is alike else {}
                first, second = (
                    {**rest, **{n: (*s[:axis], to, *s[axis + 1 :]) for n, s in moved.items()}}
                    for to in _LENGTHS
                )
                yield (name, axis), first, second
    for rank in _RANKS:
        for axis in range(min(rank, 2)):
            for name in inputs if not names else ():
                first, second = (
                    {name: tuple(to if i == axis else 0 for i in range(rank))} for to in _LENGTHS
                )
                yield (name, axis), first, second


def _tried(graph: Graph, shapes: Shapes) -> dict[Node, list[Shape]]:
    """Return the shapes of all nodes, nothing if these inputs contradict each other."""
    try:
        found = infer_shapes(graph, shapes)
    except ShapeError:
        return {}
    return {} if any(_reads_ragged(node, found) for node in graph.nodes) else found


def _reads_ragged(node: Node, shapes: dict[Node, list[Shape]]) -> bool:
    """Say whether an RNN got data of two axes, which are ragged; a module of torch has none."""
    if node.op is None or node.op.name != "RNN":
        return False
    child, output = node.inputs[0]
    data = shapes[child][output]
    return data is not None and len(data) == 2


def _moves(shapes: Sequence[Sequence[Size]]) -> bool:
    """Say whether all sizes are known, and some of every shape follow an input."""
    return all(0 not in shape and any(isinstance(size, tuple) for size in shape) for shape in shapes)


def _enter(
    sizes: dict[Node, list[list[Size]]],
    node: Node,
    base: Sequence[Shape],
    one: Sequence[Shape],
    other: Sequence[Shape],
    source: tuple[str, int],
) -> None:
    """Note which sizes of a node's outputs follow an input's axis, and those that stay."""
    if any(a is None or b is None or len(a) != len(b) for a, b in zip(one, other)):
        return
    found = sizes.setdefault(node, [list(b or (0,) * len(a or ())) for a, b in zip(one, base)])
    for shape, a, b in zip(found, one, other):
        for i, pair in enumerate(zip(a or (), b or ())):
            if pair == _LENGTHS and not isinstance(shape[i], tuple):
                shape[i] = source
            elif pair[0] == pair[1] and shape[i] == 0:
                shape[i] = pair[0]
