"""Train convolutions of few channels, by windows of 3x3 that move by 1 or 2, with kernels of the native extension.

They are faster than oneDNN's there, forward and backward, and take the weight as it lies. Which convolutions can be
one, the graph tells; whether the kernels take the data, and pay for its sizes, is seen when the step runs.

Needs:
    storage: dense
    rank: data (N, C, H, W)
    type: float32 on the CPU for all operands; others run as convolutions
    layout: data in channels_last, as convolutions leave it; with another one they run as they are
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
    """A convolution by windows of 3x3, by the native extension where it is faster.

    Shape:
        data: (N, C, H, W).
        weight: (F, C, 3, 3).
        bias: (F,).
        result: (N, F, H', W').

    Args:
        plain: the convolution; takes data, weight and, if there is one, bias.
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
    """Let convolutions choose between kernels when they run.

    Returns:
        How many there are.
    """
    found = [step for step in low.steps if _fits(low, step)]
    for step in found:
        _, a = low.operator(step)
        step.function = NativeConvolution(step.function, max(a.stride, default=1))
    return len(found)
