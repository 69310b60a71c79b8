"""Docstrings are plain text: stars and bars in them are shapes and absolute values, not markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["escaped", "setup"]

CODE = re.compile(r"(`+.+?`+)")
MARKS = re.compile(r"[*|]")


def escaped(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines with stars and bars escaped, except in code: between backticks, and in examples."""
    example = False
    for line in lines:
        example = line.lstrip().startswith(">>>") or (example and bool(line.strip()))
        if example or line.lstrip().startswith("* "):
            yield line
        else:
            yield "".join(
                part if part.startswith("`") else MARKS.sub(r"\\\g<0>", part) for part in CODE.split(line)
            )


def clean(app: Sphinx, what: str, name: str, value: object, options: Any, lines: list[str]) -> None:
    """Escape a docstring, before napoleon reads it."""
    del app, what, name, value, options
    lines[:] = escaped(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect this to Sphinx."""
    app.connect("autodoc-process-docstring", clean, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
