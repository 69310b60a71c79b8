"""What a run returns: `Results`, and what a callback sees meanwhile: `Progress`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from .job import WorkerStats, merged_metric


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
