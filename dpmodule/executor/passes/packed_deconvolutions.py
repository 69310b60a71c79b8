"""Run transposed convolutions on packed weights, with channels innermost in memory.

For prediction only. torch reorders the weights in every call, and data of the usual layout as well. With few filters,
for one pixel, or where a stride above 1 does not divide the kernel, a product gives all windows, which are then added
up. Results differ by rounding. The environment variable DPMODULE_ONEDNN=0 disables the pass.

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
from ...ops.nn.conv import deconvolved, pads_and_adds
from ...ops.nn.layer_shapes import per_axis
from ...ops.nn.linear import FEW_ROWS, dense, is_float32_cpu, kernels, pack_for, packs_well
from ...ops.nn.unfold import WindowGrid, fold
from ...ops.shapes import prod
from ..lowering import Lowered
from ..packed_weights import packed
from .channels_last import restride

_MIN_CHANNELS = 8
"""Channels below which only a product gains."""
_MAX_PLAIN = 20480
"""Size of a single sample up to which torch runs small kernels without oneDNN, and therefore faster."""


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
        fits = all(map(is_float32_cpu, given)) and not any(map(torch_private.is_batched, given))
        if torch.is_grad_enabled() or not fits or not data.numel() or data.shape[1] != weight.shape[0]:
            return self._function(*given)
        area, (channels, filters) = prod(data.shape[2:]), weight.shape[:2]
        kernel, steps = self._a.kernel, self._steps[0]
        rows, columns = len(data) * area, filters * prod(kernel)
        if len(data) == 1 and min(kernel) <= 3 and data.numel() <= _MAX_PLAIN:
            return self._function(*given)
        is_uneven = any(step > 1 and size % step for size, step in zip(kernel, steps))
        is_product = area == 1 or is_uneven or 2 * filters <= getattr(kernels(), "vector_width", 0)
        has_kernel = packs_well(rows, columns, channels) and hasattr(kernels(), "fold")
        if is_product and has_kernel:
            return self._by_product(data, weight, bias, rows, columns)
        if channels >= _MIN_CHANNELS:
            return self._by_onednn(data, weight, bias)
        return self._function(*given)

    def _by_product(
        self, data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, rows: int, columns: int
    ) -> torch.Tensor:
        flat = weight.flatten(1).t()
        packs = packed("turned", [weight], lambda: [pack_for(rows, flat)], rows > FEW_ROWS)
        layer = (columns, len(weight)), packs[0] if packs else pack_for(rows, flat), None, False
        windows = dense(data.permute(0, 2, 3, 1).reshape(rows, len(weight)).contiguous(), [layer])
        grid: Any = (
            self._a.kernel,
            self._steps[0],
            pads_and_adds(self._a, tuple(data.shape[2:]))[0],
            self._steps[1],
        )
        result = torch.empty(deconvolved(self._a, tuple(data.shape)), memory_format=torch.channels_last)
        result.zero_() if bias is None else result.copy_(bias.view(-1, 1, 1))
        fold(windows, result, WindowGrid(*grid))
        return result

    def _by_onednn(self, data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
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
