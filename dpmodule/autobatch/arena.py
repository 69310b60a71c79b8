"""Memory for values: one growing tensor for every shape; a batch's result is a slice, and a gather has one source."""

from __future__ import annotations

import torch

from .ops.spec import Dim

__all__ = ["Arena"]


class Arena:
    """The values of all nodes of one shape.

    Rows are only ever added. When the tensor grows, slices handed out before keep the old one alive, with values that
    stay right because no row is written twice.

    Args:
        dim: the shape of one row is (batch, *d).
        device: where the memory is.
        dtype: the element type.
    """

    __slots__ = ("device", "dim", "dtype", "tensor", "used")

    def __init__(self, dim: Dim, device: torch.device, dtype: torch.dtype) -> None:
        self.dim, self.device, self.dtype = dim, device, dtype
        self.tensor = torch.empty(0, dim.batch, *dim.d, device=device, dtype=dtype)
        self.used = 0

    def reserve(self, count: int) -> None:
        """Make room for `count` more rows."""
        need = self.used + count
        room = self.tensor.shape[0]
        if need <= room:
            return
        shape = (max(need, 2 * room if room else need), self.dim.batch, *self.dim.d)
        larger = torch.empty(shape, device=self.device, dtype=self.dtype)
        larger[: self.used] = self.tensor[: self.used]
        self.tensor = larger

    def take(self, count: int) -> int:
        """Return the first of `count` new rows, which `reserve` has made room for."""
        first = self.used
        self.used += count
        return first
