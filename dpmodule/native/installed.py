"""Extension of an installed package, used by a source tree that has none.

Python imports the package from the folder it is started in, so ``python -m dpmodule`` in a checkout does not run what
``pip install .`` has installed. The tree uses the installed extension if that was built from the same C++ sources.
``setup.py`` runs this file, so it imports the standard library alone.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

_NAME = "dpmodule._native"


def fingerprint(folder: Path) -> str:
    """Return the hash of the C++ files below a folder, 64 hexadecimal digits, which ``setup.py`` builds in."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in ("*.cpp", "*.hpp", "*.h") for path in folder.rglob(pattern)):
        digest.update(f"{path.relative_to(folder).as_posix()}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def extension(imported: str = "") -> tuple[ModuleType | None, str | None]:
    """Return the extension of an installed package, or None and the reason why this source tree cannot use one.

    Args:
        imported: path of the extension that Python's import finds, in an editable installation of another tree.
    """
    native = Path(__file__).parent
    root = native.parents[1]
    reason = f"Python runs the source tree {root}, in which no extension was built"
    build = "to build one there, install a C++17 compiler and run: pip install -e ."
    path = Path(imported) if imported else _path(root)
    if path is None:
        return None, f"{reason}, and no package with one is installed; {build}"
    if fingerprint(native).encode() not in path.read_bytes():
        other = "to use the installed package, start Python in another folder"
        return None, f"{reason}, and {path} was built from other sources; {other}; {build}"
    return _load(path), None


def _path(root: Path) -> Path | None:
    """Return the extension in a folder of `sys.path` other than the root of the source tree."""
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
        raise ImportError(f"{path} is not an extension of this Python")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[_NAME] = module
    return module
