"""The records of the operation table, and the helpers that shape rules share.

One operation is one `Operation`. Both engines read the same record: the engine in Python calls `run` and `grad` for
every batch, the native one for those operations that it has no kernel for, or whose operands `Operation.kernel` does
not take.

Layout of tensors:
    An expression has a `Dim`: its dimensions ``d`` and the size ``batch`` of its minibatch. A *batch* of N nodes that
    share a signature is one tensor ``(N, batch, *d)``, row-major; axis 0 counts nodes, axis 1 the minibatch.
    An operand that all nodes of the batch have in common (a parameter, or one expression that all of them use) comes
    as ``(1, batch, *d)``; an operand without minibatch beside others with one as ``(N, 1, *d)``. `run` broadcasts
    them, or sets `Operation.expand` to receive operands of N rows only.

Numbers that differ from node to node (word indices, labels, constants) are in `BatchCall.aux`, one entry a node; all
else that an operation has been given is in `BatchCall.attrs`, and belongs to the signature.
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
    """The dimensions of an expression: those of one minibatch element, and how many elements there are."""

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
    """What `Operation.run` and `Operation.grad` are told about the batch that they compute.

    Args:
        attrs: the attributes of the signature.
        dims: the `Dim` of every operand.
        out: the `Dim` of the first output.
        count: N, the number of nodes.
        aux: the numbers of the nodes, as the operation's `Operation.aux` says: None, a tensor of N integers or of N
            numbers, or a list of N objects.
        generator: for operations that draw random numbers.
        device: where the tensors are.
        dtype: their element type.
        saved: what `run` leaves for `grad`, in any form.
        result: the first output of `run`, for `grad`.
        wants: for `grad`, which operands need a gradient; all of them unless set.
        defer: called by `grad` in place of returning the gradient of an operand which all nodes share, as
            ``defer(operand, left, right, bias)``: the engine adds ``left.T @ right`` of all batches at once; and the
            sum of the rows of `left` to the gradient of operand `bias`, if there is one.
        rows: for `grad`, where gradients of rows of tables are put off to, as (storage, row numbers, gradients): they
            count only when the whole pass has come through.
        counts: for operations with `Operation.many`, how many operands each node has.
        into: memory for the results, (N, batch, *d), which `run` may compute into, and then returns; empty when it must
            make new tensors. For `grad`, memory for the gradient of every operand, None for those that must be new.
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
"""The gradient of every operand, None for none."""
Run = Callable[..., Any]
ShapeRule = Callable[[Attrs, Dims], Dim]


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One operation.

    Args:
        name: as the signature and `explain` show it.
        shape: from (attributes, `Dim` of every operand) to the `Dim` of the result, or of every result; raises
            `ShapeError`.
        run: from (`BatchCall`, operands) to the result, or a tuple of results. Runs without autograd. None where the
            operation before computes the result.
        grad: from (`BatchCall`, gradient of the result or a tuple of them, operands) to a list with the gradient of
            every operand, of the operand's shape, or None for none. Without it, or where it returns None in place of
            the list, the engine runs `run` again under autograd.
        aux: what a node's own number is: "" (nothing), "int", "float", "ints" (one a minibatch element) or "object".
        outputs: how many results there are; the second one is the node after the first, and so on.
        expand: `run` needs operands of N rows: none that is common to all nodes comes as one row.
        constant: the result never has a gradient with respect to operands.
        random: `run` draws from `BatchCall.generator`; it has a `grad`, or finds in `BatchCall.saved` what it has drawn
            when it runs again.
        whole_batch: a batch must not be computed again in part, as its nodes may depend on each other (statistics).
        matrix: the operand that is a matrix, -1 for none: nodes with different matrices are batched apart where few
            matrices serve many nodes.
        never_batched: why nodes of this operation are never batched, "" if they are.
        many: all operands have one `Dim`, and come as one tensor: that of node 0, of node 1, ... stacked along axis 0.
            How many each node has is in `BatchCall.counts`; nodes with different numbers are batched apart.
        ragged: with `many`: nodes with different numbers of operands may share a batch.
        kernel: adds a node to the native engine; None where it runs `run` and `grad`, too.
        text: of a function of DyNet's that does nothing but add this operation on an expression, the first sentence of
            its documentation; "" where functions say more.
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
    """Enter an operation into the table."""
    if name in _TABLE:
        raise ArgumentError(f"the operation {name!r} is declared twice")
    found = _TABLE[name] = Operation(name, shape, run, grad, **options)
    return found


def find(name: str) -> Operation:
    """Return the operation of a name."""
    try:
        return _TABLE[name]
    except KeyError:
        raise ArgumentError(f"no operation {name!r}; there are {', '.join(sorted(_TABLE))}") from None


def names() -> list[str]:
    """Return the names of all operations, sorted."""
    return sorted(_TABLE)


def shown(dim: Dim) -> str:
    """Write a `Dim` as DyNet does: {3,4}, with a minibatch of 5 {3,4X5}."""
    text = ",".join(map(str, dim.d))
    return f"{{{text}X{dim.batch}}}" if dim.batch > 1 else f"{{{text}}}"


def show(dims: Dims) -> str:
    """Write several of them: [{3,4} {3}]."""
    return "[" + " ".join(map(shown, dims)) + "]"


def fail(name: str, dims: Dims, text: str) -> NoReturn:
    """Raise the `ShapeError` of an operation that its operands do not fit."""
    raise ShapeError(f"{name}: mismatched input dimensions {show(dims)}: {text} (at {user_line()})")


def common_batch(name: str, dims: Dims) -> int:
    """Return the common minibatch size of operands; those without a minibatch are broadcast."""
    found = 1
    for dim in dims:
        if dim.batch != 1 and dim.batch != found:
            if found != 1:
                fail(name, dims, "batch size must match or equal 1")
            found = dim.batch
    return found


def target(call: BatchCall, place: int = 0) -> torch.Tensor | None:
    """Return the memory to compute a result into, None to make a new tensor."""
    return call.into[place] if call.into else None


def unsqueeze_as(numbers: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Give one number for every node and minibatch element the axes that `x` has."""
    return numbers.reshape(*numbers.shape[:2], *[1] * (x.dim() - 2))


def zeros_for(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return a gradient of zeros for an operand `x`, with a row for each of `g`, the gradient of the result."""
    return torch.zeros(g.shape[0], *x.shape[1:], dtype=g.dtype, device=g.device)


def scalar(batch: int = 1) -> Dim:
    """Return the `Dim` of one number."""
    return Dim((1,), batch)


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
