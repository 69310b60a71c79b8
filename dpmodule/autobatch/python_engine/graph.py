"""The graph with node table and engine in Python; see `graph.EngineGraph`.

Batches are computed by `ops.spec.Operation.run` and `Operation.grad`, or autograd without a `grad`. The native engine
also calls these for operations without a kernel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from threading import get_ident
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

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
from .engine import Progress, PythonEngine
from .signature import BatchPlan, Signature, SignatureTable
from .values import MemoryPool

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
