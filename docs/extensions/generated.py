"""Generate pages and pictures before a build.

The scripts `operators.py`, `tables.py`, `gallery.py`, `curve.py` and `pictures.py` of `docs/` write them. Notebooks are
copied, since Sphinx reads a single folder. Git ignores all of them except the pictures of `pictures.py`.
"""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["FOLDERS", "setup"]

FOLDERS = {
    "operators": "reference/operators",
    "pictures": "inside",
    "tables": "reference",
    "gallery": ".",
    "curve": ".",
}
"""Folder of each script's output; its function `write` takes the folder."""


def write(app: Sphinx) -> None:
    """Write all of them; unchanged files keep their time, so that Sphinx does not read them again."""
    for script, folder in FOLDERS.items():
        importlib.import_module(script).write(Path(app.srcdir) / folder)
    copies = Path(app.srcdir) / "notebooks"
    shutil.rmtree(copies, ignore_errors=True)
    shutil.copytree(copies.parents[1] / "notebooks", copies, ignore=shutil.ignore_patterns(".*"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect this to Sphinx."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
