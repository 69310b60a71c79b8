"""Metrics of regressions: mean errors and correlation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .base import Arrays, EvalMetric, alias, mismatch, pairs, register
from .confusion import TableMetric, check_average

Names = Sequence[str] | None


class _MeanError(EvalMetric):
    """The mean over batches of a mean over elements.

    A label or prediction of one axis is taken as a column, and broadcast against the other.
    """

    def __init__(self, name: str, output_names: Names, label_names: Names) -> None:
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def error(self, difference: torch.Tensor) -> torch.Tensor:
        """Return the error of one batch from label minus prediction."""
        raise NotImplementedError

    def update(self, labels: Arrays, preds: Arrays) -> None:
        for label, pred in pairs(labels, preds):
            target = label.unsqueeze(1) if label.dim() == 1 else label
            guess = pred.unsqueeze(1) if pred.dim() == 1 else pred
            try:
                difference = target - guess
            except RuntimeError as error:
                raise mismatch(self.name, label, pred) from error
            self.record(self.error(difference), 1)


@register
class MAE(_MeanError):
    """Mean absolute error, averaged over batches.

    Args:
        name: what the value is called.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.
    Source: MXNet 1.9.1 `MAE`.
    """

    def __init__(self, name: str = "mae", output_names: Names = None, label_names: Names = None) -> None:
        super().__init__(name, output_names, label_names)

    def error(self, difference: torch.Tensor) -> torch.Tensor:
        return difference.abs().mean(dtype=torch.float64)


@register
class MSE(_MeanError):
    """Mean squared error, averaged over batches.

    Args:
        name: what the value is called.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.
    Source: MXNet 1.9.1 `MSE`.
    """

    def __init__(self, name: str = "mse", output_names: Names = None, label_names: Names = None) -> None:
        super().__init__(name, output_names, label_names)

    def error(self, difference: torch.Tensor) -> torch.Tensor:
        return difference.square().mean(dtype=torch.float64)


@register
class RMSE(_MeanError):
    """Root of the mean squared error of a batch, averaged over batches.

    Args:
        name: what the value is called.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.
    Source: MXNet 1.9.1 `RMSE`.
    """

    def __init__(self, name: str = "rmse", output_names: Names = None, label_names: Names = None) -> None:
        super().__init__(name, output_names, label_names)

    def error(self, difference: torch.Tensor) -> torch.Tensor:
        return difference.square().mean(dtype=torch.float64).sqrt()


Moments = np.ndarray[Any, Any]
"""Count, mean label, mean prediction, sums of squared deviations of both, sum of their products."""


@alias("pearsonr")
class PearsonCorrelation(TableMetric):
    """Pearson's correlation of labels and predictions.

    Shape:
        labels[i]: any.
        preds[i]: the same.

    Args:
        name: what the value is called.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.
        average: "macro" averages the correlations of batches, "micro" correlates all examples together.

    Raises:
        ArgumentError: unknown `average`.

    Source: MXNet 1.9.1, except that `get_global` of the micro form is the correlation there too, and not 0. Moments
        are merged as in Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
        Variances", 1979.
    """

    def __init__(
        self,
        name: str = "pearsonr",
        output_names: Names = None,
        label_names: Names = None,
        average: str = "macro",
    ) -> None:
        self.average = check_average("PearsonCorrelation", average)
        super().__init__(name, output_names, label_names, average=average, has_global_stats=True)

    def update(self, labels: Arrays, preds: Arrays) -> None:
        for label, pred in pairs(labels, preds):
            if label.shape != pred.shape:
                raise mismatch(self.name, label, pred)
            both = torch.stack([label.reshape(-1).double(), pred.reshape(-1).double()])
            means = both.mean(1)
            rest = both - means.unsqueeze(1)
            squares, product = rest.square().sum(1), (rest[0] * rest[1]).sum()
            count = torch.full((1,), float(label.numel()), dtype=torch.float64, device=both.device)
            self.record(torch.cat([count, means, squares, product.reshape(1)]), 1)

    def absorb(self, rows: np.ndarray[Any, Any]) -> None:
        if self.average == "macro":
            total = sum(_correlation(row) for row in rows)
            self._sum += total
            self._global_sum += total
            return
        for row in rows:
            self._add(row, row)

    def _add(self, local: Moments, everything: Moments) -> None:
        self._local, self._global = _merged(self._local, local), _merged(self._global, everything)
        self._sum = _correlation(self._local) * self._num
        self._global_sum = _correlation(self._global) * self._global_num

    def _empty(self) -> Moments:
        return np.zeros(6)


def _correlation(moments: Moments) -> float:
    """Return the correlation; NaN where labels or predictions are constant."""
    *_, first, second, product = map(float, moments)
    return product / math.sqrt(first * second) if first > 0.0 and second > 0.0 else math.nan


def _merged(old: Moments, new: Moments) -> Moments:
    """Return the moments of two samples together."""
    if old[0] == 0 or new[0] == 0:
        return old if new[0] == 0 else new
    count = old[0] + new[0]
    shift = new[1:3] - old[1:3]
    weight = old[0] * new[0] / count
    spread = np.array([shift[0] ** 2, shift[1] ** 2, shift[0] * shift[1]]) * weight
    return np.concatenate([[count], old[1:3] + shift * new[0] / count, old[3:] + new[3:] + spread])
