"""Show the tests of each difference below it, from `tests/data/differences.json`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["setup", "with_tests"]

ITEM = re.compile(r"^- .+(?:\n  .+)*", re.MULTILINE)


def with_tests(text: str, rows: Mapping[str, Sequence[str]]) -> str:
    """Return a page with the names of tests below each list item, opened by a click.

    Args:
        text: the page.
        rows: the tests by the first words of the item's text, as one line.
    """

    def shown(item: re.Match[str]) -> str:
        words = " ".join(item[0].removeprefix("- ").split())
        names = [name for row, tests in rows.items() if words.startswith(row) for name in tests]
        lines = "<br>".join(f"<code>{escape(name)}</code>" for name in names)
        return f"{item[0]}\n  <details><summary>tests</summary>{lines}</details>"

    return ITEM.sub(shown, text)


def add_tests(app: Sphinx, docname: str, source: list[str]) -> None:
    """Add tests to a page of differences."""
    if docname.startswith("differences/"):
        file = Path(app.srcdir).parent / "tests" / "data" / "differences.json"
        source[0] = with_tests(source[0], json.loads(file.read_text(encoding="utf-8")))
        app.env.note_dependency(str(file))


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect this to Sphinx."""
    app.connect("source-read", add_tests)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
