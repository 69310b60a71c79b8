"""Batches of operations without a native kernel, run in torch on the engine's memory.

Random operations and user code may return other results when they are repeated. The native engine recomputes a graph if
a gradient that fusion has skipped is requested. Before that, the results of such operations are saved row by row,
because the second run may batch other rows together.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from ..ops.layers import draw_mask
from ..ops.native_kernels import DRAW, name_of
from ..ops.source import draw_random
from ..ops.spec import BatchCall, Dim, Operation, aux_tensor, grad_call, run_call

Tensor = torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class RecordedBatch:
    """Results of a batch that must not be repeated.

    Shape:
        inputs: each (rows or 1, batch, *d).
        values: (rows, elements per row).
    """

    op: Operation
    call: BatchCall
    outs: tuple[Dim, ...]
    inputs: list[Tensor]
    values: Tensor


class RecordedRows:
    """Rows of batches that must not be repeated, by index in `TorchCaller.node_arguments`."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[RecordedBatch, int]] = {}

    def clear(self) -> None:
        """Remove all rows."""
        self._rows.clear()

    def keep(self, drawn: RecordedBatch, places: Sequence[int]) -> None:
        """Save a batch.

        Args:
            places: index of each row.
        """
        self._rows.update((place, (drawn, row)) for row, place in enumerate(places))

    def rows(self, places: Sequence[int]) -> list[int]:
        """Return the rows of a batch that are saved."""
        return [row for row, place in enumerate(places) if place in self._rows] if self._rows else []

    def write(self, rows: Sequence[int], places: Sequence[int], target: Tensor) -> None:
        """Write the results of the saved rows of a batch.

        Shape:
            target: (all rows, elements per row).

        Args:
            places: index of each row.
        """
        for row in rows:
            drawn, at = self._rows[places[row]]
            target[row] = drawn.values[at]

    def add_gradients(
        self,
        rows: Sequence[int],
        places: Sequence[int],
        gradients: Sequence[Tensor],
        targets: Sequence[Tensor | None],
    ) -> None:
        """Add the gradients of the operands of the saved rows of a batch.

        Shape:
            gradients: each (all rows, batch, *d).
            targets: each (all rows or 1, batch, *d).

        Args:
            places: index of each row.
            targets: for every operand, the tensor for its gradient, or None.
        """
        batches: dict[tuple[RecordedBatch, int], list[tuple[int, int]]] = {}
        seen: Counter[int] = Counter()
        for row in rows:
            drawn, at = self._rows[places[row]]
            # recreated nodes, after a failure, have the index of the failed ones
            batches.setdefault((drawn, seen[places[row]]), []).append((row, at))
            seen[places[row]] += 1
        for (drawn, _), pairs in batches.items():
            sources, target_rows = (torch.tensor(column) for column in zip(*pairs))
            call = drawn.call
            call.wants = tuple(target is not None for target in targets)
            whole = [
                g.new_zeros(call.count, *g.shape[1:]).index_copy_(0, target_rows, g[sources])
                for g in gradients
            ]
            for found, target in zip(grad_call(call, drawn.op, whole, drawn.inputs), targets):
                if found is None or target is None:
                    continue
                part = found if found.shape[0] == 1 else found[target_rows]
                if target.shape[0] == 1:
                    target += part.sum(0, keepdim=True)
                else:
                    target.index_add_(0, sources, part)


@dataclass(frozen=True, slots=True)
class CallKind:
    """The operation of a batch of calls.

    Args:
        dims: the `Dim` of every operand; of one operand for operations on many.
    """

    op: Operation
    attrs: tuple[Any, ...]
    dims: tuple[Dim, ...]
    outs: tuple[Dim, ...]


class _UnrepeatableBatch(NamedTuple):
    """A batch that may return other results when repeated, with the arguments of `TorchCaller.forward`."""

    call: BatchCall
    kind: CallKind
    arguments: list[tuple[int, int, int]]
    aux: list[int]
    out: int


def _is_drawn(op: Operation) -> bool:
    """Return True if an operation may return other results when repeated."""
    return op.random or op.whole_batch


def _widths(kind: CallKind) -> list[int]:
    """Return the number of elements of each result; a row of the engine's memory holds all results in order."""
    return [dim.size * dim.batch for dim in kind.outs]


@lru_cache(1024)
def _floats(size: int) -> Any:
    """Return a ctypes array of floats, cached because creating the type is slow."""
    return ctypes.c_float * size


def tensor_at(address: int, shape: Sequence[int]) -> Tensor:
    """Return a float32 tensor over memory of the engine; valid until `renew`.

    Shape:
        returns: `shape`.

    Args:
        shape: shape of the contiguous tensor.
    """
    size = 1
    for each in shape:
        size *= each
    return torch.frombuffer(_floats(size).from_address(address), dtype=torch.float32).view(*shape)


def _products_into(targets: Sequence[Tensor | None]) -> Callable[..., None]:
    """Return a function that adds matrix products to the engine's gradients; see `BatchCall.defer`."""

    def add(place: int, left: Tensor, right: Tensor, bias: int = -1) -> None:
        target, summed = targets[place], targets[bias] if bias >= 0 else None
        if target is not None:
            target += (left.t() @ right).view(target.shape)
        if summed is not None:
            summed += left.sum(0).view(summed.shape)

    return add


class TorchCaller:
    """Forward and backward of the operations that run in torch, called by the engine.

    Args:
        options: settings; its generator is used for random operations.

    Attributes:
        kinds: operations of batches, by the engine's index.
        node_arguments: arguments of single nodes (`Operation.aux`), by the engine's index.
        is_repeating: True while the graph is recomputed, when gradients of parameters have been counted already.
    """

    def __init__(self, options: Any) -> None:
        self._options = options
        self.kinds: list[CallKind] = []
        self.node_arguments: list[Any] = []
        self._calls: dict[int, BatchCall] = {}
        self._drawn: dict[int, _UnrepeatableBatch] = {}
        self._kept = RecordedRows()
        self._places: dict[int, list[int]] = {}  # argument indices of the rows of batches that may be saved
        self._rows: list[
            tuple[Any, Tensor, Tensor]
        ] = []  # gradients of table rows in this pass; see `BatchCall.rows`
        self.is_repeating = False

    def renew(self) -> None:
        """Forget all batches and node arguments."""
        self.forget()
        self.node_arguments.clear()

    def forget(self) -> None:
        """Forget all batches, which will be recomputed with other random numbers."""
        self._calls.clear()
        self._places.clear()
        self._drawn.clear()
        self._kept.clear()

    def cut(self, size: int) -> None:
        """Forget the batches from node number `size` on, whose memory is reused."""
        for key in [key for key in self._drawn if key >= size]:
            del self._drawn[key]

    def keep(self) -> None:
        """Save results that a recomputation could change."""
        for call, kind, arguments, aux, out in self._drawn.values():
            inputs = [x.clone() for x in self._operands(kind, call.count, arguments, [])]
            values = tensor_at(out, (call.count, sum(_widths(kind)))).clone()
            inputs = self._expanded(kind.op, call.count, inputs)
            self._kept.keep(RecordedBatch(kind.op, call, kind.outs, inputs, values), aux)
        self._drawn.clear()

    def forget_rows(self) -> None:
        """Discard the deferred gradients of table rows."""
        self._rows.clear()

    def add_rows(self) -> None:
        """Add the deferred gradients to their tables, after a successful pass."""
        for table, rows, gradient in self._rows:
            table.add_rows(rows, gradient)
        self.forget_rows()

    def draw(self, kind: int, first: float, second: float, address: int, count: int) -> None:
        """Draw random numbers for a batch.

        Args:
            first: dropout rate, standard deviation of noise, or first parameter of a distribution.
        """
        numbers, generator, name = tensor_at(address, (count,)), self._options.generator, name_of(kind, DRAW)
        if "dropout" in name:
            draw_mask(numbers, first, generator)
        elif name == "noise":
            numbers.normal_(0.0, first, generator=generator)
        else:
            draw_random(numbers, name, first, second, generator)

    def keep_argument(self, value: Any) -> int:
        """Store the argument of a node (`Operation.aux`); return its index in `node_arguments`."""
        self.node_arguments.append(value)
        return len(self.node_arguments) - 1

    @staticmethod
    def _operands(
        kind: CallKind, rows: int, arguments: list[tuple[int, int, int]], counts: list[int]
    ) -> list[Tensor]:
        found = []
        for dim, (address, is_shared, _) in zip(kind.dims, arguments):
            count = sum(counts) if counts else 1 if is_shared else rows
            found.append(tensor_at(address, (count, dim.batch, *dim.d)))
        return found

    def forward(
        self,
        key: int,
        number: int,
        rows: int,
        arguments: list[tuple[int, int, int]],
        aux: list[int],
        counts: list[int],
        out: int,
    ) -> None:
        """Compute a batch and write its results.

        Args:
            arguments: (address, True if all nodes share one row, 0) for every operand.
            aux: for every node, the index of its argument in `node_arguments`.
            counts: for operations on many operands, the number of operands of each node.
        """
        kind = self.kinds[number]
        op, options = kind.op, self._options
        widths = _widths(kind)
        target = tensor_at(out, (rows, sum(widths)))
        kept = self._kept.rows(aux) if _is_drawn(op) else []
        if _is_drawn(op):
            self._places[key] = aux
        if len(kept) == rows:
            self._kept.write(kept, aux, target)
            return
        call = BatchCall(
            kind.attrs, kind.dims, kind.outs[0], rows, counts=counts, generator=options.generator
        )
        if op.aux:
            values = [self.node_arguments[place] for place in aux]
            call.aux = aux_tensor(op.aux, values, torch.device("cpu"), torch.float32)
        with torch.no_grad():
            inputs = self._expanded(op, rows, self._operands(kind, rows, arguments, counts))
            for part, result in zip(target.split_with_sizes(widths, 1), run_call(call, op.run, inputs)):
                part.copy_(result.reshape(result.shape[0], -1))
        self._calls[key] = call
        self._kept.write(kept, aux, target)
        if _is_drawn(op):
            self._drawn[key] = _UnrepeatableBatch(call, kind, arguments, aux, out)

    @staticmethod
    def _expanded(op: Operation, rows: int, inputs: list[Tensor]) -> list[Tensor]:
        if not op.expand:
            return inputs
        return [x.expand(rows, *x.shape[1:]) if x.shape[0] != rows else x for x in inputs]

    def backward(
        self,
        key: int,
        number: int,
        rows: int,
        arguments: list[tuple[int, int, int]],
        aux: list[int],
        counts: list[int],
        out: int,
    ) -> None:
        """Compute the gradients of the operands of a batch and write them.

        Args:
            arguments: (address, True if shared, address of the gradient or 0) for every operand.
        """
        kind = self.kinds[number]
        if self.is_repeating and not kind.dims:
            return
        with torch.no_grad():
            inputs, widths = self._operands(kind, rows, arguments, counts), _widths(kind)
            parts = tensor_at(out, (rows, sum(widths))).split_with_sizes(widths, 1)
            gradients = [part.reshape(rows, dim.batch, *dim.d) for part, dim in zip(parts, kind.outs)]
            targets = [
                tensor_at(argument[2], x.shape) if argument[2] else None
                for x, argument in zip(inputs, arguments)
            ]
            places = self._places[key] if _is_drawn(kind.op) else []
            kept = self._kept.rows(places)
            if kept:
                self._kept.add_gradients(kept, places, gradients, targets)
                if len(kept) == rows:
                    return
                gradients = [each.index_fill(0, torch.tensor(kept), 0.0) for each in gradients]
            call = self._calls[key]
            call.wants = tuple(bool(gradient) for _, _, gradient in arguments)
            call.defer, call.rows = _products_into(targets), self._rows
            found = grad_call(call, kind.op, gradients, self._expanded(kind.op, rows, inputs))
            call.defer = None
            for gradient, target in zip(found, targets):
                if gradient is not None and target is not None:
                    target += (
                        gradient.sum(0, keepdim=True) if gradient.shape[0] != target.shape[0] else gradient
                    )
