"""What both engines share: who uses the graph, what it refuses, and how one batch is run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import current_thread, get_ident, local
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from ..compat import torch_private
from .errors import (
    NoGradientError,
    NonFiniteError,
    NotScalarError,
    StaleExpressionError,
    StateError,
    user_line,
)
from .interface import EngineGraph, Marks, Options, Owner
from .ops.spec import BatchCall, Dim, Operation, shown


class _Holder(Protocol):
    """A parameter, or a network with its masks of dropout."""

    def leave(self, size: int) -> None:
        """Forget nodes from number `size` on: they are no longer in the graph."""


class _Entered:
    """Those that hold nodes of the graph under construction."""

    def __init__(self) -> None:
        self._held: list[_Holder] = []
        self._version = -1

    def note(self, held: _Holder, version: int) -> None:
        """Remember `held`, which has got a node in the graph of that version."""
        if version != self._version:
            self._held.clear()
            self._version = version
        self._held.append(held)

    def leave(self, size: int) -> None:
        """Let all forget their nodes from number `size` on."""
        for each in self._held:
            each.leave(size)


entered = _Entered()


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


Tensor = torch.Tensor


def aux_tensor(kind: str, values: list[Any], device: torch.device, dtype: torch.dtype) -> Any:
    """Turn the nodes' own arguments (`Op.aux`) into what `BatchCall.aux` promises.

    Shape:
        returns: (nodes,) or (nodes, ...), as `Op.aux` says.
    """
    if kind == "":
        return None
    if kind == "float":
        return torch.from_numpy(np.array(values, np.float64)).to(device, dtype)
    if kind in ("int", "ints"):  # by way of numpy, which reads lists ten times as fast
        return torch.from_numpy(np.array(values, np.int64)).to(device)
    return values


def run_call(call: BatchCall, run: Any, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """Compute the results of a batch; keeps the first one in ``call.result``.

    Shape:
        inputs, returns: each (nodes or 1, batch, *d).
    """
    found = run(call, *inputs)
    results: tuple[Tensor, ...] = found if isinstance(found, tuple) else (found,)
    call.result = results[0]
    return results


def grad_call(call: BatchCall, op: Any, gradients: list[Tensor], inputs: list[Tensor]) -> list[Tensor | None]:
    """Compute the gradient of every operand of a batch, of the operand's shape.

    Shape:
        gradients: each (nodes, batch, *d).
        inputs, returns: each (nodes or 1, batch, *d).
    """
    found: list[Tensor | None] | None = None
    if op.grad is not None:
        found = op.grad(call, gradients[0] if len(gradients) == 1 else tuple(gradients), *inputs)
    if found is None:
        found = _by_autograd(call, op.run, gradients, inputs)
    for place, (each, x) in enumerate(zip(found, inputs)):
        if each is not None and each.shape[0] != x.shape[0]:
            found[place] = each.sum(0, keepdim=True)
    return found


def _by_autograd(
    call: BatchCall, run: Any, gradients: list[Tensor], inputs: list[Tensor]
) -> list[Tensor | None]:
    wants = call.wants or (True,) * len(inputs)
    leaves = [x.detach().requires_grad_() if want else x for x, want in zip(inputs, wants)]
    wanted = [x for x, want in zip(leaves, wants) if want]
    if not wanted:
        return [None] * len(inputs)
    with torch.enable_grad():
        found = run(call, *leaves)
        results = found if isinstance(found, tuple) else (found,)
        pairs = [(r.expand_as(g), g) for r, g in zip(results, gradients) if r.requires_grad]
    if not pairs:
        return [None] * len(inputs)
    grads = iter(torch_private.run_backward(*zip(*pairs), inputs=tuple(wanted)))
    return [next(grads) if want else None for want in wants]


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


def way_of(op: Operation, attrs: tuple[Any, ...], dims: tuple[Dim, ...]) -> str:
    """Return how code of the user's is run, see `RanBatch.way`."""
    if not op.name.startswith("cell "):
        return ""
    reference, is_train, inputs = attrs
    owner = reference()
    return "" if owner is None else owner.way(is_train, [dim.d for dim in dims[:inputs]])


def known_as(name: str) -> str:
    """Return the name of an operation without what the shapes tell: how many operands there are, or a minibatch."""
    return _FORMS.get(name, name.removesuffix("_many"))


_FORMS = {"lstm_first": "lstm_step", "sum_batches": "sum_dim"}


def inputs_of(op: Operation, attrs: tuple[Any, ...], dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return the shapes of operands; a cell's parameters are not shown."""
    return dims[: attrs[2]] if op.name.startswith("cell ") else dims


class BaseGraph(EngineGraph):
    """The base of both graphs: checkpoints, and what is refused at the wrong time, in the wrong thread or place.

    Attributes:
        is_immediate: whether every node is computed when it is made.
        owner: the thread that the graph belongs to: the one that has begun it, or that has put the first node into it.
        was_cut: whether nodes have been taken back since it was begun.
    """

    def __init__(self, options: Options, version: int = 0) -> None:
        self.options, self.version = options, version
        self.is_immediate = self.is_checking = self.was_cut = False
        self.owner = Owner()
        self._checkpoints: list[tuple[int, Any]] = []
        self._marks_at_backward: Marks = {}

    @override
    def array(self, node: int) -> NDArray[Any]:
        return as_array(self.value(node))

    @override
    def enter(self, parameter: Any) -> int:
        return -1

    @override
    def remember(self, parameter: Any, node: int) -> None:
        pass

    @override
    def as_list(self, node: int) -> list[float] | None:
        return None

    @override
    def change_thread(self) -> None:
        if self.size:
            raise StateError(
                f"the graph under construction was begun in thread {self.owner.name!r} and is used in thread"
                f" {current_thread().name!r}: one graph is built at a time, in one thread; call renew_cg() in the"
                f" thread that goes on, and take numbers there, not expressions (at {user_line()})"
            )
        self.owner.take()

    @override
    def check_thread(self) -> None:
        if get_ident() != self.owner.ident:
            self.change_thread()

    @override
    def check_nodes(self, nodes: Iterable[int]) -> None:
        size = self.size
        for node in nodes:
            if node >= size:
                raise StaleExpressionError(
                    f"Stale Expression: node {node} was taken back by cg_revert (at {user_line()})"
                )

    @override
    def check_free(self, what: str) -> None:
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

    @override
    def renew(self, immediate: bool = False, checking: bool = False, autobatch: bool | None = None) -> None:
        self.check_free("renew_cg")
        self.owner.take()
        self.version += 1
        self.was_cut = False
        self.is_immediate, self.is_checking = immediate or checking, checking
        self._checkpoints.clear()
        self._start(self.options.autobatch if autobatch is None else bool(autobatch))

    def _start(self, is_batched: bool) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not define _start")

    @override
    def checkpoint(self) -> None:
        self.check_free("cg_checkpoint")
        self.check_thread()
        self._checkpoints.append((self.size, self._progress()))

    def _progress(self) -> Any:
        """Return what `_cut` wants to know of what has been computed, None or 0 for nothing."""
        raise NotImplementedError(f"{type(self).__name__} does not define _progress")

    @override
    def revert(self) -> None:
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
        entered.leave(size)

    def _cut(self, size: int, progress: Any) -> None:
        """Forget nodes from number `size` on, and what has been computed since `progress`."""
        raise NotImplementedError(f"{type(self).__name__} does not define _cut")

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
