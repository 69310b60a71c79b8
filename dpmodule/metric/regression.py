"""Metrics of regression and of language models."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from .base import Arrays, EvalMetric, Names, alias, pairs, register, shape_mismatch
from .confusion import ArrayMetric, check_average


class _MeanError(EvalMetric):
    """Base of errors averaged over batches.

    1-d labels or predictions become a column and are broadcast against the other.
    """

    def __init__(self, name: str, output_names: Names, label_names: Names) -> None:
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def error(self, difference: torch.Tensor) -> torch.Tensor:
        """Return the error of a batch for the difference of labels and predictions."""
        raise NotImplementedError

    def update(self, labels: Arrays, preds: Arrays) -> None:
        for label, pred in pairs(labels, preds):
            target = label.unsqueeze(1) if label.dim() == 1 else label
            guess = pred.unsqueeze(1) if pred.dim() == 1 else pred
            try:
                difference = target - guess
            except RuntimeError as error:
                raise shape_mismatch(self.name, label, pred) from error
            self.record(self.error(difference), 1)


@register
class MAE(_MeanError):
    """Mean absolute error, averaged over batches.

    Args:
        name: name of the value.
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
        name: name of the value.
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
        name: name of the value.
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
class PearsonCorrelation(ArrayMetric):
    """Pearson correlation of labels and predictions.

    Shape:
        labels[i]: any.
        preds[i]: the same.

    Args:
        name: name of the value.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.
        average: "macro" to average the correlations of batches, "micro" to correlate all examples together.

    Raises:
        ArgumentError: `average` is unknown.

    Source: MXNet 1.9.1, except that `get_global` of the micro form is the correlation, not 0. Moments are merged as in
        Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979.
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
                raise shape_mismatch(self.name, label, pred)
            both = torch.stack([label.reshape(-1).double(), pred.reshape(-1).double()])
            means = both.mean(1)
            rest = both - means.unsqueeze(1)
            squares, product = rest.square().sum(1), (rest[0] * rest[1]).sum()
            count = torch.full((1,), float(label.numel()), dtype=torch.float64, device=both.device)
            self.record(torch.cat([count, means, squares, product.reshape(1)]), 1)

    def absorb(self, rows: np.ndarray[Any, Any]) -> None:
        if self.average == "macro":
            self._count(sum(self._score(row) for row in rows), 0)
            return
        for row in rows:
            self._add(row, row)

    def _score(self, array: Moments) -> float:
        """Return the correlation, NaN for constant labels or predictions."""
        *_, first, second, product = map(float, array)
        return product / math.sqrt(first * second) if first > 0.0 and second > 0.0 else math.nan

    def _joined(self, old: Moments, new: Moments) -> Moments:
        """Return the moments of the union of two samples."""
        if old[0] == 0 or new[0] == 0:
            return old if new[0] == 0 else new
        count = old[0] + new[0]
        shift = new[1:3] - old[1:3]
        weight = old[0] * new[0] / count
        spread = np.array([shift[0] ** 2, shift[1] ** 2, shift[0] * shift[1]]) * weight
        return np.concatenate([[count], old[1:3] + shift * new[0] / count, old[3:] + new[3:] + spread])

    def _empty(self) -> Moments:
        return np.zeros(6)


_LEAST_PROBABILITY = 1e-10


@register
class Perplexity(EvalMetric):
    """exp of the mean of -log(p), where p is the probability of each label.

    Shape:
        labels[i]: (N,) or (N, T), class numbers, clipped to the range of classes.
        preds[i]: (N, V), (N * T, V) or (N, T, V), probabilities.

    Args:
        ignore_label: label to ignore (padding); None for none.
        axis: axis of the classes.
        name: name of the value.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.
    Source: MXNet 1.9.1 `Perplexity`, which does not support predictions of three axes.
    """

    def __init__(
        self,
        ignore_label: int | None,
        axis: int = -1,
        name: str = "perplexity",
        output_names: Names = None,
        label_names: Names = None,
    ) -> None:
        super().__init__(name, output_names, label_names, ignore_label=ignore_label, has_global_stats=True)
        self.ignore_label = ignore_label
        self.axis = axis

    def update(self, labels: Arrays, preds: Arrays) -> None:
        for label, pred in pairs(labels, preds):
            rows = pred.movedim(self.axis, -1) if self.axis not in (-1, pred.dim() - 1) else pred
            width = rows.shape[-1]
            target = label.reshape(-1).long()
            if target.numel() * width != pred.numel():
                raise shape_mismatch(
                    self.name, label, pred, "; expected one row of probabilities for each label"
                )
            index = target.clamp(0, width - 1).unsqueeze(1)
            losses = rows.reshape(-1, width).gather(1, index).squeeze(1).clamp_min(_LEAST_PROBABILITY).log()
            if self.ignore_label is None:
                self.record(-losses.sum(dtype=torch.float64), target.numel())
            else:
                counts = label.reshape(-1) != self.ignore_label
                self.record(
                    torch.stack([-losses.where(counts, 0.0).sum(dtype=torch.float64), counts.sum().double()])
                )

    def value_of(self, total: Any, count: Any) -> Any:
        mean = total / count
        return math.exp(mean) if mean < 700.0 else math.inf
