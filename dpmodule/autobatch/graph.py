"""The graph under construction, as both engines have it: who uses it, what it refuses, the batches it has run."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import current_thread, get_ident, local
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from .errors import (
    NoGradientError,
    NonFiniteError,
    NotScalarError,
    StaleExpressionError,
    StateError,
    user_line,
)
from .ops.spec import Dim, Operation, shown
from .storage import ParameterStorage


class _ThreadEndNotice:
    """Kept in a thread's local memory, which Python frees when the thread ends: then the owner learns of it."""

    __slots__ = ("_owner", "_turn")

    def __init__(self, owner: OwnerThread, turn: int) -> None:
        self._owner, self._turn = owner, turn

    def __del__(self) -> None:
        self._owner.end(self._turn)


class OwnerThread:
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
            self._memory.stay = _ThreadEndNotice(self, self._turn)

    def end(self, turn: int) -> None:
        """Forget the number of a thread that has ended, if it is still the owner.

        Args:
            turn: how many had been owners when it became one.
        """
        if turn == self._turn:
            self.ident = 0


class _NodeHolder(Protocol):
    """A parameter, or a network with its masks of dropout."""

    def leave(self, size: int) -> None:
        """Forget nodes from number `size` on: they are no longer in the graph."""


class _NodeHolders:
    """Those that hold nodes of the graph under construction."""

    def __init__(self) -> None:
        self._held: list[_NodeHolder] = []
        self._version = -1

    def add(self, held: _NodeHolder, version: int) -> None:
        """Remember `held`, which has got a node in the graph of that version."""
        if version != self._version:
            self._held.clear()
            self._version = version
        self._held.append(held)

    def leave(self, size: int) -> None:
        """Let all forget their nodes from number `size` on."""
        for each in self._held:
            each.leave(size)


node_holders = _NodeHolders()


class _CalledFunctions(local):
    """The functions that a thread is in, the innermost last."""

    def __init__(self) -> None:
        self.all: list[str] = []


_names = _CalledFunctions()


@contextmanager
def calling(name: str) -> Iterator[None]:
    """Remember, inside a ``with`` block, that a function is being called."""
    _names.all.append(name)
    try:
        yield
    finally:
        _names.all.pop()


def called() -> str:
    """Return the name of the innermost function that is being called in this thread, "" for none."""
    return _names.all[-1] if _names.all else ""


@dataclass(frozen=True, slots=True)
class ExecutedBatch:
    """A batch that has been run, as both engines describe it; nodes without operands are in none.

    Attributes:
        kind: what could have been in it: equal for batches of one kind.
        operation: the operation's name; several with "+" between them where the engine has fused them.
        dims: the dimensions of the operands that come from outside.
        calls: how many of these are the same operation, which is what the batch is wide.
        repeats: how many operations were left out because an equal one was computed.
        never_batched: why the operation is never batched, "" if it may be.
        execution: how code of the user's is run, "" for one call.
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
    never_batched: str = ""
    execution: str = ""

    @property
    def label(self) -> str:
        """The operation with its shapes."""
        operands = " ".join(map(shown, self.dims))
        return (
            f"{self.operation} {operands} -> {shown(self.out)}"
            if operands
            else f"{self.operation} {shown(self.out)}"
        )


def as_array(found: torch.Tensor) -> NDArray[Any]:
    """Turn a tensor into DyNet's form of an array.

    Numbers are float64, as in DyNet, whatever the graph computes in; integers stay what they are.

    Shape:
        found: (batch, *d).
        returns: (*d, batch), or (*d) where the batch is 1.
    """
    array = found.numpy(force=True)
    dtype = np.float64 if found.is_floating_point() else array.dtype
    return (array[0] if array.shape[0] == 1 else np.moveaxis(array, 0, -1)).astype(dtype, order="C")


FEW = 4
"""More operands of one shape are shown as one."""


def execution_of(op: Operation, attrs: tuple[Any, ...], dims: tuple[Dim, ...]) -> str:
    """Return how code of the user's is run, see `ExecutedBatch.execution`."""
    if not op.name.startswith("cell "):
        return ""
    reference, is_train, inputs = attrs
    owner = reference()
    return "" if owner is None else owner.execution(is_train, [dim.d for dim in dims[:inputs]])


def display_name(name: str) -> str:
    """Return the name of an operation without what the shapes tell: how many operands there are, or a minibatch."""
    return _FORMS.get(name, name.removesuffix("_many"))


_FORMS = {"lstm_first": "lstm_step", "sum_batches": "sum_dim"}


def inputs_of(op: Operation, attrs: tuple[Any, ...], dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return the shapes of operands; a cell's parameters are not shown."""
    return dims[: attrs[2]] if op.name.startswith("cell ") else dims


Marks = Mapping["weakref.ref[ParameterStorage]", tuple[int, int]]
"""By weak reference to a `ParameterStorage`, its `mark`."""


@dataclass(slots=True)
class Options:
    """What a graph is computed with."""

    autobatch: bool = False
    device: torch.device = torch.device("cpu")
    dtype: torch.dtype = torch.float32
    generator: torch.Generator | None = None


class EngineGraph(ABC):
    """The graph under construction, of whichever engine: what all do, and refuse at the wrong time or place, alike.

    Expressions, parameters and `explain` call nothing else; whoever brings another engine implements the same.
    There is one exception, for speed: without the native extension every graph is a `python_engine.graph.PythonGraph`,
    and `expression` adds nodes to its lists itself.

    Attributes:
        is_immediate: whether every node is computed when it is made.
        owner: the thread that the graph belongs to: the one that has begun it, or that has put the first node into it.
            Whoever adds nodes or asks for values checks that it is its own.
        was_cut: whether nodes have been taken back since it was begun.
    """

    engine_name: str

    def __init__(self, options: Options, version: int = 0) -> None:
        self.options, self.version = options, version
        self.is_immediate = self.is_checking = self.was_cut = False
        self.owner = OwnerThread()
        self._checkpoints: list[tuple[int, Any]] = []
        self._marks_at_backward: Marks = {}

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of nodes."""

    @property
    @abstractmethod
    def computed(self) -> int:
        """All nodes before this one have been computed, but for those that could not be."""

    @property
    @abstractmethod
    def is_batched(self) -> bool:
        """Whether nodes are computed together."""

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Whether the engine is at work."""

    @property
    @abstractmethod
    def has_failed(self) -> bool:
        """Whether there are nodes that could not be computed."""

    @property
    @abstractmethod
    def root(self) -> int:
        """The node that the last `backward` began at, -1 for none."""

    @abstractmethod
    def append(self, op: Operation, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any = None) -> int:
        """Add a node and return its number; numbers count up from 0.

        An operation with k results takes k numbers in a row.

        Args:
            aux: the node's own argument, such as a label or a row, which nodes of a batch do not share; see
                `Operation.aux`.
        """

    @abstractmethod
    def append_many(self, op: Operation, attrs: tuple[Any, ...], args: tuple[int, ...]) -> int:
        """Add a node that takes many operands of one shape (`Operation.many`); see `append`."""

    @abstractmethod
    def set_input(self, node: int, array: Any) -> None:
        """Replace the array of an input: nothing computed from its former value is used any more.

        Shape:
            array: (batch, *d).
        """

    def enter(self, parameter: Any) -> int:
        """Return the node of a parameter that is known from earlier graphs; -1 where it has to be made."""
        return -1

    def remember(self, parameter: Any, node: int) -> None:  # noqa: B027 (an engine may know none)
        """Let later graphs know the parameter that has been given a node."""

    @abstractmethod
    def adopt(self, table: Any, is_updated: bool) -> None:
        """Prepare for a table whose rows are looked up from now on."""

    @abstractmethod
    def dim(self, node: int) -> Dim:
        """Return the shape of a node."""

    @abstractmethod
    def operation_of(self, node: int) -> str:
        """Return the name of a node's operation; "extra" for a further result of the node before."""

    @abstractmethod
    def operands(self, node: int) -> tuple[int, ...]:
        """Return the operands of a node."""

    @abstractmethod
    def are_alike(self, nodes: list[int]) -> bool:
        """Say whether nodes have one shape, and none is a parameter: then `append_many` takes them."""

    @abstractmethod
    def is_given(self, node: int) -> bool:
        """Say whether a node is an input whose gradient has been computed."""

    @abstractmethod
    def forward(self, node: int) -> None:
        """Compute everything up to and including the node that has not been computed yet; values stay until `renew`.

        Raises what an operation raises that the node depends on, and no errors of others. Whoever asks for a node that
        has failed has it computed again.
        """

    @abstractmethod
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
        return as_array(self.value(node))

    def as_list(self, node: int) -> list[float] | None:
        """Return the value of a node as a list, dimension by dimension and the minibatch last; None: use `value`."""
        return None

    @abstractmethod
    def backward(self, node: int, full: bool = False) -> None:
        """Compute the gradient of the node, one number, with respect to all nodes it depends on.

        Adds to the gradients of parameters, replaces those of nodes.

        Shape:
            node: one number, in a minibatch of one.

        Args:
            node: the number of the node.
        """

    @abstractmethod
    def gradient(self, node: int) -> torch.Tensor:
        """Return the gradient, after `backward`; not of what depends on parameters changed since.

        Shape:
            returns: (batch, *d).
        """

    @abstractmethod
    def marks(self) -> Marks:
        """Return marks of the parameters that the graph reads."""

    def renew(self, immediate: bool = False, checking: bool = False, autobatch: bool | None = None) -> None:
        """Throw everything away and give the memory back; `immediate`: compute every node when it is made."""
        self.check_free("renew_cg")
        self.owner.take()
        self.version += 1
        self.was_cut = False
        self.is_immediate, self.is_checking = immediate or checking, checking
        self._checkpoints.clear()
        self._start(self.options.autobatch if autobatch is None else bool(autobatch))

    def checkpoint(self) -> None:
        """Remember the number of nodes."""
        self.check_free("cg_checkpoint")
        self.check_thread()
        self._checkpoints.append((self.size, self._progress()))

    def revert(self) -> None:
        """Forget all nodes since the last `checkpoint`.

        Gradients of those that stay are kept as long as the node that `backward` began at.
        """
        self.check_free("cg_revert")
        self.check_thread()
        if not self._checkpoints:
            raise StateError(
                "cg_revert was called without a checkpoint: call cg_checkpoint() first, once for each cg_revert();"
                f" renew_cg() throws the whole graph away (at {user_line()})"
            )
        size, progress = self._checkpoints.pop()
        self.was_cut = True
        self._cut(size, progress)
        node_holders.leave(size)

    @abstractmethod
    def recalculate(self) -> None:
        """Forget all values, but no nodes."""

    @abstractmethod
    def settle(self) -> None:
        """Let values that were computed stay what they are, before parameters change."""

    @abstractmethod
    def leave(self) -> None:
        """Make room: another engine's graph is the one under construction."""

    def check_thread(self) -> None:
        """Check that the graph may be used in this thread; see `change_thread`."""
        if get_ident() != self.owner.ident:
            self.change_thread()

    def change_thread(self) -> None:
        """Let another thread than the owner use the graph; called where `owner.ident` is not its number."""
        if self.size:
            raise StateError(
                f"the graph under construction was begun in thread {self.owner.name!r} and is used in thread"
                f" {current_thread().name!r}: one graph is built at a time, in one thread; call renew_cg() in the"
                f" thread that goes on, and take numbers there, not expressions (at {user_line()})"
            )
        self.owner.take()

    def check_nodes(self, nodes: Iterable[int]) -> None:
        """Raise a `StaleExpressionError` if one of some nodes has been taken back."""
        size = self.size
        for node in nodes:
            if node >= size:
                raise StaleExpressionError(
                    f"Stale Expression: node {node} was taken back by cg_revert (at {user_line()})"
                )

    def check_free(self, what: str) -> None:
        """Raise a `StateError` if the graph is being computed; `renew`, `checkpoint` and `revert` begin with it."""
        if name := called():
            raise StateError(
                f"{what} was called inside of {name}, which the graph is calling: a function given to wrap or cell"
                f" takes and returns tensors and leaves the graph alone; call {what} outside of it (at {user_line()})"
            )
        if self.is_running:
            raise StateError(
                f"{what} was called in thread {current_thread().name!r} while thread {self.owner.name!r} computes the"
                f" graph; use it in one thread (at {user_line()})"
            )

    @abstractmethod
    def executed_batches(self) -> list[ExecutedBatch]:
        """Return the batches that were run since `renew`, in order."""

    @abstractmethod
    def seconds(self) -> dict[str, float]:
        """Return the time spent since `renew`, in seconds, by "build" (between runs), "schedule", "run", "backward"."""

    @abstractmethod
    def _start(self, is_batched: bool) -> None:
        """Begin an empty graph."""

    @abstractmethod
    def _progress(self) -> Any:
        """Return what `_cut` wants to know of what has been computed, None or 0 for nothing."""

    @abstractmethod
    def _cut(self, size: int, progress: Any) -> None:
        """Forget nodes from number `size` on, and what has been computed since `progress`."""

    def check_root(self, node: int) -> None:
        """Check that a backward pass may begin at a node."""
        dim = self.dim(node)
        if dim.size * dim.batch != 1:
            raise NotScalarError(
                f"backward() can only be called on scalar nodes, but node {node} has dimension: {shown(dim)};"
                f" sum it up first, with sum_elems or sum_batches (at {user_line()})"
            )
        if self.root == node:
            raise StateError(
                f"backward() was called twice for node {node}: the gradients of the parameters would be counted"
                " twice; call renew_cg() and build the graph again, or add the losses up before backward()"
                f" (at {user_line()})"
            )

    def note_parameters(self) -> None:
        """Remember the parameters as a backward pass has read them."""
        self._marks_at_backward = self.marks()

    def check_reached(self, node: int) -> None:
        """Check that the last backward pass may have come to a node, and that its gradient can still be had.

        The native engine computes some gradients only when they are asked for, which it cannot once parameters have
        changed. Which ones depends on what it has fused, so both engines refuse all but those of inputs.
        """
        if self.root < node:
            origin = "no backward pass has been run" if self.root < 0 else f"it ran from node {self.root}"
            raise NoGradientError(
                f"requested the gradient of node {node}, but {origin}; call backward() on an expression that depends"
                f" on it first (with full=True if no parameter feeds it) (at {user_line()})"
            )
        read = ((reference(), mark) for reference, mark in self._marks_at_backward.items())
        changed = next((each for each, mark in read if each is not None and each.mark() != mark), None)
        if changed is not None and not self.is_given(node):
            raise StateError(
                f"requested the gradient of node {node}, but parameter {changed.name} was changed after"
                " backward(), and gradients are those of the values before; ask for gradient() before"
                f" trainer.update(), set_value() and the like (at {user_line()})"
            )

    def _compute_at_once(self, node: int, name: str) -> None:
        """Compute a node that has just been made, and check its value if that is asked for."""
        self.forward(node)
        if self.is_checking and not bool(torch.isfinite(self.value(node)).all()):
            raise NonFiniteError(f"the value of node {node} ({name}) is not finite (at {user_line()})")
