"""Show the version of dpmodule that added a public name, from `docs/versions.json`."""

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
"""Names by module, those of a class's members as "Class.member"; "operators" is listed like a module."""


def read(file: Path = FILE) -> dict[str, Names]:
    """Return the content of the file: the names that each version added."""
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
    """Return the version of a name; "" for a private name, and for a member that was added with its class."""
    version = by_name().get(name, "")
    return "" if version == by_name().get(name.rpartition(".")[0]) else version


def add(app: Sphinx, what: str, name: str, value: object, options: Any, lines: list[str]) -> None:
    """Add the version below a docstring."""
    del app, what, value, options
    if version := since(name):
        lines += ["", f".. versionadded:: {version}", ""]


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect this to Sphinx, after the extensions that read docstrings."""
    app.connect("autodoc-process-docstring", add, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
