"""Softmax of few classes by the native extension.

torch computes rows that do not fill a vector number by number: for ten classes that takes ten times as long, and in
the prediction of a small network a tenth of the time.
"""

from __future__ import annotations

import torch

from ...compat import torch_private
from ..recording import is_recorded
from .small_matmul import is_plain, kernels

_LEAST_ROWS = 4
"""Rows below which torch is as fast."""


def _is_small(data: torch.Tensor) -> bool:
    """Say whether rows are short enough for the kernel, and of nothing that is learned."""
    if is_recorded():  # looked at first, since the sizes may be unknown then
        return False
    return (
        data.dim() == 2
        and data.size(0) >= _LEAST_ROWS
        and 0 < data.size(1) < getattr(kernels(), "vector_width", 0)
        and is_plain(data)
        and data.is_contiguous()
        and not data.requires_grad
        and not torch_private.is_batched(data)
    )


def row_softmax(data: torch.Tensor) -> torch.Tensor:
    """Return ``torch.softmax(data, -1)``.

    Shape:
        data, returns: (..., classes).
    """
    if not _is_small(data):
        return torch.softmax(data, -1)
    result = torch.empty_like(data)
    kernels().softmax(*data.shape, data.data_ptr(), result.data_ptr())
    return result
