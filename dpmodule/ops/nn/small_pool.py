"""Max pooling of images by the native extension, where no gradient asks for the places of what was found.

torch notes the places in any case, and takes three to five times as long.
"""

from __future__ import annotations

import torch

from ...compat import torch_private
from ..recording import is_recorded
from .rules import window_size
from .small_matmul import is_plain, kernels

Pair = tuple[int, ...]

_LEAST_CHANNELS = 8
"""Channels below which vectors stay too empty."""


def pays(data: torch.Tensor) -> bool:
    """Say whether the kernel is the fastest for some images, of which no gradient is recorded, and there is one."""
    return (
        not is_recorded()
        and data.shape[1] >= _LEAST_CHANNELS
        and data.numel() > 0
        and is_plain(data)
        and hasattr(kernels(), "max_pool")
        and not torch_private.is_batched(data)
    )


def max_pool(data: torch.Tensor, kernel: Pair, stride: Pair, pad: Pair, full: bool) -> torch.Tensor:
    """Return the greatest number of each window, NaN where one is in it.

    Shape:
        data: (N, C, H, W), float32 on the CPU, of any strides.
        returns: (N, C, H', W'), in channels_last.

    Args:
        pad: numbers around the image, which are never the greatest; at most half of the kernel.
        full: whether a window may stick out at the end, if it begins within the image or the padding before it.
    """
    data = data.contiguous(memory_format=torch.channels_last)
    images, channels, *sizes = data.shape
    axes = zip(sizes, kernel, stride, pad, strict=True)
    counts = [window_size(x, k, s, p, full) for x, k, s, p in axes]
    counts = [n - (full and (n - 1) * s >= x + p) for n, x, s, p in zip(counts, sizes, stride, pad)]
    result = torch.empty((images, channels, *counts), memory_format=torch.channels_last)
    places = data.data_ptr(), result.data_ptr()
    kernels().max_pool(
        *(images, channels, *sizes, *counts, *kernel, *stride, *pad, *places, torch.get_num_threads())
    )
    return result
