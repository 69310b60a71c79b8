"""Reading a symbol as the steps of the native engine, or finding out which operator it does not know."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from ..graph.node import Entry, Node
from ..symbol import Symbol
from .slot_feed import SlotFeed

LOSSES = ("SoftmaxOutput", "LogisticRegressionOutput", "LinearRegressionOutput", "MakeLoss", "make_loss")


_WITH_PARAMETERS = ("Embedding", "FullyConnected")
"""Operators whose inputs but the first are parameters; no other reads any."""


class NotNative(Exception):
    """What the native engine does not know."""


def unsupported(node: Node, what: str = "") -> NotNative:
    """Return the reason that an operator gives, to be raised."""
    return NotNative(f"{node.describe()} is not known to the native engine{what and f': {what}'}")


@dataclass(frozen=True, slots=True)
class StepValue:
    """A matrix that a step makes.

    Args:
        tail: the shape without the batch axis.
    """

    index: int
    width: int
    tail: tuple[int, ...]
    single: bool = False


@dataclass(frozen=True, slots=True)
class SlotInput:
    """A variable that a slot feeds.

    Args:
        tail: its shape without the batch axis.
        ragged: whether it has any number of values a line.
    """

    name: str
    tail: tuple[int, ...]
    ragged: bool


@dataclass(frozen=True, slots=True)
class LookupRows:
    """Rows of a table for the values of a ragged slot, before they are pooled."""

    slot: str
    table: str
    width: int
    squared: bool = False


StepInput = StepValue | SlotInput | LookupRows
Handler = Callable[["NativeSteps", Node, "list[StepInput]", "tuple[int, ...]"], StepInput]


class NativeSteps:
    """The steps of a graph, as they are collected.

    Attributes:
        steps: kind, function, output, inputs, whole numbers and numbers of each step; kinds and functions are names in
            native/hogwild/plan.hpp and native/kernels.
        tables_of: by slot the smallest table that its values are rows of, and how many rows that has.
    """

    def __init__(self, feed: SlotFeed) -> None:
        self.values: list[StepValue] = []
        self.steps: list[tuple[str, str, int, tuple[int, ...], tuple[int, ...], tuple[float, ...]]] = []
        self.heads: list[StepValue] = []
        self.tables_of: dict[str, tuple[str, int]] = {}
        self.numbers: set[str] = set()
        self.inputs = {desc.name: desc for desc in (*feed.data, *feed.labels)}
        self._slots = {slot.name: i for i, slot in enumerate(feed.desc.slots)}
        self._types = {slot.name: slot.type for slot in feed.desc.slots}
        self._tables: dict[str, tuple[tuple[int, ...], bool]] = {}
        self._dense: dict[str, tuple[int, ...]] = {}
        self._order: dict[str, int] = {}
        self._numbers: dict[str, StepValue] = {}

    # what handlers call

    def add(
        self,
        kind: str,
        inputs: list[StepValue],
        tail: tuple[int, ...],
        ints: tuple[int, ...] = (),
        floats: tuple[float, ...] = (),
        single: bool = False,
        function: str = "",
    ) -> StepValue:
        """Add a step and return what it makes."""
        value = StepValue(len(self.values), prod(tail), tail, single)
        self.values.append(value)
        self.steps.append((kind, function, value.index, tuple(each.index for each in inputs), ints, floats))
        return value

    def slot(self, name: str) -> int:
        """Return the number of a slot."""
        return self._slots[name]

    def table(self, node: Node, weight: Node, slot: str, sparse: bool) -> int:
        """Return the number of the table that an Embedding reads, and note whose values are its rows."""
        if self._types[slot] != "uint64":
            raise unsupported(node, f"slot {slot!r} has fractions")
        shape = (node.a.input_dim, node.a.output_dim)
        number = self._parameter(node, weight)
        if weight.name in self._dense:
            raise unsupported(node, f"{weight.name!r} is used whole elsewhere")
        self._tables[weight.name] = shape, sparse and self._tables.get(weight.name, (shape, True))[1]
        known = self.tables_of.get(slot)
        if known is None or known[1] > shape[0]:
            self.tables_of[slot] = weight.name, shape[0]
        return number

    def parameter_number(self, name: str) -> int:
        """Return the number of a parameter that is in use."""
        return self._order[name]

    def dense(self, node: Node, weight: Node, shape: tuple[int, ...]) -> int:
        """Return the number of a parameter that is used whole."""
        number = self._parameter(node, weight)
        if weight.name in self._tables:
            raise unsupported(node, f"{weight.name!r} is a table elsewhere")
        self._dense[weight.name] = shape
        return number

    def number_slot(self, name: str) -> StepValue:
        """Return the values of a dense slot as numbers."""
        if name not in self._numbers:
            self.numbers.add(name)
            tail = tuple(self.inputs[name].shape[1:])
            self._numbers[name] = self.add("Numbers", [], tail, (self.slot(name),))
        return self._numbers[name]

    def matrix(self, node: Node, found: StepInput) -> StepValue:
        """Return an input that is a matrix."""
        if isinstance(found, SlotInput) and not found.ragged:
            return self.number_slot(found.name)
        if not isinstance(found, StepValue):
            raise unsupported(node, "its input is ragged; look its values up and pool them first")
        return found

    def _parameter(self, node: Node, weight: Node) -> int:
        if weight.op is not None or weight.name in self.inputs:
            raise unsupported(node, f"{weight.describe()} is no parameter")
        return self._order.setdefault(weight.name, len(self._order))

    def parameters(self) -> Iterator[tuple[str, tuple[int, ...], bool, bool]]:
        """Yield name and shape of each parameter, whether it is a table, and whether its gradient is of rows only."""
        for name in self._order:
            shape, sparse = self._tables[name] if name in self._tables else (self._dense[name], False)
            yield name, shape, name in self._tables, sparse


def read_graph(symbol: Symbol, feed: SlotFeed, handlers: Mapping[str, Handler]) -> NativeSteps:
    """Return the steps of a symbol.

    Args:
        handlers: by the name of the operator what makes its steps.
    """
    graph = NativeSteps(feed)
    shapes = _shapes(symbol, graph)
    made: dict[Entry, StepInput] = {}
    for node in symbol.graph.nodes:
        if node.op is None:
            if node.name in graph.inputs:
                desc = graph.inputs[node.name]
                made[node, 0] = SlotInput(node.name, tuple(desc.shape[1:]), desc.stype == "ragged")
            continue
        handler = handlers.get(node.op.name)
        if handler is None or node.num_outputs != 1:
            raise unsupported(node)
        read = node.inputs[:1] if node.op.name in _WITH_PARAMETERS else node.inputs
        if not all(entry in made for entry in read):
            raise unsupported(node, "it reads a parameter")
        found = [made[entry] for entry in read]
        made[node, 0] = handler(graph, node, found, shapes.get((node, 0), ()))
    for entry in symbol.graph.heads:
        graph.heads.append(_head(graph, entry, made))
    return graph


def _head(graph: NativeSteps, entry: Entry, made: dict[Entry, StepInput]) -> StepValue:
    node = entry[0]
    if node.op is None or entry not in made:
        raise NotNative(f"{node.describe()} is an output of the program")
    if node.op.name not in (*LOSSES, "BlockGrad"):
        raise unsupported(node, "it is an output without a loss; BlockGrad shows values beside losses")
    return graph.matrix(node, made[entry])


def _shapes(symbol: Symbol, graph: NativeSteps) -> dict[Entry, tuple[int, ...]]:
    """Return the shapes of all outputs of operators."""
    internals = symbol.get_internals()
    given = {name: tuple(desc.shape) for name, desc in graph.inputs.items()}
    found = internals.infer_shape_partial(**given)[1]
    return {entry: tuple(shape) for entry, shape in zip(internals.graph.heads, found) if shape is not None}
