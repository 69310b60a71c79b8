"""Jobs of engines: arguments of a run, stats of its workers, its progress and its results."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any, Protocol, overload

import torch

from .. import metric as metrics
from ..base import ArgumentError
from ..metric import EvalMetric
from ..module.class_labels import CHOICES
from .data_files import FileRange

MODES = ("auto", "native", "process", "serial")
_ON_BAD_LINE = ("error", "skip")
_BAR_S = 0.5
_OPTIMIZER_PARAMS = (("learning_rate", 0.01),)


@dataclass(slots=True)
class WorkerStats:
    """Statistics of a worker in a run.

    Args:
        worker: number of the worker, from 0.
        seconds: time by stage, in seconds.
        fetched: sum over batches of the batch mean, for every fetch.
        metric: metric of the worker, None if there is none.
        file: current file; empty before the first one.
    """

    worker: int
    examples: int = 0
    batches: int = 0
    skipped: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    fetched: list[float] = field(default_factory=list)
    metric: EvalMetric | None = None
    file: str = ""


class Averaging(Protocol):
    """Callable that averages parameters with other processes; see `file_run.ParameterAverager`.

    Attributes:
        batches: number of batches of this process between two averages; 0: no limit.
        is_late: whether it is time to average, by the number of seconds.
        tables: tables that are spread over the processes, which read the batches; None: workers read them.
    """

    batches: int
    tables: Any

    @property
    def is_late(self) -> bool: ...

    def __call__(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Job:
    """A run over files, as engines take it.

    Args:
        desc: description of the feed, with slots dense and used as the program needs them.
        seed: seed of random numbers of workers in other processes and of C++ threads.
        metric: metric that every worker copies; None: there is none.
        report: function of the stats of all workers, called in the calling thread during the run; None: none.
        report_s: seconds between two reports.
        lines_done: number of lines done of each range, see `FileProgress`; None without training.
        averaging: averages with other processes; None for a single process.
        check_labels: action of each worker on labels of its first batch that are not classes: "raise", "warn" or
            "ignore".
    """

    desc: Any
    parts: Sequence[FileRange]
    workers: int
    fetch: Sequence[str]
    train: bool = True
    on_bad_line: str = "error"
    seed: int = 0
    metric: EvalMetric | None = None
    report: Callable[[list[WorkerStats]], None] | None = None
    report_s: float = math.inf
    lines_done: torch.Tensor | None = None
    averaging: Averaging | None = None
    check_labels: str = "ignore"


def merged_metric(stats: Sequence[WorkerStats]) -> EvalMetric | None:
    """Return the merged metric of all workers; None if there is none."""
    metrics_seen = [worker.metric for worker in stats if worker.metric is not None]
    for metric in metrics_seen[1:]:
        metrics_seen[0].merge(metric)
    return metrics_seen[0] if metrics_seen else None


@dataclass(frozen=True, slots=True)
class RunArguments:
    """Keyword arguments of `AsyncExecutor.run_from_files`."""

    mode: str = "auto"
    initializer: Any = None
    arg_params: Mapping[str, Any] | None = None
    aux_params: Mapping[str, Any] | None = None
    optimizer: Any = None
    optimizer_params: Any = None
    eval_metric: Any = None
    callback: Callable[[Progress], Any] | None = None
    callback_s: float = 10.0
    progress: bool = False
    split_files: bool = False
    on_bad_line: str = "error"
    check_labels: str = "raise"
    debug: bool = False
    resume: Any = None
    average_every_n_batches: int | None = None
    average_every_s: float | None = None
    shard_rows: bool = True

    def checked(self) -> RunArguments:
        """Return these arguments after checking them."""
        _check_choice("mode", self.mode, MODES)
        _check_choice("on_bad_line", self.on_bad_line, _ON_BAD_LINE)
        _check_choice("check_labels", self.check_labels, CHOICES)
        if self.callback is not None and not callable(self.callback):
            raise ArgumentError(f"callback is {self.callback!r}, expected a function of one argument or None")
        check_seconds("callback_s", self.callback_s)
        if self.resume is not None and not isinstance(self.resume, (str, os.PathLike)):
            raise ArgumentError(f"resume is {self.resume!r}, expected the prefix of a snapshot or None")
        if self.average_every_s is not None:
            check_seconds("average_every_s", self.average_every_s)
        if not isinstance(self.shard_rows, bool):
            raise ArgumentError(f"shard_rows is {self.shard_rows!r}, expected True or False")
        count: Any = self.average_every_n_batches
        if count is not None and (isinstance(count, bool) or not isinstance(count, Integral) or count < 1):
            raise ArgumentError(f"average_every_n_batches is {count!r}, expected an integer from 1 or None")
        return self

    def how_to_update(self) -> tuple[Any, Any]:
        """Return the optimizer and its arguments."""
        params = _OPTIMIZER_PARAMS if self.optimizer_params is None else self.optimizer_params
        return "sgd" if self.optimizer is None else self.optimizer, params

    @property
    def averages(self) -> bool:
        """True if parameters are averaged with other processes."""
        return self.average_every_n_batches is not None or self.average_every_s is not None

    def with_optimizer(self, optimizer: Any) -> RunArguments:
        """Return these arguments with another optimizer."""
        return replace(self, optimizer=optimizer)

    def metric(self) -> Any:
        """Return the metric of `eval_metric`; None if it is None."""
        return None if self.eval_metric is None else metrics.create(self.eval_metric)


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ArgumentError(f"{name} is {value!r}, expected one of {', '.join(choices)}")


def check_seconds(name: str, value: Any) -> None:
    """Raise ArgumentError unless the value is a number above 0."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not float(value) > 0 or math.isnan(float(value)):
        raise ArgumentError(f"{name} is {value!r}, expected a number of seconds above 0")


def check_workers(value: Any) -> int:
    """Return a number of workers after checking it."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ArgumentError(f"thread_num is {value!r}, expected an integer from 1")
    return int(value)


class Results(Sequence[float]):
    """Averages of fetches in the order of `fetch`, and counts of a run.

    Attributes:
        metric: pairs of a name and a value; empty without `eval_metric`.
        stages: seconds by stage of each worker; empty without `debug`.
    """

    def __init__(
        self, names: Sequence[str], stats: Sequence[WorkerStats], seconds: float, debug: bool = False
    ) -> None:
        self.names = list(names)
        self.examples = sum(worker.examples for worker in stats)
        self.batches = sum(worker.batches for worker in stats)
        self.skipped = sum(worker.skipped for worker in stats)
        self.seconds = seconds
        self.workers = len(stats)
        metric = merged_metric(stats)
        self.metric: list[tuple[str, Any]] = [] if metric is None else metric.get_global_name_value()
        self.by_worker = list(stats)
        self.stages = [dict(worker.seconds) for worker in stats] if debug else []
        self._values = averages(stats, len(self.names))

    @overload
    def __getitem__(self, index: int) -> float: ...

    @overload
    def __getitem__(self, index: slice) -> list[float]: ...

    def __getitem__(self, index: int | slice) -> float | list[float]:
        return self._values[index]

    def __setitem__(self, index: int, value: float) -> None:
        self._values[index] = value

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[float]:
        return iter(self._values)

    def __eq__(self, other: object) -> bool:
        return self._values == list(other) if isinstance(other, (Results, list, tuple)) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # like a list

    def __repr__(self) -> str:
        shown = [f"{name}={value:.6g}" for name, value in (*zip(self.names, self._values), *self.metric)]
        counted = f"{self.examples:,} examples in {self.batches:,} batches, {self.seconds:.3g} s"
        skipped = f", {self.skipped} bad lines skipped" if self.skipped else ""
        return f"Results({', '.join([*shown, counted])}{skipped})"


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run: the argument of its callback.

    Args:
        workers: stats of every worker.
    """

    seconds: float
    workers: Sequence[WorkerStats]
    names: Sequence[str]

    @property
    def examples(self) -> int:
        """Number of lines in batches so far."""
        return sum(worker.examples for worker in self.workers)

    @property
    def batches(self) -> int:
        """Number of batches so far."""
        return sum(worker.batches for worker in self.workers)

    @property
    def skipped(self) -> int:
        """Number of skipped lines."""
        return sum(worker.skipped for worker in self.workers)

    @property
    def rate(self) -> float:
        """Examples per second since the run began."""
        return self.examples / self.seconds if self.seconds > 0 else 0.0

    @property
    def fetched(self) -> dict[str, float]:
        """Averages of fetches so far, by name."""
        return dict(zip(self.names, averages(self.workers, len(self.names))))

    @property
    def metric(self) -> list[tuple[str, Any]]:
        """Metric of all workers so far: pairs of a name and a value."""
        from copy import deepcopy

        metric = merged_metric([deepcopy(worker) for worker in self.workers])
        return [] if metric is None else metric.get_global_name_value()


def averages(stats: Sequence[WorkerStats], count: int) -> list[float]:
    """Return the mean of each fetch over all batches of all workers; NaN without a batch."""
    batches = sum(worker.batches for worker in stats)
    sums = [sum(worker.fetched[i] for worker in stats if worker.fetched) for i in range(count)]
    return [total / batches if batches else math.nan for total in sums]


class Reporter:
    """Reports progress to the callback and the progress bar.

    Args:
        args: arguments with the callback, its interval, and `progress`.
    """

    def __init__(self, args: RunArguments, names: list[str]) -> None:
        self._args = args
        self._names = names
        self._start = time.monotonic()
        self._next = self._start + args.callback_s
        self._bar: Any = None

    @property
    def is_wanted(self) -> bool:
        """True if there is a callback or a bar."""
        return self._args.callback is not None or self._args.progress

    @property
    def every_s(self) -> float:
        """Seconds between two reports."""
        return min(self._args.callback_s, _BAR_S) if self._args.progress else self._args.callback_s

    def report(self, stats: list[WorkerStats]) -> None:
        """Report the stats of all workers."""
        now = time.monotonic()
        progress = self._show(stats)
        if self._args.callback is not None and now >= self._next:
            self._args.callback(progress)
            self._next = time.monotonic() + self._args.callback_s

    def end(self, stats: list[WorkerStats]) -> None:
        """Show the final stats on the bar."""
        self._show(stats)

    def _show(self, stats: list[WorkerStats]) -> Progress:
        progress = Progress(time.monotonic() - self._start, list(stats), self._names)
        if self._bar is not None:
            shown = {**progress.fetched, **dict(progress.metric)}
            self._bar.set_postfix({name: f"{value:.4g}" for name, value in shown.items()}, refresh=False)
            self._bar.update(progress.examples - self._bar.n)
        return progress

    def __enter__(self) -> Reporter:
        if self._args.progress:
            from tqdm.auto import tqdm  # slow to import; detects notebooks

            self._bar = tqdm(unit=" examples")
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()
