"""Metrics of language models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from .base import Arrays, EvalMetric, mismatch, pairs, register

Names = Sequence[str] | None

_LEAST_PROBABILITY = 1e-10


@register
class Perplexity(EvalMetric):
    """exp of the mean of -log(p), p being the probability given to each label.

    Shape:
        labels[i]: (N,) or (N, T), class numbers; numbers outside the classes count as the nearest class.
        preds[i]: (N, V), (N * T, V) or (N, T, V), probabilities.

    Args:
        ignore_label: label that does not count (padding); None counts all.
        axis: the axis of the classes.
        name: what the value is called.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.
    Source: MXNet 1.9.1 `Perplexity`; predictions of three axes, refused there, are taken here.
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
                raise mismatch(self.name, label, pred, "; expected one row of probabilities for each label")
            index = target.clamp(0, width - 1).unsqueeze(1)
            losses = rows.reshape(-1, width).gather(1, index).squeeze(1).clamp_min(_LEAST_PROBABILITY).log()
            if self.ignore_label is None:
                self.record(-losses.sum(dtype=torch.float64), target.numel())
            else:
                counts = target != self.ignore_label
                self.record(
                    torch.stack([-losses.where(counts, 0.0).sum(dtype=torch.float64), counts.sum().double()])
                )

    def value_of(self, total: Any, count: Any) -> Any:
        mean = total / count
        return math.exp(mean) if mean < 700.0 else math.inf
