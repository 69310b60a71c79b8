"""Train small convolutions, and some of single pixels, as matrix products.

oneDNN prepares each call for longer than a small convolution computes; the tiles of `native_convolutions` take over
most of these where they exist. In the last stages of a network, where a small batch has fewer positions than filters,
oneDNN's gradient of the weight runs at a tenth of its speed, and converting the weight to channels_last and its
gradient back takes as long as the arithmetic. With the data unfolded to rows, one for each position, the weight and its
gradient keep their layout. Images in channels_last are such rows for windows of 1x1, and torch's own convolution of
large ones is slower than their product. The choice is made when the step runs, from the sizes alone.

Needs:
    storage: dense
    rank: data (N, C, H, W)
    type: float32 on the CPU; others run as convolutions
    layout: any
    gradients: any
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from ...ops.nn.trained_convolution import ROWS, can_train, train_convolution
from ...ops.nn.unfold import is_fast_as_rows, window_grid
from ..lowering import Lowered, Step
from .channels_last import restride

MAX_SHAPES = 64
"""Shapes of data whose kernels a convolution remembers, which bounds its memory when every batch has a new size."""


class UnfoldedConvolution:
    """A 2-D convolution without groups, as a matrix product where that is faster.

    Shape:
        data: (N, C, H, W).
        weight: (F, C, kernel height, kernel width).
        bias: (F,).
        result: (N, F, H', W').

    Args:
        plain: the convolution; takes data, weight and optionally bias.
    """

    def __init__(self, plain: Callable[..., torch.Tensor], a: Any, restrides: bool) -> None:
        self._plain, self._restrides = plain, restrides
        self._filters, self._grid = a.num_filter, window_grid(a)
        self._is_fast = lru_cache(MAX_SHAPES)(self._is_fast_as_rows)

    def restrides(self, data: Sequence[int]) -> bool:
        """Return True if a convolution of float32 data of a shape reads the weight in channels_last."""
        return self._restrides and not self._is_fast(data, torch.get_num_threads())

    def __call__(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the convolution of data (N, C, H, W) with a weight (filters, C, *kernel)."""
        if self._is_fast(x.shape, torch.get_num_threads()) and can_train(x, weight, bias, self._grid, ROWS):
            return train_convolution(x, weight, bias, self._grid, ROWS)
        weight = restride(weight) if self._restrides else weight
        return self._plain(x, weight) if bias is None else self._plain(x, weight, bias)

    def _is_fast_as_rows(self, data: Sequence[int], threads: int) -> bool:
        return is_fast_as_rows(data, self._filters, self._grid, threads, self._restrides)


def _fits(low: Lowered, step: Step) -> bool:
    op, a = low.operator(step)
    return (
        op is not None
        and op.name == "Convolution"
        and len(a.kernel) == 2
        and a.num_group == 1
        and a.layout in (None, "NCHW")
        and not (step.takes_env or step.covers)
    )


def unfolded_convolutions(low: Lowered) -> int:
    """Make convolutions choose when they run, and restride their weights only if needed.

    Returns:
        Number of convolutions.
    """
    readers = Counter(value for step in low.steps for value in step.inputs)
    restrided = {step.outputs[0]: step for step in low.steps if step.function is restride}
    gone: set[int] = set()
    count = 0
    for step in low.steps:
        if not _fits(low, step):
            continue
        _, a = low.operator(step)
        before = restrided.get(step.inputs[1])
        if before is not None and readers[step.inputs[1]] > 1:
            continue
        if before is not None:
            step.inputs[1] = before.inputs[0]
            gone.add(id(before))
        step.function = UnfoldedConvolution(step.function, a, before is not None)
        count += 1
    low.steps = [step for step in low.steps if id(step) not in gone]
    return count
