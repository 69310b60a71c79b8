"""Metrics computed from a table of labels against predictions: F1, MCC and PCC."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from ..base import ArgumentError, ShapeError
from .base import Arrays, EvalMetric, aligned, pairs, register

if TYPE_CHECKING:
    from typing_extensions import Self


Names = Sequence[str] | None


def check_average(kind: str, average: str) -> str:
    """Return `average` if it is "macro" or "micro"."""
    if average not in ("macro", "micro"):
        raise ArgumentError(
            f'{kind}: average is {average!r}, expected "macro" (of batches) or "micro" (of examples)'
        )
    return average


def f1_score(hits: float, false_alarms: float, misses: float, rejections: float) -> float:
    """Return the harmonic mean of precision and recall; 0 where there are no hits."""
    precision = hits / (hits + false_alarms) if hits + false_alarms > 0 else 0.0
    recall = hits / (hits + misses) if hits + misses > 0 else 0.0
    return 2.0 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0


def matthews(hits: float, false_alarms: float, misses: float, rejections: float) -> float:
    """Return Matthews' correlation coefficient; a sum of 0 under the root counts as 1."""
    sums = (hits + false_alarms, hits + misses, rejections + false_alarms, rejections + misses)
    root = math.sqrt(math.prod(s if s else 1.0 for s in sums))
    return (hits * rejections - false_alarms * misses) / root


class TableMetric(EvalMetric):
    """A metric of an array of sums, one for a stretch of batches and one for all of them."""

    _local: np.ndarray[Any, Any]
    _global: np.ndarray[Any, Any]

    def _empty(self) -> np.ndarray[Any, Any]:
        """Return the array before any batch."""
        raise NotImplementedError

    def _add(self, local: np.ndarray[Any, Any], everything: np.ndarray[Any, Any]) -> None:
        """Add to both arrays, and compute the metric's sums and counts."""
        raise NotImplementedError

    def merge(self, other: Self) -> None:
        super().merge(other)
        if getattr(self, "average", "micro") == "micro":
            self._add(other._local, other._global)

    def reset(self) -> None:
        super().reset()
        self._local, self._global = self._empty(), self._empty()

    def reset_local(self) -> None:
        super().reset_local()
        self._local = np.zeros_like(self._global)


class _Binary(TableMetric):
    """A score of the four counts of a classifier with two classes, 1 being the positive one."""

    def __init__(self, name: str, output_names: Names, label_names: Names, average: str) -> None:
        self.average = check_average(type(self).__name__, average)
        super().__init__(name, output_names, label_names, average=average, has_global_stats=True)

    def score(self, counts: np.ndarray[Any, Any]) -> float:
        """Return the score of (hits, false alarms, misses, rejections)."""
        raise NotImplementedError

    def update(self, labels: Arrays, preds: Arrays) -> None:
        found: list[torch.Tensor] = []
        for label, pred in pairs(labels, preds):
            if pred.dim() < 2:
                raise ShapeError(f"{self.name}: predictions have shape {tuple(pred.shape)}, expected (N, 2)")
            guess = pred.argmax(1)
            aligned(self.name, label, guess)
            target = label.long().reshape(-1)
            said, true = guess.reshape(-1) == 1, target == 1
            odd = ((target != target.amin()) & (target != target.amax())).sum()
            if odd.is_cpu:
                self._check_two(int(odd))
            found.append(torch.stack([(said & true).sum(), said.sum(), true.sum(), (~true).sum(), odd]))
        if found:
            self.record(torch.stack([f.to(found[0].device) for f in found]).sum(0) if found[1:] else found[0])

    def _check_two(self, odd: int) -> None:
        if odd:
            raise ArgumentError(
                f"{self.name} supports binary classification only, got labels of more than two classes"
            )

    def absorb(self, rows: np.ndarray[Any, Any]) -> None:
        self._check_two(int(rows[:, 4].sum()))
        hits, said, true, false = rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3]
        counts = np.stack([hits, said - hits, true - hits, false - (said - hits)], axis=1)
        if self.average == "macro":
            for row in counts:
                value = self.score(row)
                self._sum += value
                self._global_sum += value
            self._num += len(rows)
            self._global_num += len(rows)
            return
        self._add(counts.sum(0), counts.sum(0))

    def _add(self, local: np.ndarray[Any, Any], everything: np.ndarray[Any, Any]) -> None:
        self._local, self._global = self._local + local, self._global + everything
        self._num, self._global_num = int(self._local.sum()), int(self._global.sum())
        self._sum, self._global_sum = (
            self.score(self._local) * self._num,
            self.score(self._global) * self._global_num,
        )

    def _empty(self) -> np.ndarray[Any, Any]:
        return np.zeros(4)


@register
class F1(_Binary):
    """F1 score of a classifier with two classes.

    Args:
        name: what the value is called.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.
        average: "macro" averages the scores of batches, "micro" scores all examples together.

    Raises:
        ArgumentError: unknown `average`.

    Source: MXNet 1.9.1 `F1`.
    """

    def __init__(
        self, name: str = "f1", output_names: Names = None, label_names: Names = None, average: str = "macro"
    ) -> None:
        super().__init__(name, output_names, label_names, average)

    def score(self, counts: np.ndarray[Any, Any]) -> float:
        return f1_score(*map(float, counts))


@register
class MCC(_Binary):
    """Matthews' correlation coefficient of a classifier with two classes.

    Args:
        name: what the value is called.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.
        average: "macro" averages the coefficients of batches, "micro" takes all examples together.

    Raises:
        ArgumentError: unknown `average`.

    Source: MXNet 1.9.1 `MCC`.
    """

    def __init__(
        self, name: str = "mcc", output_names: Names = None, label_names: Names = None, average: str = "macro"
    ) -> None:
        super().__init__(name, output_names, label_names, average)

    def score(self, counts: np.ndarray[Any, Any]) -> float:
        return matthews(*map(float, counts))


@register
class PCC(TableMetric):
    """Pearson's correlation of labels and predictions over any number of classes; `MCC` in micro form for two.

    The number of classes is found from the values, so every update waits for the device.

    Args:
        name: what the value is called.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.
        has_global_stats: whether `get_global` has a value of its own.
    Source: Gorodkin, "Comparing two K-category assignments by a K-category correlation coefficient", 2004.
    """

    start_classes: ClassVar[int] = 2

    def __init__(
        self,
        name: str = "pcc",
        output_names: Names = None,
        label_names: Names = None,
        has_global_stats: bool = True,
    ) -> None:
        super().__init__(name, output_names, label_names, has_global_stats=has_global_stats)

    def update(self, labels: Arrays, preds: Arrays) -> None:
        for label, pred in pairs(labels, preds):
            guess = pred if pred.shape == label.shape else pred.argmax(1)
            aligned(self.name, label, guess)
            said, true = torch.stack([each.long().reshape(-1) for each in (guess, label)]).cpu().numpy()
            least, most = min(said.min(), true.min()), int(max(said.max(), true.max()))
            if least < 0:
                raise ArgumentError(f"{self.name}: got class number {least}, expected numbers from 0")
            size = max(most + 1, len(self._global))
            table = np.bincount(said * size + true, minlength=size * size).reshape(size, size)
            self._num += 1
            self._global_num += 1
            self._add(table, table)

    def _add(self, local: np.ndarray[Any, Any], everything: np.ndarray[Any, Any]) -> None:
        self._local, self._global = _summed(self._local, local), _summed(self._global, everything)
        self._sum = _correlation(self._local) * self._num
        self._global_sum = _correlation(self._global) * self._global_num

    def _empty(self) -> np.ndarray[Any, Any]:
        return np.zeros((self.start_classes,) * 2, np.int64)


def _summed(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the sum of two tables, of which one may have more classes."""
    size = max(len(first), len(second))
    found: np.ndarray[Any, Any] = np.pad(first, (0, size - len(first)))
    found[: len(second), : len(second)] += second
    return found


def _correlation(table: np.ndarray[Any, Any]) -> float:
    """Return the correlation of a table of predictions (rows) against labels (columns); NaN if either is constant."""
    count, said, true = float(table.sum()), table.sum(1).astype(np.float64), table.sum(0).astype(np.float64)
    spread_said, spread_true = float((said * (count - said)).sum()), float((true * (count - true)).sum())
    if spread_said == 0.0 or spread_true == 0.0:
        return math.nan
    shared = float((np.diagonal(table) * count - said * true).sum())
    return shared / math.sqrt(spread_said * spread_true)
