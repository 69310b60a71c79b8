"""Metrics that add up batches outside of a program."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .._core import lazy
from ..base import ArgumentError, ShapeError
from ..ops.nn.auc import area


class MetricBase:
    """Base class of metrics.

    Args:
        name: name of the metric; None: that of the class.
    """

    def __init__(self, name: str | None = None) -> None:
        self._name = type(self).__name__ if name is None else name
        self.reset()

    def __str__(self) -> str:
        return self._name

    def reset(self) -> None:
        """Forget all batches."""
        raise NotImplementedError

    def eval(self) -> Any:
        """Return the value over all batches."""
        raise NotImplementedError


class Accuracy(MetricBase):
    """Mean of accuracies of batches, weighted by their sizes.

    Example:
        >>> import dpmodule.fluid as fluid
        >>> accuracy = fluid.metrics.Accuracy()
        >>> accuracy.update(value=0.5, weight=10)
        >>> accuracy.update(value=1.0, weight=30)
        >>> accuracy.eval()
        0.875
    """

    def reset(self) -> None:
        self._sum = self._weight = 0.0

    def update(self, value: Any, weight: Any) -> None:
        """Add a batch.

        Args:
            value: result of `layers.accuracy`, a number or an array with one.
            weight: size of the batch.

        Raises:
            ArgumentError: the weight is negative.
        """
        number, size = float(np.asarray(value).reshape(())), float(np.asarray(weight).reshape(()))
        if size < 0:
            raise ArgumentError(f"Accuracy: weight is {weight!r}, expected a number from 0")
        self._sum += number * size
        self._weight += size

    def eval(self) -> float:
        """Return the mean.

        Raises:
            ArgumentError: `update` has not been called.
        """
        if not self._weight:
            raise ArgumentError("Accuracy: update has not been called; call it with a batch first")
        return self._sum / self._weight


class _Hits(MetricBase):
    """Counts of predictions of two classes."""

    def reset(self) -> None:
        self._true = self._others = 0

    def update(self, preds: Any, labels: Any) -> None:
        """Add a batch.

        Args:
            preds: probabilities of class 1, (N, 1); those from 0.5 count as class 1.
            labels: 0 or 1, (N, 1).
        """
        found, right = np.rint(np.asarray(preds).reshape(-1)), np.asarray(labels).reshape(-1)
        if len(found) != len(right):
            raise ShapeError(f"{self}: got {len(found)} predictions and {len(right)} labels")
        self._true += int(((found == 1) & (right == 1)).sum())
        self._others += int(self._missed(found, right).sum())

    def _missed(self, found: Any, right: Any) -> Any:
        raise NotImplementedError

    def eval(self) -> float:
        """Return the share, 0 if there is nothing to count."""
        return self._true / max(self._true + self._others, 1)


class Precision(_Hits):
    """Share of right ones among the lines that are predicted as class 1."""

    def _missed(self, found: Any, right: Any) -> Any:
        return (found == 1) & (right != 1)


class Recall(_Hits):
    """Share of the lines of class 1 that are predicted as such."""

    def _missed(self, found: Any, right: Any) -> Any:
        return (found != 1) & (right == 1)


class Auc(MetricBase):
    """Area under the ROC curve over all batches.

    Args:
        name: name of the metric.
        curve: must be "ROC".
        num_thresholds: number of intervals of probabilities; pairs in the same interval count half.

    Raises:
        ArgumentError: `curve` is not "ROC".

    Example:
        >>> import dpmodule.fluid as fluid
        >>> auc = fluid.metrics.Auc("auc")
        >>> auc.update(preds=np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]]), labels=np.array([[0], [1], [0]]))
        >>> auc.eval()
        1.0
    """

    def __init__(self, name: str | None = None, curve: str = "ROC", num_thresholds: int = 4095) -> None:
        if curve != "ROC":
            raise ArgumentError(f'Auc: curve is {curve!r}, expected "ROC"')
        self._bins = int(num_thresholds)
        super().__init__(name)

    def reset(self) -> None:
        self._positive, self._negative = np.zeros((2, self._bins + 1), np.int64)

    def update(self, preds: Any, labels: Any) -> None:
        """Add a batch.

        Args:
            preds: probabilities of both classes, (N, 2), or of class 1, (N, 1).
            labels: above 0 for class 1, (N, 1).

        Raises:
            ShapeError: the numbers of predictions and labels differ.
        """
        found, right = np.asarray(preds), np.asarray(labels).reshape(-1) > 0
        scores = found.reshape(len(found), -1)[:, -1].clip(0, 1)
        if len(scores) != len(right):
            raise ShapeError(f"Auc: got {len(scores)} predictions and {len(right)} labels")
        places = (scores * self._bins).astype(np.int64)
        self._positive += np.bincount(places[right], minlength=self._bins + 1)
        self._negative += np.bincount(places[~right], minlength=self._bins + 1)

    def eval(self) -> float:
        """Return the area, 0 if there is only one class."""
        return float(area(torch.from_numpy(self._positive), torch.from_numpy(self._negative)))


class ChunkEvaluator(MetricBase):
    """Precision, recall and F1 of chunks over all batches, from the counts of `layers.chunk_eval`.

    Example:
        >>> import dpmodule.fluid as fluid
        >>> chunks = fluid.metrics.ChunkEvaluator()
        >>> chunks.update(num_infer_chunks=10, num_label_chunks=8, num_correct_chunks=6)
        >>> chunks.eval()
        (0.6, 0.75, 0.6666666666666666)
    """

    def reset(self) -> None:
        self.num_infer_chunks = self.num_label_chunks = self.num_correct_chunks = 0

    def update(self, num_infer_chunks: Any, num_label_chunks: Any, num_correct_chunks: Any) -> None:
        """Add a batch.

        Args:
            num_infer_chunks: number of predicted chunks, a number or an array with one.
            num_label_chunks: number of right chunks.
            num_correct_chunks: number of chunks that are predicted and right.
        """
        self.num_infer_chunks += int(np.asarray(num_infer_chunks).reshape(()))
        self.num_label_chunks += int(np.asarray(num_label_chunks).reshape(()))
        self.num_correct_chunks += int(np.asarray(num_correct_chunks).reshape(()))

    def eval(self) -> tuple[float, float, float]:
        """Return precision, recall and F1, 0 if there is nothing to count."""
        common, found, right = self.num_correct_chunks, self.num_infer_chunks, self.num_label_chunks
        return common / max(found, 1), common / max(right, 1), 2 * common / max(found + right, 1)


class CompositeMetric(MetricBase):
    """Several metrics of the same predictions and labels."""

    def __init__(self, name: str | None = None) -> None:
        self._metrics: list[Any] = []
        super().__init__(name)

    def reset(self) -> None:
        for each in self._metrics:
            each.reset()

    def add_metric(self, metric: Any) -> None:
        """Add a metric.

        Args:
            metric: a metric of this module.

        Raises:
            ArgumentError: it is none.
        """
        if not isinstance(metric, MetricBase):
            raise ArgumentError(f"CompositeMetric: metric is {metric!r}, expected a metric of fluid.metrics")
        self._metrics.append(metric)

    def update(self, preds: Any, labels: Any) -> None:
        """Add a batch to all metrics."""
        for each in self._metrics:
            each.update(preds, labels)

    def eval(self) -> list[float]:
        """Return the value of each metric."""
        return [each.eval() for each in self._metrics]


__all__ = lazy.own_names(vars())
lazy.publish(__name__, __all__)
