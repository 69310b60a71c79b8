"""The graph with node table and engine in Python; see `graph.EngineGraph`.

Batches are computed by `ops.spec.Operation.run` and `Operation.grad`, or autograd without a `grad`. The native engine
also calls these for operations without a kernel.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import StateError
from ..graph import (
    EngineGraph,
    ExecutedBatch,
    Options,
    ParameterVersions,
    display_name,
    execution_of,
    inputs_of,
)
from ..ops.source import CONSTANT, INPUT, PARAMETER, READING
from ..ops.spec import Dim, Operation
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


END = -1
"""The key of the signature's number at a leaf of `SignatureTable.trie`."""

Ints = NDArray[np.int64]


class PythonGraph(EngineGraph):
    """A graph with a node table and an engine in Python.

    Args:
        options: batching, device and dtype, as set by `configure`.
        table: table of signatures, which graphs may share; a new one by default.

    Attributes:
        numbers: signature number of every node.
        flat: the operands of all nodes, concatenated.
        aux: arguments of single nodes, by node.
        trie: signature numbers by operation; see `SignatureTable.trie`. Empty if nodes are computed immediately, so
            that all nodes go through `add`.
        engine: computes the nodes.
    """

    engine_name = "python"
    """Name of the engine in `configure`."""

    def __init__(self, options: Options | None = None, table: SignatureTable | None = None) -> None:
        super().__init__(options or Options())
        self.table = table or SignatureTable()
        self._pool = MemoryPool()
        self._begin()

    def _begin(self) -> None:
        self.numbers: list[int] = []
        self.flat: list[int] = []
        self.aux: dict[int, Any] = {}
        self._many_counts: deque[tuple[int, int]] = deque()  # nodes with many operands, and their numbers
        # signature and start in `flat` of every node; filled by plans
        self._node_columns: Ints = np.zeros((2, 256), np.int64)
        self._column_count = 0  # number of nodes in it
        self._read_tables: dict[Any, None] = {}
        self.trie: dict[Any, Any] = {} if self.is_immediate else self.table.trie
        self.engine = PythonEngine(self.options, self.table, self._pool)

    @property
    def size(self) -> int:
        return len(self.numbers)

    def append(self, op: Operation, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any = None) -> int:
        if get_ident() != self.owner.ident:
            self.change_thread()
        numbers = self.numbers
        try:  # the hot path
            found = self.trie[op][attrs]
            for arg in args:
                found = found[numbers[arg]]
            number: int = found[END]
        except (KeyError, IndexError):
            self.check_nodes(args)
            number = self._resolve(op, attrs, args)
        if number < 0:
            return self.add(number, args, aux)
        node = len(numbers)
        numbers.append(number)
        flat = self.flat
        flat += args
        if aux is not None:
            self.aux[node] = aux
        return node

    def _resolve(self, op: Operation, attrs: tuple[Any, ...], args: tuple[int, ...]) -> int:
        """Return the number of a signature after adding it to `trie`; its complement if the node needs `add`."""
        operands = [self.signature(arg) for arg in args]
        signature = self.table.find(op, attrs, operands)
        if self.is_immediate:
            return ~signature.index
        number = ~signature.index if signature.extras else signature.index
        found = self.trie.setdefault(op, {}).setdefault(attrs, {})
        for each in operands:
            found = found.setdefault(each.index, {})
        found[END] = number
        return number

    def append_many(self, op: Operation, attrs: tuple[Any, ...], args: tuple[int, ...]) -> int:
        self.check_thread()
        self.check_nodes(args)
        numbers, signatures = self.numbers, self.table.signatures
        operands = [signatures[number] for number in {numbers[arg] for arg in args}]
        self._many_counts.append((len(numbers), len(args)))
        return self.add(~self.table.find(op, attrs, operands, many=True).index, args, None)

    def add(self, number: int, args: Iterable[int], aux: Any) -> int:
        """Add a node that needs more than a signature number and operands.

        Args:
            number: complement of the signature's number.
            aux: argument of the node; see `Operation.aux`.
        """
        signature = self.table.signatures[~number]
        flat, numbers = self.flat, self.numbers
        node = len(numbers)
        numbers += signature.numbers
        flat += args
        flat += (node,) * len(signature.extras)
        if aux is not None:
            self.aux[node] = aux
        if self.is_immediate:
            self._compute_immediately(node, signature.kind.op.name)
        return node

    def operation_of(self, node: int) -> str:
        return self.signature(node).kind.op.name

    def signature(self, node: int) -> Signature:
        """Return the signature of a node."""
        return self.table.signatures[self.numbers[node]]

    def are_alike(self, nodes: list[int]) -> bool:
        signatures = [self.table.signatures[number] for number in {self.numbers[node] for node in nodes}]
        first = signatures[0].dim
        return all(each.dim == first and each.kind.op is not PARAMETER for each in signatures)

    def operands(self, node: int) -> tuple[int, ...]:
        return tuple(self.columns(node, node + 1)[2].tolist())

    def columns(self, first: int, end: int) -> tuple[Ints, Ints, Ints]:
        """Return signatures, operand offsets and operands of consecutive nodes.

        Shape:
            returns: (nodes,), (nodes + 1,), (operands,); int64.
        """
        self._fill_columns(end)
        starts = self._node_columns[1, first : end + 1]
        flat = np.array(self.flat[starts[0] : starts[-1]], np.int64)
        return self._node_columns[0, first:end], starts - starts[0], flat

    def _fill_columns(self, end: int) -> None:
        """Fill the columns of the nodes before `end`, which is deferred to keep `append` fast."""
        first = self._column_count
        if end <= first:
            return
        if end >= self._node_columns.shape[1]:
            self._node_columns = np.concatenate(
                [self._node_columns, np.zeros((2, max(end, self._node_columns.shape[1])), np.int64)], 1
            )
        numbers, starts = self._node_columns
        numbers[first:end] = self.numbers[first:end]
        counts = self.table.arities[numbers[first:end]]
        while self._many_counts and self._many_counts[0][0] < end:
            node, count = self._many_counts.popleft()
            counts[node - first] = count
        np.cumsum(counts, out=starts[first + 1 : end + 1])
        starts[first + 1 : end + 1] += starts[first]
        self._column_count = end

    def dim(self, node: int) -> Dim:
        try:
            return self.table.signatures[self.numbers[node]].dim
        except IndexError:
            self.check_nodes((node,))
            raise

    def forward(self, node: int) -> None:
        self.engine.forward(self, node)

    def value(self, node: int) -> torch.Tensor:
        self.forward(node)
        return self.engine.value(node, self.signature(node))

    def backward(self, node: int, full: bool = False) -> None:
        self.check_root(node)
        self.forward(node)
        for reference in self.parameter_versions():
            reference().check_shape()  # type: ignore[union-attr] # the graph holds it
        self.engine.backward(self, node, full)
        self.note_parameters()

    def gradient(self, node: int) -> torch.Tensor:
        self.check_reached(node)
        return self.engine.gradient(node, self.signature(node))

    def parameter_versions(self) -> ParameterVersions:
        kinds = {step.kind for plan in self.engine.plans for step in plan.steps}
        references = [kind.attrs[1] for kind in kinds if kind.op in READING]
        return {each: storage.memory_version() for each in references if (storage := each()) is not None}

    def is_given(self, node: int) -> bool:
        return self.signature(node).kind.op in (INPUT, CONSTANT)

    def _start(self, is_batched: bool) -> None:
        self.table.tidy()
        self.engine.release()
        self._begin()
        self.engine.autobatch = is_batched

    def adopt(self, table: Any, is_updated: bool) -> None:
        if table.storage not in self._read_tables:
            table.storage.check_fits(self.options.device, self.options.dtype)
            self._read_tables[table.storage] = None

    @property
    def is_running(self) -> bool:
        return self.engine.is_running

    @property
    def has_failed(self) -> bool:
        return bool(self.engine.failed)

    @property
    def root(self) -> int:
        return self.engine.root

    def settle(self) -> None:
        """Do nothing, since all values are kept."""

    def deactivate(self) -> None:
        pass

    def recalculate(self) -> None:
        self.engine.revert(None)
        self._checkpoints = [
            (size, None) for size, _ in self._checkpoints
        ]  # values computed before are discarded

    def set_input(self, node: int, array: Any) -> None:
        self.aux[node] = array
        if node < max(self.engine.computed, self.engine.root):
            self.recalculate()

    def _progress(self) -> Progress:
        return self.engine.progress()

    def _cut(self, size: int, progress: Progress | None) -> None:
        self._fill_columns(size)
        del self.numbers[size:], self.flat[self._node_columns[1, size] :]
        self._column_count = size
        while self._many_counts and self._many_counts[-1][0] >= size:
            self._many_counts.pop()
        for node in [node for node in self.aux if node >= size]:
            del self.aux[node]
        self.engine.revert(progress, size)

    def plans(self) -> list[BatchPlan]:
        """Return the executed plans in order."""
        return self.engine.plans

    def executed_batches(self) -> list[ExecutedBatch]:
        return list(_batches_of(self.engine.plans))

    @property
    def computed(self) -> int:
        return self.engine.computed

    @property
    def is_batched(self) -> bool:
        return bool(self.engine.autobatch)

    def seconds(self) -> dict[str, float]:
        return self.engine.seconds


def _batches_of(plans: Sequence[BatchPlan]) -> Iterator[ExecutedBatch]:
    """Describe the batches of plans; there is one plan per request for a value."""
    for forward, plan in enumerate(plans):
        for step in plan.steps:
            kind, count = step.kind, len(step.nodes)
            if not kind.dims:
                continue
            yield ExecutedBatch(
                kind=kind.index,
                operation=display_name(kind.op.name),
                dims=inputs_of(kind.op, kind.attrs, kind.dims),
                out=kind.outs[0],
                parameters=tuple(each and each[1:] for each in kind.parameters),
                others=kind.attrs,
                nodes=count,
                calls=count,
                forward=forward,
                never_batched=kind.op.never_batched,
                execution=execution_of(kind.op, kind.attrs, kind.dims),
            )
