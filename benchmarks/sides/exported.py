"""ONNX Runtime's side of prediction, from the file that dpmodule has written.

Run as ``python -m benchmarks.sides.exported WORKLOAD BATCHES``, under an interpreter that has ONNX Runtime; it needs
neither torch nor dpmodule.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import numpy as np

from ..settings import OWN_THREADS
from ..workloads import WORKLOADS, examples
from .serve import Clock, serve

__all__ = ["Exported", "prepare"]


class Exported:
    """A file on a workload's data.

    Args:
        workload: name of the workload.
        batches: batches in an epoch.
    """

    def __init__(self, workload: str, batches: int) -> None:
        self.workload, self.count = WORKLOADS[workload], batches
        self.images, _ = examples(self.workload, batches)
        self._session: Any = None

    def load(self, path: str) -> None:
        """Read the file."""
        onnxruntime = importlib.import_module("onnxruntime")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        if os.environ.get(OWN_THREADS) != "default":
            options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._name = self._session.get_inputs()[0].name

    def _outputs(self, batches: int) -> np.ndarray:
        size = self.workload.batch_size
        starts = range(0, batches * size, size)
        parts = [self._session.run(None, {self._name: self.images[at : at + size]})[0] for at in starts]
        return np.concatenate(parts)

    def check(self, path: str) -> list[float]:
        """Predict the first batches and save the results."""
        np.savez(path, predictions=self._outputs(max(1, self.workload.checked)))
        return []

    def predict(self) -> dict[str, float]:
        """Predict one epoch and return the time of a batch."""
        clock = Clock()
        self._outputs(self.count)
        return clock.read(self.count)


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    side = Exported(sys.argv[1], int(sys.argv[2]))
    return {"load": side.load, "check": side.check, "predict": side.predict}


if __name__ == "__main__":
    serve(prepare)
