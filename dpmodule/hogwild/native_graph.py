"""Translating a symbol to steps of the native engine, or finding an unsupported operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from ..graph.node import Entry, Node
from ..symbol import Symbol
from .slot_feed import SlotFeed

LOSSES = ("SoftmaxOutput", "LogisticRegressionOutput", "LinearRegressionOutput", "MakeLoss", "make_loss")


_INPUTS = {"Embedding": 1, "FullyConnected": 1, "_running_auc": 2}
"""Numbers of inputs before parameters and states; other operators have neither."""


class NotNative(Exception):
    """The native engine does not support a program; the text has the reason."""


def unsupported(node: Node, what: str = "") -> NotNative:
    """Return the error for an unsupported operator."""
    return NotNative(f"{node.describe()} is not supported by the native engine{what and f': {what}'}")


@dataclass(frozen=True, slots=True)
class StepValue:
    """Matrix output of a step.

    Args:
        tail: shape without the batch axis.
        single: whether it is one number for the whole batch.
    """

    index: int
    width: int
    tail: tuple[int, ...]
    single: bool = False


@dataclass(frozen=True, slots=True)
class SlotInput:
    """Input variable of a slot.

    Args:
        tail: shape without the batch axis.
        ragged: whether lines have different numbers of values.
    """

    name: str
    tail: tuple[int, ...]
    ragged: bool


@dataclass(frozen=True, slots=True)
class LookupRows:
    """Looked-up rows of a table for a ragged slot, before pooling."""

    slot: str
    table: str
    width: int
    squared: bool = False


@dataclass(frozen=True, slots=True)
class RunningCount:
    """A `_running_auc`, which the calling thread counts from records of the workers.

    Args:
        output: value of the steps in its place, which no other step reads.
    """

    node: Node
    data: StepValue
    label: StepValue
    output: StepValue


StepInput = StepValue | SlotInput | LookupRows
Handler = Callable[["NativeSteps", Node, "list[StepInput]", "tuple[int, ...]"], StepInput]


class NativeSteps:
    """Builder of the steps of a graph.

    Attributes:
        steps: kind, function, output, inputs, integers and floats of each step; kinds and functions are names in
            native/hogwild/plan.hpp and native/kernels.
        counts: operators that are counted outside of the steps.
        tables_of: name and number of rows of the smallest table that a slot indexes, by slot.
        indexed: names of all tables that a slot indexes, by slot.
    """

    def __init__(self, feed: SlotFeed) -> None:
        self.values: list[StepValue] = []
        self.steps: list[tuple[str, str, int, tuple[int, ...], tuple[int, ...], tuple[float, ...]]] = []
        self.heads: list[StepValue] = []
        self.tables_of: dict[str, tuple[str, int]] = {}
        self.indexed: dict[str, set[str]] = {}
        self.numbers: set[str] = set()
        self.counts: list[RunningCount] = []
        self.inputs = {desc.name: desc for desc in (*feed.data, *feed.labels)}
        self._slots = {slot.name: i for i, slot in enumerate(feed.desc.slots)}
        self._types = {slot.name: slot.type for slot in feed.desc.slots}
        self._tables: dict[str, tuple[tuple[int, ...], bool]] = {}
        self._dense: dict[str, tuple[int, ...]] = {}
        self._order: dict[str, int] = {}
        self._numbers: dict[str, StepValue] = {}

    # methods for handlers

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
        """Add a step, and return its output."""
        value = StepValue(len(self.values), prod(tail), tail, single)
        self.values.append(value)
        self.steps.append((kind, function, value.index, tuple(each.index for each in inputs), ints, floats))
        return value

    def slot(self, name: str) -> int:
        """Return the index of a slot."""
        return self._slots[name]

    def table(self, node: Node, weight: Node, slot: str, sparse: bool) -> int:
        """Return the index of the table of an Embedding, and record the slot that indexes it."""
        if self._types[slot] != "uint64":
            raise unsupported(node, f"slot {slot!r} has floats")
        if node.a.input_dim is None:
            raise unsupported(node, "hash_rows=True makes rows while training")
        shape = (node.a.input_dim, node.a.output_dim)
        number = self._parameter(node, weight)
        if weight.name in self._dense:
            raise unsupported(node, f"{weight.name!r} is also used as a dense parameter")
        self._tables[weight.name] = shape, sparse and self._tables.get(weight.name, (shape, True))[1]
        self.indexed.setdefault(slot, set()).add(weight.name)
        known = self.tables_of.get(slot)
        if known is None or known[1] > shape[0]:
            self.tables_of[slot] = weight.name, shape[0]
        return number

    def parameter_number(self, name: str) -> int:
        """Return the index of a used parameter."""
        return self._order[name]

    def dense(self, node: Node, weight: Node, shape: tuple[int, ...]) -> int:
        """Return the index of a dense parameter."""
        number = self._parameter(node, weight)
        if weight.name in self._tables:
            raise unsupported(node, f"{weight.name!r} is also used as a table")
        self._dense[weight.name] = shape
        return number

    def number_slot(self, name: str) -> StepValue:
        """Return the values of a dense slot as a matrix."""
        if name not in self._numbers:
            self.numbers.add(name)
            tail = tuple(self.inputs[name].shape[1:])
            self._numbers[name] = self.add("Numbers", [], tail, (self.slot(name),))
        return self._numbers[name]

    def matrix(self, node: Node, value: StepInput) -> StepValue:
        """Return an input as a matrix."""
        if isinstance(value, SlotInput) and not value.ragged:
            return self.number_slot(value.name)
        if not isinstance(value, StepValue):
            raise unsupported(node, "its input is ragged; use an Embedding and sequence_pool first")
        return value

    def _parameter(self, node: Node, weight: Node) -> int:
        if weight.op is not None or weight.name in self.inputs:
            raise unsupported(node, f"{weight.describe()} is not a parameter")
        return self._order.setdefault(weight.name, len(self._order))

    def parameters(self) -> Iterator[tuple[str, tuple[int, ...], bool, bool]]:
        """Yield name and shape of each parameter, whether it is a table, and whether its gradient is row-sparse."""
        for name in self._order:
            shape, sparse = self._tables[name] if name in self._tables else (self._dense[name], False)
            yield name, shape, name in self._tables, sparse


def read_graph(symbol: Symbol, feed: SlotFeed, handlers: Mapping[str, Handler]) -> NativeSteps:
    """Return the steps of a symbol.

    Args:
        handlers: functions that create the steps of operators, by name.
    """
    graph = NativeSteps(feed)
    shapes = _shapes(symbol, graph)
    values: dict[Entry, StepInput] = {}
    for node in symbol.graph.nodes:
        if node.op is None:
            if node.name in graph.inputs:
                desc = graph.inputs[node.name]
                values[node, 0] = SlotInput(node.name, tuple(desc.shape[1:]), desc.stype == "ragged")
            continue
        handler = handlers.get(node.op.name)
        if handler is None or node.num_outputs != 1:
            raise unsupported(node)
        read = node.inputs[: _INPUTS.get(node.op.name)]
        if not all(entry in values for entry in read):
            raise unsupported(node, "it reads a parameter")
        inputs = [values[entry] for entry in read]
        values[node, 0] = handler(graph, node, inputs, shapes.get((node, 0), ()))
    for entry in symbol.graph.heads:
        graph.heads.append(_head(graph, entry, values))
    return graph


def _head(graph: NativeSteps, entry: Entry, values: dict[Entry, StepInput]) -> StepValue:
    node = entry[0]
    if node.op is None or entry not in values:
        raise NotNative(f"{node.describe()} is an output of the program")
    if node.op.name not in (*LOSSES, "BlockGrad"):
        raise unsupported(node, "it is an output without a loss; use BlockGrad for values next to losses")
    return graph.matrix(node, values[entry])


def _shapes(symbol: Symbol, graph: NativeSteps) -> dict[Entry, tuple[int, ...]]:
    """Return the shapes of all outputs of operators."""
    internals = symbol.get_internals()
    given = {name: tuple(desc.shape) for name, desc in graph.inputs.items()}
    shapes = internals.infer_shape_partial(**given)[1]
    return {entry: tuple(shape) for entry, shape in zip(internals.graph.heads, shapes) if shape is not None}
