"""Version of this package, and paths of torch's libraries (`mx.libinfo`)."""

from __future__ import annotations

from pathlib import Path

import torch

from ._core import lazy

__all__ = ["find_include_path", "find_lib_path"]

lazy.publish(__name__, __all__)

__version__ = "0.2.0"


def find_lib_path(prefix: str = "libtorch") -> list[str]:
    """Return the paths of the shared libraries whose file name starts with `prefix`.

    Args:
        prefix: start of the file name; MXNet's own "libmxnet" does not exist here: the result is [].
    """
    folder = Path(torch.__file__).parent / "lib"
    return sorted(str(path) for path in folder.glob(f"{prefix}*") if path.is_file())


def find_include_path() -> str:
    """Return the folder of the C++ headers.

    Example:
        >>> import os
        >>> os.path.isdir(mx.libinfo.find_include_path())
        True
    """
    return str(Path(torch.__file__).parent / "include")
