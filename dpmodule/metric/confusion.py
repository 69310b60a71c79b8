"""Metrics of confusion tables and histograms, and of the probability of one class."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from ..base import ArgumentError, ShapeError
from .base import Arrays, EvalMetric, Names, check_sizes, pairs, register, shape_mismatch
from .pending_results import PendingSum

if TYPE_CHECKING:
    from typing_extensions import Self


def check_average(kind: str, average: str) -> str:
    """Return `average` if it is "macro" or "micro"."""
    if average not in ("macro", "micro"):
        raise ArgumentError(
            f'{kind}: average is {average!r}, expected "macro" (of batches) or "micro" (of examples)'
        )
    return average


class ArrayMetric(EvalMetric):
    """Base of metrics of an array of sums, with a local and a global array."""

    _local: np.ndarray[Any, Any]
    _global: np.ndarray[Any, Any]

    def _empty(self) -> np.ndarray[Any, Any]:
        """Return the array before the first batch."""
        raise NotImplementedError

    def _score(self, array: np.ndarray[Any, Any]) -> float:
        """Return the metric of an array."""
        raise NotImplementedError

    def _joined(self, old: np.ndarray[Any, Any], new: np.ndarray[Any, Any]) -> Any:
        """Combine two arrays."""
        return old + new

    def _add(self, local: np.ndarray[Any, Any], everything: np.ndarray[Any, Any]) -> None:
        """Add to both arrays, and recompute the metric's sums."""
        self._local, self._global = self._joined(self._local, local), self._joined(self._global, everything)
        self._sum = self._score(self._local) * self._num
        self._global_sum = self._score(self._global) * self._global_num

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


class _Binary(ArrayMetric):
    """Base of scores of a binary classifier's confusion matrix, where class 1 is positive."""

    def __init__(self, name: str, output_names: Names, label_names: Names, average: str) -> None:
        self.average = check_average(type(self).__name__, average)
        super().__init__(name, output_names, label_names, average=average, has_global_stats=True)

    def update(self, labels: Arrays, preds: Arrays) -> None:
        counts: list[torch.Tensor] = []
        for label, pred in pairs(labels, preds):
            if pred.dim() < 2:
                raise ShapeError(f"{self.name}: predictions have shape {tuple(pred.shape)}, expected (N, 2)")
            guess = pred.argmax(1)
            check_sizes(self.name, label, guess)
            target = label.long().reshape(-1)
            predicted, true = guess.reshape(-1) == 1, target == 1
            invalid = ((target != target.amin()) & (target != target.amax())).sum()
            if invalid.is_cpu:
                self._check_two(int(invalid))
            counts.append(
                torch.stack([(predicted & true).sum(), predicted.sum(), true.sum(), (~true).sum(), invalid])
            )
        if counts:
            self.record(
                torch.stack([f.to(counts[0].device) for f in counts]).sum(0) if counts[1:] else counts[0]
            )

    def _check_two(self, invalid: int) -> None:
        if invalid:
            raise ArgumentError(
                f"{self.name} supports binary classification only, got labels of more than two classes"
            )

    def absorb(self, rows: np.ndarray[Any, Any]) -> None:
        self._check_two(int(rows[:, 4].sum()))
        hits, predicted, true, false = rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3]
        counts = np.stack([hits, predicted - hits, true - hits, false - (predicted - hits)], axis=1)
        if self.average == "macro":
            for row in counts:
                self._count(self._score(row), 1)
            return
        total = counts.sum(0)
        self._count(0, int(total.sum()))
        self._add(total, total)

    def _empty(self) -> np.ndarray[Any, Any]:
        return np.zeros(4)


@register
class F1(_Binary):
    """F1 score of a binary classifier.

    Args:
        name: name of the value.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.
        average: "macro" to average the scores of batches, "micro" to score all examples together.

    Raises:
        ArgumentError: `average` is unknown.

    Source: MXNet 1.9.1 `F1`.
    """

    def __init__(
        self, name: str = "f1", output_names: Names = None, label_names: Names = None, average: str = "macro"
    ) -> None:
        super().__init__(name, output_names, label_names, average)

    def _score(self, array: np.ndarray[Any, Any]) -> float:
        """Return the harmonic mean of precision and recall, 0 without true positives."""
        hits, false_alarms, misses, _ = map(float, array)
        precision = hits / (hits + false_alarms) if hits + false_alarms > 0 else 0.0
        recall = hits / (hits + misses) if hits + misses > 0 else 0.0
        return 2.0 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0


@register
class MCC(_Binary):
    """Matthews correlation coefficient of a binary classifier.

    Args:
        name: name of the value.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.
        average: "macro" to average the coefficients of batches, "micro" for all examples together.

    Raises:
        ArgumentError: `average` is unknown.

    Source: MXNet 1.9.1 `MCC`.
    """

    def __init__(
        self, name: str = "mcc", output_names: Names = None, label_names: Names = None, average: str = "macro"
    ) -> None:
        super().__init__(name, output_names, label_names, average)

    def _score(self, array: np.ndarray[Any, Any]) -> float:
        """Return the Matthews correlation coefficient; sums of 0 under the root count as 1."""
        hits, false_alarms, misses, rejections = map(float, array)
        sums = (hits + false_alarms, hits + misses, rejections + false_alarms, rejections + misses)
        root = math.sqrt(math.prod(s if s else 1.0 for s in sums))
        return (hits * rejections - false_alarms * misses) / root


@register
class PCC(ArrayMetric):
    """Pearson correlation of labels and predictions for any number of classes; for two, equal to micro `MCC`.

    The number of classes is determined from the values, so every update waits for the device.

    Args:
        name: name of the value.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.
        has_global_stats: True if `get_global` differs from `get`.
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
            check_sizes(self.name, label, guess)
            predicted, true = torch.stack([each.long().reshape(-1) for each in (guess, label)]).cpu().numpy()
            least, most = min(predicted.min(), true.min()), int(max(predicted.max(), true.max()))
            if least < 0:
                raise ArgumentError(f"{self.name}: got class number {least}, expected numbers from 0")
            size = max(most + 1, len(self._global))
            table = np.bincount(predicted * size + true, minlength=size * size).reshape(size, size)
            self._count(0, 1)
            self._add(table, table)

    def _score(self, array: np.ndarray[Any, Any]) -> float:
        """Return the correlation of predictions (rows) and labels (columns); NaN if either is constant."""
        count, predicted, true = (
            float(array.sum()),
            array.sum(1).astype(np.float64),
            array.sum(0).astype(np.float64),
        )
        spread_predicted = float((predicted * (count - predicted)).sum())
        spread_true = float((true * (count - true)).sum())
        if spread_predicted == 0.0 or spread_true == 0.0:
            return math.nan
        shared = float((np.diagonal(array) * count - predicted * true).sum())
        return shared / math.sqrt(spread_predicted * spread_true)

    def _joined(self, old: np.ndarray[Any, Any], new: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Add two tables, which may differ in their number of classes."""
        found: np.ndarray[Any, Any] = np.pad(old, (0, max(len(new) - len(old), 0)))
        found[: len(new), : len(new)] += new
        return found

    def _empty(self) -> np.ndarray[Any, Any]:
        return np.zeros((self.start_classes,) * 2, np.int64)


def _column(metric: str, label: torch.Tensor, pred: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return labels and probabilities of class 1, both (N,)."""
    chosen = pred[:, 1] if pred.dim() == 2 and pred.shape[1] == 2 else pred
    if chosen.numel() != label.numel() or chosen.dim() > 1 and chosen.shape[1:].numel() != 1:
        expected = (
            "one probability for each label, (N,) or (N, 1), or the probabilities of both classes, (N, 2)"
        )
        raise shape_mismatch(metric, label, pred, f"; expected {expected}")
    return label.reshape(-1), chosen.reshape(-1)


@register
class AUC(ArrayMetric):
    """Area under the ROC curve: the probability that a positive example scores higher than a negative one.

    Scores are counted in `num_thresholds` + 1 buckets of equal width per class, which bounds the memory and makes
    `merge` exact. A pair of scores in one bucket counts as a tie, one half; pairs that differ by more than 1 /
    `num_thresholds` are always ordered correctly.

    Shape:
        labels[i]: (N,) or (N, 1), 0 or 1.
        preds[i]: (N,) or (N, 1), probabilities of class 1; or (N, 2), probabilities of both classes.

    The value is NaN until both classes have occurred. `sum_metric` is the area, `num_inst` the number of examples.

    Args:
        name: name of the value.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.

    Raises:
        ArgumentError: `num_thresholds` is not a positive integer.

    Example:
        >>> metric = AUC()
        >>> metric.update([mx.nd.array([0, 0, 1, 1])], [mx.nd.array([0.1, 0.4, 0.35, 0.8])])
        >>> metric.get()
        ('auc', 0.75)

    Source: Paddle's operator auc, with its number of buckets.
    """

    def __init__(
        self,
        num_thresholds: int = 4095,
        name: str = "auc",
        output_names: Names = None,
        label_names: Names = None,
    ) -> None:
        if isinstance(num_thresholds, bool) or not isinstance(num_thresholds, int) or num_thresholds < 1:
            raise ArgumentError(f"AUC: num_thresholds is {num_thresholds!r}, expected an integer from 1")
        self.num_thresholds = num_thresholds
        super().__init__(
            name, output_names, label_names, num_thresholds=num_thresholds, has_global_stats=True
        )
        self._pending = PendingSum()

    def update(self, labels: Arrays, preds: Arrays) -> None:
        buckets = self.num_thresholds + 1
        for label, pred in pairs(labels, preds):
            target, score = _column(self.name, label, pred)
            fits = (score >= 0) & (score <= 1) & ((target == 0) | (target == 1))
            bucket = (score.double() * self.num_thresholds).long() + buckets * (target == 1)
            index = bucket.where(fits, 2 * buckets)
            counts = torch.zeros(2 * buckets + 1, dtype=torch.int64, device=index.device)
            counts.scatter_add_(0, index, torch.ones_like(index))
            if counts.is_cpu:
                self._check(int(counts[-1]))
            self.record(counts)

    def _check(self, invalid: int) -> None:
        if invalid:
            raise ArgumentError(
                f"{self.name}: {invalid} examples have a label that is neither 0 nor 1, or a score that is not from 0 "
                "to 1; expected probabilities, as of softmax or sigmoid"
            )

    def absorb(self, rows: np.ndarray[Any, Any]) -> None:
        counts = rows.sum(0).astype(np.int64)
        self._check(int(counts[-1]))
        table = counts[:-1].reshape(2, -1)
        self._add(table, table)

    def _add(self, local: np.ndarray[Any, Any], everything: np.ndarray[Any, Any]) -> None:
        self._local, self._global = self._local + local, self._global + everything
        self._sum, self._num = _area(self._local), int(self._local.sum())
        self._global_sum, self._global_num = _area(self._global), int(self._global.sum())

    def value_of(self, total: Any, count: Any) -> Any:
        return total

    def _empty(self) -> np.ndarray[Any, Any]:
        return np.zeros((2, self.num_thresholds + 1), np.int64)


def _area(table: np.ndarray[Any, Any]) -> float:
    """Return the area for the counts per bucket of classes 0 and 1; NaN if a class is empty."""
    zeros, ones = table
    pairs_of = float(zeros.sum()) * float(ones.sum())
    if pairs_of == 0.0:
        return math.nan
    below = np.cumsum(zeros) - zeros
    return float((ones * (below + zeros * 0.5)).sum()) / pairs_of


@register
class LogLoss(EvalMetric):
    """Mean of -(y log(p) + (1 - y) log(1 - p)), where p is the probability of class 1.

    Shape:
        labels[i]: (N,) or (N, 1), 0 or 1, or a probability.
        preds[i]: (N,) or (N, 1), probabilities of class 1; or (N, 2), probabilities of both classes.

    Args:
        eps: probabilities are clipped to [eps, 1 - eps] to avoid an infinite loss.
        name: name of the value.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.

    Raises:
        ArgumentError: `eps` is not in [0, 0.5).

    Example:
        >>> metric = LogLoss()
        >>> metric.update([mx.nd.array([0, 1])], [mx.nd.array([0.5, 0.25])])
        >>> metric.get()
        ('logloss', 1.0397207708399179)
    """

    def __init__(
        self,
        eps: float = 1e-12,
        name: str = "logloss",
        output_names: Names = None,
        label_names: Names = None,
    ) -> None:
        if not 0 <= eps < 0.5:
            raise ArgumentError(f"LogLoss: eps is {eps!r}, expected a number from 0 to below 0.5")
        super().__init__(name, output_names, label_names, eps=eps, has_global_stats=True)
        self.eps = eps

    def update(self, labels: Arrays, preds: Arrays) -> None:
        for label, pred in pairs(labels, preds):
            target, score = (each.double() for each in _column(self.name, label, pred))
            fits = (score >= 0) & (score <= 1) & (target >= 0) & (target <= 1)
            invalid = (~fits).sum()
            if invalid.is_cpu:
                self._check(int(invalid))
            chance = score.clamp(self.eps, 1 - self.eps)
            losses = -(torch.xlogy(target, chance) + torch.xlogy(1 - target, 1 - chance))
            self.record(torch.stack([losses.sum(), invalid.double()]), target.numel())

    def absorb(self, rows: np.ndarray[Any, Any]) -> None:
        self._check(int(rows[:, 1].sum()))
        super().absorb(rows[:, :1])

    def _check(self, invalid: int) -> None:
        if invalid:
            raise ArgumentError(
                f"{self.name}: {invalid} examples have a label or a probability that is not from 0 to 1; expected "
                "probabilities, as of softmax or sigmoid"
            )
