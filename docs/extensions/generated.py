"""Pages that scripts write before a build: those of `docs/operators.py` and `docs/tables.py`. git ignores them."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["FOLDERS", "setup"]

FOLDERS = {"operators": "reference/operators", "tables": "reference"}
"""Where the pages of a script belong: its function `write` takes the folder."""


def write(app: Sphinx) -> None:
    """Write all of them; what has not changed is left alone, so that it is not read again."""
    for script, folder in FOLDERS.items():
        importlib.import_module(script).write(Path(app.srcdir) / folder)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect this to Sphinx."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
