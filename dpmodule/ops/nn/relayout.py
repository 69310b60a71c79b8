"""Copies of tensors between the usual layout and channels_last, by the native extension.

torch copies between these layouts at a fraction of the memory bandwidth, and every call has an overhead. The extension
transposes in registers, and copies all tensors of a list in one call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from ..write_tracking import count_write
from .linear import is_float32_cpu, kernels

_MIN_CHANNELS = 4
"""Channels below which torch is as fast."""


def can_relayout(x: torch.Tensor) -> bool:
    """Return True if the extension supports a tensor in the usual layout, which differs in channels_last."""
    return (
        x.dim() == 4
        and x.shape[1] >= _MIN_CHANNELS
        and x.shape[2] * x.shape[3] > 1
        and x.shape[0] > 0
        and is_float32_cpu(x)
        and x.is_contiguous()
        and hasattr(kernels(), "change_layouts")
    )


def to_channels_last(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return copies in channels_last of tensors for which `can_relayout` is true.

    Shape:
        tensors, returns: (N, C, H, W) each.
    """
    copies = [torch.empty(x.shape, memory_format=torch.channels_last) for x in tensors]
    _change_layouts(True, zip(tensors, copies, strict=True))
    return copies


def copy_to_usual(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Copy tensors in channels_last to ones for which `can_relayout` is true.

    Shape:
        pairs: (N, C, H, W), twice.

    Args:
        pairs: target and source of each copy.
    """
    _change_layouts(False, pairs)
    count_write([target for target, _ in pairs])


def _change_layouts(to_last: bool, pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> None:
    arguments: list[int] = []
    for usual, last in pairs:
        images, channels, height, width = usual.shape
        arguments += usual.data_ptr(), last.data_ptr(), images, channels, height * width
    kernels().change_layouts(to_last, torch.get_num_threads(), *arguments)
