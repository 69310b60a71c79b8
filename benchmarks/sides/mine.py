"""A user's own loader: what making a batch costs, handing it over, and waiting for it.

Run as ``python -m benchmarks.sides.mine MODULE:NAME``: a torch DataLoader, or a function that makes one.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any

from torch.utils.data import DataLoader

from dpmodule import streams

from ..processes import cpu_s
from .serve import serve

__all__ = ["prepare"]

_FIRST = 4
"""Batches that are not measured, as workers start."""


class Mine:
    """The user's loader, as a loader of torch and as one of this package."""

    def __init__(self, place: str) -> None:
        module, _, name = place.partition(":")
        sys.path.insert(0, os.getcwd())
        found = getattr(importlib.import_module(module), name)
        self._loader: DataLoader[Any] = found if isinstance(found, DataLoader) else found()
        if not isinstance(self._loader, DataLoader):
            raise TypeError(
                f"{place} is {self._loader!r}, expected a torch DataLoader, or a function that returns one"
            )

    def _iterate(self, kind: type[DataLoader[Any]], workers: int) -> Iterator[Any]:
        """Yield batches, epoch after epoch."""
        mine = self._loader
        names = signature(DataLoader.__init__).parameters
        options = {name: getattr(mine, name) for name in names if hasattr(mine, name)}
        for name in ("batch_size", "shuffle", "sampler", "drop_last", "batch_sampler", "prefetch_factor"):
            options.pop(name, None)
        is_iterable = hasattr(mine.dataset, "__iter__") and not hasattr(mine.dataset, "__getitem__")
        if mine.batch_sampler is not None and not is_iterable:
            options["batch_sampler"] = mine.batch_sampler
        elif is_iterable:
            options.update(batch_size=mine.batch_size, drop_last=mine.drop_last)
        else:
            options.update(batch_size=None, sampler=mine.sampler)
        if workers:
            # the CPU time of workers that have ended is unknown
            options.update(prefetch_factor=mine.prefetch_factor or 2, persistent_workers=True)
        else:
            options.update(multiprocessing_context=None, timeout=0, persistent_workers=False)
        loader = kind(**{**options, "num_workers": workers})
        while True:
            yield from loader

    def describe(self) -> dict[str, Any]:
        """Return the number of workers."""
        return {"workers": self._loader.num_workers or 2}

    def measure(self, system: str, workers: int, seconds: float) -> dict[str, float]:
        """Return milliseconds of a batch: wall time in the trainer, and CPU time of all processes."""
        batches = self._iterate(DataLoader if system == "torch" else streams.DataLoader, workers)
        for _ in range(_FIRST * max(1, workers)):
            next(batches)
        count, cpu, begin = 0, cpu_s(os.getpid()), time.perf_counter()
        while not count or time.perf_counter() - begin < seconds:
            next(batches)
            count += 1
        wall = time.perf_counter() - begin
        return {"wall": wall * 1e3 / count, "cpu": (cpu_s(os.getpid()) - cpu) * 1e3 / count}


def prepare() -> dict[str, Callable[..., Any]]:
    """Return the answers."""
    mine = Mine(sys.argv[1])
    return {"describe": mine.describe, "measure": mine.measure}


if __name__ == "__main__":
    serve(prepare)
