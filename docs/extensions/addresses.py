"""Warn about published addresses that the site neither has nor redirects, from the list `docs/addresses.txt`.

A line of the file has a page and the anchors of its headings. At a release, add the new addresses of the built site::

    python docs/extensions/addresses.py build/docs

Names of the reference are not listed; `tests/data/public_names.json` has them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["missing", "on_site", "read", "setup", "text_of"]

FILE = Path(__file__).resolve().parents[1] / "addresses.txt"
GENERATED = re.compile(r"_|genindex|py-modindex|search")
"""Beginnings of the names of pages that Sphinx generates."""
CHANGING = {"changelog.html", "results.html", "results_tables.html"}
"""Pages whose headings change with their content."""
HEADING = re.compile(r'<section id="([^"]+)"')
NUMBERED = re.compile(r"id\d+")
"""Numbered anchor of a heading that has no unique anchor."""
REDIRECT = re.compile(r'http-equiv="refresh" content="0; url=([^"]+)"')


def read(file: Path) -> dict[str, list[str]]:
    """Return the anchors of each published page; "#" at the beginning of a line starts a comment."""
    lines = file.read_text(encoding="utf-8").splitlines()
    words = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    return {page: anchors for page, *anchors in words}


def on_site(folder: Path) -> dict[str, list[str]]:
    """Return the anchors of each page of a built site, without redirecting pages."""
    anchors_of = {}
    for file in sorted(folder.rglob("*.html")):
        page, text = file.relative_to(folder).as_posix(), file.read_text(encoding="utf-8")
        if not GENERATED.match(page) and not REDIRECT.search(text):
            anchors = [] if page in CHANGING else HEADING.findall(text)
            anchors_of[page] = [anchor for anchor in anchors if not NUMBERED.fullmatch(anchor)]
    return anchors_of


def missing(folder: Path, known: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield the addresses that a built site neither has nor redirects by `docs/redirects.txt`."""
    for page, anchors in known.items():
        file = folder / page
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        if not text:
            yield page
        elif moved := REDIRECT.search(text):
            file = file.parent / moved[1]
            text = file.read_text(encoding="utf-8") if file.is_file() else ""
        if text:
            # the page contains a moved anchor as '"#anchor": "target"'
            yield from (
                f"{page}#{anchor}"
                for anchor in anchors
                if f'id="{anchor}"' not in text and f'"#{anchor}"' not in text
            )


def text_of(known: Mapping[str, list[str]], on_site: Mapping[str, list[str]]) -> str:
    """Return the text of the file with the addresses of a site added; published addresses remain."""
    lines = [
        "# Pages and the anchors of their headings that have been out; written by docs/extensions/addresses.py"
    ]
    for page in sorted({*known, *on_site}):
        anchors = dict.fromkeys([*known.get(page, []), *on_site.get(page, [])])
        lines.append(" ".join([page, *anchors]))
    return "\n".join(lines) + "\n"


def warn(app: Sphinx, failure: Exception | None) -> None:
    """Warn about missing addresses, after `redirects` has written its pages."""
    from sphinx.util import logging  # whose warnings are errors under -W; the rest does not need Sphinx

    if failure is None and app.builder.format == "html":
        for address in missing(Path(app.outdir), read(FILE)):
            logging.getLogger(__name__).warning(
                "%s has been published and is missing: add a line with the new address to docs/redirects.txt",
                address,
            )


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect this to Sphinx."""
    app.connect("build-finished", warn, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    FILE.write_text(
        text_of(read(FILE) if FILE.exists() else {}, on_site(Path(sys.argv[1]))), encoding="utf-8"
    )
