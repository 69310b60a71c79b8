"""Memory for values: one growing tensor for every shape; a batch's result is a slice, and a gather has one source."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ...compat import torch_private
from ..ops.spec import Dim

__all__ = ["Arena", "Pool"]

Tensor = torch.Tensor


class Pool:
    """Memory of the graph before, for the next one: what is new to the process has to be cleared by the system first.

    What the last graph has not used is let go, and what somebody still holds is left to them.
    """

    LIMIT = 1 << 26
    """Bytes that are kept."""

    __slots__ = ("_free",)

    def __init__(self) -> None:
        self._free: dict[Any, Tensor] = {}

    def take(self, key: Any, shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
        """Return a tensor of a shape, or of more rows, with any values.

        Shape:
            returns: `shape`, or more rows.

        Args:
            key: what `refill` was told; belongs to one shape of rows.
            shape: its shape.
            device: where it is.
            dtype: its element type.
        """
        found = self._free.pop(key, None)
        if found is not None and len(found) >= shape[0] and found.dtype is dtype and found.device == device:
            return found
        return torch.empty(shape, device=device, dtype=dtype)

    def refill(self, tensors: Iterable[tuple[Any, Tensor]]) -> None:
        """Keep tensors, by key, in place of those that are here.

        Shape:
            tensors: each (rows, batch, *d).
        """
        self._free = {}
        room = self.LIMIT
        for key, tensor in tensors:
            storage = tensor.untyped_storage()
            room -= storage.nbytes()
            # the tensor and `storage` hold it; on other devices torch keeps freed memory itself
            if room >= 0 and tensor.device.type == "cpu" and torch_private.storage_uses(storage._cdata) == 2:
                self._free[key] = tensor


class Arena:
    """The values of all nodes of one shape.

    Rows are only ever added. When the tensor grows, slices handed out before keep the old one alive, with values that
    stay right because no row is written twice.

    Shape:
        tensor: (rows, batch, *d).

    Args:
        dim: the shape of the nodes.
        device: where the memory is.
        dtype: the element type.
        pool: where memory comes from.
    """

    __slots__ = ("_pool", "device", "dim", "dtype", "tensor", "used")

    def __init__(self, dim: Dim, device: torch.device, dtype: torch.dtype, pool: Pool) -> None:
        self.dim, self.device, self.dtype, self._pool = dim, device, dtype, pool
        self.tensor = torch.empty(0, dim.batch, *dim.d, device=device, dtype=dtype)
        self.used = 0

    def reserve(self, count: int) -> None:
        """Make room for `count` more rows."""
        need = self.used + count
        room = self.tensor.shape[0]
        if need <= room:
            return
        shape = (max(need, 2 * room if room else need), self.dim.batch, *self.dim.d)
        larger = self._pool.take(self.dim, shape, self.device, self.dtype)
        larger[: self.used] = self.tensor[: self.used]
        self.tensor = larger

    def take(self, count: int) -> int:
        """Return the first of `count` new rows, which `reserve` has made room for."""
        first = self.used
        self.used += count
        return first
