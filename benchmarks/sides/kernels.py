"""The kernels of dpmodule's programs alone, the programs themselves, and the machine's peak.

Run as ``python -m benchmarks.sides.kernels WORKLOAD BATCHES``; WORKLOAD is "language" for the language model in
buckets.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from typing import Any

import torch

from dpmodule._core import torch_private

from ..kernel_calls import Replay, recorded
from .language import Model
from .module import Trainer, load
from .serve import Clock, serve

__all__ = ["Kernels", "empty_calls", "peak", "prepare"]

EMPTY_CALLS, EMPTY_LOOKS = 500, 5
PRODUCT, REPEATS = 1024, 3
"""Rows and columns of the matrices of the peak measurement, and its number of products."""
LOOKS = 5
"""Number of separate timings of every call."""


class Kernels:
    """The kernels of one program at a time.

    Args:
        model: object with the programs; each returns the milliseconds of a batch.
        batches: number of batches a program runs.

    Attributes:
        alone: calls the kernels of the program that was recorded last.
    """

    alone: Replay

    def __init__(self, model: Any, batches: int) -> None:
        self._model, self._batches = model, batches

    def record(self, program: str, **options: Any) -> dict[str, float]:
        """Record a program in its third run.

        Args:
            program: its name.
            options: its arguments.

        Returns:
            "apart", how far numbers are from those recorded when the calls are made again; "calls" of a batch; its
            floating-point operations, "flops".
        """
        run = partial(getattr(self._model, program), **options)
        for _ in range(2):
            run()
        with recorded() as recording:
            run()
        self.alone = Replay(recording)
        costs = self._model.module.explain(is_train=program != "predict")
        return {
            "apart": self.alone.apart(),
            "calls": len(self.alone.called) / self._batches,
            "flops": costs.flops + costs.backward_flops,
        }

    def replay(self) -> dict[str, float]:
        """Return the milliseconds of a batch's kernels, without what as many empty calls take."""
        self.alone.restore()
        clock = Clock()
        self.alone.run()
        taken, empty = clock.read(self._batches), empty_calls()
        calls = len(self.alone.called) / self._batches
        return {name: taken[name] - calls * empty[name] for name in taken}

    def slowest(self, count: int) -> list[tuple[str, float]]:
        """Return the kernels that take most of the time, and which share of the time of all of them.

        Args:
            count: how many.
        """
        self.alone.restore()
        least = [min(times) for times in zip(*(self.alone.times() for _ in range(LOOKS)))]
        empty = empty_calls()["wall"] / 1e3
        taken: Counter[str] = Counter()
        for name, seconds in zip(self.alone.called, least):
            taken[name] += max(seconds - empty, 0.0)
        return [(name, seconds / taken.total()) for name, seconds in taken.most_common(count)]


def empty_calls() -> dict[str, float]:
    """Return the milliseconds of a call of an operator that has next to nothing to do, the least of some looks."""
    function, number, found = torch.ops.aten.relu_.default, torch.zeros(1), []
    with torch.no_grad():
        for _ in range(EMPTY_LOOKS):
            clock = Clock()
            for _ in range(EMPTY_CALLS):
                function(number)
            found.append(clock.read(EMPTY_CALLS))
    return {name: min(each[name] for each in found) for name in found[0]}


def peak() -> dict[str, float]:
    """Return the milliseconds in which the faster library does 10**9 operations of a large product of matrices."""
    left, right = torch.ones(PRODUCT, PRODUCT), torch.ones(PRODUCT, PRODUCT)
    found = []
    for product in (torch.mm, lambda a, b: torch_private.onednn_linear(a, b, None, "none", [], "")):
        product(left, right)
        clock = Clock()
        for _ in range(REPEATS):
            product(left, right)
        found.append(clock.read(REPEATS))
    return {name: min(each[name] for each in found) * 1e9 / (2 * PRODUCT**3) for name in found[0]}


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    workload, batches = sys.argv[1], int(sys.argv[2])
    mx = load("dpmodule")
    model: Any
    if workload == "language":
        model, batches = Model(mx, "unrolled", batches), 1 + batches  # one that is not timed goes before
        model.start()
    else:
        model = Trainer(mx, workload, batches)
    kernels = Kernels(model, batches)
    programs = {name: getattr(model, name) for name in ("fit", "predict", "step") if hasattr(model, name)}
    own = {"record": kernels.record, "replay": kernels.replay, "slowest": kernels.slowest, "peak": peak}
    return {**programs, **own}


if __name__ == "__main__":
    serve(prepare)
