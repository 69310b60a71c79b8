"""One side of a run: plain `fit`, `fit` that saves, clips and checks gradients, and accumulated gradients.

Run as ``python -m benchmarks.sides.runs WORKLOAD BATCHES KIND``, KIND one of `KINDS`.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import dpmodule as mx

from ..workloads import WORKLOADS
from .module import Trainer, load
from .serve import Clock, serve

__all__ = ["CLIP", "EVERY", "KINDS", "TIMES", "Run"]

EVERY = 50
"""Number of batches between two saves."""

CLIP = 1.0
"""Greatest length of all gradients together."""

TIMES = 4
"""Number of batches that are added up."""

KINDS = ("plain", "safe", "accumulated", "whole")
"""Ways to train: as it is; saved, clipped and looked at; batches added up; and one batch in place of these."""


class Run:
    """A module that is trained in one of these ways, an epoch at a time.

    Args:
        workload: name of the workload.
        batches: batches in an epoch, of the workload's size.
        kind: the way.
    """

    def __init__(self, workload: str, batches: int, kind: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._kind, self._batches, self._epochs = kind, batches, 0
        known = WORKLOADS[workload]
        if kind == "whole":
            known = replace(known, batch_size=TIMES * known.batch_size)
        self.trainer = Trainer(mx, known, batches // TIMES if kind == "whole" else batches)

    def _options(self, clip: float) -> dict[str, Any]:
        if self._kind == "accumulated":
            return {"accumulate": TIMES, "on_nonfinite": "ignore"}
        if self._kind != "safe":
            return {"on_nonfinite": "ignore"}
        prefix = Path(self._folder.name, "run")
        checkpoint = mx.callback.Checkpoint(prefix, every_n_epochs=10**6, every_n_batches=EVERY)
        return {"checkpoint": checkpoint, "resume": "auto", "clip_global_norm": clip}

    def fit(self) -> dict[str, float]:
        """Train one epoch and return the time of a batch of the workload's size."""
        begin = self._epochs if self._kind == "safe" else 0
        clock = Clock()
        self.trainer.module.fit(self.trainer.data, num_epoch=begin + 1, **self._options(CLIP))
        self._epochs += 1
        return clock.read(self._batches)

    def check(self, path: str) -> list[float]:
        """Train on a few batches without clipping, and save the parameters as an npz file."""
        data = self.trainer.iterator(2 if self._kind == "whole" else 2 * TIMES)
        self.trainer.module.fit(data, num_epoch=1, **self._options(1e9))
        np.savez(path, **{k: v.asnumpy() for k, v in self.trainer.module.get_params()[0].items()})
        return []


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    load("dpmodule")
    run = Run(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    return {"fit": run.fit, "check": run.check}


if __name__ == "__main__":
    serve(prepare)
