"""The keywords of a run as one record, and the checks that come before any file is opened."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

from .. import metric as metrics
from ..base import ArgumentError
from ..module.class_labels import CHOICES
from .results import Progress

MODES = ("auto", "native", "process", "serial")
_ON_BAD_LINE = ("error", "skip")


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
