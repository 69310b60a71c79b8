"""What a run is asked for, what its workers do and tell of it, and what it returns."""

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


@dataclass(slots=True)
class WorkerStats:
    """What one worker has done so far in a run.

    Args:
        worker: its number, from 0.
        seconds: where its time went, in seconds by stage.
        fetched: for every fetch the sum over its batches of the batch's mean.
        metric: the worker's own metric, None if there is none.
        file: the file that it works on; empty before the first.
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
    """Averages with other processes when called; `file_run.ParameterAverager` does.

    Attributes:
        batches: of all workers of this process after which it is time to; 0: their number does not matter.
        is_late: whether it is time to because so many seconds are over.
    """

    batches: int

    @property
    def is_late(self) -> bool: ...

    def __call__(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Job:
    """One run over some files, as every engine takes it.

    Args:
        desc: description of the feed; its slots are dense, and used, as the program wants them.
        seed: of random numbers that are not the calling process's own.
        metric: every worker gets a copy of its own; None: there is none.
        report: called in the calling thread with the stats of all workers while they work; None: nobody asks.
        report_s: how often, in seconds.
        marks: how far the parts have been trained on, see `FileProgress`; None where nothing is trained.
        averaging: with other processes; None: there are none.
        check_labels: what each worker does about labels of its first batch that are not classes: "raise", "warn" or
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
    """Return one metric over what all workers have seen; None if there is none."""
    metrics_seen = [each.metric for each in stats if each.metric is not None]
    for metric in metrics_seen[1:]:
        metrics_seen[0].merge(metric)
    return metrics_seen[0] if metrics_seen else None


@dataclass(frozen=True, slots=True)
class RunArguments:
    """The keywords of `AsyncExecutor.run_from_files`; see there."""

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

    def checked(self) -> RunArguments:
        """Return these arguments."""
        _check_choice("mode", self.mode, MODES)
        _check_choice("on_bad_line", self.on_bad_line, _ON_BAD_LINE)
        _check_choice("check_labels", self.check_labels, CHOICES)
        if self.callback is not None and not callable(self.callback):
            raise ArgumentError(
                f"callback is {self.callback!r}, expected a function of one argument, or None"
            )
        check_seconds("callback_s", self.callback_s)
        if self.resume is not None and not isinstance(self.resume, (str, os.PathLike)):
            raise ArgumentError(f"resume is {self.resume!r}, expected the prefix of a snapshot, or None")
        if self.average_every_s is not None:
            check_seconds("average_every_s", self.average_every_s)
        count: Any = self.average_every_n_batches
        if count is not None and (isinstance(count, bool) or not isinstance(count, Integral) or count < 1):
            raise ArgumentError(
                f"average_every_n_batches is {count!r}, expected an integer from 1 on, or None"
            )
        return self

    @property
    def averages(self) -> bool:
        """Whether to average with other processes."""
        return self.average_every_n_batches is not None or self.average_every_s is not None

    def with_optimizer(self, optimizer: Any) -> RunArguments:
        """Return these arguments with a program's own optimizer."""
        return replace(self, optimizer=optimizer)

    def metric(self) -> Any:
        """Return the metric that `eval_metric` names, None without one."""
        return None if self.eval_metric is None else metrics.create(self.eval_metric)


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ArgumentError(f"{name} is {value!r}, expected one of {', '.join(choices)}")


def check_seconds(name: str, value: Any) -> None:
    """Refuse what is no time above 0."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not float(value) > 0 or math.isnan(float(value)):
        raise ArgumentError(f"{name} is {value!r}, expected a number of seconds above 0")


def check_workers(value: Any) -> int:
    """Return a number of workers."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ArgumentError(f"thread_num is {value!r}, expected an integer from 1 on")
    return int(value)


class Results(Sequence[float]):
    """The averages of what was fetched, in the order in which it was asked for, and what was counted.

    Attributes:
        metric: pairs of a name and a value; empty without `eval_metric`.
        stages: for every worker its seconds by stage; empty unless `debug` was set.
    """

    def __init__(
        self, names: Sequence[str], stats: Sequence[WorkerStats], seconds: float, debug: bool = False
    ) -> None:
        self.names = list(names)
        self.examples = sum(each.examples for each in stats)
        self.batches = sum(each.batches for each in stats)
        self.skipped = sum(each.skipped for each in stats)
        self.seconds = seconds
        self.workers = len(stats)
        metric = merged_metric(stats)
        self.metric: list[tuple[str, Any]] = [] if metric is None else metric.get_global_name_value()
        self.by_worker = list(stats)
        self.stages = [dict(each.seconds) for each in stats] if debug else []
        self._values = averages(stats, len(self.names))

    @overload
    def __getitem__(self, index: int) -> float: ...

    @overload
    def __getitem__(self, index: slice) -> list[float]: ...

    def __getitem__(self, index: int | slice) -> float | list[float]:
        return self._values[index]

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[float]:
        return iter(self._values)

    def __eq__(self, other: object) -> bool:
        return self._values == list(other) if isinstance(other, (Results, list, tuple)) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        shown = [f"{name}={value:.6g}" for name, value in (*zip(self.names, self._values), *self.metric)]
        counted = f"{self.examples:,} examples in {self.batches:,} batches, {self.seconds:.3g} s"
        lost = f", {self.skipped} bad lines skipped" if self.skipped else ""
        return f"Results({', '.join([*shown, counted])}{lost})"


@dataclass(frozen=True, slots=True)
class Progress:
    """What a run has done so far, as its callback sees it.

    Args:
        workers: what every worker has done: examples, batches, fetches, metric, file.
    """

    seconds: float
    workers: Sequence[WorkerStats]
    names: Sequence[str]

    @property
    def examples(self) -> int:
        """Lines that have been read into batches so far."""
        return sum(each.examples for each in self.workers)

    @property
    def batches(self) -> int:
        """Batches so far."""
        return sum(each.batches for each in self.workers)

    @property
    def skipped(self) -> int:
        """Bad lines that have been passed over."""
        return sum(each.skipped for each in self.workers)

    @property
    def rate(self) -> float:
        """Examples per second since the run began."""
        return self.examples / self.seconds if self.seconds > 0 else 0.0

    @property
    def fetched(self) -> dict[str, float]:
        """Averages so far, by name."""
        return dict(zip(self.names, averages(self.workers, len(self.names))))

    @property
    def metric(self) -> list[tuple[str, Any]]:
        """The metric so far, over all workers: pairs of a name and a value."""
        from copy import deepcopy

        found = merged_metric([deepcopy(each) for each in self.workers])
        return [] if found is None else found.get_global_name_value()


def averages(stats: Sequence[WorkerStats], count: int) -> list[float]:
    """Return the mean over all batches of all workers of what each of them fetched; NaN without a batch."""
    batches = sum(each.batches for each in stats)
    sums = [sum(each.fetched[i] for each in stats if each.fetched) for i in range(count)]
    return [total / batches if batches else math.nan for total in sums]


class Reporter:
    """Shows how far the workers are.

    Args:
        args: whether there are a callback and a bar, and how often the callback is called.
    """

    def __init__(self, args: RunArguments, names: list[str]) -> None:
        self._args = args
        self._names = names
        self._start = time.monotonic()
        self._next = self._start + args.callback_s
        self._bar: Any = None

    @property
    def is_wanted(self) -> bool:
        """Whether anybody looks."""
        return self._args.callback is not None or self._args.progress

    @property
    def every_s(self) -> float:
        """How often to report, in seconds."""
        return min(self._args.callback_s, _BAR_S) if self._args.progress else self._args.callback_s

    def report(self, stats: list[WorkerStats]) -> None:
        """Show what all workers have done so far."""
        now = time.monotonic()
        progress = self._show(stats)
        if self._args.callback is not None and now >= self._next:
            self._args.callback(progress)
            self._next = time.monotonic() + self._args.callback_s

    def end(self, stats: list[WorkerStats]) -> None:
        """Show on the bar what all workers have done."""
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
            from tqdm.auto import tqdm  # slow to import, and asks whether this is a notebook

            self._bar = tqdm(unit=" examples")
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()
