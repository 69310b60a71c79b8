"""Recording of operators for differentiation; the public interface is `mx.autograd`.

While a thread records (`mode.is_recording`), an operator with an input in a graph runs on *traced* tensors, which
torch differentiates. The result is an ordinary array, whose `tensor` never requires grad, with a `trace`: the traced
tensor, which shares the array's memory, and a `TapeNode`. The nodes form a separate history, since torch's does not
contain the operators' names, nor the inputs that no gradient reaches, for which MXNet writes zeros. The trace is freed
with its array.

Traced tensors are created by ``.data``, not `detach`: torch then does not notice writes to the arrays, so that a
weight or an intermediate result may be changed between forward and backward. Backward reads the current memory, as in
MXNet.

For operators that run users' Python code, ``run`` may be (or call) a `torch.autograd.Function` that creates arrays.
Its tensors are detached with ``tensor.data`` and wrapped as ``NDArray(tensor.data, ctx)``, and user code runs inside
``mode.scope(recording=False)``, forward and backward. `record_function` does this for a computation on arrays.
Exceptions of backward reach the caller of `backward` unchanged; those of ``run`` do so inside
`ops.user_code.user_code`. Control flow needs no support: a Python loop records the operators of its body.

Source: MXNet 1.9.1 `autograd`, for the rules about writes and the values that backward reads.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, cast

import torch

from .._core import mode
from ..base import ArgumentError, DTypeError, ShapeError, StateError, UnknownNameError
from ..context import Context
from ..ops.sparse import Sparse, as_rows, densify
from ..ops.sparse.storage import anchor_for
from ..ops.write_tracking import expose
from .handle import Handle

if TYPE_CHECKING:
    from .op_dispatch import PreparedOp

A = TypeVar("A", bound=Handle)
Tensor = torch.Tensor

IN_PLACE = "Inplace operations (+=, -=, x[:]=, etc) are not supported when recording with autograd"
"""Text that MXNet's tests expect in the error."""

REQUESTS = ("null", "write", "add")
_counter = itertools.count()


class TapeStep(NamedTuple):
    """Name of a computation that is not an operator, and its function of tensors if it has one."""

    name: str
    function: Callable[..., Tensor] | None = None


class States(NamedTuple):
    """New values of auxiliary states, which backward writes, as MXNet does.

    Attributes:
        again: computes the new values from the current states, if they were written since.
    """

    arrays: tuple[Handle, ...]
    values: Sequence[Tensor]
    versions: tuple[int, ...]
    again: Callable[[], Sequence[Tensor]]

    def commit(self) -> None:
        """Write the new values."""
        values = self.values
        if any(a.raw._version != v for a, v in zip(self.arrays, self.versions, strict=True)):
            values = self.again()
        for array, value in zip(self.arrays, values, strict=True):
            array.overwrite(value)


class TapeNode:
    """One application of an operator, or one of several outputs of an operator.

    Attributes:
        plan: the operator with its attributes (a `op_dispatch.PreparedOp`), or a `TapeStep`; None for an output.
        inputs: the node of each input, None for arrays outside the graph; for an output the operator's node.
        index: number of an output, else 0.
        live: False once backward has freed it.
        loss: the traced output of a loss. Backward starts there, too, since zeros from an operator without gradient
            reach it in MXNet; None for other operators.
    """

    __slots__ = ("__weakref__", "index", "inputs", "live", "loss", "plan", "states")

    def __init__(
        self, plan: PreparedOp | TapeStep | None, inputs: Sequence[TapeNode | None], index: int = 0
    ) -> None:
        self.plan = plan
        self.inputs = inputs
        self.index = index
        self.live = True
        self.loss: Tensor | None = None
        self.states: States | None = None

    def free(self) -> None:
        """Free the history; its arrays are no longer in a graph."""
        self.live = False
        self.inputs = ()
        self.loss = self.states = None


class TapeVariable(TapeNode):
    """A variable: an array whose gradient is computed.

    Attributes:
        alias: the tensor that torch differentiates with respect to; it shares the array's memory. For integers, which
            have no gradients in torch, it is a float64 copy.
    """

    __slots__ = ("_source", "alias", "dtype", "fresh", "grad", "name", "request")

    any_copies: ClassVar[bool] = False
    """True if any integer variable was ever made; otherwise arrays need not be checked."""

    def __init__(self, array: Handle, grad: Handle, request: str) -> None:
        super().__init__(None, ())
        self.name = f"var{next(_counter)}"
        self.grad = grad
        self.request = request
        self.fresh = False
        self._source: Tensor | None = None
        if array.stype == "default":
            self._source = array.raw
            self.alias = self._source.data
        elif array.stype == "ragged":
            self.alias = array.stored.leaf().data
        else:
            self.alias = anchor_for(array.shape, array.values)  # type: ignore[attr-defined]  # a sparse array
        self.dtype = self.alias.dtype
        if not self.alias.is_floating_point() and self.dtype != torch.bool:
            self.alias = self.alias.double()
            TapeVariable.any_copies = True
        if self.alias.is_floating_point():
            self.alias.requires_grad_()

    def follow(self, array: Handle) -> None:
        """Move the alias to the array's current memory; copy integers again."""
        if self.dtype is not self.alias.dtype:
            self.alias.data = array.raw.double()
        elif self._source is not None and array.raw is not self._source:
            self._source = array.raw
            self.alias.data = self._source.data

    def free(self) -> None:
        """Do nothing: a variable outlives its graphs."""

    def write(self, value: Tensor | None) -> None:
        """Write a gradient as requested; None if nothing depends on the variable."""
        self.fresh = True
        grad: Any = self.grad
        if grad.stype == "ragged":
            self._write_ragged(grad, value)
        elif value is None:
            if self.request == "write":
                grad.overwrite(torch.zeros_like(self.alias, requires_grad=False))
        elif value.is_sparse and grad.stype == "row_sparse":
            rows: Any = rows_array(value, grad.context)
            (grad + rows if self.request == "add" else rows).copyto(grad)
        else:
            dense = value.to_dense() if value.is_sparse else value
            grad.overwrite(grad.raw + dense.to(grad.raw) if self.request == "add" else dense)

    def _write_ragged(self, grad: Any, value: Tensor | None) -> None:
        """Write the gradient of a ragged array, which has the same rows."""
        found = torch.zeros_like(self.alias, requires_grad=False) if value is None else value
        if self.request == "add":
            found = found + grad.stored.values
        if value is not None or self.request == "write":
            grad.take_over(grad.stored.replaced(found.detach().clone()))


def rows_array(value: Tensor, ctx: Context) -> Handle:
    """Return a gradient of some rows as a row-sparse array."""
    return Handle.of_records["row_sparse"](as_rows(value), ctx)


# --- arrays in a graph


def in_graph(array: Handle) -> bool:
    """Return True if an array is a variable or the result of a recorded operator."""
    trace = array.trace
    return trace is not None and trace[1].live


def variable_of(array: Handle) -> TapeVariable | None:
    """Return the variable that `mark` created for an array, or None."""
    trace = array.trace
    return trace[1] if trace is not None and isinstance(trace[1], TapeVariable) else None


def mark(array: Handle, grad: Handle, request: str) -> None:
    """Make an array a variable with an array for its gradient; it leaves its graph."""
    if request not in REQUESTS:
        raise UnknownNameError(f"grad_req is {request!r}, expected one of {', '.join(REQUESTS)}")
    if (grad.stype == "ragged") is not (array.stype == "ragged"):
        raise ArgumentError(
            f"the gradient is stored as {grad.stype}, expected {array.stype} as the array; attach_grad() makes one"
        )
    if grad.shape != array.shape:
        raise ShapeError(f"the gradient has shape {grad.shape}, expected {array.shape} as the array")
    variable = TapeVariable(array, grad, request)
    array.trace = variable.alias, variable


def inputs_of(arrays: Sequence[Handle]) -> tuple[list[Tensor], list[TapeNode | None]]:
    """Return the tensors to compute with and their nodes, None for arrays outside a graph.

    Sparse arrays are read as dense copies.
    """
    tensors: list[Tensor] = []
    nodes: list[TapeNode | None] = []
    for array in arrays:
        trace = array.trace
        if trace is None or not trace[1].live:
            nodes.append(None)
            tensors.append(array.raw.data)
            continue
        traced, node = trace
        if node.plan is None and isinstance(node, TapeVariable):
            node.follow(array)
        if array.stype != "default":
            with torch.enable_grad():
                traced = densify(_record(array, traced))
        nodes.append(node)
        tensors.append(traced)
    return tensors, nodes


def values_of(arrays: Sequence[Handle]) -> tuple[list[Any], list[TapeNode | None]]:
    """Return the values to compute with, tensors or records of sparse arrays, and their nodes."""
    values: list[Any] = []
    nodes: list[TapeNode | None] = []
    for array in arrays:
        live = in_graph(array)
        traced = array.trace[0] if live else None
        nodes.append(array.trace[1] if live else None)
        if array.stype != "default":
            values.append(_record(array, traced))
        else:
            values.append(array.raw.data if traced is None else traced)
    return values, nodes


def _record(array: Any, anchor: Tensor | None) -> Sparse:
    """Return the record of a sparse array, with the tensor through which its gradient flows."""
    record: Sparse = array.stored
    if record.stype == "ragged":
        return record if anchor is None else record.replaced(anchor)
    record = record.detach()  # the array's record has no history
    record.anchor = anchor
    return record


def check_writable(target: Handle, arrays: Sequence[Handle] = ()) -> None:
    """Raise if a recording thread would write to an array in a graph."""
    if in_graph(target):
        raise StateError(
            "Assigning to NDArrays that are already in a computational graph would spoil the gradients. Call "
            "backward first, or do it outside of autograd.record; inside, there is no +=, *=, relu(x, out=x), "
            "y[index] = x, ..."
        )
    if any(a is target for a in arrays) and any(map(in_graph, arrays)):
        raise StateError(IN_PLACE)


# --- recording


def attach(arrays: Sequence[Handle], results: Sequence[Tensor], node: TapeNode) -> None:
    """Put arrays into the graph."""
    several = len(arrays) > 1
    for i, (array, result) in enumerate(zip(arrays, results, strict=True)):
        array.trace = result, TapeNode(None, (node,), i) if several else node


def apply(
    array: A,
    function: Callable[[Tensor], Tensor],
    name: str,
    pinned: bool = False,
    ctx: Context | None = None,
) -> A:
    """Return the result of a function of one tensor as an array, recorded if this thread records.

    Args:
        function: returns a view of the input's memory, or a tensor with its own memory.
        pinned: True if the result is a view, so that it and the input are pinned.
        ctx: context of the result; None means the input's.
    """
    where = ctx or array.context
    array.pinned |= pinned
    if array.trace is None or not mode.is_recording() or not in_graph(array):
        return cast("A", Handle.result_type(function(array.raw), where, pinned))
    (traced,), nodes = inputs_of((array,))
    with torch.enable_grad():
        result = function(traced)
    copies = traced.dtype is not array.raw.dtype
    made = Handle.result_type(function(array.raw) if copies else result.data, where, pinned)
    if pinned and not copies:
        expose(made.raw)  # writes to it are counted separately
    made.trace = result, TapeNode(TapeStep(name, function), nodes)
    return cast("A", made)


class _CopyInto(torch.autograd.Function):
    """Traced copy into an array's memory."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, target: Handle) -> Tensor:
        ctx.like = values.dtype, values.device
        target.overwrite(values)
        return target.raw.data

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        dtype, device = ctx.like
        return grads[0].to(device, dtype), None


_into: Callable[..., Tensor] = _CopyInto.apply


def copy_into(traced: Tensor, target: Handle) -> Tensor:
    """Write a traced tensor into an array's memory; return the traced tensor of that memory."""
    with torch.enable_grad():
        return _into(traced, target)


class _CustomFunction(torch.autograd.Function):
    """Traced tensors that were computed elsewhere."""

    @staticmethod
    def forward(
        ctx: Any,
        results: list[Tensor],
        grads_of: Callable[[Sequence[Tensor]], Sequence[Tensor | None]],
        *inputs: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.grads_of = grads_of
        ctx.training = mode.is_training()
        ctx.thread = threading.get_ident()
        return tuple(results)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        # torch's threads compute GPU gradients and do not have the flags of this one
        here = threading.get_ident() == ctx.thread
        training = mode.is_training() if here else ctx.training
        with mode.scope(recording=False, training=training):
            return None, None, *ctx.grads_of(grads)


def record_function(
    name: str, inputs: Sequence[Handle], outputs: Sequence[Handle], backward: Callable[..., Sequence[Any]]
) -> None:
    """Put computed arrays into the graph, with a custom gradient.

    It does nothing if no input is in a graph.

    Args:
        backward: takes the gradient of each output, returns that of each input, an array or None.
    """
    if not any(map(in_graph, inputs)):
        return
    for output in outputs:
        check_writable(output)
    traced, nodes = inputs_of(inputs)

    def grads_of(grads: Sequence[Tensor]) -> list[Tensor | None]:
        """Return the gradients of the inputs from the caller's function."""
        arrays = [o(g.contiguous()) for o, g in zip(wrap, grads, strict=True)]
        returned = backward(*arrays)
        if len(returned) != len(shapes):
            raise ArgumentError(
                f"{name}.backward returned {len(returned)} gradients, expected {len(shapes)}, one for each input "
                "of forward"
            )
        return [_as_gradient(name, r, like) for r, like in zip(returned, shapes, strict=True)]

    wrap = [_wrapper(o.context) for o in outputs]
    shapes = [(t.shape, t.dtype, t.device) for t in traced]
    run: Callable[..., tuple[Tensor, ...]] = _CustomFunction.apply
    with torch.enable_grad():
        results = run([o.raw.data for o in outputs], grads_of, *traced)
    attach(outputs, results, TapeNode(TapeStep(name), nodes))


def _wrapper(ctx: Context) -> Callable[[Tensor], Handle]:
    return lambda tensor: Handle.result_type(tensor, ctx)


def _as_gradient(
    name: str, value: object, like: tuple[torch.Size, torch.dtype, torch.device]
) -> Tensor | None:
    """Return the result of a user's backward for one input as a gradient."""
    shape, dtype, device = like
    if value is None:
        return None
    if not isinstance(value, Handle):
        raise DTypeError(f"{name}.backward returned {type(value).__name__}, expected NDArrays or None")
    if value.raw.shape != shape:
        raise ShapeError(f"{name}.backward returned shape {value.shape}, expected {tuple(shape)}")
    return value.raw.data.to(device, dtype)
