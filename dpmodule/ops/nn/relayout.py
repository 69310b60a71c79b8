"""Copies of tensors between the usual layout and channels_last, by the native extension.

torch copies between these layouts at a fraction of the memory bandwidth, and every call has an overhead. The extension
transposes in registers, and copies all tensors of a list in one call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from ..._core import torch_private
from ..tracing import is_tracing
from ..write_tracking import count_write
from .linear import is_float32_cpu, kernels

_MIN_SIZE = 2**14
"""Size of a single tensor below which torch is as fast."""


def can_relayout(x: torch.Tensor) -> bool:
    """Return True if the extension supports a tensor in the usual layout, which differs in channels_last."""
    return (
        x.dim() == 4
        and x.is_contiguous()  # first: most data is in channels_last
        and x.shape[1] > 1
        and x.shape[2] * x.shape[3] > 1
        and x.shape[0] > 0
        and is_float32_cpu(x)
        and hasattr(kernels(), "change_layouts")
    )


def in_channels_last(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor in channels_last, copied by the faster library unless it has this layout.

    Shape:
        x, returns: (N, C, H, W).
    """
    is_recorded = x.requires_grad and torch.is_grad_enabled()
    if (
        x.numel() < _MIN_SIZE
        or is_recorded
        or not can_relayout(x)
        or torch_private.is_transformed(x)
        or is_tracing()
    ):
        return x.contiguous(memory_format=torch.channels_last)
    return to_channels_last([x])[0]


def to_channels_last(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return copies in channels_last of tensors for which `can_relayout` is true.

    Shape:
        tensors, returns: (N, C, H, W) each.
    """
    copies = [torch.empty_like(x, memory_format=torch.channels_last) for x in tensors]
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
