"""Plans of the native engine: which graphs it knows, and each as the steps, arrays and slots that C++ is told of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import native
from ..ndarray import NDArray
from ..optimizer.group import slots_of
from ..optimizer.grouped import GroupedOptimizer
from .native_graph import NativeSteps, NotNative, read_graph
from .native_operators import HANDLERS
from .program import BoundProgram, metric_outputs


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a program does not run natively."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class NativePlan:
    """A program as C++ runs it.

    Args:
        tensors: parameters and states, which stay where they are as long as the plan is used.
        metric: names and shapes without the batch axis of what a metric sees: labels, then outputs; None for the shape
            of one number for the whole batch.
    """

    description: tuple[Any, ...]
    tensors: tuple[torch.Tensor, ...]
    trained: tuple[Any, ...] = ()
    metric: tuple[tuple[str, tuple[int, ...] | None], ...] = ()
    labels: int = 0


@dataclass(slots=True)
class _Arrays:
    """The parameters of a plan, as C++ is told of them, and what keeps their memory."""

    records: list[tuple[Any, ...]] = field(default_factory=list)
    tensors: list[torch.Tensor] = field(default_factory=list)
    trained: list[Any] = field(default_factory=list)


def plan(prepared: BoundProgram, metric: bool = False) -> NativePlan | Reason:
    """Return how a program runs natively, or why it does not."""
    if native.core is None:
        return Reason(f"there is no extension: {native.error}")
    command = prepared.feed.desc.pipe_command
    if command != "cat":
        return Reason(f"files go through the program {command!r}")
    try:
        graph = read_graph(prepared.fetches.heads, prepared.feed, HANDLERS)
        watched, labels = _watched(prepared, graph) if metric else ([], 0)
        arrays = _arrays(prepared, graph)
    except NotNative as refused:
        return Reason(str(refused))
    fetches = [_fetch(prepared, graph, fetch) for fetch in prepared.fetches.items]
    description = (
        prepared.feed.desc.batch_size,
        [_slot(graph, slot) for slot in prepared.feed.desc.slots],
        arrays.records,
        [(value.width, value.single) for value in graph.values],
        graph.steps,
        [value.index for value in graph.heads],
        fetches,
        [value.index for _, value in watched],
    )
    shapes = tuple((name, None if value.single else value.tail) for name, value in watched)
    return NativePlan(description, tuple(arrays.tensors), tuple(arrays.trained), shapes, labels)


def _slot(graph: NativeSteps, slot: Any) -> tuple[Any, ...]:
    table, rows = graph.tables_of.get(slot.name, ("", 0))
    is_float, as_numbers = slot.type == "float", slot.name in graph.numbers
    return (
        slot.name,
        is_float,
        slot.is_dense,
        slot.is_used,
        bool(rows),
        as_numbers,
        slot.width or 0,
        rows,
        table,
    )


def _fetch(prepared: BoundProgram, graph: NativeSteps, fetch: Any) -> tuple[int, int]:
    """Return number of the value and of the slot, -1 for the one that it is not."""
    if fetch.output is not None:
        return graph.heads[fetch.output].index, -1
    if fetch.name not in graph.tables_of:
        graph.numbers.add(fetch.name)
    return -1, [slot.name for slot in prepared.feed.desc.slots].index(fetch.name)


def _watched(prepared: BoundProgram, graph: NativeSteps) -> tuple[list[tuple[str, Any]], int]:
    """Return labels and outputs for a metric, by name, and how many are labels."""
    heads = dict(zip(prepared.fetches.heads.list_outputs(), graph.heads))
    labels = [(desc.name, graph.number_slot(desc.name)) for desc in prepared.feed.labels]
    outputs = metric_outputs(prepared.module.symbol, len(labels))
    return [*labels, *((name, heads[name]) for name in outputs)], len(labels)


# parameters


def _arrays(prepared: BoundProgram, graph: NativeSteps) -> _Arrays:
    """Describe the parameters, and how they are updated."""
    found = _Arrays()
    store = prepared.module.store
    rules = _Rules(prepared)
    for name, shape, is_table, sparse in graph.parameters():
        weight = store.array(name, 0)
        rows, width = (shape[0], shape[1]) if len(shape) == 2 else (1, shape[0])
        if weight.stype != "default":
            raise NotNative(f"the parameter {name!r} has the storage type {weight.stype}")
        index, states, rule, lr_mult = rules.of(name, weight)
        tensors = [_checked(name, weight.raw, shape), *(_checked(name, each.raw, shape) for each in states)]
        pointers = [tensor.data_ptr() for tensor in tensors]
        all_rows = is_table and rule is not None and not rules.by_rows(weight, sparse, rule)
        learns = rule is not None
        found.records.append(
            (name, rows, width, pointers[0], pointers[1:], rule or {"kind": "sgd"}, lr_mult, learns, all_rows)
        )
        found.tensors += tensors
        if learns:
            found.trained.append(index)
    return found


def _checked(name: str, tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    if tensor.dtype is not torch.float32 or not tensor.is_cpu or not tensor.is_contiguous():
        raise NotNative(f"the parameter {name!r} is no contiguous float32 array on the CPU")
    if tensor.numel() != torch.Size(shape).numel():
        raise NotNative(
            f"the parameter {name!r} has the shape {tuple(tensor.shape)}, expected {tuple(shape)}"
        )
    return tensor


class _Rules:
    """How the parameters of a program are updated."""

    def __init__(self, prepared: BoundProgram) -> None:
        self._numbers: dict[str, Any] = {}
        self._updater: Any = None
        if not prepared.train:
            return
        updates = prepared.module.updates
        self._updater = updates.updater
        if self._updater is None:
            raise NotNative("the optimizer runs inside a kvstore")
        optimizer = self._updater.optimizer
        if not isinstance(optimizer, GroupedOptimizer) or not (optimizer.is_native and optimizer.is_grouped):
            raise NotNative(f"the optimizer {type(optimizer).__name__} has no native rule")
        learn = {
            name for name in prepared.module.store.names() if prepared.module.store.grad(name, 0) is not None
        }
        keys = updates.keys()
        counts = {optimizer.count_of(index) for index in keys}
        if optimizer.uses_count and len(counts) > 1:
            raise NotNative(
                "its parameters have received different numbers of updates, which the rule's steps depend on"
            )
        self._numbers = {name: index for index, (name, _) in keys.items() if name in learn}

    def of(self, name: str, weight: NDArray) -> tuple[Any, tuple[NDArray, ...], dict[str, Any] | None, float]:
        """Return number, states, rule but for the rate, and the rate's multiplier; no rule if it is fixed."""
        if name not in self._numbers:
            return None, (), None, 1.0
        index = self._numbers[name]
        optimizer = self._updater.optimizer
        lr_mult, wd_mult = optimizer.multipliers(index)
        states = slots_of(self._updater.state_of(index, weight))
        rule = dict(optimizer.native_rule(0.0, optimizer.wd * wd_mult, 1, len(states)))
        return index, states, rule, lr_mult

    def by_rows(self, weight: NDArray, sparse: bool, rule: dict[str, Any]) -> bool:
        """Say whether rows of a table without a gradient stay as they are."""
        is_still = rule["kind"] in ("sgd", "adagrad") and rule["wd"] == 0.0
        return is_still or (sparse and self._updater.optimizer.is_lazy(weight))
