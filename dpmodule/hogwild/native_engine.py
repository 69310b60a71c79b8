"""The native engine: reads files and trains whole networks in C++ threads without the GIL."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .. import native
from ..base import NonFiniteError, StateError
from ..context import cpu
from ..module.interrupts import DeferredInterrupt
from ..ndarray import NDArray
from ..ops.nn import auc
from ..ops.write_tracking import count_write
from ..optimizer.group import slots_of
from ..optimizer.grouped import GroupedOptimizer
from .job import Job, WorkerStats
from .native_graph import NativeSteps, NotNative, RunningCount, read_graph
from .native_operators import HANDLERS
from .program import BoundProgram, metric_outputs

_POLL_S = 0.02
"""Interval at which the calling thread checks for Ctrl-C, reports and metrics, in seconds."""

_STAGES = ("read", "parse", "forward", "backward", "update")


class NativeEngine:
    """Trains with C++ threads, each of which reads files, parses lines, and updates the parameters in place."""

    name = "native"

    def __init__(self) -> None:
        self._running: Any = None

    def why_not(self, prepared: BoundProgram) -> str | None:
        """Return why this engine does not support a program, None if it does."""
        try:
            plan(prepared)
        except NotNative as refused:
            return str(refused)
        return None

    def run(self, prepared: BoundProgram, job: Job) -> list[WorkerStats]:
        """Run a job."""
        try:
            native_plan = plan(prepared, job.metric is not None)
        except NotNative as refused:
            raise StateError(f"the native engine cannot run this program: {refused}") from None
        run = _NativeRun(prepared, job, native_plan)
        with DeferredInterrupt(run.stop) as interrupt:
            self._running = run
            try:
                stats = run.wait(interrupt)
            finally:
                self._running = None
        if interrupt.requested:
            interrupt.raise_now()
        return stats

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Return a context in which all workers wait between two batches."""
        run = self._running
        if run is None:
            yield
            return
        run.pause()
        try:
            yield
        finally:
            run.resume()

    def close(self) -> None:
        """Do nothing: threads end with their job."""


class _NativeRun:
    """A running job."""

    def __init__(self, prepared: BoundProgram, job: Job, native_plan: NativePlan) -> None:
        self._prepared, self._job, self._plan = prepared, job, native_plan
        self._optimizer = prepared.module.optimizer if prepared.train and job.train else None
        self._updates = 0
        self._tables = None if job.averaging is None else job.averaging.tables
        self._has_ended = False
        rate, schedule = 0.0, None
        if self._optimizer is not None and native_plan.trained:
            self._updates = max(self._optimizer.count_of(index) for index in native_plan.trained)
            if self._optimizer.lr_scheduler is None:
                rate = self._optimizer.learning_rate
            else:
                schedule = self._optimizer.lr_scheduler
        core: Any = native.core
        parts = [
            (os.fsencode(p.path), p.begin, -1 if p.end is None else p.end, p.skip, p.number)
            for p in job.parts
        ]
        self._lines_done = (
            torch.zeros(len(parts), dtype=torch.int64) if job.lines_done is None else job.lines_done
        )
        self._native = core.HogwildRun(
            native_plan.description,
            parts,
            job.workers,
            job.train,
            job.on_bad_line == "skip",
            job.seed % 2**64,
            self._updates,
            rate,
            schedule,
            self._lines_done.data_ptr(),
            -1 if self._tables is not None or job.averaging is None else job.averaging.batches or -1,
            self._tables is not None,
        )
        if self._tables is not None:
            self._native.give(self._tables.batches)
        self._monitor = _NativeMonitor(self._native, job, native_plan)

    def stop(self) -> None:
        """Let each worker end after its batch."""
        self._native.stop()

    def wait(self, interrupt: DeferredInterrupt) -> list[WorkerStats]:
        """Wait for the workers, and return their stats."""
        run = self._native
        next_report = time.monotonic() + self._job.report_s
        try:
            while not run.wait(_POLL_S):
                self._monitor.update_metrics()
                if self._job.report is not None and time.monotonic() >= next_report:
                    self._job.report(self._monitor.stats())
                    next_report = time.monotonic() + self._job.report_s
                self._average(interrupt)
        finally:
            run.stop()
            run.wait(float("inf"))
            self._record_updates()
        self._monitor.update_metrics()
        try:
            run.raise_failure()
        except NonFiniteError as error:
            file, batch = run.failed_at()
            error.file, error.batch = os.fsdecode(file), batch  # type: ignore[attr-defined]  # attributes for handlers
            raise
        return self._monitor.stats()

    def _average(self, interrupt: DeferredInterrupt) -> None:
        """Average with other processes if it is time, and let the workers continue."""
        averaging, tables = self._job.averaging, self._tables
        if averaging is None or interrupt.requested or self._has_ended:
            return
        is_due = self._native.is_spent() or (tables is None and averaging.is_late)
        if not is_due:
            return
        self.pause()
        try:
            averaging()
        finally:
            self.resume()
        if not interrupt.requested and tables is None:
            self._native.allow(averaging.batches or -1)
        elif not interrupt.requested:
            self._native.give(tables.batches)
            self._has_ended = not tables.batches

    def _record_updates(self) -> None:
        """Record updates since the last call in the optimizer and in the versions of arrays."""
        done = self._native.updates() - self._updates
        self._updates += done
        if done:
            count_write(list(self._plan.tensors))
            if self._optimizer is not None:
                self._optimizer.add_updates(self._plan.trained, done)

    def pause(self) -> None:
        """Pause all workers between two batches."""
        self._native.pause()
        self._record_updates()

    def resume(self) -> None:
        """Resume the workers."""
        self._native.resume()


class _NativeMonitor:
    """Collects stats and metrics of workers in the calling thread."""

    def __init__(self, run: Any, job: Job, native_plan: NativePlan) -> None:
        self._run, self._job, self._plan = run, job, native_plan
        self._metrics = [deepcopy(job.metric) for _ in range(job.workers)]

    def update_metrics(self) -> None:
        """Update the metrics and the running counts with new batches."""
        shown = len(self._plan.metric)
        for worker, metric in enumerate(self._metrics):
            if metric is None and not self._plan.counts:
                continue
            lines, *columns = self._run.take(worker)
            counts = np.frombuffer(lines, np.int32)
            for count in self._plan.counts:
                count.add(counts, columns)
            if metric is None:
                continue
            for rows in _by_batch(counts, columns[:shown], self._plan.metric):
                labels, outputs = rows[: self._plan.labels], rows[self._plan.labels :]
                metric.update_dict(dict(labels), dict(outputs))

    def stats(self) -> list[WorkerStats]:
        """Return the stats of the workers."""
        stats = []
        for worker, (examples, batches, skipped, part, seconds, sums) in enumerate(self._run.stats()):
            file = self._job.parts[part].path if part >= 0 else ""
            times, sums = dict(zip(_STAGES, seconds)), list(sums)
            for count in self._plan.counts:
                for i in count.fetches:
                    sums[i] = count.value() * batches
            metric = self._metrics[worker]
            stats.append(WorkerStats(worker, examples, batches, skipped, times, sums, metric, file))
        return stats


def _by_batch(
    lines: np.ndarray[Any, Any],
    columns: Sequence[bytes],
    metric_inputs: Sequence[tuple[str, tuple[int, ...] | None]],
) -> Iterator[list[tuple[str, NDArray]]]:
    """Yield the inputs of the metric for each batch, by name."""
    if not lines.size:
        return
    counts = lines.tolist()
    columns_by_batch: list[Sequence[torch.Tensor]] = []
    for column, (_, tail) in zip(columns, metric_inputs, strict=True):
        numbers = torch.frombuffer(bytearray(column), dtype=torch.float32)
        rows = torch.split(numbers, 1) if tail is None else torch.split(numbers.view(-1, *tail), counts)
        columns_by_batch.append(rows)
    for batch in zip(*columns_by_batch):
        yield [(name, NDArray(rows, cpu())) for (name, _), rows in zip(metric_inputs, batch)]


@dataclass(frozen=True, slots=True)
class _Count:
    """States of a `_running_auc`, to which records of the workers are added.

    Args:
        states: counts of positives and negatives.
        columns: indices of scores and labels among the records.
        width: number of scores of a line, of which the last one counts.
        fetches: indices of the fetches of its value.
    """

    a: Any
    states: tuple[torch.Tensor, ...]
    columns: tuple[int, int]
    width: int
    fetches: tuple[int, ...]

    def add(self, lines: np.ndarray[Any, Any], columns: Sequence[bytes]) -> None:
        """Add batches.

        Args:
            lines: number of lines of each batch, (batches,).
            columns: records of all lines.
        """
        if not lines.size:
            return
        data, labels = (torch.frombuffer(bytearray(columns[i]), dtype=torch.float32) for i in self.columns)
        places = auc.intervals(data.view(-1, self.width)[:, -1], self.a.num_thresholds)
        parts = [(places, labels > 0)]
        if self.a.slide_steps:  # batches before the last ones do not count
            last = lines.tolist()[-self.a.slide_steps :]
            parts = list(zip(*(torch.split(one[-sum(last) :], last) for one in parts[0])))
        for where, hits in parts:
            for state, chosen in zip(self.states, (hits, ~hits)):
                auc.add_batch(state, where[chosen], self.a.num_thresholds, self.a.slide_steps)

    def value(self) -> float:
        """Return the present area."""
        a = self.a
        return float(auc.area(*(auc.window(each, a.num_thresholds, a.slide_steps) for each in self.states)))


@dataclass(frozen=True, slots=True)
class NativePlan:
    """Description of a program for C++.

    Args:
        tensors: parameters and states, which must stay alive while the plan is used.
        metric: names and shapes, without the batch axis, of the inputs of a metric: labels, then outputs; the shape of
            a scalar is None.
    """

    description: tuple[Any, ...]
    tensors: tuple[torch.Tensor, ...]
    trained: tuple[Any, ...] = ()
    metric: tuple[tuple[str, tuple[int, ...] | None], ...] = ()
    labels: int = 0
    counts: tuple[_Count, ...] = ()


# plans: the steps, arrays and slots of a graph for C++


def plan(prepared: BoundProgram, metric: bool = False) -> NativePlan:
    """Return the native plan of a program.

    Raises:
        NotNative: the engine does not support it; the text has the reason.
    """
    if native.core is None:
        raise NotNative(f"the extension is not available: {native.error}")
    command = prepared.feed.desc.pipe_command
    if command != "cat":
        raise NotNative(f"the program {command!r} reads the files")
    graph = read_graph(prepared.fetches.heads, prepared.feed, HANDLERS)
    metric_inputs, labels = _metric_inputs(prepared, graph) if metric else ([], 0)
    records, tensors, trained = _parameter_records(prepared, graph)
    fetches = [_fetch(prepared, graph, fetch) for fetch in prepared.fetches.items]
    watched = [value.index for _, value in metric_inputs]
    counts = [_count(prepared, count, watched) for count in graph.counts]
    description = (
        prepared.feed.desc.batch_size,
        [_slot(graph, slot) for slot in prepared.feed.desc.slots],
        records,
        [(value.width, value.single) for value in graph.values],
        graph.steps,
        [value.index for value in graph.heads],
        fetches,
        watched,
    )
    shapes = tuple((name, None if value.single else value.tail) for name, value in metric_inputs)
    return NativePlan(description, tuple(tensors), tuple(trained), shapes, labels, tuple(counts))


def _count(
    prepared: BoundProgram,
    count: RunningCount,
    watched: list[int],
) -> _Count:
    """Return the states of a running count, and add what it reads to the recorded values."""
    columns = []
    for value in (count.data, count.label):
        if value.index not in watched:
            watched.append(value.index)
        columns.append(watched.index(value.index))
    names = [child.name for child, _ in count.node.inputs[2:]]
    states = tuple(prepared.module.store.aux(name, 0).raw for name in names)
    heads = {
        index for index, head in enumerate(prepared.fetches.heads.graph.heads) if _reads(head, count.node)
    }
    shown = [i for i, item in enumerate(prepared.fetches.items) if item.output in heads]
    return _Count(count.node.a, states, (columns[0], columns[1]), count.data.width, tuple(shown))


def _reads(head: Any, node: Any) -> bool:
    """Return True if an output is that of a node, or blocks its gradient."""
    above = head[0]
    while above is not node and above.op is not None and above.op.name == "BlockGrad":
        above = above.inputs[0][0]
    return above is node


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
    """Return the index of the value and of the slot, one of which is -1."""
    if fetch.output is not None:
        return graph.heads[fetch.output].index, -1
    if fetch.name not in graph.tables_of:
        graph.numbers.add(fetch.name)
    return -1, [slot.name for slot in prepared.feed.desc.slots].index(fetch.name)


def _metric_inputs(prepared: BoundProgram, graph: NativeSteps) -> tuple[list[tuple[str, Any]], int]:
    """Return labels and outputs for a metric, by name, and the number of labels."""
    heads = dict(zip(prepared.fetches.heads.list_outputs(), graph.heads))
    labels = [(desc.name, graph.number_slot(desc.name)) for desc in prepared.feed.labels]
    outputs = metric_outputs(prepared.module.symbol, len(labels))
    return [*labels, *((name, heads[name]) for name in outputs)], len(labels)


# parameters


def _parameter_records(
    prepared: BoundProgram, graph: NativeSteps
) -> tuple[list[tuple[Any, ...]], list[torch.Tensor], list[Any]]:
    """Return the records of parameters and their updates for C++, their tensors, and keys of trained parameters."""
    records, all_tensors, trained = list[tuple[Any, ...]](), list[torch.Tensor](), []
    store = prepared.module.store
    rules = _UpdateRules(prepared)
    for name, shape, is_table, sparse in graph.parameters():
        weight = store.array(name, 0)
        rows, width = (shape[0], shape[1]) if len(shape) == 2 else (1, shape[0])
        if weight.stype != "default":
            raise NotNative(f"the parameter {name!r} has the storage type {weight.stype}")
        index, states, rule, lr_mult = rules.of(name, weight)
        tensors = [_check_tensor(name, array.raw, shape) for array in (weight, *states)]
        pointers = [tensor.data_ptr() for tensor in tensors]
        all_rows = is_table and rule is not None and not rules.by_rows(weight, sparse, rule)
        all_rows = all_rows and prepared.tables is None
        learns = rule is not None
        records.append(
            (name, rows, width, pointers[0], pointers[1:], rule or {"kind": "sgd"}, lr_mult, learns, all_rows)
        )
        all_tensors += tensors
        if learns:
            trained.append(index)
    return records, all_tensors, trained


def _check_tensor(name: str, tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    if tensor.dtype is not torch.float32 or not tensor.is_cpu or not tensor.is_contiguous():
        raise NotNative(f"the parameter {name!r} is not a contiguous float32 array on the CPU")
    if tensor.numel() != torch.Size(shape).numel():
        raise NotNative(
            f"the parameter {name!r} has the shape {tuple(tensor.shape)}, expected {tuple(shape)}"
        )
    return tensor


class _UpdateRules:
    """Update rules of the parameters of a program."""

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
        if getattr(optimizer, "norm_limit", None) is not None:
            raise NotNative("gradients are limited by their norm")
        if not isinstance(optimizer, GroupedOptimizer) or not (optimizer.is_native and optimizer.is_grouped):
            raise NotNative(f"the optimizer {type(optimizer).__name__} has no native rule")
        trained_names = {
            name for name in prepared.module.store.names() if prepared.module.store.grad(name, 0) is not None
        }
        keys = updates.keys()
        counts = {optimizer.count_of(index) for index in keys}
        if optimizer.uses_count and len(counts) > 1:
            raise NotNative(
                "its parameters have different numbers of updates, which the update rule depends on"
            )
        self._numbers = {name: index for index, (name, _) in keys.items() if name in trained_names}

    def of(self, name: str, weight: NDArray) -> tuple[Any, tuple[NDArray, ...], dict[str, Any] | None, float]:
        """Return key, states, rule without the rate (None if fixed), and the multiplier of the rate."""
        if name not in self._numbers:
            return None, (), None, 1.0
        index = self._numbers[name]
        optimizer = self._updater.optimizer
        lr_mult, wd_mult = optimizer.multipliers(index)
        states = slots_of(self._updater.state_of(index, weight))
        rule = dict(optimizer.native_rule(0.0, optimizer.wd * wd_mult, 1, len(states)))
        return index, states, rule, lr_mult

    def by_rows(self, weight: NDArray, sparse: bool, rule: dict[str, Any]) -> bool:
        """Return True if rows of a table without a gradient do not change."""
        is_still = rule["kind"] in ("sgd", "adagrad", "plain adagrad") and rule["wd"] == 0.0
        return is_still or (sparse and self._updater.optimizer.is_lazy(weight))
