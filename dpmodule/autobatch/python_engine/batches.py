"""Runs batches: gathers their operands, calls their operations, and keeps a record of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ..base_graph import aux_tensor, run_call
from ..interface import Options
from ..ops.source import PARAMETER
from ..ops.spec import BatchCall
from .consumers import Record, Where
from .schedule import side_by_side
from .signature import BatchPlan, BatchStep, Signature, SignatureTable
from .values import Pool, Values

Tensor = torch.Tensor


class Batches:
    """The batches that have been run, and the values that they gave.

    Shape:
        values: (rows, batch, *d), by the shape of the nodes.

    Attributes:
        records: of the batches, in order.
    """

    def __init__(self, options: Options, table: SignatureTable, pool: Pool) -> None:
        self.options, self._table, self.pool = options, table, pool
        self.values = Values(options.device, options.dtype, pool)
        self.records: list[Record] = []

    def run(self, plan: BatchPlan, aux: Mapping[int, Any]) -> None:
        """Compute the batches of a plan."""
        steps = [
            part for step in plan.steps if step.kind.op is not PARAMETER for part in _split_by_matrix(step)
        ]
        steps = side_by_side(steps, self._table)
        firsts = self.values.place(steps, plan.end)
        for step, wheres, places in zip(steps, self.values.locate(steps), firsts):
            self._run_step(step, wheres, places, aux)

    def _run_step(
        self, step: BatchStep, wheres: list[Where], firsts: list[int], aux: Mapping[int, Any]
    ) -> None:
        kind, count, width = step.kind, len(step.nodes), len(step.args)
        call, inputs = self._call(step, aux), self._gather(step, wheres)
        targets: list[Tensor] = []
        for dim, first in zip(kind.outs, firsts):
            targets.append(self.values.arenas[dim].tensor[first : first + count])
        for where in wheres:
            if where.count == width:  # what all nodes share is computed once for all of them
                call.into = targets
                break
        for result, memory in zip(run_call(call, kind.op.run, inputs), targets):
            if result is not memory:
                memory.copy_(result)
        call.into = ()
        call.result = targets[0]
        self.records.append(Record(step, call, inputs, wheres, firsts))

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

    def again(self, step: BatchStep, aux: Mapping[int, Any]) -> tuple[BatchCall, list[Tensor], list[Where]]:
        """Run some nodes of a batch once more, for `backward`, without keeping the results.

        Shape:
            returns: operands, each (nodes or 1, batch, *d).
        """
        call, wheres = self._call(step, aux), self.values.locate([step])[0]
        inputs = self._gather(step, wheres)
        run_call(call, step.kind.op.run, inputs)
        call.result = call.result.expand(call.count, *call.result.shape[1:])
        return call, inputs, wheres

    def parts(self, record: Record) -> list[Record]:
        """Return the records that there would be if each step that was put together with others had been run alone."""
        found = []
        first = record.firsts[0]
        for step, wheres in zip(record.step.parts, self.values.locate(record.step.parts)):
            call = self._call(step, {})
            found.append(Record(step, call, self._gather(step, wheres), wheres, [first]))
            first += len(step.nodes)
        return found

    def _gather(self, step: BatchStep, wheres: list[Where]) -> list[Tensor]:
        read = self.values.read
        inputs = [
            read(where, dim) if where.value is None else where.value
            for where, dim in zip(wheres, step.kind.dims)
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
    """Part the nodes of a batch by the matrix that they multiply with, where few matrices serve many nodes.

    A product with one matrix reads it once; stacked beside each other, the matrices would be copied for every node.
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
