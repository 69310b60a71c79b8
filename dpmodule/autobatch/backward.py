"""The backward pass of the engine in Python."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from .execute import grad_call
from .ops.product import product
from .ops.source import PARAMETER
from .ops.spec import Dim
from .reads import Reads, merged, reads_of
from .record import Record, Where
from .signature import Signature, Stacked

if TYPE_CHECKING:
    from .engine import Engine

__all__ = ["Backward"]

Tensor = torch.Tensor
Ints = NDArray[np.int64]
_Factors = dict[int, tuple[Tensor, Tensor, int]]
"""By operand: see `Call.defer`."""


class Backward:
    """The gradients of one number with respect to all nodes it depends on.

    Products of whole batches that make up the gradient of a matrix are put off to the end and added in one product.

    Args:
        engine: has computed the root.
        signature: of the root.
        aux: the nodes' own numbers.
        root: the number of the node.
        full: also go where no parameter feeds.
    """

    def __init__(
        self, engine: Engine, signature: Signature, aux: Mapping[int, Any], root: int, full: bool
    ) -> None:
        self.root, self._full = root, full
        self._engine, self._aux = engine, aux
        self._rows = engine.values.rows  # as they are now: `Engine.revert` goes on with a copy
        self._tensors: dict[Dim, Tensor] = {}
        self._parameters: dict[Any, Tensor] = {}
        self._deferred: dict[tuple[Any, Any], tuple[list[Tensor], list[Tensor]]] = {}
        self._of_rows: list[tuple[Any, Tensor, Tensor]] = []
        self._alive: NDArray[np.bool_] = np.zeros(engine.computed, np.bool_)
        self._alive[root] = True
        self._reads: Reads | None = None
        self._alone: set[int] = set()
        dim = signature.dim
        if signature.kind.op is PARAMETER:
            self._to_parameter(signature.kind.attrs, torch.ones_like(engine.value(root, signature)[0]))
        else:
            records = [record for record in engine.records if full or record.step.kind.needs]
            if not full:
                self._reads = reads_of(records, root, engine.computed)
                self._alone = self._reads.alone if self._reads else set()
            self._of(dim)[int(engine.values.rows[root])] = 1.0
            for record in reversed(records):
                self._visit(record)
        self._finish()

    def _of(self, dim: Dim) -> Tensor:
        """Return the gradients of all nodes of a shape."""
        found = self._tensors.get(dim)
        if found is None:
            arena = self._engine.values.arenas[dim]
            shape = (arena.used, dim.batch, *dim.d)
            found = self._engine.pool.take(("gradient", dim), shape, arena.device, arena.dtype)
            self._tensors[dim] = found
            if self._reads is None:
                found[: arena.used].zero_()
            else:
                for first, end in merged(self._reads.sums.get(dim, ())):
                    found[first:end].zero_()
        return found

    def _visit(self, record: Record) -> None:
        step = record.step
        kind, count = step.kind, len(step.nodes)
        if self._reads:
            self._send(record, self._slices(record, count))
            return
        if step.parts:
            for part in self._engine.parts(record):
                self._visit(part)
            return
        reached = self._reached(record)
        reaching = np.count_nonzero(reached)
        if not reaching:
            return
        self._mark(record, None if reaching == count else reached)
        gradients = self._slices(record, count)
        is_part = reaching < count and step.args.size and not (kind.op.random or kind.op.whole)
        if not is_part:
            self._send(record, gradients)
            return
        if kind.op.aux != "object" and gradients[0].device.type == "cpu":
            found, held = self._grads(record, gradients)
            if _are_finite([*found, *(x for left, right, _ in held.values() for x in (left, right))]):
                self._give(record, found, held)
                return
        places = torch.from_numpy(np.flatnonzero(reached)).to(gradients[0].device)
        self._send(self._reduced(record, reached), [each.index_select(0, places) for each in gradients])

    def _slices(self, record: Record, count: int) -> list[Tensor]:
        return [
            self._of(dim)[first : first + count] for dim, first in zip(record.step.kind.outs, record.firsts)
        ]

    def _reached(self, record: Record) -> NDArray[np.bool_]:
        """Say of every node whether the root depends on one of its results."""
        nodes = record.step.nodes
        found = self._alive[nodes]
        for place in range(1, len(record.firsts)):
            found |= self._alive[nodes + place]
        return found

    def _send(self, record: Record, gradients: list[Tensor]) -> None:
        self._give(record, *self._grads(record, gradients))

    def _give(self, record: Record, found: list[Tensor | None], held: _Factors) -> None:
        """Hand the gradients of a batch's operands to the nodes that they are."""
        call, dims = record.call, record.step.kind.dims
        for place, factors in held.items():
            self._defer(record, place, *factors)
        for place, (grad, where) in enumerate(zip(found, record.wheres)):
            if call.wants[place] and place not in held:
                memory = call.into[place] if call.into else None
                if memory is None or grad is not memory:
                    self._add(where, dims[place], grad)
        call.into = ()

    def _grads(self, record: Record, gradients: list[Tensor]) -> tuple[list[Tensor | None], _Factors]:
        """Return the gradients of the operands, and factors of those that are put off."""
        call, kind, alone = record.call, record.step.kind, self._alone
        held: _Factors = {}
        call.wants = (True,) * len(kind.wants) if self._full else kind.wants
        call.defer = lambda place, left, right, bias=-1: held.__setitem__(place, (left, right, bias))
        if alone:
            into: list[Tensor | None] = []
            for dim, where in zip(kind.dims, record.wheres):
                is_alone = id(where) in alone
                into.append(self._of(dim)[where.first : where.first + where.count] if is_alone else None)
            call.into = into
        call.rows = self._of_rows
        found = grad_call(call, kind.op, gradients, record.inputs)
        call.defer = None
        return found, held

    def _reduced(self, record: Record, reached: NDArray[np.bool_]) -> Record:
        """Run those nodes of a batch once more that the root depends on, because all together gave no finite numbers.

        The others have gradients of zero, but zero times an infinite derivative is not a number, and would spoil what
        all nodes share.
        """
        step = record.step
        if step.kind.many:
            args = step.args[np.repeat(reached, step.counts)]
            counts = [count for count, is_reached in zip(step.counts, reached.tolist()) if is_reached]
        else:
            args, counts = step.args[reached], []
        part = type(step)(step.kind, step.nodes[reached], args, counts)
        call, inputs, wheres = self._engine.again(part, self._aux)
        return Record(part, call, inputs, wheres, [])

    def _mark(self, record: Record, reached: NDArray[np.bool_] | None) -> None:
        step = record.step
        args = step.args
        if reached is not None:
            args = args[np.repeat(reached, step.counts)] if step.kind.many else args[reached]
        self._alive[args] = True

    def _add(self, where: Where, dim: Dim, grad: Tensor | None) -> None:
        if grad is None:
            if id(where) in self._alone:
                self._of(dim)[where.first : where.first + where.count].zero_()
        elif where.parameter is not None:
            # expanded operands (`Op.expand`) have a gradient of every node
            self._to_parameter(where.parameter, grad[0, 0] if grad.shape[0] == 1 else grad.sum(0)[0])
        elif where.index is not None:
            total = self._of(dim)
            is_shared = 0 <= grad.data_ptr() - total.data_ptr() < total.nbytes
            total.index_add_(0, where.index, grad.clone() if is_shared else grad)
        else:
            part = self._of(dim)[where.first : where.first + where.count]
            whole = grad if where.count == grad.shape[0] else grad.sum(0, keepdim=True)
            if id(where) in self._alone:
                part.copy_(whole)
            else:
                part.add_(whole)

    def _to_parameters(self, parameter: Any, grad: Tensor) -> None:
        if type(parameter) is Stacked:
            for each, part in zip(parameter, grad.view(len(parameter), *parameter[0][0].d).unbind()):
                self._to_parameter(each, part)
        else:
            self._to_parameter(parameter, grad.view(parameter[0].d))

    def _to_parameter(self, parameter: Any, grad: Tensor) -> None:
        found = self._parameters.get(parameter)
        self._parameters[parameter] = grad.clone() if found is None else found.add_(grad)

    def _defer(self, record: Record, place: int, left: Tensor, right: Tensor, bias: int) -> None:
        where = record.wheres[place]
        summed = record.wheres[bias] if bias >= 0 else None
        if where.parameter is None or (summed is not None and summed.parameter is None):
            dims = record.step.kind.dims
            self._add(where, dims[place], product(left.t(), right.t())[None, None])
            if summed is not None:
                self._add(summed, dims[bias], left.sum(0).view(1, 1, *dims[bias].d))
            return
        key = where.parameter, summed and summed.parameter
        lefts, rights = self._deferred.setdefault(key, ([], []))
        lefts.append(left)
        rights.append(right)

    def _finish(self) -> None:
        for (parameter, bias), (lefts, rights) in self._deferred.items():
            left, right = _stacked(lefts[::-1]), _stacked(rights[::-1])
            self._to_parameters(parameter, product(left.t(), right.t()))
            if bias is not None:
                self._to_parameters(bias, left.sum(0))
        self._deferred.clear()
        for (_, reference, is_updated), grad in self._parameters.items():
            if is_updated and (storage := reference()).updated:
                storage.add_gradient(grad)
        for table, rows, gradient in self._of_rows:
            table.add_rows(rows, gradient)
        self._of_rows.clear()

    def leave(self) -> list[tuple[Any, Tensor]]:
        """Forget the gradients; returns their memory for `Pool.refill`."""
        found: list[tuple[Any, Tensor]] = [(("gradient", dim), x) for dim, x in self._tensors.items()]
        self._tensors.clear()
        return found

    def gradient(self, node: int, signature: Signature) -> Tensor:
        """Return the gradient of one node, (batch, *d); zeros if the pass did not come there."""
        if signature.kind.op is PARAMETER:
            found = self._parameters.get(signature.kind.attrs)
            value = self._engine.value(node, signature)
            return torch.zeros_like(value) if found is None else found[None]
        found = self._tensors.get(signature.dim)
        if found is None or (self._reads and not signature.needs):
            options, dim = self._engine.options, signature.dim
            return torch.zeros(dim.batch, *dim.d, device=options.device, dtype=options.dtype)
        return found[int(self._rows[node])]


def _stacked(parts: Sequence[Tensor]) -> Tensor:
    """Return matrices below each other; without a copy where they lie so, as those of one kind do."""
    first, last = parts[0], parts[-1]
    if len(parts) == 1:
        return first
    end = first.data_ptr()
    for part in parts:
        if part.data_ptr() != end or not part.is_contiguous():
            return torch.cat(list(parts))
        end += part.nbytes
    if first.untyped_storage().data_ptr() != last.untyped_storage().data_ptr():
        return torch.cat(list(parts))
    return first.as_strided((sum(map(len, parts)), first.shape[1]), (first.shape[1], 1))


def _are_finite(tensors: Sequence[Tensor | None]) -> bool:
    return all(math.isfinite(float(x.sum())) for x in tensors if x is not None)
