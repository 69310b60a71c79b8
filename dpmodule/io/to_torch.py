"""Batches of an iterator as a torch dataset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from ..base import StateError
from .desc import DataDesc


class BatchDataset(IterableDataset[tuple[torch.Tensor, ...]]):
    """The batches of an iterator, as `DataIter.to_torch` returns them."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches
        self._begun = False

    def __iter__(self) -> Iterator[tuple[torch.Tensor, ...]]:
        """Begin an epoch; the first one continues at the current batch of the iterator."""
        if get_worker_info() is not None:
            raise StateError(
                "a dataset made by to_torch() must be read in the process of its iterator; give the DataLoader "
                "num_workers=0, and wrap the iterator in a PrefetchingIter or ProcessPrefetchingIter to read ahead"
            )
        if self._begun:
            self._batches.reset()
        self._begun = True
        return self._epoch()

    def _epoch(self) -> Iterator[tuple[torch.Tensor, ...]]:
        iterator = self._batches
        for batch in iterator:
            data = zip(batch.data or (), batch.provide_data or iterator.provide_data)
            label = zip(batch.label or (), batch.provide_label or iterator.provide_label or ())
            yield tuple(_examples(array, desc, batch.num_padding) for array, desc in (*data, *label))


def _examples(array: Any, desc: Any, padding: int) -> torch.Tensor:
    """Return an array of a batch without its padding rows."""
    tensor: torch.Tensor = array.torch() if hasattr(array, "torch") else torch.as_tensor(array)
    if not padding:
        return tensor
    axis = DataDesc.get_batch_axis(getattr(desc, "layout", None))
    axis = axis if axis < tensor.ndim else 0  # such as labels under "TN"
    return tensor.narrow(axis, 0, tensor.shape[axis] - padding)
