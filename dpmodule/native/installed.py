"""The extension of an installed package, for a source tree in which none was built.

Python takes the package from the folder it is started in, so that ``python -m dpmodule`` in a checkout does not run
what ``pip install .`` has installed. The tree uses the installed extension if that was built from the same C++ sources.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from .sources import fingerprint

_NATIVE = Path(__file__).parent
_NAME = "dpmodule._native"


def extension(found: str = "") -> tuple[ModuleType | None, str | None]:
    """Return the extension of an installed package, or None and the reason why there is none for this source tree.

    Args:
        found: the file of one that Python's import has found, that of an editable installation of another tree.
    """
    root = _NATIVE.parents[1]
    here = f"Python runs the source tree {root}, in which no extension was built"
    build = "to build one there, install a C++17 compiler and run: pip install -e ."
    path = Path(found) if found else _path(root)
    if path is None:
        return None, f"{here}, and no package with one is installed; {build}"
    if fingerprint(_NATIVE).encode() not in path.read_bytes():
        other = "to use the installed package, start Python in another folder"
        return None, f"{here}, and {path} was built from other sources; {other}; {build}"
    return _load(path), None


def _path(root: Path) -> Path | None:
    """Return the file of the extension in a folder of `sys.path` other than the root of the source tree."""
    for folder in sys.path:
        package = Path(folder, "dpmodule")
        if package.parent.resolve() == root:
            continue
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            if (path := package / f"_native{suffix}").is_file():
                return path
    return None


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(_NAME, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no extension of this Python")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[_NAME] = module
    return module
