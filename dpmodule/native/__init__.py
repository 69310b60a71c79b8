"""The optional extension in C++: whether it is here, and if not, why. It is loaded when somebody first asks."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import threading
from types import ModuleType
from typing import Any

from .._core import lazy

__all__ = ["available", "core", "error", "include", "report"]

lazy.publish(__name__, __all__)

core: ModuleType | None
"""The extension, None where there is none or ``DPMODULE_NATIVE=0`` is set."""

error: str | None
"""Why there is no extension."""

_HERE: Any = sys.modules[__name__]
_LOADING = threading.RLock()
_reported = False


def _load() -> tuple[ModuleType | None, str | None]:
    if os.environ.get("DPMODULE_NATIVE", "1") == "0":
        return None, "switched off by DPMODULE_NATIVE=0"
    folder = os.path.dirname(__file__)
    is_source_tree = os.path.exists(os.path.join(folder, "module.cpp"))
    try:
        spec = importlib.util.find_spec("dpmodule._native")
        found = "" if spec is None else spec.origin or ""
        if is_source_tree and os.path.dirname(found) != os.path.dirname(folder):
            answer: tuple[ModuleType | None, str | None] = importlib.import_module(
                "dpmodule.native.installed"
            ).extension(found)
            return answer
        return importlib.import_module("dpmodule._native"), None
    except (ImportError, OSError) as failure:
        again = "pip install --no-cache-dir --no-deps --force-reinstall dpmodule"
        return None, f"{failure}; install a C++17 compiler and run: {again}"


def _found(name: str) -> Any:
    """Return `core` or `error` for the first one who asks; from then on they are attributes like others."""
    if name not in ("core", "error"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    names = vars(_HERE)
    with _LOADING:  # a thread that looks while another one loads finds half a module
        if name not in names:
            for each, value in zip(("core", "error"), _load()):
                names.setdefault(each, value)
            names.pop("__getattr__", None)  # with it Python takes twice as long to find the others
    return names[name]


_HERE.__getattr__ = _found
for _name in ("core", "error"):
    vars(_HERE).pop(_name, None)  # whoever loads this module again looks again


def available() -> bool:
    """Say whether the extension is in use."""
    return _HERE.core is not None


def include() -> str:
    """Return the folder of the C++ headers, for programs that compile functors of their own."""
    return os.path.join(os.path.dirname(__file__), "include")


def report() -> None:
    """Say in the log, once per process, if work is done without the extension: why, and how to get it.

    Whoever has a slower stand-in calls this when it is used. If the extension was switched off, the line's level is
    INFO.
    """
    global _reported
    if _reported or available():
        return
    _reported = True
    switched_off = os.environ.get("DPMODULE_NATIVE", "1") == "0"
    level = logging.INFO if switched_off else logging.WARNING
    logging.getLogger("dpmodule").log(
        level, "work is done in Python, slower, without the native extension: %s", _HERE.error
    )
