"""Says with which version of dpmodule a public name came, as `docs/versions.json` has it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["FILE", "Names", "read", "setup", "since"]

FILE = Path(__file__).resolve().parents[1] / "versions.json"

Names = dict[str, set[str]]
"""Names by module, those of a class's members as "Class.member"; "operators" stands for a module, too."""


def read(file: Path = FILE) -> dict[str, Names]:
    """Return what the file says: by version the names that came with it."""
    kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return {
        version: {module: set(" ".join(lines).split()) for module, lines in found.items()}
        for version, found in kept.items()
    }


@cache
def by_name() -> dict[str, str]:
    """Return the version of every name, such as "dpmodule.module.Module.fit" or "operators.FullyConnected"."""
    return {
        f"{module}.{name}": version
        for version, of in read().items()
        for module, found in of.items()
        for name in found
    }


def since(name: str) -> str:
    """Return the version of a name; "" for one that is not public, and for a member that came with its class."""
    found = by_name().get(name, "")
    return "" if found == by_name().get(name.rpartition(".")[0]) else found


def add(app: Sphinx, what: str, name: str, value: object, options: Any, lines: list[str]) -> None:
    """Put the version below a docstring."""
    del app, what, value, options
    if version := since(name):
        lines += ["", f".. versionadded:: {version}", ""]


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect this to Sphinx, behind what reads docstrings."""
    app.connect("autodoc-process-docstring", add, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
