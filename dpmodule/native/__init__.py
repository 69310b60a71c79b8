"""The optional extension in C++: whether it is here, and if not, why."""

from __future__ import annotations

import importlib.util
import logging
import os
from types import ModuleType

from .. import later

__all__ = ["available", "core", "error", "include", "report"]

later.publish(__name__, __all__)

core: ModuleType | None = None
"""The extension, None where there is none or ``DPMODULE_NATIVE=0`` is set."""

error: str | None = None
"""Why there is no extension."""

_reported = False


def _load() -> None:
    global core, error
    if os.environ.get("DPMODULE_NATIVE", "1") == "0":
        error = "switched off by DPMODULE_NATIVE=0"
        return
    folder = os.path.dirname(__file__)
    is_source_tree = os.path.exists(os.path.join(folder, "module.cpp"))
    try:
        spec = importlib.util.find_spec("dpmodule._native")
        found = "" if spec is None else spec.origin or ""
        if is_source_tree and os.path.dirname(found) != os.path.dirname(folder):
            core, error = importlib.import_module("dpmodule.native.installed").extension(found)
        else:
            core = importlib.import_module("dpmodule._native")
    except (ImportError, OSError) as failure:
        again = "pip install --no-cache-dir --no-deps --force-reinstall dpmodule"
        error = f"{failure}; install a C++17 compiler and run: {again}"


def available() -> bool:
    """Say whether the extension is in use."""
    return core is not None


def include() -> str:
    """Return the folder of the C++ headers, for programs that compile functors of their own."""
    return os.path.join(os.path.dirname(__file__), "include")


def report() -> None:
    """Say in the log, once per process, if work is done without the extension: why, and how to get it.

    Whoever has a slower stand-in calls this when it is used. If the extension was switched off, the line's level is
    INFO.
    """
    global _reported
    if _reported or core is not None:
        return
    _reported = True
    switched_off = os.environ.get("DPMODULE_NATIVE", "1") == "0"
    level = logging.INFO if switched_off else logging.WARNING
    logging.getLogger("dpmodule").log(
        level, "streams run in Python, slower, without the native extension: %s", error
    )


_load()
