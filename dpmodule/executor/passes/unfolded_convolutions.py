"""Train convolutions over few positions with large weights as matrix products.

In the last stages of a network, a small batch has fewer positions than filters. oneDNN's gradient of the weight then
runs at a tenth of its speed, and converting the weight to channels_last and its gradient back takes as long as the
arithmetic. With the data unfolded to rows, one for each position, the weight and its gradient keep their layout. The
choice is made when the step runs, from the sizes alone.

Needs:
    storage: dense
    rank: data (N, C, H, W)
    type: float32 on the CPU; others run as convolutions
    layout: any
    gradients: any
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from ...ops.nn.linear import linear
from ...ops.nn.unfold import unfold, window_grid
from ..lowering import Lowered, Step
from .channels_last import restride

_MIN_WEIGHT = 2**16
"""Minimal number of elements of a weight; convolutions with smaller ones take little time."""


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
        self._grid = window_grid(a)

    def __call__(self, x: torch.Tensor, weight: torch.Tensor, *bias: torch.Tensor) -> torch.Tensor:
        """Return the convolution of data (N, C, H, W) with a weight (filters, C, *kernel)."""
        height, width = self._grid.counts(x.shape[2:])
        if self._pays(x, weight, x.shape[0] * height * width):
            out = linear(unfold(x, self._grid), weight.reshape(weight.shape[0], -1), *bias)
            return out.view(x.shape[0], height, width, -1).permute(0, 3, 1, 2)
        return self._plain(x, restride(weight) if self._restrides else weight, *bias)

    def _pays(self, x: torch.Tensor, weight: torch.Tensor, rows: int) -> bool:
        return (
            0 < rows <= weight.shape[0]
            and weight.numel() >= _MIN_WEIGHT
            and x.device.type == "cpu"
            and x.dtype is torch.float32
            and weight.dtype is torch.float32
        )


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
