"""Train 3x3 convolutions of few channels, with stride 1 or 2, with kernels of the native extension.

They are faster than oneDNN's there, forward and backward, and read the weight without reordering. The graph determines
which convolutions qualify; whether the kernels support the data, and are faster for its sizes, is checked when the step
runs.

Needs:
    storage: dense
    rank: data (N, C, H, W)
    type: float32 on the CPU for all operands; others run as convolutions
    layout: data in channels_last, as convolutions leave it; with another layout the convolution runs unchanged
    gradients: any
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...ops.nn.conv3x3 import can_convolve3x3, convolve3x3
from ...ops.nn.layer_shapes import per_axis
from ..lowering import Lowered, Step

_STEPS = ((1, 1), (2, 2))


class NativeConvolution:
    """A 3x3 convolution, computed by the native extension where it is faster.

    Shape:
        data: (N, C, H, W).
        weight: (F, C, 3, 3).
        bias: (F,).
        result: (N, F, H', W').

    Args:
        plain: the convolution; takes data, weight and optionally bias.
    """

    def __init__(self, plain: Callable[..., torch.Tensor], step: int) -> None:
        self._plain, self._step = plain, step

    def __call__(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the convolution of data (N, C, H, W) with a weight (filters, C, 3, 3)."""
        if can_convolve3x3(x, weight, bias, self._step):
            return convolve3x3(x, weight, bias, self._step)
        return self._plain(x, weight) if bias is None else self._plain(x, weight, bias)


def _fits(low: Lowered, step: Step) -> bool:
    op, a = low.operator(step)
    return (
        op is not None
        and op.name == "Convolution"
        and a.kernel == (3, 3)
        and a.num_group == 1
        and a.layout in (None, "NCHW")
        and per_axis(a.stride, 2, 1, "stride") in _STEPS
        and per_axis(a.dilate, 2, 1, "dilate") == (1, 1)
        and per_axis(a.pad, 2, 0, "pad") == (1, 1)
        and not (step.takes_env or step.covers)
    )


def native_convolutions(low: Lowered) -> int:
    """Make convolutions choose between kernels when they run.

    Returns:
        Number of convolutions.
    """
    convolutions = [step for step in low.steps if _fits(low, step)]
    for step in convolutions:
        _, a = low.operator(step)
        step.function = NativeConvolution(step.function, max(a.stride, default=1))
    return len(convolutions)
