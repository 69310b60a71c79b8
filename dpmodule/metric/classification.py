"""Metrics of classifiers with a score or probability for each class."""

from __future__ import annotations

import numpy as np
import torch

from ..base import ArgumentError, BoundsError, ShapeError
from .base import Arrays, EvalMetric, Names, alias, check_sizes, pairs, shape_mismatch


def _classes(values: torch.Tensor) -> torch.Tensor:
    """Convert class numbers to integers, truncating as MXNet does."""
    return values if values.dtype is torch.int64 else values.long()


_NUMPY_DTYPES = frozenset({torch.float32, torch.float64, torch.int32, torch.int64})


def _hits_on_host(label: torch.Tensor, scores: torch.Tensor, axis: int) -> int | None:
    """Return the number of correct predictions computed with NumPy, None if torch is as fast.

    NumPy's argmax over contiguous elements is several times as fast as torch's.
    """
    if not (scores.is_cpu and axis in (-1, scores.dim() - 1) and label.shape == scores.shape[:-1]):
        return None
    if scores.dtype not in _NUMPY_DTYPES or label.dtype not in _NUMPY_DTYPES or scores.stride(-1) != 1:
        return None
    guess, target = scores.numpy().argmax(-1), label.numpy()
    return int(np.count_nonzero(guess == (np.trunc(target) if label.is_floating_point() else target)))


@alias("acc")
class Accuracy(EvalMetric):
    """Fraction of predictions whose highest score is at the label.

    Shape:
        labels[i]: (N, ...), class numbers.
        preds[i]: scores with one more axis, of length K, at `axis`; or class numbers of the label's shape.

    Args:
        axis: axis of the classes.
        name: name of the value.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.

    Example:
        >>> metric = Accuracy()
        >>> metric.update([mx.nd.array([0, 1])], [mx.nd.array([[0.9, 0.1], [0.8, 0.2]])])
        >>> metric.get()
        ('accuracy', 0.5)

    Source: MXNet 1.9.1 `Accuracy`.
    """

    def __init__(
        self, axis: int = 1, name: str = "accuracy", output_names: Names = None, label_names: Names = None
    ) -> None:
        super().__init__(name, output_names, label_names, axis=axis, has_global_stats=True)
        self.axis = axis

    def update(self, labels: Arrays, preds: Arrays) -> None:
        for label, pred in pairs(labels, preds):
            hits = _hits_on_host(label, pred, self.axis)
            if hits is not None:
                self.record(hits, label.numel())
                continue
            guess = pred if pred.shape == label.shape else pred.argmax(self.axis)
            if guess.shape != label.shape:  # (N, 1) and (N,) are compared in order
                check_sizes(self.name, label, guess)
                label = label.reshape(guess.shape)
            self.record((_classes(guess) == _classes(label)).sum(), label.numel())


@alias("top_k_accuracy", "top_k_acc")
class TopKAccuracy(EvalMetric):
    """Fraction of predictions with the label among their k highest scores.

    Shape:
        labels[i]: (N,), class numbers.
        preds[i]: (N, K), scores.

    Args:
        top_k: number of scores, from 2; limited to the number of classes.
        name: name of the value, to which ``_<top_k>`` is appended.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.

    Raises:
        ArgumentError: `top_k` is below 2.

    Source: MXNet 1.9.1 `TopKAccuracy`.
    """

    def __init__(
        self,
        top_k: int = 1,
        name: str = "top_k_accuracy",
        output_names: Names = None,
        label_names: Names = None,
    ) -> None:
        if top_k < 2:
            raise ArgumentError(
                f"top_k is {top_k}, expected at least 2; use Accuracy for the highest score alone"
            )
        super().__init__(name, output_names, label_names, top_k=top_k, has_global_stats=True)
        self.top_k = top_k
        self.name += f"_{top_k}"

    def update(self, labels: Arrays, preds: Arrays) -> None:
        for label, pred in pairs(labels, preds):
            if pred.dim() > 2:
                raise ShapeError(
                    f"{self.name}: predictions have shape {tuple(pred.shape)}, expected at most 2 axes"
                )
            target = _classes(label).reshape(-1)
            if pred.dim() < 2:
                guess = pred.argsort()  # as MXNet does for a vector
                check_sizes(self.name, target, guess)
                hits = guess == target
            else:
                check_sizes(self.name, target, pred[:, 0])
                hits = pred.topk(min(self.top_k, pred.shape[1]), 1).indices == target.unsqueeze(1)
            self.record(hits.sum(), target.numel())


class _LossOfLabels(EvalMetric):
    """Mean negative log-probability of the labels."""

    def __init__(self, eps: float, name: str, output_names: Names, label_names: Names) -> None:
        super().__init__(name, output_names, label_names, eps=eps, has_global_stats=True)
        self.eps = eps

    def update(self, labels: Arrays, preds: Arrays) -> None:
        for label, pred in pairs(labels, preds):
            target = _classes(label).reshape(-1)
            if pred.dim() != 2 or pred.shape[0] != target.numel():
                raise shape_mismatch(
                    self.name, label, pred, "; expected one row of class probabilities for each label"
                )
            rows = torch.arange(target.numel(), device=pred.device)
            try:
                chosen = pred[rows, target]
            except IndexError as error:
                raise BoundsError(
                    f"{self.name}: a label is outside the {pred.shape[1]} classes: {error}"
                ) from error
            self.record(-(chosen + self.eps).log().sum(dtype=torch.float64), target.numel())


@alias("ce")
class CrossEntropy(_LossOfLabels):
    """Mean of -log(p + eps), where p is the probability of the label.

    Shape:
        labels[i]: (N,), class numbers.
        preds[i]: (N, K), probabilities.

    Args:
        eps: added to probabilities to avoid an infinite loss.
        name: name of the value.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.
    Source: MXNet 1.9.1 `CrossEntropy`.
    """

    def __init__(
        self,
        eps: float = 1e-12,
        name: str = "cross-entropy",
        output_names: Names = None,
        label_names: Names = None,
    ) -> None:
        super().__init__(eps, name, output_names, label_names)


@alias("nll_loss")
class NegativeLogLikelihood(_LossOfLabels):
    """Mean of -log(p + eps), where p is the probability of the label; equal to `CrossEntropy`.

    Args:
        eps: added to probabilities to avoid an infinite loss.
        name: name of the value.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.
    Source: MXNet 1.9.1 `NegativeLogLikelihood`.
    """

    def __init__(
        self,
        eps: float = 1e-12,
        name: str = "nll-loss",
        output_names: Names = None,
        label_names: Names = None,
    ) -> None:
        super().__init__(eps, name, output_names, label_names)
