"""The backward pass of the engine in Python."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from .execute import grad_call
from .ops.product import product
from .ops.source import PARAMETER
from .ops.spec import Dim
from .record import Record, Where
from .signature import Signature

if TYPE_CHECKING:
    from .engine import Engine

__all__ = ["Backward"]

Tensor = torch.Tensor
_Factors = dict[int, tuple[Tensor, Tensor]]
"""By operand: the gradient is ``left.T @ right``."""


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

    def __init__(self, engine: Engine, signature: Signature, aux: list[Any], root: int, full: bool) -> None:
        self.root, self._full = root, full
        self._engine, self._aux = engine, aux
        self._tensors: dict[Dim, Tensor] = {}
        self._parameters: dict[Any, Tensor] = {}
        self._deferred: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
        self._alive: NDArray[np.bool_] = np.zeros(engine.computed, np.bool_)
        self._alive[root] = True
        dim = signature.dim
        if signature.kind.op is PARAMETER:
            self._to_parameter(signature.kind.attrs, torch.ones_like(engine.value(root, signature)[0]))
        else:
            self._of(dim)[int(engine.rows[root])] = 1.0
            for record in reversed(engine.records):
                self._visit(record)
        self._finish()

    def _of(self, dim: Dim) -> Tensor:
        """Return the gradients of all nodes of a shape."""
        found = self._tensors.get(dim)
        if found is None:
            arena = self._engine.arenas[dim]
            shape = (arena.used, dim.batch, *dim.d)
            found = self._engine.pool.take(("gradient", dim), shape, arena.device, arena.dtype)
            self._tensors[dim] = found
            found[: arena.used].zero_()
        return found

    def _visit(self, record: Record) -> None:
        step = record.step
        kind = step.kind
        if not (kind.needs or self._full):
            return
        nodes, alive = step.nodes, self._alive
        reached = alive[nodes]
        for place in range(1, len(kind.outs)):
            reached |= alive[nodes + place]
        count = len(nodes)
        reaching = np.count_nonzero(reached)
        if not reaching:
            return
        self._mark(record, None if reaching == count else reached)
        gradients = [self._of(dim)[first : first + count] for dim, first in zip(kind.outs, record.firsts)]
        is_part = reaching < count and step.args.size and not (kind.op.random or kind.op.whole)
        found: list[Tensor | None] | None = None
        held: _Factors = {}
        if not is_part or (kind.op.aux != "object" and gradients[0].device.type == "cpu"):
            found, held = self._grads(record, gradients)
        if found is None or (is_part and not _are_finite([*found, *itertools.chain(*held.values())])):
            record = self._reduced(record, reached)
            places = torch.from_numpy(np.flatnonzero(reached)).to(gradients[0].device)
            found, held = self._grads(record, [each.index_select(0, places) for each in gradients])
        for place, (left, right) in held.items():
            self._defer(record, place, left, right)
        for place, (grad, where) in enumerate(zip(found, record.wheres)):
            if grad is not None and record.call.wants[place]:
                self._add(where, kind.dims[place], grad)

    def _grads(self, record: Record, gradients: list[Tensor]) -> tuple[list[Tensor | None], _Factors]:
        """Return the gradients of the operands, and factors of those that are put off."""
        call, kind = record.call, record.step.kind
        held: _Factors = {}
        call.wants = (True,) * len(kind.wants) if self._full else kind.wants
        call.defer = lambda place, left, right: held.__setitem__(place, (left, right))
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

    def _add(self, where: Where, dim: Dim, grad: Tensor) -> None:
        if where.parameter is not None:
            # expanded operands (`Op.expand`) have a gradient of every node
            self._to_parameter(where.parameter, grad[0, 0] if grad.shape[0] == 1 else grad.sum(0)[0])
            return
        total = self._of(dim)
        if where.index is not None:
            shared = grad.untyped_storage().data_ptr() == total.untyped_storage().data_ptr()
            total.index_add_(0, where.index, grad.clone() if shared else grad)
        else:
            part = total[where.first : where.first + where.count]
            part.add_(grad if where.count == grad.shape[0] else grad.sum(0, keepdim=True))

    def _to_parameter(self, parameter: Any, grad: Tensor) -> None:
        found = self._parameters.get(parameter)
        self._parameters[parameter] = grad.clone() if found is None else found.add_(grad)

    def _defer(self, record: Record, place: int, left: Tensor, right: Tensor) -> None:
        where = record.wheres[place]
        if where.parameter is None:
            self._add(where, record.step.kind.dims[place], product(left.t(), right.t())[None, None])
            return
        lefts, rights = self._deferred.setdefault(where.parameter, ([], []))
        lefts.append(left)
        rights.append(right)

    def _finish(self) -> None:
        for parameter, (lefts, rights) in self._deferred.items():
            left = lefts[0] if len(lefts) == 1 else torch.cat(lefts)
            right = rights[0] if len(rights) == 1 else torch.cat(rights)
            self._to_parameter(parameter, product(left.t(), right.t()))
        self._deferred.clear()
        for (_, reference, is_updated), grad in self._parameters.items():
            if is_updated:
                reference().add_gradient(grad)

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
        if signature.dim not in self._tensors:
            return torch.zeros_like(self._engine.value(node, signature))
        return self._tensors[signature.dim][int(self._engine.rows[node])]


def _are_finite(tensors: Sequence[Tensor | None]) -> bool:
    return all(math.isfinite(float(x.sum())) for x in tensors if x is not None)
