"""Train depthwise and ungrouped convolutions, and transposed ones, with kernels of the native extension.

Where they are faster than oneDNN's, forward or backward, they read the weight without reordering. The graph determines
which convolutions qualify; whether the kernels support the data, and are faster for its sizes, is checked when the step
runs.

Needs:
    storage: dense
    rank: data (N, C, H, W), or (N, C, W) without groups
    type: float32 on the CPU for all operands; others run as convolutions
    layout: data in channels_last, as convolutions leave it, or (N, W, C) with transposed axes; without groups, data in
        other layouts is converted where this is measured to be faster, and else runs unchanged
    gradients: any
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch

from ...ops.nn.conv import deconvolved, pads_and_adds
from ...ops.nn.depthwise import can_convolve_depthwise, convolve_depthwise
from ...ops.nn.trained_convolution import (
    TrainingKernels,
    can_train,
    may_train,
    train_convolution,
    train_deconvolution,
    training_kernels,
    transposed_kernels,
)
from ...ops.nn.unfold import WindowGrid, window_grid
from ..lowering import Lowered, Step
from . import converts_layout
from .unfolded_convolutions import MAX_SHAPES, UnfoldedConvolution


class NativeConvolution:
    """A convolution of images or sequences, computed by the native extension where it is faster.

    Shape:
        data: (N, C, H, W) or (N, C, W).
        weight: (F, C / groups, *kernel).
        bias: (F,).
        result: (N, F, H', W') or (N, F, W').

    Args:
        plain: the convolution; takes data, weight and optionally bias.
        converts: True if the graph runs in channels_last, which the strides of data with one channel do not show.
    """

    def __init__(self, plain: Callable[..., torch.Tensor], a: Any, converts: bool) -> None:
        self._plain, self._grid, self._is_depthwise = plain, window_grid(a), a.num_group > 1
        self._converts = converts
        self._filters = a.num_filter
        self._chosen = lru_cache(MAX_SHAPES)(self._choice)

    def restrides(self, data: Sequence[int]) -> bool:
        """Return True if a convolution of float32 data of a shape reads the weight in channels_last."""
        if not isinstance(self._plain, UnfoldedConvolution) or not self._plain.restrides(data):
            return False
        return self._is_depthwise or not self._kernels(data, True).is_ours

    def sums_windows(self, data: Sequence[int]) -> bool:
        """Return True if the result for float32 data of a shape, in channels_last, is a sum of overlapping windows."""
        return self._kernels(data, True).result == "windows"

    def _kernels(self, data: Sequence[int], is_last: bool, with_data: bool = True) -> TrainingKernels:
        return self._chosen(data, torch.get_num_threads(), is_last, with_data)

    def _choice(self, data: Sequence[int], threads: int, *which: bool) -> TrainingKernels:
        return training_kernels(data, self._filters, self._grid, *which)

    def __call__(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the convolution of data (N, C, ...) with a weight (filters, C / groups, *kernel)."""
        found = (self._by_channel if self._is_depthwise else self._by_tiles)(x, weight, bias)
        if found is not None:
            return found
        return self._plain(x, weight) if bias is None else self._plain(x, weight, bias)

    def _by_channel(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor | None:
        fits = can_convolve_depthwise(x, weight, bias, self._grid)
        return convolve_depthwise(x, weight, bias, self._grid) if fits else None

    def _by_tiles(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor | None:
        are_sequences = x.dim() == 3
        if are_sequences:
            x, weight = x.unsqueeze(2), weight.unsqueeze(2)
        shows_layout = self._converts or x.shape[1] > 1
        is_last = shows_layout and x.is_contiguous(memory_format=torch.channels_last)
        chosen = self._kernels(x.shape, is_last, x.requires_grad)
        if not (chosen.is_ours and can_train(x, weight, bias, self._grid, chosen)):
            return None
        out = train_convolution(x, weight, bias, self._grid, chosen)
        return out.squeeze(2) if are_sequences else out


class NativeDeconvolution:
    """A transposed 2-D convolution without groups, computed by the native extension where it is faster.

    Shape:
        data: (N, C, H, W).
        weight: (C, F, kernel height, kernel width).
        bias: (F,).
        result: (N, F, H', W').

    Args:
        plain: the transposed convolution; takes data, weight and optionally bias.
        converts: convert data to channels_last, which following layers gain from.
    """

    def __init__(self, plain: Callable[..., torch.Tensor], a: Any, converts: bool) -> None:
        self._plain, self._a, self._converts = plain, a, converts
        self._chosen = lru_cache(MAX_SHAPES)(self._choice)

    def _choice(self, data: Sequence[int], threads: int) -> tuple[Sequence[int], WindowGrid, TrainingKernels]:
        """Return shape of the result, windows over it, and the kernels, for data of a shape."""
        a, shape = self._a, deconvolved(self._a, tuple(data))
        height, width = pads_and_adds(a, tuple(data[2:]))[0]
        grid = replace(window_grid(a), pad=(height, width))
        return shape, grid, transposed_kernels(shape, data[1], grid)

    def __call__(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the transposed convolution of data (N, C, H, W) with a weight (C, filters, *kernel)."""
        shape, grid, chosen = self._chosen(x.shape, torch.get_num_threads())
        fits = self._converts or x.is_contiguous(memory_format=torch.channels_last)
        if fits and chosen.is_ours and can_train(x, weight, bias, grid, chosen, is_transposed=True):
            return train_deconvolution(x, weight, bias, shape, grid, chosen)
        return self._plain(x, weight) if bias is None else self._plain(x, weight, bias)


def _native(low: Lowered, step: Step) -> Callable[..., torch.Tensor] | None:
    """Return the function that chooses between kernels for a step; None for steps without such kernels."""
    op, a = low.operator(step)
    if op is None or op.name not in ("Convolution", "Deconvolution") or step.takes_env or step.covers:
        return None
    if len(a.kernel) > 2 or a.layout not in (None, "NCHW", "NCW"):
        return None
    converts = converts_layout(low.graph)
    if op.name == "Deconvolution":
        fits = a.num_group == 1 and len(a.kernel) == 2 and may_train()
        return NativeDeconvolution(step.function, a, converts) if fits else None
    is_depthwise = 1 < a.num_group == a.num_filter and len(a.kernel) == 2
    fits = is_depthwise or (a.num_group == 1 and may_train(window_grid(a)))
    return NativeConvolution(step.function, a, converts) if fits else None


def native_convolutions(low: Lowered) -> int:
    """Make convolutions choose between kernels when they run.

    Returns:
        Number of convolutions.
    """
    found = 0
    for step in low.steps:
        function = _native(low, step)
        if function is not None:
            step.function, found = function, found + 1
    return found
