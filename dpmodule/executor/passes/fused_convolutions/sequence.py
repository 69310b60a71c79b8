"""A convolution over sequences as a product, where it is faster than the kernels for images and than torch's.

With channels innermost in memory, a window is a row of a matrix whose rows overlap, so nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from ...._core import torch_private
from ....ops.nn.linear import FEW_ROWS, dense, is_float32_cpu, pack_for, packs_well
from ...packed_weights import packed

_MAX_COPIED = 2**16
"""Size of data up to which any filters pay for moving its channels."""
_MAX_PLAIN, _FEW_SAMPLES = 20480, 16
"""Size of a single sample, and number of samples for windows of one element, up to which torch runs without oneDNN, and
therefore faster."""
_MAX_KNOWN = 64
_MIN_PRODUCTS = 192
"""Multiplications for each number from which they do for larger data."""


def _pays(data: torch.Tensor, filters: int, width: int, step: int) -> bool:
    """Return True if channels are innermost in memory, or a convolution is worth a copy in which they are."""
    is_moved = data.stride(1) == 1 or data.shape[1] == 1
    return is_moved or data.numel() <= _MAX_COPIED or filters * width >= _MIN_PRODUCTS * step


class SequenceConvolution:
    """A convolution in one dimension, without groups and dilation, and an optional relu.

    Shape:
        data: (N, C, W), in any layout.
        weight: (F, C, kernel width).
        bias: (F,).
        returns: (N, F, W'), with channels innermost in memory if it is computed as a product.
    """

    def __init__(
        self,
        a: Any,
        function: Callable[..., torch.Tensor],
        relu: Callable[[torch.Tensor], torch.Tensor] | None,
    ) -> None:
        self._width, self._step, self._pad = a.kernel[0], (a.stride or (1,))[0], (a.pad or (0,))[0]
        self._activation = "" if relu is None else "relu"
        self._function = function
        if relu is not None:
            self._function = lambda *given: relu(function(*given))
        self._known: dict[tuple[object, ...], bool] = {}

    def __call__(
        self, data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the result."""
        given = (data, weight) if bias is None else (data, weight, bias)
        sizes = data.shape, data.stride(), weight.shape
        is_faster = self._known.get(sizes)
        if is_faster is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            is_faster = self._known[sizes] = self._is_faster(data, weight)
        if (
            not is_faster
            or torch.is_grad_enabled()
            or not all(map(is_float32_cpu, given))
            or torch_private.is_transformed(*given)
        ):
            return self._function(*given)
        x = F.pad(data.transpose(1, 2), (0, 0, self._pad, self._pad)) if self._pad else data.transpose(1, 2)
        x = x.contiguous()
        samples, filters, depth = len(x), weight.shape[0], weight[0].numel()
        rows = (x.shape[1] - self._width) // self._step + 1
        windows = x.as_strided((samples, rows, depth), (x.stride(0), self._step * x.shape[2], 1))

        def make() -> list[torch.Tensor]:
            return [pack_for(rows, weight.transpose(1, 2).reshape(filters, depth))]

        packs = packed("windows", [weight], make, rows > FEW_ROWS) or make()
        bias = None if bias is None else bias.contiguous()
        return dense(windows, [((filters, depth), packs[0], bias, self._activation)]).transpose(1, 2)

    def _is_faster(self, data: torch.Tensor, weight: torch.Tensor) -> bool:
        """Return True if the kernel supports the sizes, and is faster than torch's."""
        if data.dim() != 3 or weight.dim() != 3 or data.shape[1] != weight.shape[1] or not data.numel():
            return False
        rows = (data.shape[2] + 2 * self._pad - self._width) // self._step + 1
        if rows < 1:
            return False
        filters, depth = weight.shape[0], weight.shape[1] * weight.shape[2]
        if len(data) == 1 and data.numel() <= _MAX_PLAIN:
            return False
        if self._width == self._step == 1 and len(data) < _FEW_SAMPLES:
            return False
        return _pays(data, filters, self._width, self._step) and packs_well(rows, filters, depth)
