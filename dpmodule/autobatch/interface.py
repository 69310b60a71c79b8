"""The interface of engines: the graph that expressions use, its owner, and the batches it has run."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import current_thread, get_ident, local
from typing import Any, Protocol

import torch
from numpy.typing import NDArray

from .ops.spec import Dim, Operation, shown
from .storage import ParameterStorage


class _Stay:
    """Kept in a thread's local memory, which Python frees when the thread ends: then the owner learns of it."""

    __slots__ = ("_owner", "_turn")

    def __init__(self, owner: Owner, turn: int) -> None:
        self._owner, self._turn = owner, turn

    def __del__(self) -> None:
        self._owner.end(self._turn)


class Owner:
    """The thread that a graph belongs to: it alone adds nodes and asks for values.

    Attributes:
        ident: its number, see `threading.get_ident`; 0 once it has ended, since the next thread may get the same.
    """

    __slots__ = ("_memory", "_turn", "ident", "name")

    def __init__(self) -> None:
        self.ident, self.name, self._turn = 0, "", 0
        self._memory = local()
        self.take()

    def take(self) -> None:
        """Become the thread that calls."""
        ident = get_ident()
        if self.ident != ident:
            self.ident, self.name = ident, current_thread().name
            self._turn += 1
            self._memory.stay = _Stay(self, self._turn)

    def end(self, turn: int) -> None:
        """Forget the number of a thread that has ended, if it is still the owner.

        Args:
            turn: how many had been owners when it became one.
        """
        if turn == self._turn:
            self.ident = 0


@dataclass(frozen=True, slots=True)
class RanBatch:
    """A batch that has been run, as both engines describe it; nodes without operands are in none.

    Attributes:
        kind: what could have been in it: equal for batches of one kind.
        operation: the operation's name; several with "+" between them where the engine has fused them.
        dims: the dimensions of the operands that come from outside.
        calls: how many of these are the same operation, which is what the batch is wide.
        repeats: how many operations were left out because an equal one was computed.
        apart: why the operation is never batched, "" if it may be.
        way: how code of the user's is run, "" for one call.
    """

    kind: Any
    operation: str
    dims: tuple[Dim, ...]
    out: Dim
    parameters: tuple[Any, ...]
    others: Any
    nodes: int
    calls: int
    forward: int
    repeats: int = 0
    apart: str = ""
    way: str = ""

    @property
    def label(self) -> str:
        """The operation with its shapes."""
        operands = " ".join(map(shown, self.dims))
        return (
            f"{self.operation} {operands} -> {shown(self.out)}"
            if operands
            else f"{self.operation} {shown(self.out)}"
        )


Marks = Mapping["weakref.ref[ParameterStorage]", tuple[int, int]]
"""By weak reference to a `ParameterStorage`, its `mark`."""


@dataclass(slots=True)
class Options:
    """What a graph is computed with."""

    autobatch: bool = False
    device: torch.device = torch.device("cpu")
    dtype: torch.dtype = torch.float32
    generator: torch.Generator | None = None


class _NamedOperation(Protocol):
    """An operation, as far as texts show it."""

    @property
    def name(self) -> str:
        """The name that users know it by."""


class _NodeKind(Protocol):
    """What a node computes."""

    @property
    def op(self) -> _NamedOperation:
        """The operation."""


class NodeSignature(Protocol):
    """What a node is, in any engine."""

    @property
    def dim(self) -> Dim:
        """The shape of its result."""

    @property
    def kind(self) -> _NodeKind:
        """What it computes."""


class StoredOperand(Protocol):
    """A parameter or a table of rows, as graphs know it from one to the next.

    Attributes:
        serial: of the engine that knows it; 0 for none.
    """

    serial: int
    table: int

    @property
    def storage(self) -> ParameterStorage:
        """Its memory."""


class EngineGraph(Protocol):
    """The graph under construction, of whichever engine.

    Expressions, parameters and `explain` call nothing else; whoever brings another engine implements the same.
    `base_graph.BaseGraph` has what all do and refuse alike. There is one exception, for speed: without the native
    extension every graph is a `graph.Graph`, and `expression` adds nodes to its lists itself.

    Attributes:
        owner: the thread that it belongs to; whoever adds nodes or asks for values checks that it is its own.
        was_cut: whether nodes have been taken back since it was begun.
    """

    version: int
    engine_name: str
    options: Options
    owner: Owner
    was_cut: bool

    @property
    def size(self) -> int:
        """The number of nodes."""

    @property
    def computed(self) -> int:
        """All nodes before this one have been computed, but for those that could not be."""

    @property
    def is_batched(self) -> bool:
        """Whether nodes are computed together."""

    @property
    def is_running(self) -> bool:
        """Whether the engine is at work."""

    @property
    def has_failed(self) -> bool:
        """Whether there are nodes that could not be computed."""

    @property
    def root(self) -> int:
        """The node that the last `backward` began at, -1 for none."""

    def append(self, op: Operation, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any = None) -> int:
        """Add a node and return its number; numbers count up from 0.

        An operation with k results takes k numbers in a row.

        Args:
            aux: the node's own argument, such as a label or a row, which nodes of a batch do not share; see
                `Operation.aux`.
        """

    def append_many(self, op: Operation, attrs: tuple[Any, ...], args: tuple[int, ...]) -> int:
        """Add a node that takes many operands of one shape (`Operation.many`); see `append`."""

    def set_input(self, node: int, array: Any) -> None:
        """Replace the array of an input: nothing computed from its former value is used any more.

        Shape:
            array: (batch, *d).
        """

    def enter(self, parameter: StoredOperand) -> int:
        """Return the node of a parameter that is known from earlier graphs; -1 where it has to be made."""

    def remember(self, parameter: StoredOperand, node: int) -> None:
        """Let later graphs know the parameter that has been given a node."""

    def adopt(self, table: StoredOperand, is_updated: bool) -> None:
        """Prepare for a table whose rows are looked up from now on."""

    def dim(self, node: int) -> Dim:
        """Return the shape of a node."""

    def signature(self, node: int) -> NodeSignature:
        """Return what a node is."""

    def operands(self, node: int) -> tuple[int, ...]:
        """Return the operands of a node."""

    def are_alike(self, nodes: list[int]) -> bool:
        """Say whether nodes have one shape, and none is a parameter: then `append_many` takes them."""

    def is_given(self, node: int) -> bool:
        """Say whether a node is an input whose gradient has been computed."""

    def forward(self, node: int) -> None:
        """Compute everything up to and including the node that has not been computed yet; values stay until `renew`.

        Raises what an operation raises that the node depends on, and no errors of others. Whoever asks for a node that
        has failed has it computed again.
        """

    def value(self, node: int) -> torch.Tensor:
        """Return the value, after `forward`; not to be written to.

        Shape:
            returns: (batch, *d).
        """

    def array(self, node: int) -> NDArray[Any]:
        """Return the value of a node as a float64 array of its own.

        Shape:
            returns: (*d, batch), or (*d) where the batch is 1.
        """

    def as_list(self, node: int) -> list[float] | None:
        """Return the value of a node as a list, dimension by dimension and the minibatch last; None: use `value`."""

    def backward(self, node: int, full: bool = False) -> None:
        """Compute the gradient of the node, one number, with respect to all nodes it depends on.

        Adds to the gradients of parameters, replaces those of nodes.

        Shape:
            node: one number, in a minibatch of one.

        Args:
            node: the number of the node.
        """

    def gradient(self, node: int) -> torch.Tensor:
        """Return the gradient, after `backward`; not of what depends on parameters changed since.

        Shape:
            returns: (batch, *d).
        """

    def marks(self) -> Marks:
        """Return marks of the parameters that the graph reads."""

    def renew(self, immediate: bool = False, checking: bool = False, autobatch: bool | None = None) -> None:
        """Throw everything away and give the memory back.

        Args:
            immediate: compute every node when it is made.
        """

    def checkpoint(self) -> None:
        """Remember the number of nodes."""

    def revert(self) -> None:
        """Forget all nodes since the last `checkpoint`.

        Gradients of those that stay are kept as long as the node that `backward` began at.
        """

    def recalculate(self) -> None:
        """Forget all values, but no nodes."""

    def settle(self) -> None:
        """Let values that were computed stay what they are, before parameters change."""

    def leave(self) -> None:
        """Make room: another engine's graph is the one under construction."""

    def check_thread(self) -> None:
        """Check that the graph may be used in this thread; see `change_thread`."""

    def change_thread(self) -> None:
        """Let another thread than the owner use the graph; called where `owner.ident` is not its number."""

    def check_nodes(self, nodes: Iterable[int]) -> None:
        """Raise a `StaleExpressionError` if one of some nodes has been taken back."""

    def check_free(self, what: str) -> None:
        """Raise a `StateError` if the graph is being computed; `renew`, `checkpoint` and `revert` begin with it."""

    def ran(self) -> list[RanBatch]:
        """Return the batches that were run since `renew`, in order."""

    def seconds(self) -> dict[str, float]:
        """Return the time spent since `renew`, in seconds, by "build" (between runs), "schedule", "run", "backward"."""
