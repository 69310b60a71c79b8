"""Area under the ROC curve of all batches so far."""

from __future__ import annotations

from typing import Any

import torch

from ...base import Shape
from ..attrs import integer
from ..registry import op
from ..spec import NEVER, Attr, Env, Onnx, Shapes, Types, arg, aux
from .layer_shapes import unify_input

Tensor = torch.Tensor


def num_counts(num_thresholds: int, slide_steps: int) -> int:
    """Return the number of elements of a state: a histogram, or one for each batch, their sum and a counter."""
    return (1 + slide_steps) * (num_thresholds + 1) + (slide_steps > 0)


def area(positive: Tensor, negative: Tensor) -> Tensor:
    """Return the area under the ROC curve, 0 if there are only positives or only negatives.

    Args:
        positive: number of positives for each interval of scores, ascending, (bins,).
        negative: number of negatives.
    """
    up_to = positive.cumsum(0)
    total = up_to[-1]
    pairs = torch.dot((2 * (total - up_to) + positive).double(), negative.double()) / 2
    return pairs / (total.double() * negative.sum()).clamp_(min=1)


def window(counts: Tensor, num_thresholds: int, slide_steps: int) -> Tensor:
    """Return the histogram of a state."""
    bins = num_thresholds + 1
    return counts.reshape(-1)[slide_steps * bins : (slide_steps + 1) * bins]


def intervals(scores: Tensor, num_thresholds: int) -> Tensor:
    """Return the interval of each score."""
    return (scores.clamp(0, 1) * num_thresholds).long()


def add_batch(counts: Tensor, places: Tensor, num_thresholds: int, slide_steps: int) -> None:
    """Add a batch to a state in place: a new value would drop what another process adds until forward ends.

    Args:
        places: intervals of scores, (n,).
    """
    if not slide_steps:
        counts.view(-1).index_add_(0, places, torch.ones_like(places))
        return
    bins = num_thresholds + 1
    batches = counts[: slide_steps * bins].view(slide_steps, bins)
    batches[int(counts[-1]) % slide_steps] = torch.bincount(places, minlength=bins)
    counts[slide_steps * bins : -1] = batches.sum(0)
    counts[-1] += 1


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, right, *counts = ins
    size = num_counts(a.num_thresholds, a.slide_steps)
    want = (size,) if a.slide_steps else (1, size)
    states = [unify_input("counts", each, want, data) for each in counts]
    return [data, right, *states], [unify_input("output", outs[0], (1,), data)]


def _infer_type(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    return [*ins[:2], "int64", "int64"], ["float64"]


@op(
    "_running_auc",
    [arg("data"), arg("label"), aux("positive", '["zero", {}]'), aux("negative", '["zero", {}]')],
    {
        "num_thresholds": Attr(integer(low=1), "number of intervals of scores from 0 to 1", 4095),
        "slide_steps": Attr(integer(low=0), "number of last batches that count; 0 = all", 0),
    },
    mutates=("positive", "negative"),
    commit_in_forward=("positive", "negative"),
    stateful=True,  # so that a repeated forward restores the states
    infer=_infer,
    infer_type=_infer_type,
    batch=NEVER,
    onnx=Onnx(missing="counts over batches"),
)
def running_auc(
    a: Any, env: Env, data: Tensor, label: Tensor, positive: Tensor, negative: Tensor
) -> tuple[Tensor, None, None]:
    """Return the area under the ROC curve of this and earlier batches, in training and in prediction.

    Scores are counted in intervals; pairs in the same interval count half. The area is 0 while there are only positives
    or only negatives. It has no gradient.

    Shape:
        data: (N, C), the score of a line is in the last column, from 0 to 1.
        label: (N, 1) or (N,), above 0 for positives.
        positive, negative: (1, num_thresholds + 1) int64, counts by interval; with slide_steps
            ((slide_steps + 1) * (num_thresholds + 1) + 1,), for each of the last batches, their sum, number of batches.
        output: (1,) float64.

    Source: Paddle 1.8 `auc`.
    """
    places = intervals(data.detach().reshape(data.shape[0], -1)[:, -1], a.num_thresholds)
    hit = label.detach().reshape(-1) > 0
    with torch.no_grad():
        for counts, chosen in ((positive, hit), (negative, ~hit)):
            add_batch(counts, places[chosen], a.num_thresholds, a.slide_steps)
    whole = area(*(window(counts, a.num_thresholds, a.slide_steps) for counts in (positive, negative)))
    return whole.reshape(1), None, None
