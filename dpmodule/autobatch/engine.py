"""The engine in Python: every batch is one call of an operation's `run`, and one of its `grad`.

It keeps, for the nodes computed so far, the row of each in the arena of its shape, and a record of every batch: its
operands and where they came from, so that `backward` can go through the records in reverse and add gradients where the
operands came from. Nothing of it is torch's autograd, but for operations without a `grad` of their own.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .arena import Pool
from .backward import Backward
from .errors import StateError
from .execute import aux_tensor, run_call
from .ops.source import PARAMETER
from .ops.spec import Call
from .record import Record, Where
from .schedule import Plan, Step, make_plan, side_by_side
from .serial import make_serial_plan
from .signature import EXTRA, Signature, Table
from .values import Values

if TYPE_CHECKING:
    from .graph import Graph

__all__ = ["Engine", "Options"]

Tensor = torch.Tensor

Mark = tuple[int, int, int, frozenset[int]]
"""How many nodes had been computed, in how many records and plans, and which of them had failed."""


@dataclass(slots=True)
class Options:
    """What a graph is computed with.

    Args:
        autobatch: whether nodes are batched.
        device: where.
        dtype: the element type.
        generator: for dropout, noise and random inputs.
    """

    autobatch: bool = False
    device: torch.device = torch.device("cpu")
    dtype: torch.dtype = torch.float32
    generator: torch.Generator | None = None


class Engine:
    """The values and gradients of one graph.

    Args:
        options: what to compute with.
        table: the signatures.
        pool: memory of the graph before.

    Attributes:
        values: where the values lie.
        computed: all nodes before this one have been computed, but for `failed`.
        failed: nodes that could not be computed, or depend on such.
        plans: the plans that were run.
        seconds: time spent in "schedule", "run" and "backward", in seconds; "build" is the time between them.
        is_running: whether it is at work.
    """

    def __init__(self, options: Options, table: Table, pool: Pool) -> None:
        self.options, self.table, self.pool = options, table, pool
        self.values = Values(options.device, options.dtype, pool)
        self.autobatch = options.autobatch
        self.computed = 0
        self.failed: frozenset[int] = frozenset()
        self.records: list[Record] = []
        self.plans: list[Plan] = []
        self.seconds = {"build": 0.0, "schedule": 0.0, "run": 0.0, "backward": 0.0}
        self._idle_since = time.perf_counter()
        self._last: Backward | None = None
        self.is_running = False

    def forward(self, graph: Graph, node: int) -> None:
        """Compute what has not been computed, up to a node.

        Operations may fail. They are errors of the nodes that depend on them, and of no others.
        """
        end = node + 1
        if end <= self.computed and node not in self.failed:
            return
        while end < graph.size and graph.signature(end).kind.op is EXTRA:
            end += 1  # do not cut an operation from its further results
        start = time.perf_counter()
        self.seconds["build"] += start - self._idle_since
        scheduled = self.seconds["schedule"]
        try:
            with torch.no_grad(), self._alone():
                error = self._compute(graph, node, end)
        finally:
            self._idle_since = time.perf_counter()
            self.seconds["run"] += self._idle_since - start - self.seconds["schedule"] + scheduled
        if error is not None:
            raise error

    def _compute(self, graph: Graph, node: int, end: int) -> Exception | None:
        """Compute the nodes before `end`; return why `node` could not be computed, if so."""
        if not self.failed:
            start, records = time.perf_counter(), len(self.records)
            plan = (make_plan if self.autobatch else make_serial_plan)(graph, self.computed, end)
            plan.seconds = time.perf_counter() - start
            self.seconds["schedule"] += plan.seconds
            try:
                self._run(plan, graph.aux)
            except Exception:  # a user's operation may raise anything
                del self.records[records:]
            else:
                self.computed = end
                self.plans.append(plan)
                return None
        return self._compute_each(graph, node, end).get(node)

    def _compute_each(self, graph: Graph, node: int, end: int) -> dict[int, Exception]:
        """Compute the nodes before `end` one by one, since one of them fails; try again what `node` depends on.

        Returns:
            Why nodes could not be computed; those that had failed before, and were not tried again, are left out.
        """
        errors: dict[int, Exception] = {}
        failed = set(self.failed)
        done = Plan([], self.computed, end)
        for each in (*self._to_try_again(graph, node), *range(self.computed, end)):
            if graph.signature(each).kind.op is EXTRA:
                continue  # a further result
            results = range(each, each + 1 + len(graph.signature(each).extras))
            failed.difference_update(results)
            reads = failed.intersection(graph.operands(each))
            error = next((errors[operand] for operand in reads if operand in errors), None)
            if not reads:
                error = self._attempt(graph, each, done)
            if reads or error is not None:
                failed.update(results)
            if error is not None:
                errors.update(dict.fromkeys(results, error))
        self.computed, self.failed = max(self.computed, end), frozenset(failed)
        self.plans.append(done)
        return errors

    def _attempt(self, graph: Graph, node: int, done: Plan) -> Exception | None:
        """Compute a node alone; return why that fails, if it does."""
        plan = make_serial_plan(graph, node, node + 1)
        try:
            self._run(plan, graph.aux)
        except Exception as error:
            return error
        done.steps += plan.steps
        return None

    def _to_try_again(self, graph: Graph, node: int) -> list[int]:
        """Return the nodes that have failed and that a node depends on, as long as those between have no values."""
        found, open_nodes = set(), [node]
        while open_nodes:
            each = open_nodes.pop()
            if each in found or (each < self.computed and each not in self.failed):
                continue
            found.add(each)
            open_nodes += graph.operands(each)
        return sorted(found & self.failed)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Compute; a user's operation must not ask the graph that runs it for values, and may fail.

        Raises:
            StateError: the graph is being computed.
        """
        if self.is_running:
            raise StateError("the graph is being computed: an operation on it must not use it itself")
        self.is_running, records = True, len(self.records)
        try:
            with _no_collection():
                yield
        except BaseException:
            del self.records[records:]  # what did run will run again
            raise
        finally:
            self.is_running = False

    def _run(self, plan: Plan, aux: Mapping[int, Any]) -> None:
        steps = [part for step in plan.steps if step.kind.op is not PARAMETER for part in _apart(step)]
        steps = side_by_side(steps, self.table)
        firsts = self.values.place(steps, plan.end)
        for step, wheres, places in zip(steps, self.values.locate(steps), firsts):
            self._run_step(step, wheres, places, aux)

    def _run_step(self, step: Step, wheres: list[Where], firsts: list[int], aux: Mapping[int, Any]) -> None:
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

    def _call(self, step: Step, aux: Mapping[int, Any]) -> Call:
        kind, options = step.kind, self.options
        numbers: Any = None
        if kind.op.aux:
            given = list(map(aux.__getitem__, step.nodes.tolist()))
            numbers = aux_tensor(kind.op.aux, given, options.device, options.dtype)
        call = Call(kind.attrs, kind.dims, kind.outs[0], len(step.nodes), numbers)
        call.generator, call.device, call.dtype = options.generator, options.device, options.dtype
        call.counts = step.counts
        return call

    def again(self, step: Step, aux: Mapping[int, Any]) -> tuple[Call, list[Tensor], list[Where]]:
        """Run some nodes of a batch once more, for `backward`, without keeping the results."""
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

    def _gather(self, step: Step, wheres: list[Where]) -> list[Tensor]:
        read, inputs = self.values.read, []
        for where, dim in zip(wheres, step.kind.dims):
            inputs.append(read(where, dim) if where.value is None else where.value)
        if step.kind.op.expand:
            count = len(step.nodes)
            return [x if x.shape[0] == count else x.expand(count, *x.shape[1:]) for x in inputs]
        return inputs

    def value(self, node: int, signature: Signature) -> Tensor:
        """Return the value of a node that has been computed, (batch, *d)."""
        if signature.kind.op is PARAMETER:
            storage = signature.kind.attrs[1]()
            storage.check_fits(self.options.device, self.options.dtype)
            tensor: Tensor = storage.tensor
            return tensor[None]
        return self.values.arenas[signature.dim].tensor[int(self.values.rows[node])]

    def backward(self, graph: Graph, node: int, full: bool) -> None:
        """Go backward from a node of one number; see `Graph.backward`."""
        signature = graph.signature(node)
        start = time.perf_counter()
        with torch.no_grad(), self._alone():
            self._last = Backward(self, signature, graph.aux, node, full)
        self._idle_since = time.perf_counter()
        self.seconds["backward"] += self._idle_since - start

    @property
    def root(self) -> int:
        """The node whose gradients are here, -1 for none."""
        return -1 if self._last is None else self._last.root

    def gradient(self, node: int, signature: Signature) -> Tensor:
        """Return the gradient of a node, (batch, *d)."""
        last: Any = self._last  # there is one: see `BaseGraph.check_reached`
        found: Tensor = last.gradient(node, signature)
        return found

    def leave(self) -> None:
        """Give the memory back; nothing can be asked for any more."""
        self.records.clear()
        tensors = [(dim, arena.tensor) for dim, arena in self.values.arenas.items()]
        if self._last is not None:
            tensors += self._last.leave()
        self._last = None
        self.values.arenas.clear()
        self.pool.refill(tensors)

    def mark(self) -> Mark:
        """Remember what has been computed."""
        return self.computed, len(self.records), len(self.plans), self.failed

    def revert(self, mark: Mark | None, size: int = 0) -> None:
        """Forget what has been computed since a mark.

        Args:
            mark: from `mark`; None for the beginning.
            size: the number of nodes that stay; gradients are kept if `backward` began at one of them.
        """
        self.computed, records, plans, self.failed = mark or (0, 0, 0, frozenset())
        del self.records[records:]
        del self.plans[plans:]
        if self.root >= size:
            self._last = None
        self.values.rows = self.values.rows.copy()  # the gradients lie in the rows of before


@contextmanager
def _no_collection() -> Iterator[None]:
    """Put off the search for garbage: a run makes many objects that live as long as the graph, and no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _apart(step: Step) -> list[Step]:
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
    return [Step(kind, step.nodes[part], step.args[part]) for part in np.split(order, cuts)]
