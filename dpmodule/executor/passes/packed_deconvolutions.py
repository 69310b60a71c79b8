"""Run transposed convolutions on packed weights, with channels innermost in memory.

For prediction only. torch reorders the weights in every call, and data of the usual layout as well. Results differ by
rounding. The environment variable DPMODULE_ONEDNN=0 disables the pass.

Memory: a copy of the weights for each image size, at most four, until they change.

Needs:
    storage: dense
    rank: data (N, C, H, W), not empty
    type: float32 on the CPU for all operands; others run as before
    layout: any; data is brought to channels_last
    gradients: none recorded
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from ..._core import torch_private
from ...ops.nn.conv import pads_and_adds
from ...ops.nn.layer_shapes import per_axis
from ...ops.nn.linear import is_float32_cpu
from ..lowering import Lowered
from ..packed_weights import packed
from .channels_last import restride

_MIN_CHANNELS, _MIN_FILTERS = 32, 16
"""Channels and filters below which oneDNN's kernel does not gain."""


class PackedDeconvolution:
    """A transposed convolution in two dimensions, without groups."""

    def __init__(self, a: Any, function: Callable[..., torch.Tensor]) -> None:
        self._a, self._function = a, function
        self._steps = list(per_axis(a.stride, 2, 1, "stride")), list(per_axis(a.dilate, 2, 1, "dilate")), 1

    def __call__(
        self, data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the result of the operator."""
        given = (data, weight) if bias is None else (data, weight, bias)
        if (
            torch.is_grad_enabled()
            or not all(map(is_float32_cpu, given))
            or any(map(torch_private.is_batched, given))
            or weight.shape[0] < _MIN_CHANNELS
            or weight.shape[1] < _MIN_FILTERS
            or not data.numel()
        ):
            return self._function(*given)
        pads, adds = map(list, pads_and_adds(self._a, tuple(data.shape[2:])))
        geometry = pads, adds, *self._steps

        def pack() -> torch.Tensor:
            return torch_private.onednn_packed_deconvolution(weight.contiguous(), *geometry, data.shape)

        found = packed(("deconvolution", str(geometry)), [weight], lambda: [pack()], data.shape[2:])
        kernel = found[0] if found else pack()  # torch rounds differently without
        return torch_private.onednn_deconvolution(restride(data), kernel, bias, *geometry, "none", [], "")


def packed_deconvolutions(low: Lowered) -> int:
    """Replace transposed convolutions.

    Returns:
        Their number.
    """
    count = 0
    for step in low.steps if os.environ.get("DPMODULE_ONEDNN") != "0" else ():
        op, a = low.operator(step)
        if op is None or op.name != "Deconvolution" or step.takes_env:
            continue
        if len(a.kernel) == 2 and a.num_group == 1 and a.layout in (None, "NCHW"):
            step.function = PackedDeconvolution(a, step.function)
            count += 1
    return count
