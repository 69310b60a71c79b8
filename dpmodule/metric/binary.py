"""Metrics of classifiers that give one probability: that of the class 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..base import ArgumentError
from .base import Arrays, EvalMetric, mismatch, pairs, register
from .confusion import TableMetric
from .tally import Total

Names = Sequence[str] | None


def _column(metric: str, label: torch.Tensor, pred: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return label and probability of class 1, both (N,)."""
    chosen = pred[:, 1] if pred.dim() == 2 and pred.shape[1] == 2 else pred
    if chosen.numel() != label.numel() or chosen.dim() > 1 and chosen.shape[1:].numel() != 1:
        expected = "one probability for each label, (N,) or (N, 1), or those of both classes, (N, 2)"
        raise mismatch(metric, label, pred, f"; expected {expected}")
    return label.reshape(-1), chosen.reshape(-1)


@register
class AUC(TableMetric):
    """Area under the curve of true against false positives; the chance that a 1 gets a higher score than a 0.

    Scores are counted in `num_thresholds` + 1 buckets of equal width, for either class, so that memory is bounded and
    metrics of several workers merge into exactly what one would have found. Scores of one bucket count as equal, each
    pair of them as half; no pair further apart than a bucket's width, 1 / `num_thresholds`, is taken wrongly.

    Shape:
        labels[i]: (N,) or (N, 1), 0 or 1.
        preds[i]: (N,) or (N, 1), probabilities of class 1; or (N, 2), those of both classes.

    The value is NaN until both classes have been seen. `sum_metric` is the area, `num_inst` the number of examples.

    Args:
        name: what the value is called.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.

    Raises:
        ArgumentError: `num_thresholds` is no integer from 1.

    Example:
        >>> metric = AUC()
        >>> metric.update([mx.nd.array([0, 0, 1, 1])], [mx.nd.array([0.1, 0.4, 0.35, 0.8])])
        >>> metric.get()
        ('auc', 0.75)

    Source: Paddle's operator auc, of which the number of buckets is.
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
        self._tally = Total()

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

    def _check(self, odd: int) -> None:
        if odd:
            raise ArgumentError(
                f"{self.name}: {odd} examples have a label that is neither 0 nor 1, or a score that is not from 0 to "
                "1; expected probabilities, as of softmax or sigmoid"
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
    """Return the area of counts by bucket of the classes 0 and 1; NaN where one has none."""
    zeros, ones = table
    pairs_of = float(zeros.sum()) * float(ones.sum())
    if pairs_of == 0.0:
        return math.nan
    below = np.cumsum(zeros) - zeros
    return float((ones * (below + zeros * 0.5)).sum()) / pairs_of


@register
class LogLoss(EvalMetric):
    """Mean of -(y log(p) + (1 - y) log(1 - p)), p being the probability given to class 1.

    Shape:
        labels[i]: (N,) or (N, 1), 0 or 1, or a probability.
        preds[i]: (N,) or (N, 1), probabilities of class 1; or (N, 2), those of both classes.

    Args:
        eps: probabilities are brought between eps and 1 - eps, so that 0 and 1 give a finite loss.
        name: what the value is called.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.

    Raises:
        ArgumentError: `eps` is not from 0 to 0.5.

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
            odd = (~fits).sum()
            if odd.is_cpu:
                self._check(int(odd))
            chance = score.clamp(self.eps, 1 - self.eps)
            losses = -(torch.xlogy(target, chance) + torch.xlogy(1 - target, 1 - chance))
            self.record(torch.stack([losses.sum(), odd.double()]), target.numel())

    def absorb(self, rows: np.ndarray[Any, Any]) -> None:
        self._check(int(rows[:, 1].sum()))
        super().absorb(rows[:, :1])

    def _check(self, odd: int) -> None:
        if odd:
            raise ArgumentError(
                f"{self.name}: {odd} examples have a label or a probability that is not from 0 to 1; expected "
                "probabilities, as of softmax or sigmoid"
            )
