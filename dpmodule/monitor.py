"""`Monitor`: statistics of a network's outputs, weights and gradients while it trains."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from ._core import lazy
from .base import ArgumentError, StateError
from .ndarray import NDArray
from .ndarray.ragged import numbers_of

__all__ = ["Monitor"]

lazy.publish(__name__, __all__)

Stat = tuple[int, str, Any]
"""Step, name of the array, and its statistic."""


class Monitored(Protocol):
    """Interface of an executor that a Monitor needs."""

    @property
    def arg_dict(self) -> Mapping[str, NDArray]:
        """Arguments by name."""

    @property
    def aux_dict(self) -> Mapping[str, NDArray]:
        """Auxiliary states by name."""

    def set_monitor_callback(
        self, callback: Callable[[str, NDArray], None], monitor_all: bool = False
    ) -> None:
        """Call `callback` with the name and value of every node's output, with `monitor_all` also of inputs."""


def rms(x: NDArray) -> NDArray:
    """Return the norm of `x` divided by the root of its size, as an array of one number."""
    norm = numbers_of(x).float().norm() / math.sqrt(max(x.size, 1))
    return NDArray(norm.reshape(1), x.context)


class Monitor:
    """Collect a statistic of every array of a network in every `interval`-th step.

    Args:
        interval: number of steps from one collection to the next.
        stat_func: takes an NDArray, returns an NDArray, a number, or a list of them; by default the norm
            divided by the root of the size.
        pattern: regular expression that names must match from their start.
        sort: True to sort the results by name.
        monitor_all: True to watch the inputs of nodes as well as their outputs.

    Raises:
        ArgumentError: `interval` is below 1.

    Example:
        >>> monitor = mx.monitor.Monitor(interval=100, pattern=".*weight")
        >>> monitor.tic()
        >>> monitor.toc()  # between the two: install(executor) and a forward pass
        []
    """

    def __init__(
        self,
        interval: int,
        stat_func: Callable[[NDArray], Any] | None = None,
        pattern: str = ".*",
        sort: bool = False,
        monitor_all: bool = False,
    ) -> None:
        if interval < 1:
            raise ArgumentError(f"Monitor: interval is {interval}, expected at least 1")
        try:
            self.re_prog = re.compile(pattern)
        except (re.error, TypeError) as error:
            raise ArgumentError(
                f"Monitor: pattern is {pattern!r}, expected a regular expression: {error}"
            ) from error
        self.stat_func = rms if stat_func is None else stat_func
        self.interval = interval
        self.activated = False
        self.queue: list[Stat] = []
        self.step = 0
        self.exes: list[Monitored] = []
        self.sort = sort
        self.monitor_all = monitor_all

    def install(self, exe: Monitored) -> None:
        """Watch an executor, in addition to those installed before."""
        exe.set_monitor_callback(self.stat_helper, self.monitor_all)
        self.exes.append(exe)

    def stat_helper(self, name: str, array: NDArray) -> None:
        """Record the statistic of an array if this step is watched and the name matches; executors call this.

        Args:
            name: name of the array, such as "fc1_output".
            array: value of the array in this step.
        """
        if self.activated and self.re_prog.match(name):
            self.queue.append((self.step, name, self.stat_func(array)))

    def tic(self) -> None:
        """Begin a step; call it before forward."""
        if self.step % self.interval == 0:
            self.queue = []
            self.activated = True
        self.step += 1

    def toc(self) -> list[tuple[int, str, str]]:
        """End a step, and return the statistics.

        Returns:
            triples of step, name and the statistic as text; empty for steps that are not watched.

        Raises:
            StateError: `stat_func` returned something that is neither an NDArray nor a number.
        """
        if not self.activated:
            return []
        for exe in self.exes:
            for arrays in (exe.arg_dict, exe.aux_dict):
                for name, array in arrays.items():
                    self.stat_helper(name, array)
        self.activated = False
        stats, self.queue = self.queue, []
        if self.sort:
            stats.sort(key=lambda stat: stat[1])
        return [(step, name, _text(name, value)) for step, name, value in stats]

    def toc_print(self) -> None:
        """End a step, and log the statistics."""
        for step, name, text in self.toc():
            logging.info("Batch: %7d %-30s %s", step, name, text)


def _text(name: str, value: Any) -> str:
    values: Iterable[Any] = value if isinstance(value, (list, tuple)) else [value]
    return "".join(_text_of_one(name, item) + "\t" for item in values)


def _text_of_one(name: str, value: Any) -> str:
    if isinstance(value, NDArray):
        return str(value.asnumpy().reshape(())[()] if value.size == 1 else value.asnumpy())
    if isinstance(value, (int, float)) or hasattr(value, "__array__"):
        return str(value)
    raise StateError(
        f"Monitor: stat_func returned {type(value).__name__} for {name}, expected an NDArray or a number"
    )
