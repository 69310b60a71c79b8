"""Warn about searches of the site that do not find the page of `docs/searches.txt` first.

A line has a query, a colon and a page. A page comes first if it has the query as its main index entry::

    ```{index} ! learning rate
    ```
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["first", "read", "setup"]


def read(file: Path) -> dict[str, str]:
    """Return the expected pages by query."""
    lines = (line.partition(":") for line in file.read_text(encoding="utf-8").splitlines() if line.strip())
    return {query.strip(): page.strip() for query, _, page in lines}


def first(index: Mapping[str, Any], query: str) -> str:
    """Return the page that a search lists first, by the scores of Sphinx's searchtools.js.

    Single words of the text score lower than all of these, and are ignored.
    """
    scored = [*_titles(index, query), *_entries(index, query), *_objects(index, query), (0.0, "")]
    return max(scored)[1]


def _titles(index: Mapping[str, Any], query: str) -> Iterator[tuple[float, str]]:
    for title, places in index["alltitles"].items():
        if query in title.lower() and len(query) >= len(title) / 2:
            for file, _ in places:
                is_page = index["titles"][file] == title
                yield round(15 * len(query) / len(title)) + is_page, index["docnames"][file]


def _entries(index: Mapping[str, Any], query: str) -> Iterator[tuple[float, str]]:
    for entry, places in index["indexentries"].items():
        if query in entry and len(query) >= len(entry) / 2:
            for file, _, is_main in places:
                if is_main:
                    yield round(100 * len(query) / len(entry)), index["docnames"][file]


def _objects(index: Mapping[str, Any], query: str) -> Iterator[tuple[float, str]]:
    for prefix, members in index["objects"].items():
        for file, _, priority, _, name in members:
            last = f"{prefix}.{name}".lower().rpartition(".")[2]
            if query in last:
                match = 11 if query == last else 6
                yield match + {0: 15, 1: 5, 2: -5}.get(priority, 0), index["docnames"][file]


def check(app: Sphinx, failure: Exception | None) -> None:
    """Warn about searches that find another page first."""
    from sphinx.util import logging  # whose warnings are errors under -W; the rest does not need Sphinx

    file = Path(app.outdir) / "searchindex.js"
    if failure is not None or app.builder.format != "html" or not file.exists():
        return
    text = file.read_text(encoding="utf-8")
    index = json.loads(text[text.index("(") + 1 : text.rindex(")")])
    for query, page in read(Path(app.srcdir) / "searches.txt").items():
        first_page = first(index, query)
        if first_page != page:
            logging.getLogger(__name__).warning(
                "a search for %r finds %s first, not %s: give that page the index entry",
                query,
                first_page,
                page,
            )


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect this to Sphinx."""
    app.connect("build-finished", check, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
