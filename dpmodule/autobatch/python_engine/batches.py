"""Execution of batches, and backward passes through them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..graph import Options
from ..ops.linear import product
from ..ops.source import PARAMETER
from ..ops.spec import BatchCall, Dim, aux_tensor, grad_call, run_call
from .schedule import stack_products
from .signature import BatchPlan, BatchStep, Signature, SignatureTable, StackedParameters
from .values import (
    MemoryPool,
    OperandLocation,
    Reads,
    Record,
    Values,
    find_reads,
    mark_operands,
    merged,
    reached_nodes,
)

Tensor = torch.Tensor


class Batches:
    """Executed batches and their values.

    Shape:
        values: (rows, batch, *d), by the shape of the nodes.

    Attributes:
        records: records of the batches, in order.
    """

    def __init__(self, options: Options, table: SignatureTable, pool: MemoryPool) -> None:
        self.options, self._table, self.pool = options, table, pool
        self.values = Values(options.device, options.dtype, pool)
        self.records: list[Record] = []

    def run(self, plan: BatchPlan, aux: Mapping[int, Any]) -> None:
        """Compute the batches of a plan."""
        steps = [
            part for step in plan.steps if step.kind.op is not PARAMETER for part in _split_by_matrix(step)
        ]
        steps = stack_products(steps, self._table)
        firsts = self.values.assign_rows(steps, plan.end)
        for step, locations, places in zip(steps, self.values.locate(steps), firsts):
            self._run_step(step, locations, places, aux)

    def _run_step(
        self, step: BatchStep, locations: list[OperandLocation], firsts: list[int], aux: Mapping[int, Any]
    ) -> None:
        kind, count, width = step.kind, len(step.nodes), len(step.args)
        call, inputs = self._call(step, aux), self._gather(step, locations)
        targets: list[Tensor] = []
        for dim, first in zip(kind.outs, firsts):
            targets.append(self.values.arenas[dim].tensor[first : first + count])
        for where in locations:
            if where.count == width:  # else all operands are shared, and one row is computed for all nodes
                call.into = targets
                break
        for result, memory in zip(run_call(call, kind.op.run, inputs), targets):
            if result is not memory:
                memory.copy_(result)
        call.into = ()
        call.result = targets[0]
        self.records.append(Record(step, call, inputs, locations, firsts))

    def _call(self, step: BatchStep, aux: Mapping[int, Any]) -> BatchCall:
        kind, options = step.kind, self.options
        numbers: Any = None
        if kind.op.aux:
            given = list(map(aux.__getitem__, step.nodes.tolist()))
            numbers = aux_tensor(kind.op.aux, given, options.device, options.dtype)
        where = options.generator, options.device, options.dtype
        return BatchCall(
            kind.attrs, kind.dims, kind.outs[0], len(step.nodes), numbers, *where, counts=step.counts
        )

    def again(
        self, step: BatchStep, aux: Mapping[int, Any]
    ) -> tuple[BatchCall, list[Tensor], list[OperandLocation]]:
        """Run some nodes of a batch again, for `backward`, without storing the results.

        Shape:
            returns: operands, each (nodes or 1, batch, *d).
        """
        call, locations = self._call(step, aux), self.values.locate([step])[0]
        inputs = self._gather(step, locations)
        run_call(call, step.kind.op.run, inputs)
        call.result = call.result.expand(call.count, *call.result.shape[1:])
        return call, inputs, locations

    def parts(self, record: Record) -> list[Record]:
        """Split the record of a stacked step into records of its parts."""
        records = []
        first = record.firsts[0]
        for step, locations in zip(record.step.parts, self.values.locate(record.step.parts)):
            call = self._call(step, {})
            records.append(Record(step, call, self._gather(step, locations), locations, [first]))
            first += len(step.nodes)
        return records

    def _gather(self, step: BatchStep, locations: list[OperandLocation]) -> list[Tensor]:
        read = self.values.read
        inputs = [
            read(where, dim) if where.value is None else where.value
            for where, dim in zip(locations, step.kind.dims)
        ]
        if step.kind.op.expand:
            count = len(step.nodes)
            return [x if x.shape[0] == count else x.expand(count, *x.shape[1:]) for x in inputs]
        return inputs

    def value(self, node: int, signature: Signature) -> Tensor:
        """Return the value of a node that has been computed.

        Shape:
            returns: (batch, *d).
        """
        if signature.kind.op is PARAMETER:
            storage = signature.kind.attrs[1]()
            storage.check_fits(self.options.device, self.options.dtype)
            tensor: Tensor = storage.tensor
            return tensor[None]
        return self.values.arenas[signature.dim].tensor[int(self.values.rows[node])]


def _split_by_matrix(step: BatchStep) -> list[BatchStep]:
    """Split a batch by the matrix operand of its nodes if few matrices are used by many nodes.

    A product with one shared matrix reads it once; otherwise the matrices would be copied for every node.
    """
    kind, count = step.kind, len(step.nodes)
    place = kind.op.matrix
    if place < 0 or count < 8 or kind.parameters[place] is not None or len(kind.dims) <= place:
        return [step]
    column = step.args[:, place]
    order = np.argsort(column, kind="stable")
    cuts = np.flatnonzero(np.diff(column[order])) + 1
    if not 0 < len(cuts) < count // 4:
        return [step]
    return [BatchStep(kind, step.nodes[part], step.args[part]) for part in np.split(order, cuts)]


Ints = NDArray[np.int64]


class BackwardPass:
    """The gradients of a scalar with respect to all nodes it depends on.

    Batches are processed as a whole, even if the root depends on only some of their nodes; the others have zero
    gradients. Since zero times an infinite derivative is NaN, a pass with such a result is repeated with only the nodes
    that matter. Products that form the gradient of a matrix are deferred to the end and computed as one product.

    Shape:
        gradients: (rows, batch, *d), by the shape of the nodes.

    Args:
        root: number of the scalar node.
    """

    def __init__(
        self,
        batches: Batches,
        computed: int,
        failed: frozenset[int],
        signature: Signature,
        aux: Mapping[int, Any],
        root: int,
        full: bool,
    ) -> None:
        self.root, self._full = root, full
        self._batches, self._computed, self._failed, self._aux = batches, computed, failed, aux
        self._rows = batches.values.rows  # the present array: `PythonEngine.revert` replaces it by a copy
        self._reads: Reads | None = None
        self._reset()
        if signature.kind.op is PARAMETER:
            self._add_to_parameter(signature.kind.attrs, torch.ones_like(batches.value(root, signature)[0]))
        else:
            records = [record for record in batches.records if full or record.step.kind.needs]
            if signature.needs and not full:
                self._reads = find_reads(records, root, computed)
            self._pass(records, signature.dim)
        self._add_to_storages()

    def _reset(self) -> None:
        """Discard all gradients."""
        self._tensors: dict[Dim, Tensor] = {}
        self._parameters: dict[Any, Tensor] = {}
        self._deferred: dict[tuple[Any, Any], tuple[list[Tensor], list[Tensor]]] = {}
        self._row_gradients: list[tuple[Any, Tensor, Tensor]] = []

    def _pass(self, records: Sequence[Record], dim: Dim) -> None:
        """Process batches in reverse order; `dim` is that of the root."""
        reads = self._reads
        self._gradients_of(dim)[int(self._rows[self.root])] = 1.0
        if reads is None:
            alive = np.zeros(self._computed, np.bool_)
            alive[self.root] = True
            for record in reversed(records):
                self._visit(record, alive)
        else:
            for record in reversed(reads.records):
                self._backpropagate(record, self._result_gradients(record, len(record.step.nodes)))
        self._add_deferred()
        if reads is not None and reads.alive is not None and not self._is_finite():
            self._reset()
            self._reads = None
            self._pass(records, dim)

    def _gradients_of(self, dim: Dim) -> Tensor:
        """Return the gradients of all nodes of a shape."""
        gradients = self._tensors.get(dim)
        if gradients is None:
            arena = self._batches.values.arenas[dim]
            shape = (arena.used, dim.batch, *dim.d)
            gradients = self._batches.pool.take(("gradient", dim), shape, arena.device, arena.dtype)
            self._tensors[dim] = gradients
            if self._reads is None:
                gradients[: arena.used].zero_()
            else:
                for first, end in merged(self._reads.sums.get(dim, ())):
                    gradients[first:end].zero_()
        return gradients

    def _visit(self, record: Record, alive: NDArray[np.bool_]) -> None:
        """Process the nodes of a batch on which the root depends, and all lookups, whose rows DyNet updates, too."""
        step = record.step
        kind, count = step.kind, len(step.nodes)
        if step.parts:
            for part in self._batches.parts(record):
                self._visit(part, alive)
            return
        reached = reached_nodes(record, alive)
        reaching = np.count_nonzero(reached)
        if not reaching and step.args.size:
            return
        mark_operands(record, alive, reached if reaching < count else None)
        gradients = self._result_gradients(record, count)
        if reaching == count or not step.args.size or kind.op.random or kind.op.whole_batch:
            self._backpropagate(record, gradients)
            return
        places = torch.from_numpy(np.flatnonzero(reached)).to(gradients[0].device)
        chosen = [each.index_select(0, places) for each in gradients]
        self._backpropagate(self._rerun(record, reached), chosen)
        if len(chosen) > 1:  # an operation may pass gradients between its results
            for whole, rows in zip(gradients, chosen):
                whole.index_copy_(0, places, rows)

    def _result_gradients(self, record: Record, count: int) -> list[Tensor]:
        return [
            self._gradients_of(dim)[first : first + count]
            for dim, first in zip(record.step.kind.outs, record.firsts)
        ]

    def _backpropagate(self, record: Record, gradients: list[Tensor]) -> None:
        """Compute the gradients of a batch's operands and add them to the operands' nodes."""
        call, kind, locations = record.call, record.step.kind, record.locations
        deferred: list[int] = []

        def defer(place: int, left: Tensor, right: Tensor, bias: int = -1) -> None:
            deferred.extend((place, bias))
            self._defer(record, place, left, right, bias)

        call.wants = wants = (True,) * len(kind.wants) if self._full else kind.wants
        call.defer, call.rows = defer, self._row_gradients
        call.into = into = self._memory_of_sole(kind.dims, locations)
        found = grad_call(call, kind.op, gradients, record.inputs)
        call.into, call.defer = (), None
        for place, (grad, where, memory) in enumerate(zip(found, locations, into)):
            is_there = grad is not None and grad is memory
            if wants[place] and not is_there and place not in deferred:
                self._add_to_operand(where, kind.dims[place], grad, memory)

    def _memory_of_sole(
        self, dims: Sequence[Dim], locations: Sequence[OperandLocation]
    ) -> list[Tensor | None]:
        """Return gradient memory for operands that nothing else reads, None for the others."""
        alone = () if self._reads is None else self._reads.alone
        return [
            self._gradients_of(dim)[where.first : where.first + where.count] if id(where) in alone else None
            for dim, where in zip(dims, locations)
        ]

    def _rerun(self, record: Record, reached: NDArray[np.bool_]) -> Record:
        """Run only the nodes of a batch on which the root depends, after the whole batch gave non-finite gradients.

        The other nodes have zero gradients, but zero times an infinite derivative is NaN and would spread to shared
        operands.
        """
        step = record.step
        if step.kind.many:
            args = step.args[np.repeat(reached, step.counts)]
            counts = [count for count, is_reached in zip(step.counts, reached.tolist()) if is_reached]
        else:
            args, counts = step.args[reached], []
        part = type(step)(step.kind, step.nodes[reached], args, counts)
        call, inputs, locations = self._batches.again(part, self._aux)
        return Record(part, call, inputs, locations, [])

    def _add_to_operand(
        self, where: OperandLocation, dim: Dim, grad: Tensor | None, memory: Tensor | None
    ) -> None:
        """Add the gradient of an operand to its node; `memory` is given if nothing else reads the operand."""
        if grad is None:
            if memory is not None:
                memory.zero_()
        elif where.parameter is not None:
            # expanded operands (`Operation.expand`) have a gradient per node
            self._add_to_parameter(where.parameter, grad[0, 0] if grad.shape[0] == 1 else grad.sum(0)[0])
        elif where.index is not None:
            total = self._gradients_of(dim)
            begin = grad.data_ptr() - total.data_ptr()
            # operands precede results, so the target ends where `grad` begins
            if 0 <= begin < total.nbytes:
                total = total[: begin * len(total) // total.nbytes]
            # torch would add non-contiguous rows element by element
            total.index_add_(0, where.index, grad if grad.is_contiguous() else grad.contiguous())
        else:
            whole = grad if where.count == grad.shape[0] else grad.sum(0, keepdim=True)
            if memory is not None:
                memory.copy_(whole)
            else:
                self._gradients_of(dim)[where.first : where.first + where.count].add_(whole)

    def _add_to_parameters(self, parameter: Any, grad: Tensor) -> None:
        if type(parameter) is StackedParameters:
            for each, part in zip(parameter, grad.view(len(parameter), *parameter[0][0].d).unbind()):
                self._add_to_parameter(each, part)
        else:
            self._add_to_parameter(parameter, grad.view(parameter[0].d))

    def _add_to_parameter(self, parameter: Any, grad: Tensor) -> None:
        found = self._parameters.get(parameter)
        self._parameters[parameter] = grad.clone() if found is None else found.add_(grad)

    def _defer(self, record: Record, place: int, left: Tensor, right: Tensor, bias: int) -> None:
        where = record.locations[place]
        summed = record.locations[bias] if bias >= 0 else None
        if where.parameter is None or (summed is not None and summed.parameter is None):
            dims = record.step.kind.dims
            into = self._memory_of_sole(dims, record.locations)
            self._add_to_operand(where, dims[place], product(left.t(), right.t())[None, None], into[place])
            if summed is not None:
                total = left.sum(0).view(1, 1, *dims[bias].d)
                self._add_to_operand(summed, dims[bias], total, into[bias])
            return
        key = where.parameter, summed and summed.parameter
        lefts, rights = self._deferred.setdefault(key, ([], []))
        lefts.append(left)
        rights.append(right)

    def _add_deferred(self) -> None:
        """Compute the deferred products."""
        for (parameter, bias), (lefts, rights) in self._deferred.items():
            left, right = _stacked(lefts[::-1]), _stacked(rights[::-1])
            self._add_to_parameters(parameter, product(left.t(), right.t()))
            if bias is not None:
                self._add_to_parameters(bias, left.sum(0))
        self._deferred.clear()

    def _is_finite(self) -> bool:
        """Return True if all gradients of parameters, to which non-finite values spread, are finite."""
        found = [*self._parameters.values(), *[gradient for *_, gradient in self._row_gradients]]
        return not found or math.isfinite(float(torch.stack([each.sum() for each in found]).sum()))

    def _add_to_storages(self) -> None:
        """Add the results to the gradients of the parameters."""
        for (_, reference, is_updated), grad in self._parameters.items():
            if is_updated and (storage := reference()).updated:
                storage.add_gradient(grad)
        for table, rows, gradient in self._row_gradients:
            table.add_rows(rows, gradient)
        self._row_gradients.clear()

    def release(self) -> list[tuple[Any, Tensor]]:
        """Discard the gradients and return their memory for `MemoryPool.refill`.

        Shape:
            returns: each (rows, batch, *d).
        """
        found: list[tuple[Any, Tensor]] = [(("gradient", dim), x) for dim, x in self._tensors.items()]
        self._tensors.clear()
        return found

    def gradient(self, node: int, signature: Signature) -> Tensor:
        """Return the gradient of one node, zeros if the pass did not reach it.

        Shape:
            returns: (batch, *d).
        """
        if signature.kind.op is PARAMETER:
            grad = self._parameters.get(signature.kind.attrs)
            value = self._batches.value(node, signature)
            return torch.zeros_like(value) if grad is None else grad[None]
        grad, reads = self._tensors.get(signature.dim), self._reads
        is_dead = reads is not None and reads.alive is not None and not reads.alive[node]
        is_dead |= node in self._failed
        if grad is None or is_dead or (reads and not signature.needs):
            options, dim = self._batches.options, signature.dim
            return torch.zeros(dim.batch, *dim.d, device=options.device, dtype=options.dtype)
        return grad[int(self._rows[node])]


def _stacked(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate matrices by rows, without a copy if they are adjacent in memory."""
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
