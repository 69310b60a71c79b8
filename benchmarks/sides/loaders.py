"""Batches of small and of large tensors from worker processes to the trainer.

Run as ``python -m benchmarks.sides.loaders SYSTEM``, one of `SYSTEMS`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from dpmodule import streams

from ..processes import cpu_s
from .serve import limit_threads, serve

__all__ = ["CASES", "SYSTEMS", "prepare"]

READY = 2
"""Number of batches of a worker that may be ready, as torch's `prefetch_factor`."""


class Repeated(Dataset[Any]):
    """The same few items again and again, so that making them costs nothing."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> Any:
        return self._items[index % len(self._items)]


def _target(draw: np.random.RandomState, varies: bool) -> dict[str, torch.Tensor]:
    objects = draw.randint(1, 20) if varies else 8
    height, width = draw.randint(48, 80, size=2) if varies else (64, 64)
    return {
        "image": torch.rand(3, height, width),
        "boxes": torch.rand(objects, 4),
        "labels": torch.ones(objects, dtype=torch.long),
        "masks": torch.zeros(objects, height // 2, width // 2, dtype=torch.uint8),
        "area": torch.rand(objects),
        "iscrowd": torch.zeros(objects, dtype=torch.uint8),
        "image_id": torch.tensor(7),
    }


def _detection(varies: bool) -> Repeated:
    draw = np.random.RandomState(0)
    return Repeated([[_target(draw, varies) for _ in range(16)] for _ in range(8)])


def _same(batch: Any) -> Any:
    return batch


_WHOLE = {"batch_size": None, "collate_fn": _same}

CASES: dict[str, tuple[Callable[[], Repeated], dict[str, Any]]] = {
    "images": (
        lambda: Repeated([torch.full((3, 224, 224), k, dtype=torch.uint8) for k in range(64)]),
        {"batch_size": 64},
    ),
    "detection": (lambda: _detection(False), _WHOLE),
    "detection, varying": (lambda: _detection(True), _WHOLE),
    "dict of 100": (lambda: Repeated([{f"key {k}": torch.rand(8, 16) for k in range(100)}]), _WHOLE),
    "strings and ints": (
        lambda: Repeated([[(f"the text of example {k}", k, [k, k + 1]) for k in range(64)]]),
        _WHOLE,
    ),
    "tiny": (lambda: Repeated([torch.rand(8, 16)]), _WHOLE),
}
"""By name: a function that makes a dataset, and options of the loader."""


def _loader(kind: type[DataLoader[Any]], case: str, workers: int) -> Iterator[Any]:
    make, options = CASES[case]
    torch.manual_seed(0)
    return iter(kind(make(), num_workers=workers, prefetch_factor=READY, **options))


def _batches(case: str) -> Iterator[Any]:
    """Make batches in this process, forever."""
    make, options = CASES[case]
    torch.manual_seed(0)
    return iter(DataLoader(make(), **options))


def _spdl(case: str, workers: int) -> Iterator[Any]:
    from spdl.pipeline import iterate_in_subprocess  # type: ignore[import-not-found]

    sources = [
        iter(iterate_in_subprocess(partial(_batches, case), buffer_size=READY)) for _ in range(workers)
    ]
    while True:
        yield from map(next, sources)


_AGAIN_S = 0.01
"""faster-fifo misses some wake-ups: both sides look again after this time."""


def _put(case: str, queue: Any) -> None:
    from faster_fifo import Full  # type: ignore[import-not-found]

    torch.set_num_threads(1)
    for batch in _batches(case):
        is_sent = False
        while not is_sent:
            with contextlib.suppress(Full):
                queue.put(batch, timeout=_AGAIN_S)
                is_sent = True


def _get(queue: Any) -> Any:
    from faster_fifo import Empty

    while True:
        with contextlib.suppress(Empty):
            return queue.get(timeout=_AGAIN_S)


def _faster_fifo(case: str, workers: int) -> Iterator[Any]:
    import faster_fifo

    size = 24 << 20 if case == "images" else 4 << 20
    fork = multiprocessing.get_context("fork")
    queues = [faster_fifo.Queue(size, loads=pickle.loads, dumps=pickle.dumps) for _ in range(workers)]
    started = [fork.Process(target=_put, args=(case, queue), daemon=True) for queue in queues]
    for process in started:
        process.start()
    try:
        while True:
            yield from map(_get, queues)
    finally:
        for process in started:
            process.kill()
            process.join()


SYSTEMS: dict[str, Callable[[str, int], Iterator[Any]]] = {
    "ours": partial(_loader, streams.DataLoader),
    "torch": partial(_loader, DataLoader),
    "spdl": _spdl,
    "faster_fifo": _faster_fifo,
}


class Feed:
    """A system that hands over the batches of a case."""

    def __init__(self, system: str) -> None:
        self._make = SYSTEMS[system]
        self._batches: Iterator[Any] = iter(())

    def start(self, case: str, workers: int) -> dict[str, Any]:
        """Start the workers, and return the sum of all numbers of the first batch."""
        self.stop()
        try:
            self._batches = self._make(case, workers)
            first = next(self._batches)
        except ImportError as error:
            return {"why": str(error)}
        for _ in range(4 * workers):
            next(self._batches)
        return {"sum": _sum(first)}

    def measure(self, seconds: float) -> dict[str, float]:
        """Return milliseconds of a batch: wall time, and CPU time of all processes."""
        count, cpu, begin = 0, cpu_s(os.getpid()), time.perf_counter()
        while time.perf_counter() - begin < seconds:
            next(self._batches)
            count += 1
        wall = time.perf_counter() - begin
        return {"wall": wall * 1e3 / count, "cpu": (cpu_s(os.getpid()) - cpu) * 1e3 / count}

    def stop(self) -> None:
        """End the workers."""
        self._batches = iter(())


def _sum(item: Any) -> float:
    if isinstance(item, torch.Tensor):
        return float(item.double().sum())
    if isinstance(item, dict):
        return sum(map(_sum, item.values()))
    if isinstance(item, (list, tuple)):
        return sum(map(_sum, item))
    return float(len(item) if isinstance(item, str) else item)


def prepare() -> dict[str, Callable[..., Any]]:
    """Return the answers."""
    limit_threads(torch)
    feed = Feed(sys.argv[1])
    return {"start": feed.start, "measure": feed.measure, "stop": feed.stop}


if __name__ == "__main__":
    serve(prepare)
