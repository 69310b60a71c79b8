"""The optional extension in C++: whether it is here, and if not, why."""

from __future__ import annotations

import importlib
import os
from types import ModuleType

__all__ = ["available", "core", "error", "include"]

core: ModuleType | None = None
"""The extension, None where there is none or ``DPMODULE_NATIVE=0`` is set."""

error: str | None = None
"""Why there is no extension."""


def _load() -> None:
    global core, error
    if os.environ.get("DPMODULE_NATIVE", "1") == "0":
        error = "switched off by DPMODULE_NATIVE=0"
        return
    try:
        core = importlib.import_module("dpmodule._native")
    except ImportError as failure:
        error = f"{failure}; install a C++17 compiler and run: pip install --no-cache-dir --force-reinstall dpmodule"


def available() -> bool:
    """Say whether the extension is in use."""
    return core is not None


def include() -> str:
    """Return the folder of the C++ headers, for programs that compile functors of their own."""
    return os.path.join(os.path.dirname(__file__), "include")


_load()
