"""The engine in Python: every batch is one call of an operation's `run`, and one of its `grad`.

It keeps, for the nodes computed so far, the row of each in the arena of its shape, and a record of every batch: its
operands and where they came from, so that `backward` can go through the records in reverse and add gradients where the
operands came from. Nothing of it is torch's autograd, but for operations without a `grad` of their own.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..errors import StateError
from ..graph import Options
from .batches import BackwardPass, Batches
from .schedule import make_plan, make_serial_plan
from .signature import EXTRA, BatchPlan, NodeTable, Signature, SignatureTable
from .values import MemoryPool, Record

Tensor = torch.Tensor

Mark = tuple[int, int, int, frozenset[int]]
"""How many nodes had been computed, in how many records and plans, and which of them had failed."""


class PythonEngine:
    """The values and gradients of one graph.

    Attributes:
        computed: all nodes before this one have been computed, but for `failed`.
        failed: nodes that could not be computed, or depend on such.
        seconds: time spent in "schedule", "run" and "backward", in seconds; "build" is the time between them.
    """

    def __init__(self, options: Options, table: SignatureTable, pool: MemoryPool) -> None:
        self._batches = Batches(options, table, pool)
        self.autobatch = options.autobatch
        self.computed = 0
        self.failed: frozenset[int] = frozenset()
        self.plans: list[BatchPlan] = []
        self.seconds = {"build": 0.0, "schedule": 0.0, "run": 0.0, "backward": 0.0}
        self._idle_since = time.perf_counter()
        self._pass: BackwardPass | None = None
        self.is_running = False

    def forward(self, graph: NodeTable, node: int) -> None:
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
            with torch.no_grad(), self._exclusively():
                error = self._compute(graph, node, end)
        finally:
            self._idle_since = time.perf_counter()
            self.seconds["run"] += self._idle_since - start - self.seconds["schedule"] + scheduled
        if error is not None:
            raise error

    def _compute(self, graph: NodeTable, node: int, end: int) -> Exception | None:
        """Compute the nodes before `end`; return why `node` could not be computed, if so."""
        if not self.failed:
            start, records = time.perf_counter(), len(self.records)
            plan = (make_plan if self.autobatch else make_serial_plan)(graph, self.computed, end)
            plan.seconds = time.perf_counter() - start
            self.seconds["schedule"] += plan.seconds
            try:
                self._batches.run(plan, graph.aux)
            except Exception:  # a user's operation may raise anything
                del self.records[records:]
            else:
                self.computed = end
                self.plans.append(plan)
                return None
        return self._compute_each(graph, node, end).get(node)

    def _compute_each(self, graph: NodeTable, node: int, end: int) -> dict[int, Exception]:
        """Compute the nodes before `end` one by one, since one of them fails; try again what `node` depends on.

        Returns:
            Why nodes could not be computed; those that had failed before, and were not tried again, are left out.
        """
        errors: dict[int, Exception] = {}
        failed = set(self.failed)
        done = BatchPlan([], self.computed, end)
        for each in (*self._failed_ancestors(graph, node), *range(self.computed, end)):
            if graph.signature(each).kind.op is EXTRA:
                continue  # a further result
            results = range(each, each + 1 + len(graph.signature(each).extras))
            failed.difference_update(results)
            reads = failed.intersection(graph.operands(each))
            error = next((errors[operand] for operand in reads if operand in errors), None)
            if not reads:
                error = self._compute_alone(graph, each, done)
            if reads or error is not None:
                failed.update(results)
            if error is not None:
                errors.update(dict.fromkeys(results, error))
        self.computed, self.failed = max(self.computed, end), frozenset(failed)
        self.plans.append(done)
        return errors

    def _compute_alone(self, graph: NodeTable, node: int, done: BatchPlan) -> Exception | None:
        """Compute a node alone; return why that fails, if it does."""
        plan = make_serial_plan(graph, node, node + 1)
        try:
            self._batches.run(plan, graph.aux)
        except Exception as error:
            return error
        done.steps += plan.steps
        return None

    def _failed_ancestors(self, graph: NodeTable, node: int) -> list[int]:
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
    def _exclusively(self) -> Iterator[None]:
        """Compute; a user's operation must not ask the graph that runs it for values, and may fail."""
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

    def value(self, node: int, signature: Signature) -> Tensor:
        """Return the value of a node that has been computed.

        Shape:
            returns: (batch, *d).
        """
        return self._batches.value(node, signature)

    def backward(self, graph: NodeTable, node: int, full: bool) -> None:
        """Go backward from a node of one number; see `Graph.backward`."""
        signature = graph.signature(node)
        start = time.perf_counter()
        with torch.no_grad(), self._exclusively():
            self._pass = BackwardPass(
                self._batches, self.computed, self.failed, signature, graph.aux, node, full
            )
        self._idle_since = time.perf_counter()
        self.seconds["backward"] += self._idle_since - start

    @property
    def root(self) -> int:
        """The node whose gradients are here, -1 for none."""
        return -1 if self._pass is None else self._pass.root

    def gradient(self, node: int, signature: Signature) -> Tensor:
        """Return the gradient of a node.

        Shape:
            returns: (batch, *d).
        """
        last_pass: Any = self._pass  # there is one: see `EngineGraph.check_reached`
        found: Tensor = last_pass.gradient(node, signature)
        return found

    def leave(self) -> None:
        """Give the memory back; nothing can be asked for any more."""
        self.records.clear()
        tensors = [(dim, arena.tensor) for dim, arena in self._batches.values.arenas.items()]
        if self._pass is not None:
            tensors += self._pass.leave()
        self._pass = None
        self._batches.values.arenas.clear()
        self._batches.pool.refill(tensors)

    @property
    def records(self) -> list[Record]:
        """What is remembered of the batches that have been run, in order."""
        return self._batches.records

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
            self._pass = None
        values = self._batches.values
        values.rows = values.rows.copy()  # the gradients lie in the rows of before


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
