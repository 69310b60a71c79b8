"""The records of the operation table, and helpers for shape rules.

One operation is one `Operation`. Both engines read the same record: the Python engine calls `run` and `grad` for every
batch, the native engine only for operations or operands that `Operation.kernel` does not support.

Layout of tensors: An expression has a `Dim`: its dimensions ``d`` and the size ``batch`` of its minibatch. A *batch* of
    N nodes that share a signature is one tensor ``(N, batch, *d)``, row-major; axis 0 counts nodes, axis 1 the
    minibatch. An operand shared by all nodes of the batch (a parameter, or one expression) is ``(1, batch, *d)``; an
    operand without a minibatch, when others have one, is ``(N, 1, *d)``. `run` broadcasts them, or sets
    `Operation.expand` to receive operands of N rows only.

Arguments that differ between nodes (word indices, labels, constants) are in `BatchCall.aux`, one entry per node; all
others are in `BatchCall.attrs` and belong to the signature.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch

from ..._core import torch_private
from ..errors import ArgumentError, ShapeError, user_line
from .native_kernels import Attrs, NodeMaker


class Dim(NamedTuple):
    """The dimensions of an expression: those of one minibatch element, and the size of the minibatch."""

    d: tuple[int, ...]
    batch: int = 1

    @property
    def size(self) -> int:
        """The number of elements without the minibatch."""
        count = 1
        for each in self.d:
            count *= each
        return count


@dataclass(slots=True, eq=False)
class BatchCall:
    """Description of a batch for `Operation.run` and `Operation.grad`.

    Args:
        attrs: the attributes of the signature.
        dims: the `Dim` of every operand.
        out: the `Dim` of the first output.
        count: N, the number of nodes.
        aux: the arguments of the nodes, depending on `Operation.aux`: None, a tensor of N integers or floats, or a list
            of N objects.
        generator: generator of random operations.
        device: device of the tensors.
        dtype: dtype of the tensors.
        saved: any data that `run` saves for `grad`.
        result: the first output of `run`, for `grad`.
        wants: for `grad`, which operands need a gradient; all by default.
        defer: called by `grad` instead of returning the gradient of an operand shared by all nodes, as ``defer(operand,
            left, right, bias)``: the engine adds ``left.T @ right`` for all batches together, and the sum of the rows
            of `left` to the gradient of operand `bias`, if given.
        rows: for `grad`, deferred gradients of table rows, as (storage, row numbers, gradients), which are added only
            after the whole pass has succeeded.
        counts: for operations with `Operation.many`, the number of operands of each node.
        into: memory for the results, (N, batch, *d), which `run` may write and return; empty if it must create new
            tensors. For `grad`, memory for the gradient of every operand, or None for new tensors.
    """

    attrs: Attrs
    dims: tuple[Dim, ...]
    out: Dim
    count: int
    aux: Any = None
    generator: torch.Generator | None = None
    device: torch.device = torch.device("cpu")
    dtype: torch.dtype = torch.float32
    saved: Any = None
    result: Any = None
    wants: tuple[bool, ...] = ()
    defer: Callable[..., None] | None = None
    rows: list[tuple[Any, torch.Tensor, torch.Tensor]] = field(default_factory=list)
    counts: Sequence[int] = ()
    into: Sequence[torch.Tensor | None] = ()


Tensor = torch.Tensor
Dims = Sequence[Dim]
Grads = list[Tensor | None]
"""The gradient of every operand, or None."""
Run = Callable[..., Any]
ShapeRule = Callable[[Attrs, Dims], Dim]


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One operation.

    Args:
        name: name in signatures and in `explain`.
        shape: function from (attributes, `Dim` of every operand) to the `Dim` of the result or results; may raise
            `ShapeError`.
        run: function from (`BatchCall`, operands) to the result or a tuple of results, called without autograd. None if
            the previous operation computes the result.
        grad: function from (`BatchCall`, gradient of the result or a tuple of them, operands) to a list with the
            gradient of every operand, or None. Without it, or if it returns None instead of a list, the engine runs
            `run` under autograd.
        aux: type of the node's own argument: "" (none), "int", "float", "ints" (one per minibatch element) or "object".
        outputs: number of results, which are consecutive nodes.
        expand: `run` needs operands of N rows; shared operands are expanded.
        constant: the result has no gradient with respect to operands.
        random: `run` draws from `BatchCall.generator`; there is a `grad`, or `run` reuses its draw from
            `BatchCall.saved` when it is repeated.
        whole_batch: a batch must not be recomputed in part, since its nodes may depend on each other (statistics).
        matrix: index of the matrix operand, -1 for none; nodes with different matrices are batched separately if few
            matrices are used by many nodes.
        never_batched: reason why nodes of this operation are never batched, "" if they are.
        many: all operands have one `Dim` and are passed as one tensor, stacked along axis 0 node by node.
            `BatchCall.counts` has the number of operands of each node; nodes with different numbers are batched
            separately.
        ragged: with `many`, nodes with different numbers of operands may share a batch.
        kernel: function that adds a node to the native engine; None if it uses `run` and `grad`.
        text: documentation of a function generated from this record; "" if `functions` defines it.
    """

    name: str
    shape: Callable[[tuple[Any, ...], Sequence[Dim]], Dim | tuple[Dim, ...]]
    run: Run | None = None
    grad: Run | None = None
    aux: str = ""
    outputs: int = 1
    expand: bool = False
    constant: bool = False
    random: bool = False
    whole_batch: bool = False
    matrix: int = -1
    never_batched: str = ""
    many: bool = False
    ragged: bool = False
    kernel: NodeMaker | None = None
    text: str = ""

    def __repr__(self) -> str:
        return f"Op({self.name})"


_TABLE: dict[str, Operation] = {}


def declare(
    name: str, shape: Callable[..., Any], run: Run | None = None, grad: Run | None = None, **options: Any
) -> Operation:
    """Add an operation to the table."""
    if name in _TABLE:
        raise ArgumentError(f"the operation {name!r} is declared twice")
    found = _TABLE[name] = Operation(name, shape, run, grad, **options)
    return found


def find(name: str) -> Operation:
    """Return an operation by name."""
    try:
        return _TABLE[name]
    except KeyError:
        raise ArgumentError(
            f"no operation {name!r}; the operations are {', '.join(sorted(_TABLE))}"
        ) from None


def names() -> list[str]:
    """Return the names of all operations, sorted."""
    return sorted(_TABLE)


def format_dim(dim: Dim) -> str:
    """Format a `Dim` as DyNet does: {3,4}, or {3,4X5} with a minibatch of 5."""
    text = ",".join(map(str, dim.d))
    return f"{{{text}X{dim.batch}}}" if dim.batch > 1 else f"{{{text}}}"


def format_dims(dims: Dims) -> str:
    """Format several `Dim`s: [{3,4} {3}]."""
    return "[" + " ".join(map(format_dim, dims)) + "]"


def fail(name: str, dims: Dims, text: str) -> NoReturn:
    """Raise a `ShapeError` for the operands of an operation."""
    raise ShapeError(f"{name}: mismatched input dimensions {format_dims(dims)}: {text} (at {user_line()})")


def common_batch(name: str, dims: Dims) -> int:
    """Return the common minibatch size of operands, broadcasting those without a minibatch."""
    batch_size = 1
    for dim in dims:
        if dim.batch != 1 and dim.batch != batch_size:
            if batch_size != 1:
                fail(name, dims, "batch size must match or equal 1")
            batch_size = dim.batch
    return batch_size


def target(call: BatchCall, place: int = 0) -> torch.Tensor | None:
    """Return the memory for a result, or None for a new tensor."""
    return call.into[place] if call.into else None


def unsqueeze_as(numbers: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Append axes of size 1 to (N, batch) numbers until they have as many axes as `x`."""
    return numbers.reshape(*numbers.shape[:2], *[1] * (x.dim() - 2))


def zeros_for(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return a zero gradient for operand `x`, with as many rows as the result's gradient `g`."""
    return torch.zeros(g.shape[0], *x.shape[1:], dtype=g.dtype, device=g.device)


def scalar(batch: int = 1) -> Dim:
    """Return the `Dim` of a scalar."""
    return Dim((1,), batch)


def aux_tensor(kind: str, values: list[Any], device: torch.device, dtype: torch.dtype) -> Any:
    """Convert the arguments of the nodes to `BatchCall.aux`.

    Shape:
        returns: (nodes,) or (nodes, ...), depending on `Operation.aux`.
    """
    if kind == "":
        return None
    if kind == "float":
        return torch.from_numpy(np.array(values, np.float64)).to(device, dtype)
    if kind in ("int", "ints"):  # NumPy converts lists ten times as fast
        return torch.from_numpy(np.array(values, np.int64)).to(device)
    return values


def run_call(call: BatchCall, run: Any, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """Compute the results of a batch, storing the first one in ``call.result``.

    Shape:
        inputs, returns: each (nodes or 1, batch, *d).
    """
    found = run(call, *inputs)
    results: tuple[Tensor, ...] = found if isinstance(found, tuple) else (found,)
    call.result = results[0]
    return results


def grad_call(call: BatchCall, op: Any, gradients: list[Tensor], inputs: list[Tensor]) -> list[Tensor | None]:
    """Compute the gradient of every operand of a batch.

    Shape:
        gradients: each (nodes, batch, *d).
        inputs, returns: each (nodes or 1, batch, *d).
    """
    grads: list[Tensor | None] | None = None
    if op.grad is not None:
        grads = op.grad(call, gradients[0] if len(gradients) == 1 else tuple(gradients), *inputs)
    if grads is None:
        grads = _by_autograd(call, op.run, gradients, inputs)
    for place, (each, x) in enumerate(zip(grads, inputs)):
        if each is not None and each.shape[0] != x.shape[0]:
            grads[place] = each.sum(0, keepdim=True)
    return grads


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
