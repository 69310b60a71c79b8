"""Batches that two processes prepare ahead: ours, or torch's DataLoader.

Run as ``python -m benchmarks.sides.feeds SYSTEM BATCHES``, one of `SYSTEMS`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils import data

import dpmodule as mx

from .serve import Clock, serve

__all__ = ["SYSTEMS", "prepare"]

WORKERS, READY = 2, 3
BATCH, SHAPE = 64, (3, 64, 64)
STORED = 4
"""Number of batches of images; the work on them is light, so that feeding dominates."""


class Images(data.Dataset[tuple[torch.Tensor, float]]):
    """Images of bytes, which are read as numbers from 0 to 1, repeated to the number of examples."""

    def __init__(self, count: int) -> None:
        self.count = count
        pixels = np.arange(STORED * BATCH * int(np.prod(SHAPE))) // 64 % 251
        self._pixels = pixels.astype(np.uint8).reshape(STORED * BATCH, *SHAPE)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, float]:
        pixels = self._pixels[index % len(self._pixels)]
        return torch.from_numpy(np.multiply(pixels, 1 / 255, dtype=np.float32)), float(index % 10)

    def batch(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a batch, computed immediately."""
        first = number % STORED * BATCH
        images = np.multiply(self._pixels[first : first + BATCH], 1 / 255, dtype=np.float32)
        labels = np.arange(number * BATCH, (number + 1) * BATCH) % 10
        return torch.from_numpy(images), torch.from_numpy(labels.astype(np.float32))


class Reader(mx.io.DataIter):
    """Every n-th batch as an iterator of this package."""

    def __init__(self, batches: int, part_index: int, num_parts: int) -> None:
        super().__init__(BATCH)
        self._images, self._batches = Images(batches * BATCH), range(part_index, batches, num_parts)
        self.provide_data = [mx.io.DataDesc("data", (BATCH, *SHAPE))]
        self.provide_label = [mx.io.DataDesc("softmax_label", (BATCH,))]
        self.reset()

    def reset(self) -> None:
        """Begin again."""
        self._next = iter(self._batches)

    def next(self) -> Any:
        """Return the next batch."""
        tensors = self._images.batch(next(self._next))
        images, labels = (mx.nd.from_dlpack(tensor) for tensor in tensors)
        return mx.io.DataBatch([images], [labels], pad=0)


class Batches(data.IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    """Every n-th batch for torch's DataLoader."""

    def __init__(self, batches: int) -> None:
        self._images, self._count = Images(batches * BATCH), batches

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        worker = data.get_worker_info()
        if worker is None:
            raise SystemExit("a loader without workers is not what is measured")
        for number in range(worker.id, self._count, worker.num_workers):
            yield self._images.batch(number)


def _loader(dataset: Any, batch_size: int | None) -> Any:
    return data.DataLoader(
        dataset,
        batch_size,
        num_workers=WORKERS,
        prefetch_factor=READY,
        persistent_workers=True,
        multiprocessing_context="fork",
    )


def iterator(batches: int) -> Any:
    """Return a `ProcessPrefetchingIter` of whole batches."""
    factory = partial(Reader, batches)
    return mx.io.ProcessPrefetchingIter(factory, WORKERS, slots=READY, start_method="fork")


def loader_iterator(batches: int) -> Any:
    """Return a `DataLoaderIter` of examples."""
    return mx.io.DataLoaderIter(
        Images(batches * BATCH),
        batch_size=BATCH,
        num_workers=WORKERS,
        slots=READY,
        start_method="fork",
    )


SYSTEMS: dict[str, tuple[Callable[[int], Any], bool]] = {
    "batches-ours": (iterator, True),
    "batches-torch": (lambda batches: _loader(Batches(batches), None), False),
    "examples-ours": (loader_iterator, True),
    "examples-torch": (lambda batches: _loader(Images(batches * BATCH), BATCH), False),
}
"""Constructors of the systems, and True for iterators of this package."""


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    torch.set_num_threads(1)
    make, is_ours = SYSTEMS[sys.argv[1]]
    count = int(sys.argv[2])
    source = make(count)

    def tensors() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for batch in source:
            yield (batch.data[0].torch(), batch.label[0].torch()) if is_ours else batch

    def check() -> list[float]:
        found = [float(images.sum()) + float(labels.sum()) for images, labels in tensors()]
        return [len(found), round(sum(found))]

    def epoch() -> dict[str, float]:
        clock = Clock()
        if is_ours:
            source.reset()
        received = sum(1 for _ in source)
        if received != count:
            raise SystemExit(f"{received} of {count} batches came")
        return clock.read(count)

    return {"check": check, "epoch": epoch}


if __name__ == "__main__":
    serve(prepare)
