"""The optional C++ extension, loaded on first use, or the reason why it is missing."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import threading
from types import ModuleType
from typing import Any

from .._core import lazy
from ..base import ArgumentError

__all__ = ["available", "core", "error", "include", "report"]

lazy.publish(__name__, __all__)

core: ModuleType | None
"""The extension; None if it is missing or ``DPMODULE_NATIVE=0`` is set."""

error: str | None
"""Reason why there is no extension; None if there is one."""

_MODULE: Any = sys.modules[__name__]
_LOADING = threading.RLock()
_reported = False


def _load() -> tuple[ModuleType | None, str | None]:
    if os.environ.get("DPMODULE_NATIVE", "1") == "0":
        return None, "switched off by DPMODULE_NATIVE=0"
    limit = os.environ.get("DPMODULE_ISA", "avx512")
    if limit not in ("plain", "avx2", "avx512"):
        raise ArgumentError(f"DPMODULE_ISA is {limit!r}, expected plain, avx2 or avx512")
    folder = os.path.dirname(__file__)
    is_source_tree = os.path.exists(os.path.join(folder, "module.cpp"))
    try:
        spec = importlib.util.find_spec("dpmodule._native")
        path = "" if spec is None else spec.origin or ""
        if is_source_tree and os.path.dirname(path) != os.path.dirname(folder):
            installed: Any = importlib.import_module("dpmodule.native.installed")
            loaded: tuple[ModuleType | None, str | None] = installed.extension(path)
            return loaded
        return importlib.import_module("dpmodule._native"), None
    except (ImportError, OSError) as failure:
        command = "pip install --no-cache-dir --no-deps --force-reinstall --no-binary dpmodule dpmodule"
        return None, f"{failure}; install a C++17 compiler and run: {command}"


def _load_attribute(name: str) -> Any:
    """Return `core` or `error` on first use; from then on they are ordinary attributes."""
    if name not in ("core", "error"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    names = vars(_MODULE)
    with _LOADING:  # another thread must not see a half-loaded module
        if name not in names:
            for attribute, value in zip(("core", "error"), _load()):
                names.setdefault(attribute, value)
            names.pop("__getattr__", None)  # with it, lookup of the other attributes takes twice as long
    return names[name]


_MODULE.__getattr__ = _load_attribute
for _name in ("core", "error"):
    vars(_MODULE).pop(_name, None)  # reloading this module looks for the extension again


def available() -> bool:
    """Return True if the extension is in use."""
    return _MODULE.core is not None


def include() -> str:
    """Return the folder of the C++ headers, for compiling your own functors."""
    return os.path.join(os.path.dirname(__file__), "include")


def report() -> None:
    """Log, once per process, that the extension is missing, why, and how to get it.

    Slower Python replacements call this when they are used. The level is INFO if the extension was switched off, else
    WARNING.
    """
    global _reported
    if _reported or available():
        return
    _reported = True
    switched_off = os.environ.get("DPMODULE_NATIVE", "1") == "0"
    level = logging.INFO if switched_off else logging.WARNING
    logging.getLogger("dpmodule").log(
        level, "work is done in Python, slower, without the native extension: %s", _MODULE.error
    )
