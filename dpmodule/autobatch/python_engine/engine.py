"""The Python engine, which calls an operation's `run` and `grad` once per batch.

It stores, for every computed node, its row in the arena of its shape, and for every batch a record of its operands and
their locations. `backward` processes the records in reverse and adds gradients at these locations. torch's autograd is
used only for operations without a `grad`.
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

Progress = tuple[int, int, int, frozenset[int]]
"""Progress of an engine: numbers of computed nodes, records and plans, and the failed nodes."""


class PythonEngine:
    """The values and gradients of one graph.

    Attributes:
        computed: all nodes before this one have been computed, except for `failed`.
        failed: nodes that failed, or depend on failed nodes.
        seconds: seconds spent in "schedule", "run" and "backward"; "build" is the time between them.
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
        """Compute missing values up to a node.

        The error of a failed operation is raised only for nodes that depend on it.
        """
        end = node + 1
        if end <= self.computed and node not in self.failed:
            return
        while end < graph.size and graph.signature(end).kind.op is EXTRA:
            end += 1  # include further results of the last operation
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
        """Compute the nodes before `end`; return the error of `node`, if any."""
        if not self.failed:
            start, records = time.perf_counter(), len(self.records)
            plan = (make_plan if self.autobatch else make_serial_plan)(graph, self.computed, end)
            plan.seconds = time.perf_counter() - start
            self.seconds["schedule"] += plan.seconds
            try:
                self._batches.run(plan, graph.aux)
            except Exception:  # user code may raise anything
                del self.records[records:]
            else:
                self.computed = end
                self.plans.append(plan)
                return None
        return self._compute_each(graph, node, end).get(node)

    def _compute_each(self, graph: NodeTable, node: int, end: int) -> dict[int, Exception]:
        """Compute the nodes before `end` one by one, after a failure, and retry failed nodes that `node` depends on.

        Returns:
            The errors of nodes, without those that failed earlier and were not retried.
        """
        errors: dict[int, Exception] = {}
        failed = set(self.failed)
        done = BatchPlan([], self.computed, end)
        for number in (*self._failed_ancestors(graph, node), *range(self.computed, end)):
            if graph.signature(number).kind.op is EXTRA:
                continue  # a further result
            results = range(number, number + 1 + len(graph.signature(number).extras))
            failed.difference_update(results)
            reads = failed.intersection(graph.operands(number))
            error = next((errors[operand] for operand in reads if operand in errors), None)
            if not reads:
                error = self._compute_alone(graph, number, done)
            if reads or error is not None:
                failed.update(results)
            if error is not None:
                errors.update(dict.fromkeys(results, error))
        self.computed, self.failed = max(self.computed, end), frozenset(failed)
        self.plans.append(done)
        return errors

    def _compute_alone(self, graph: NodeTable, node: int, done: BatchPlan) -> Exception | None:
        """Compute a single node; return the error, if any."""
        plan = make_serial_plan(graph, node, node + 1)
        try:
            self._batches.run(plan, graph.aux)
        except Exception as error:
            return error
        done.steps += plan.steps
        return None

    def _failed_ancestors(self, graph: NodeTable, node: int) -> list[int]:
        """Return the failed nodes that a node depends on, through nodes without values."""
        ancestors, open_nodes = set(), [node]
        while open_nodes:
            each = open_nodes.pop()
            if each in ancestors or (each < self.computed and each not in self.failed):
                continue
            ancestors.add(each)
            open_nodes += graph.operands(each)
        return sorted(ancestors & self.failed)

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        """Mark the engine as running, and discard new records on an error."""
        if self.is_running:
            raise StateError("the graph is being computed: its operations must not use it")
        self.is_running, records = True, len(self.records)
        try:
            with _no_collection():
                yield
        except BaseException:
            del self.records[records:]  # executed batches will run again
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
        """Run a backward pass from a scalar node; see `EngineGraph.backward`."""
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
        """The root of the last backward pass, -1 for none."""
        return -1 if self._pass is None else self._pass.root

    def gradient(self, node: int, signature: Signature) -> Tensor:
        """Return the gradient of a node.

        Shape:
            returns: (batch, *d).
        """
        last_pass: Any = self._pass  # never None, see `EngineGraph.check_reached`
        found: Tensor = last_pass.gradient(node, signature)
        return found

    def release(self) -> None:
        """Release all memory; the engine cannot be used afterwards."""
        self.records.clear()
        tensors = [(dim, arena.tensor) for dim, arena in self._batches.values.arenas.items()]
        if self._pass is not None:
            tensors += self._pass.release()
        self._pass = None
        self._batches.values.arenas.clear()
        self._batches.pool.refill(tensors)

    @property
    def records(self) -> list[Record]:
        """Records of the executed batches, in order."""
        return self._batches.records

    def progress(self) -> Progress:
        """Return the progress, for `revert`."""
        return self.computed, len(self.records), len(self.plans), self.failed

    def revert(self, progress: Progress | None, size: int = 0) -> None:
        """Discard values computed since an earlier state.

        Args:
            progress: from `progress`; None for the beginning.
            size: number of nodes to keep; gradients are kept if the root is one of them.
        """
        self.computed, records, plans, self.failed = progress or (0, 0, 0, frozenset())
        del self.records[records:]
        del self.plans[plans:]
        if self.root >= size:
            self._pass = None
        values = self._batches.values
        values.rows = values.rows.copy()  # the gradients refer to the old rows


@contextmanager
def _no_collection() -> Iterator[None]:
    """Disable garbage collection: a run creates many long-lived objects, but no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
