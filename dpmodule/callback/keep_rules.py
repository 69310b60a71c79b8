"""`KeepRules`: which epochs' files are kept."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import checkpoint as files
from ..base import ArgumentError
from .early_stopping import Best

if TYPE_CHECKING:
    from .base import RunLike


class KeepRules:
    """Says which of the epochs that have been saved are to be removed, and removes their files.

    Args:
        keep_last: how many of the last ones to keep; None keeps all.
        keep_best: how many of those with the best values of `metric` to keep besides.
        metric: name of a metric in the history of `fit`, such as "validation-accuracy".
        mode: "max" if larger is better, "min" if smaller is, "auto" tells by the name.

    Attributes:
        values: the metric of each epoch, by the number of its files.
    """

    def __init__(
        self, what: str, keep_last: int | None, keep_best: int | None, metric: str | None, mode: str
    ) -> None:
        for name, value in (("keep_last", keep_last), ("keep_best", keep_best)):
            if value is not None and value < 1:
                raise ArgumentError(f"{what}: {name} is {value}, expected at least 1")
        if (keep_best is None) != (metric is None):
            raise ArgumentError(f"{what}: keep_best and metric belong together; give both or neither")
        self._last = keep_last
        self._best = keep_best
        self._metric = metric
        self._order = Best(metric or "", mode)
        self.values: dict[int, float] = {}

    def check(self, run: RunLike) -> None:
        """Look, before a run begins, whether the metric will be measured."""
        if self._metric is not None:
            run.check_measured(self._metric)

    def note(self, run: RunLike) -> None:
        """Keep the metric of an epoch that is to be saved."""
        if self._metric is not None:
            self.values[run.epoch + 1] = run.history[self._metric][-1]

    def tidy(self, prefix: str, saved: Sequence[int], now: int) -> None:
        """Remove the files of the epochs that are not to be kept.

        Args:
            saved: the epochs that are there, in ascending order.
            now: the one that was saved last; later ones are another training's, and stay.
        """
        if self._last is None and self._best is None:
            return
        saved = [epoch for epoch in saved if epoch <= now]
        kept = set(saved[-(self._last or (len(saved) if self._best is None else 1)) :])
        if self._best is not None:
            known = [epoch for epoch in saved if epoch in self.values]
            kept.update(sorted(known, key=lambda e: self._order.rank(self.values[e]))[: self._best])
        for epoch in saved:
            if epoch not in kept:
                _remove(prefix, epoch)


def _remove(prefix: str, epoch: int) -> None:
    # the run's state goes first: without it nobody takes the rest for a set to go on from
    for path in (
        files.run_file(prefix, epoch),
        files.states_file(prefix, epoch),
        *(files.params_file(prefix, epoch, format) for format in files.FORMATS),
    ):
        if os.path.exists(path):
            os.unlink(path)
