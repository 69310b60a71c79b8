"""The interface of graphs, shared by both engines: owner thread, checks, and records of batches."""

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
from .ops.spec import Dim, Operation, format_dim
from .storage import ParameterStorage


class _ThreadEndNotice:
    """Object in a thread's local storage, whose finalizer reports the end of the thread."""

    __slots__ = ("_owner", "_turn")

    def __init__(self, owner: OwnerThread, turn: int) -> None:
        self._owner, self._turn = owner, turn

    def __del__(self) -> None:
        self._owner.end(self._turn)


class OwnerThread:
    """The thread that owns a graph; only it may add nodes and compute values.

    Attributes:
        ident: `threading.get_ident` of the thread; 0 after it has ended, since the number may be reused.
    """

    __slots__ = ("_memory", "_turn", "ident", "name")

    def __init__(self) -> None:
        self.ident, self.name, self._turn = 0, "", 0
        self._memory = local()
        self.take()

    def take(self) -> None:
        """Make the calling thread the owner."""
        ident = get_ident()
        if self.ident != ident:
            self.ident, self.name = ident, current_thread().name
            self._turn += 1
            self._memory.stay = _ThreadEndNotice(self, self._turn)

    def end(self, turn: int) -> None:
        """Reset `ident` after the end of a thread, if it still is the owner.

        Args:
            turn: number of owners up to this thread.
        """
        if turn == self._turn:
            self.ident = 0


class _NodeHolder(Protocol):
    """An object with nodes of the graph: a parameter, or a network with its dropout masks."""

    def forget_nodes(self, size: int) -> None:
        """Forget nodes from number `size` on, which are no longer in the graph."""


class _NodeHolders:
    """The objects that hold nodes of the graph under construction."""

    def __init__(self) -> None:
        self._held: list[_NodeHolder] = []
        self._version = -1

    def add(self, held: _NodeHolder, version: int) -> None:
        """Register `held`, which has a node in the graph of that version."""
        if version != self._version:
            self._held.clear()
            self._version = version
        self._held.append(held)

    def forget_nodes(self, size: int) -> None:
        """Make all holders forget their nodes from number `size` on."""
        for each in self._held:
            each.forget_nodes(size)


node_holders = _NodeHolders()


class _CalledFunctions(local):
    """Names of the user functions being called in a thread, innermost last."""

    def __init__(self) -> None:
        self.all: list[str] = []


_names = _CalledFunctions()


@contextmanager
def calling(name: str) -> Iterator[None]:
    """Record the name of the user function called inside a ``with`` block."""
    _names.all.append(name)
    try:
        yield
    finally:
        _names.all.pop()


def called() -> str:
    """Return the innermost user function being called in this thread, "" for none."""
    return _names.all[-1] if _names.all else ""


@dataclass(frozen=True, slots=True)
class ExecutedBatch:
    """Record of an executed batch; nodes without operands are not in any.

    Attributes:
        kind: key that is equal for batches whose nodes could be batched together.
        operation: name of the operation; fused operations are joined with "+".
        dims: dimensions of the external operands.
        calls: width of the batch, the number of equal operations.
        repeats: number of operations skipped because an equal one was computed.
        never_batched: reason why the operation is never batched, "" if it may be.
        execution: how user code is run, "" for one call.
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
        operands = " ".join(map(format_dim, self.dims))
        return (
            f"{self.operation} {operands} -> {format_dim(self.out)}"
            if operands
            else f"{self.operation} {format_dim(self.out)}"
        )


def as_array(found: torch.Tensor) -> NDArray[Any]:
    """Convert a tensor to DyNet's array layout.

    Floating point numbers become float64, as in DyNet; integers keep their dtype.

    Shape:
        found: (batch, *d).
        returns: (*d, batch), or (*d) if the batch is 1.
    """
    array = found.numpy(force=True)
    dtype = np.float64 if found.is_floating_point() else array.dtype
    return (array[0] if array.shape[0] == 1 else np.moveaxis(array, 0, -1)).astype(dtype, order="C")


FEW = 4
"""Operands of one shape beyond this number are shown as one."""


def execution_of(op: Operation, attrs: tuple[Any, ...], dims: tuple[Dim, ...]) -> str:
    """Return how user code is run, see `ExecutedBatch.execution`."""
    if not op.name.startswith("cell "):
        return ""
    reference, is_train, inputs = attrs
    owner = reference()
    return "" if owner is None else owner.execution(is_train, [dim.d for dim in dims[:inputs]])


def display_name(name: str) -> str:
    """Return the name of an operation without suffixes that the shapes imply."""
    return _FORMS.get(name, name.removesuffix("_many"))


_FORMS = {"lstm_first": "lstm_step", "sum_batches": "sum_dim"}


def inputs_of(op: Operation, attrs: tuple[Any, ...], dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return the shapes of operands, without a cell's parameters."""
    return dims[: attrs[2]] if op.name.startswith("cell ") else dims


ParameterVersions = Mapping["weakref.ref[ParameterStorage]", tuple[int, int]]
"""Memory versions of parameters, by weak reference to their `ParameterStorage`."""


@dataclass(slots=True)
class Options:
    """Settings of the computation of a graph."""

    autobatch: bool = False
    device: torch.device = torch.device("cpu")
    dtype: torch.dtype = torch.float32
    generator: torch.Generator | None = None


class EngineGraph(ABC):
    """Base of the graphs of all engines, with the checks that they share.

    Expressions, parameters and `explain` use only this interface. There is one exception, for speed: without the native
    extension every graph is a `python_engine.graph.PythonGraph`, and `expression` adds nodes to its lists directly.

    Attributes:
        is_immediate: True if every node is computed on creation.
        owner: the thread that started the graph or added its first node. Code that adds nodes or computes values checks
            it.
        was_cut: True if `revert` has removed nodes.
    """

    engine_name: str

    def __init__(self, options: Options, version: int = 0) -> None:
        self.options, self.version = options, version
        self.is_immediate = self.is_checking = self.was_cut = False
        self.owner = OwnerThread()
        self._checkpoints: list[tuple[int, Any]] = []
        self._versions_at_backward: ParameterVersions = {}

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of nodes."""

    @property
    @abstractmethod
    def computed(self) -> int:
        """All nodes before this one have been computed, except for failed ones."""

    @property
    @abstractmethod
    def is_batched(self) -> bool:
        """True if nodes are batched."""

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """True while the engine is computing."""

    @property
    @abstractmethod
    def has_failed(self) -> bool:
        """True if the computation of a node has failed."""

    @property
    @abstractmethod
    def root(self) -> int:
        """The node from which the last `backward` started, -1 for none."""

    @abstractmethod
    def append(self, op: Operation, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any = None) -> int:
        """Add a node and return its number, counting from 0.

        An operation with k results takes k consecutive numbers.

        Args:
            aux: argument of the single node, such as a label or a row; see `Operation.aux`.
        """

    @abstractmethod
    def append_many(self, op: Operation, attrs: tuple[Any, ...], args: tuple[int, ...]) -> int:
        """Add a node with many operands of one shape (`Operation.many`); see `append`."""

    @abstractmethod
    def set_input(self, node: int, array: Any) -> None:
        """Replace the array of an input, which invalidates all values computed from it.

        Shape:
            array: (batch, *d).
        """

    def enter(self, parameter: Any) -> int:
        """Return the node of a parameter known from earlier graphs, or -1."""
        return -1

    def remember(self, parameter: Any, node: int) -> None:  # noqa: B027 (optional)
        """Remember a parameter that has been given a node for later graphs."""

    @abstractmethod
    def adopt(self, table: Any, is_updated: bool) -> None:
        """Prepare for lookups in a table."""

    @abstractmethod
    def dim(self, node: int) -> Dim:
        """Return the shape of a node."""

    @abstractmethod
    def operation_of(self, node: int) -> str:
        """Return the name of a node's operation; "extra" for a further result of the previous node."""

    @abstractmethod
    def operands(self, node: int) -> tuple[int, ...]:
        """Return the operands of a node."""

    @abstractmethod
    def are_alike(self, nodes: list[int]) -> bool:
        """Return True if `append_many` accepts the nodes: they have one shape, and none is a parameter."""

    @abstractmethod
    def is_given(self, node: int) -> bool:
        """Return True if a node is an input whose gradient has been computed."""

    @abstractmethod
    def forward(self, node: int) -> None:
        """Compute all missing values up to and including a node; values are kept until `renew`.

        Raises only errors of operations that the node depends on. A failed node is retried.
        """

    @abstractmethod
    def value(self, node: int) -> torch.Tensor:
        """Return the value, after `forward`, as a read-only tensor.

        Shape:
            returns: (batch, *d).
        """

    def array(self, node: int) -> NDArray[Any]:
        """Return a copy of the value of a node as a float64 array.

        Shape:
            returns: (*d, batch), or (*d) if the batch is 1.
        """
        return as_array(self.value(node))

    def as_list(self, node: int) -> list[float] | None:
        """Return the value of a node as a list in column-major order; None if unsupported, see `value`."""
        return None

    @abstractmethod
    def backward(self, node: int, full: bool = False) -> None:
        """Compute the gradients of a scalar node with respect to all nodes it depends on.

        Gradients of parameters are accumulated, those of nodes replaced.

        Shape:
            node: one number, in a minibatch of one.

        Args:
            node: the number of the node.
        """

    @abstractmethod
    def gradient(self, node: int) -> torch.Tensor:
        """Return the gradient of a node, after `backward`, unless parameters have changed since.

        Shape:
            returns: (batch, *d).
        """

    @abstractmethod
    def parameter_versions(self) -> ParameterVersions:
        """Return the memory versions of the parameters that the graph reads."""

    def renew(self, immediate: bool = False, checking: bool = False, autobatch: bool | None = None) -> None:
        """Discard all nodes and release the memory; with `immediate`, compute every node on creation."""
        self.check_free("renew_cg")
        self.owner.take()
        self.version += 1
        self.was_cut = False
        self.is_immediate, self.is_checking = immediate or checking, checking
        self._checkpoints.clear()
        self._start(self.options.autobatch if autobatch is None else bool(autobatch))

    def checkpoint(self) -> None:
        """Save the current number of nodes for `revert`."""
        self.check_free("cg_checkpoint")
        self.check_thread()
        self._checkpoints.append((self.size, self._progress()))

    def revert(self) -> None:
        """Remove all nodes added since the last `checkpoint`.

        Gradients are kept if the root of `backward` remains.
        """
        self.check_free("cg_revert")
        self.check_thread()
        if not self._checkpoints:
            raise StateError(
                "cg_revert was called without a checkpoint: call cg_checkpoint() first, once for each cg_revert();"
                f" renew_cg() discards the whole graph (at {user_line()})"
            )
        size, progress = self._checkpoints.pop()
        self.was_cut = True
        self._cut(size, progress)
        node_holders.forget_nodes(size)

    @abstractmethod
    def recalculate(self) -> None:
        """Discard all values, but keep the nodes."""

    @abstractmethod
    def settle(self) -> None:
        """Preserve computed values before parameters change."""

    @abstractmethod
    def deactivate(self) -> None:
        """Deactivate the graph because another engine's graph is now under construction."""

    def check_thread(self) -> None:
        """Check that the calling thread may use the graph; see `change_thread`."""
        if get_ident() != self.owner.ident:
            self.change_thread()

    def change_thread(self) -> None:
        """Make the calling thread the owner if the graph is empty; called if `owner.ident` differs."""
        if self.size:
            raise StateError(
                f"the graph under construction was started in thread {self.owner.name!r} and is used in thread"
                f" {current_thread().name!r}: only one thread may build a graph; call renew_cg() in the"
                f" new thread, and pass numbers to it, not expressions (at {user_line()})"
            )
        self.owner.take()

    def check_nodes(self, nodes: Iterable[int]) -> None:
        """Raise a `StaleExpressionError` if a node has been removed."""
        size = self.size
        for node in nodes:
            if node >= size:
                raise StaleExpressionError(
                    f"Stale Expression: node {node} was removed by cg_revert (at {user_line()})"
                )

    def check_free(self, what: str) -> None:
        """Raise a `StateError` if the graph is being computed; called by `renew`, `checkpoint` and `revert`."""
        if name := called():
            raise StateError(
                f"{what} was called inside {name}, which the graph is calling: a function given to wrap or cell"
                f" must not change the graph; call {what} outside it (at {user_line()})"
            )
        if self.is_running:
            raise StateError(
                f"{what} was called in thread {current_thread().name!r} while thread {self.owner.name!r} computes the"
                f" graph; use the graph in one thread only (at {user_line()})"
            )

    @abstractmethod
    def executed_batches(self) -> list[ExecutedBatch]:
        """Return the batches executed since `renew`, in order."""

    @abstractmethod
    def seconds(self) -> dict[str, float]:
        """Return the time spent since `renew`, in seconds, by "build" (between runs), "schedule", "run", "backward"."""

    @abstractmethod
    def _start(self, is_batched: bool) -> None:
        """Start an empty graph."""

    @abstractmethod
    def _progress(self) -> Any:
        """Return the progress of the computation for `_cut`, None or 0 if nothing was computed."""

    @abstractmethod
    def _cut(self, size: int, progress: Any) -> None:
        """Remove nodes from number `size` on, and discard values computed since `progress`."""

    def check_root(self, node: int) -> None:
        """Check that a backward pass may start at a node."""
        dim = self.dim(node)
        if dim.size * dim.batch != 1:
            raise NotScalarError(
                f"backward() can only be called on scalar nodes, but node {node} has dimension: {format_dim(dim)};"
                f" reduce it first with sum_elems or sum_batches (at {user_line()})"
            )
        if self.root == node:
            raise StateError(
                f"backward() was called twice for node {node}, which would count the gradients of the parameters"
                " twice; call renew_cg() and rebuild the graph, or sum the losses before backward()"
                f" (at {user_line()})"
            )

    def note_parameters(self) -> None:
        """Record the versions of the parameters read by a backward pass."""
        self._versions_at_backward = self.parameter_versions()

    def check_reached(self, node: int) -> None:
        """Check that the last backward pass may have reached a node, and that its gradient is still available.

        The native engine computes the gradients of fused nodes on request, which is impossible once parameters have
        changed. For consistency, both engines then refuse all gradients except those of inputs.
        """
        if self.root < node:
            origin = "no backward pass has been run" if self.root < 0 else f"it ran from node {self.root}"
            raise NoGradientError(
                f"requested the gradient of node {node}, but {origin}; call backward() on an expression that depends"
                f" on it (with full=True if no parameter feeds it) (at {user_line()})"
            )
        read = ((reference(), version) for reference, version in self._versions_at_backward.items())
        changed = next(
            (each for each, version in read if each is not None and each.memory_version() != version), None
        )
        if changed is not None and not self.is_given(node):
            raise StateError(
                f"requested the gradient of node {node}, but parameter {changed.name} was changed after"
                " backward(), so its gradients are out of date; call gradient() before"
                f" trainer.update() or set_value() (at {user_line()})"
            )

    def _compute_immediately(self, node: int, name: str) -> None:
        """Compute a new node, and check its value if `is_checking`."""
        self.forward(node)
        if self.is_checking and not bool(torch.isfinite(self.value(node)).all()):
            raise NonFiniteError(f"the value of node {node} ({name}) is not finite (at {user_line()})")
