"""Time of `import dpmodule` after torch is imported, and its imports.

Run as ``python -m benchmarks.sides.imports``; a process can measure once.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from .serve import Clock, serve

__all__ = ["home", "measure", "prepare", "torch"]


def measure() -> dict[str, float]:
    """Return the time of the import."""
    importlib.import_module("torch")
    clock = Clock()
    importlib.import_module("dpmodule")
    return clock.read()


def torch() -> dict[str, float]:
    """Return the time of the import of torch."""
    clock = Clock()
    importlib.import_module("torch")
    return clock.read()


def home() -> str | None:
    """Return the file that the import runs first, None if there is no such package."""
    found = importlib.util.find_spec("dpmodule")
    return found and found.origin


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    return {"measure": measure, "home": home, "torch": torch}


if __name__ == "__main__":
    serve(prepare)
