"""Automatic differentiation of programs on arrays: recording, gradients, and functions with custom gradients.

Example:
    >>> x = mx.nd.array([1, 2, 3])
    >>> x.attach_grad()
    >>> with mx.autograd.record():
    ...     y = (x * x).sum()
    >>> y.backward()
    >>> x.grad.asnumpy()
    array([2., 4., 6.], dtype=float32)
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from ._core import lazy, mode
from ._core.mode import is_recording, is_training, set_recording, set_training
from .base import ArgumentError, DTypeError, StateError
from .graph import Entry
from .graph import Node as GraphNode
from .ndarray import NDArray, tape
from .ndarray.differentiate import differentiate
from .ops.attrs import to_text
from .ops.spec import Env, Op, arg
from .symbol import Symbol


class _FlagScope:
    """Context manager that sets the flags; it is reentrant."""

    def __init__(self, recording: bool | None, training: bool | None) -> None:
        self._wanted = recording, training
        self._before: list[tuple[bool, bool]] = []

    def __enter__(self) -> None:
        recording, training = self._wanted
        self._before.append((is_recording(), is_training()))
        if recording is not None:
            set_recording(recording)
        if training is not None:
            set_training(training)

    def __exit__(self, *error: object) -> None:
        recording, training = self._before.pop()
        set_recording(recording)
        set_training(training)


def record(train_mode: bool = True) -> AbstractContextManager[None]:
    """Record operators inside a ``with`` block, so that `backward` can differentiate them.

    Args:
        train_mode: True to run them in training mode (dropout and batch statistics on).
    """
    return _FlagScope(True, train_mode)


def pause(train_mode: bool = False) -> AbstractContextManager[None]:
    """Record nothing inside a ``with`` block.

    Args:
        train_mode: True to run operators in training mode.
    """
    return _FlagScope(False, train_mode)


def train_mode() -> AbstractContextManager[None]:
    """Run operators in training mode inside a ``with`` block, recorded or not as outside."""
    return _FlagScope(None, True)


def predict_mode() -> AbstractContextManager[None]:
    """Run operators in prediction mode inside a ``with`` block, recorded or not as outside."""
    return _FlagScope(None, False)


def _listed(name: str, arrays: Any) -> list[NDArray]:
    """Return one array or several as a list."""
    listed = [arrays] if isinstance(arrays, NDArray) else list(arrays)
    for array in listed:
        if not isinstance(array, NDArray):
            raise DTypeError(f"{name} holds {type(array).__name__}, expected NDArrays")
    return listed


def mark_variables(
    variables: NDArray | Sequence[NDArray],
    gradients: NDArray | Sequence[NDArray],
    grad_reqs: str | Sequence[str] = "write",
) -> None:
    """Mark arrays as variables with arrays for their gradients (`NDArray.attach_grad` creates one itself).

    Args:
        gradients: arrays that `backward` writes, one of each variable's shape.
        grad_reqs: "write", "add" or "null"; one for all, or one for each.

    Raises:
        ArgumentError: the numbers differ, or a request is unknown.
        ShapeError: a gradient has another shape than its variable.
    """
    arrays, grads = _listed("variables", variables), _listed("gradients", gradients)
    requests = [grad_reqs] * len(arrays) if isinstance(grad_reqs, str) else list(grad_reqs)
    if not len(arrays) == len(grads) == len(requests):
        raise ArgumentError(
            f"{len(arrays)} variables, {len(grads)} gradients and {len(requests)} grad_reqs are given; "
            "expected as many of each"
        )
    for array, gradient, request in zip(arrays, grads, requests, strict=True):
        tape.mark(array, gradient, request)


def _heads(heads: Any, head_grads: Any) -> tuple[list[NDArray], list[NDArray | None]]:
    head_arrays = _listed("heads", heads)
    if head_grads is None:
        return head_arrays, [None] * len(head_arrays)
    grads = [head_grads] if isinstance(head_grads, NDArray) else list(head_grads)
    if len(grads) != len(head_arrays):
        raise ArgumentError(
            f"{len(head_arrays)} heads and {len(grads)} head_grads are given; expected as many of each"
        )
    _listed("head_grads", [g for g in grads if g is not None])
    return head_arrays, grads


def backward(
    heads: NDArray | Sequence[NDArray],
    head_grads: NDArray | Sequence[NDArray | None] | None = None,
    retain_graph: bool = False,
    train_mode: bool = True,
) -> None:
    """Compute gradients of `heads` with respect to all variables they depend on, and write them as requested.

    Args:
        head_grads: gradient of each head; None means ones.
        retain_graph: True to keep the graph for another call.
        train_mode: the training flag that users' gradient functions see.

    Raises:
        StateError: a head was not recorded, or depends on no variable.
        ArgumentError: the numbers of heads and head gradients differ.
        ShapeError: a head gradient has another shape than its head.
    """
    head_arrays, grads = _heads(heads, head_grads)
    differentiate(head_arrays, grads, None, retain_graph, False, train_mode)


def grad(
    heads: NDArray | Sequence[NDArray],
    variables: NDArray | Sequence[NDArray],
    head_grads: NDArray | Sequence[NDArray | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    train_mode: bool = True,
) -> list[NDArray]:
    """Return gradients of `heads` with respect to `variables`, as new arrays.

    Args:
        variables: arrays with `attach_grad`; their own gradient arrays stay as they are.
        head_grads: gradient of each head; None means ones.
        retain_graph: True to keep the graph for another call; None means `create_graph`.
        create_graph: True to record the gradients, so that they can be differentiated as well.
        train_mode: the training flag that users' gradient functions see.

    Returns:
        A list, even for one variable.

    Raises:
        StateError: a head was not recorded, an array is not a variable, or the heads do not depend on it.
        ArgumentError: there are no variables, or the numbers of heads and head gradients differ.

    Example:
        >>> x = mx.nd.ones((1,))
        >>> x.attach_grad()
        >>> with mx.autograd.record():
        ...     (dx,) = mx.autograd.grad(x**3, x, create_graph=True)
        >>> dx.backward()
        >>> x.grad.asnumpy()
        array([6.], dtype=float32)
    """
    head_arrays, grads = _heads(heads, head_grads)
    wanted = _listed("variables", variables)
    if not wanted:
        raise ArgumentError("variables is empty, expected at least one array")
    retain = create_graph if retain_graph is None else retain_graph
    return differentiate(head_arrays, grads, wanted, retain, create_graph, train_mode)


# --- the graph as a symbol


def get_symbol(x: NDArray) -> Symbol:
    """Return the recorded computation of an array as a Symbol; its arguments are the arrays it was computed from.

    Args:
        x: a result computed inside `record`.

    Raises:
        StateError: the array is not in a graph.
    """
    if not isinstance(x, NDArray):
        raise DTypeError(f"get_symbol takes an NDArray, got {type(x).__name__}")
    if not tape.in_graph(x):
        raise StateError("this array is in no computational graph: compute it inside autograd.record()")
    return Symbol([_entry_of(x.trace[1])])


def _entry_of(head: tape.TapeNode) -> Entry:
    """Return the graph entry of a node of the tape; iterative, for deep graphs."""
    entries: dict[tape.TapeNode, Entry] = {}
    count = itertools.count()
    stack = [head]
    while stack:
        node = stack[-1]
        missing = [n for n in node.inputs if n is not None and n not in entries]
        if missing:
            stack += missing
        else:
            stack.pop()
            if node not in entries:
                entries[node] = _convert(node, entries, count)
    return entries[head]


def _convert(node: tape.TapeNode, made: dict[tape.TapeNode, Entry], count: itertools.count[int]) -> Entry:
    if isinstance(node, tape.TapeVariable):
        return GraphNode(None, node.name), 0
    if node.plan is None:  # one of several outputs of an operator
        return made[node.inputs[0]][0], node.index  # type: ignore[index]  # it always has an operator
    inputs = tuple((GraphNode(None, f"null{next(count)}"), 0) if n is None else made[n] for n in node.inputs)
    name = f"node_{next(count)}"
    if isinstance(node.plan, tape.TapeStep):
        return GraphNode(_op_of(node.plan, len(inputs)), name, inputs=inputs), 0
    op, a = node.plan.op, node.plan.a
    if op.read_attrs is not None:  # a user's operator, whose attributes have the user's names
        return GraphNode(op, name, dict(a.attributes), inputs=inputs), 0
    values = {key: getattr(a, key) for key in op.attrs}
    params = {k: to_text(v) for k, v in values.items() if v != op.attrs[k].default}
    return GraphNode(op, name, params, inputs=inputs), 0


def _op_of(step: tape.TapeStep, count: int) -> Op:
    """Return an unregistered operator that repeats a step of the tape."""

    def run(a: Any, env: Env, *tensors: torch.Tensor) -> torch.Tensor:
        if step.function is None:
            raise StateError(f"{step.name} cannot run again in a graph made by get_symbol")
        return step.function(*tensors)

    return Op(step.name, run, lambda *values: None, {}, tuple(arg(f"arg{i}") for i in range(count)))


# --- functions with custom gradients


class Function:
    """A computation on arrays with a custom gradient. Subclasses define `forward` and `backward`.

    An instance can be called once; create one for every call.

    Example:
        >>> class CubeRoot(mx.autograd.Function):
        ...     def forward(self, x):
        ...         root = mx.nd.cbrt(x)
        ...         self.save_for_backward(root)
        ...         return root
        ...
        ...     def backward(self, out_grad):
        ...         (root,) = self.saved_tensors
        ...         return out_grad / (3 * root**2)
        >>> x = mx.nd.array([1, 8])
        >>> x.attach_grad()
        >>> with mx.autograd.record():
        ...     y = 3 * CubeRoot()(x)
        >>> y.backward()
        >>> x.grad.asnumpy()
        array([1.  , 0.25], dtype=float32)
    """

    _used = False
    saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *args: Any) -> None:
        """Save arrays for `backward`, which reads them from `saved_tensors`.

        Args:
            *args: the arrays, in the order of `saved_tensors`.
        """
        self.saved_tensors = args

    def __call__(self, *inputs: NDArray) -> Any:
        """Compute the outputs, and record them if this thread records."""
        if self._used:
            raise StateError(
                f"each {type(self).__name__} instance can only be called once; create another instance"
            )
        self._used = True
        if is_recording():
            self._check_inputs(inputs)
        with mode.scope(recording=False):
            outputs = self.forward(*inputs)
        if is_recording():
            made = _listed("the result of forward", outputs)
            tape.record_function(type(self).__name__, inputs, made, self._gradients)
        return outputs

    def _check_inputs(self, inputs: Sequence[Any]) -> None:
        """Raise for inputs that are not arrays."""
        for i, given in enumerate(inputs):
            if not isinstance(given, NDArray):
                raise DTypeError(
                    f"{type(self).__name__}: input {i} is {type(given).__name__} {given!r}, expected NDArray; pass "
                    "other values to the constructor"
                )

    def _gradients(self, *output_grads: NDArray) -> Sequence[NDArray | None]:
        found = self.backward(*output_grads)
        return [found] if found is None or isinstance(found, NDArray) else list(found)

    def forward(self, *inputs: NDArray) -> Any:
        """Return one array, or several in a tuple, computed from the inputs; nothing is recorded.

        Args:
            *inputs: arrays of the call.
        """
        raise NotImplementedError

    def backward(self, *output_grads: NDArray) -> Any:
        """Return the gradient of each input (None for zeros) from the gradients of the outputs.

        Args:
            *output_grads: one array for each output, of its shape and dtype.
        """
        raise NotImplementedError


__all__ = [*lazy.own_names(vars()), "is_recording", "is_training", "set_recording", "set_training"]
lazy.publish(__name__, __all__)
