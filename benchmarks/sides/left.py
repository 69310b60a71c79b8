"""An exported network: `Module.to_torch` with or without `torch.compile`.

Run as ``python -m benchmarks.sides.left WORKLOAD BATCHES [OPTIONS]``; OPTIONS is a JSON object of the arguments of
`torch.compile`, without which nothing is compiled.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import torch

from .module import Trainer, load
from .serve import Clock, serve

__all__ = ["Left"]


class Left:
    """A module of torch on a workload's data.

    Args:
        workload: name of the workload.
        batches: batches in an epoch.
        options: arguments of `torch.compile`; None to not compile.
    """

    def __init__(self, workload: str, batches: int, options: dict[str, Any] | None = None) -> None:
        trainer = Trainer(load("dpmodule"), workload, batches)
        self.count, self.workload = batches, trainer.workload
        self.images = torch.from_numpy(trainer.images[: batches * self.workload.batch_size])
        self.net: Any = trainer.module.to_torch().eval()
        if options is not None:
            self.net = torch.compile(self.net, **options)

    def _outputs(self, batches: int) -> torch.Tensor:
        size = self.workload.batch_size
        with torch.no_grad():
            return torch.cat([self.net(part) for part in self.images[: batches * size].split(size)])

    def check(self, path: str, train: bool = False) -> list[float]:
        """Predict the first batches and save the results.

        Raises:
            ValueError: training is requested.
        """
        if train:
            raise ValueError("an exported network can only predict")
        np.savez(path, predictions=self._outputs(max(1, self.workload.checked)).numpy())
        return []

    def predict(self) -> dict[str, float]:
        """Predict one epoch and return the time of a batch."""
        clock = Clock()
        self._outputs(self.count)
        return clock.read(self.count)


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    workload, batches, *rest = sys.argv[1:]
    side = Left(workload, int(batches), json.loads(rest[0]) if rest else None)
    return {"check": side.check, "predict": side.predict}


if __name__ == "__main__":
    serve(prepare)
