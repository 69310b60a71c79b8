"""Train depthwise convolutions, and those without groups, with kernels of the native extension.

Where they are faster than oneDNN's, forward or backward, they read the weight without reordering. The graph determines
which convolutions qualify; whether the kernels support the data, and are faster for its sizes, is checked when the step
runs.

Needs:
    storage: dense
    rank: data (N, C, H, W)
    type: float32 on the CPU for all operands; others run as convolutions
    layout: data in channels_last, as convolutions leave it; without groups, others run unchanged
    gradients: any
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...ops.nn.depthwise import can_convolve_depthwise, convolve_depthwise
from ...ops.nn.trained_convolution import (
    TrainingKernels,
    can_train,
    may_train,
    train_convolution,
    training_kernels,
)
from ...ops.nn.unfold import window_grid
from ..lowering import Lowered, Step
from .unfolded_convolutions import UnfoldedConvolution


class NativeConvolution:
    """A 2-D convolution, computed by the native extension where it is faster.

    Shape:
        data: (N, C, H, W).
        weight: (F, C / groups, kernel height, kernel width).
        bias: (F,).
        result: (N, F, H', W').

    Args:
        plain: the convolution; takes data, weight and optionally bias.
    """

    def __init__(self, plain: Callable[..., torch.Tensor], a: Any) -> None:
        self._plain, self._grid, self._is_depthwise = plain, window_grid(a), a.num_group > 1
        self._filters = a.num_filter
        self._known: dict[tuple[Sequence[int], int], TrainingKernels] = {}

    def restrides(self, data: Sequence[int]) -> bool:
        """Return True if a convolution of float32 data of a shape reads the weight in channels_last."""
        is_ours = not self._is_depthwise and self._kernels(data).is_ours
        return isinstance(self._plain, UnfoldedConvolution) and not is_ours and self._plain.restrides(data)

    def _kernels(self, data: Sequence[int]) -> TrainingKernels:
        key = data, torch.get_num_threads()
        if key not in self._known:
            self._known[key] = training_kernels(data, self._filters, self._grid)
        return self._known[key]

    def __call__(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the convolution of data (N, C, H, W) with a weight (filters, C / groups, *kernel)."""
        if self._is_depthwise:
            if can_convolve_depthwise(x, weight, bias, self._grid):
                return convolve_depthwise(x, weight, bias, self._grid)
            return self._plain(x, weight) if bias is None else self._plain(x, weight, bias)
        chosen = self._kernels(x.shape)
        if chosen.is_ours and can_train(x, weight, bias, self._grid):
            return train_convolution(x, weight, bias, self._grid, chosen)
        return self._plain(x, weight) if bias is None else self._plain(x, weight, bias)


def _fits(low: Lowered, step: Step) -> bool:
    op, a = low.operator(step)
    return (
        op is not None
        and op.name == "Convolution"
        and len(a.kernel) == 2
        and (1 < a.num_group == a.num_filter or (a.num_group == 1 and may_train(window_grid(a))))
        and a.layout in (None, "NCHW")
        and not (step.takes_env or step.covers)
    )


def native_convolutions(low: Lowered) -> int:
    """Make convolutions choose between kernels when they run.

    Returns:
        Number of convolutions.
    """
    convolutions = [step for step in low.steps if _fits(low, step)]
    for step in convolutions:
        step.function = NativeConvolution(step.function, low.operator(step)[1])
    return len(convolutions)
