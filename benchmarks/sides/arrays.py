"""A library's side of loading a file of arrays: ours, or the package safetensors.

Run as ``python -m benchmarks.sides.arrays LIBRARY``.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import torch

from .serve import Clock, serve

__all__ = ["prepare", "write"]


def write(path: str, count: int, size: int) -> None:
    """Write a file of `count` float32 matrices of `size` times `size`, by the package."""
    tensors = {f"weight{i}": torch.full((size, size), float(i)) for i in range(count)}
    importlib.import_module("safetensors.torch").save_file(tensors, path)


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    torch.set_num_threads(1)
    library = sys.argv[1]
    package = importlib.import_module("dpmodule" if library == "dpmodule" else "safetensors.torch")
    load = package.nd.load if library == "dpmodule" else package.load_file

    def measure(path: str, touch: bool) -> dict[str, float]:
        """Return the time of loading, with `touch` including reading every number, and the sum of all numbers."""
        clock = Clock()
        arrays = load(path)
        values = arrays.values() if touch else ()
        total = sum(float((value.tensor if library == "dpmodule" else value).sum()) for value in values)
        return {**clock.read(), "sum": total}

    return {"measure": measure, "write": write}


if __name__ == "__main__":
    serve(prepare)
