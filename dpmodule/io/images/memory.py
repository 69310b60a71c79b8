"""Memory of batches, used again when nobody holds a batch that lay there."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch


class BatchMemory:
    """Lend tensors of one shape; the system would have to clear new memory for each, which takes as long as decoding.

    Args:
        shape: shape of the tensors.
        most: how many tensors' memory is kept while nobody holds one.
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, most: int) -> None:
        self._shape, self._dtype, self._most = shape, dtype, most
        self._free: list[np.ndarray[Any, Any]] = []

    def lend(self) -> torch.Tensor:
        """Return a tensor that holds anything. Its memory comes back when it and all its views are gone."""
        try:
            block = self._free.pop()
        except IndexError:
            block = torch.empty(self._shape, dtype=self._dtype).numpy()
        lent = block.view()  # tensors keep this one alive, whatever shares their memory
        weakref.finalize(lent, _take_back, self._free, block, self._most).atexit = False
        return torch.from_numpy(lent)


def _take_back(free: list[np.ndarray[Any, Any]], block: np.ndarray[Any, Any], most: int) -> None:
    if len(free) < most:
        free.append(block)
