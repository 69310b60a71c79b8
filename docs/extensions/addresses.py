"""Addresses that are out stay: a warning for each of `docs/addresses.txt` that the site neither has nor leads on from.

A line of the file has a page, and the anchors of its headings. With a release go those that are new since the last one,
which the built site has::

    python docs/extensions/addresses.py build/docs

Names of the reference are not among them: `tests/data/public_names.json` holds those.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["gone", "on_site", "read", "setup", "written"]

FILE = Path(__file__).resolve().parents[1] / "addresses.txt"
MADE = re.compile(r"_|genindex|py-modindex|search")
"""How the names of pages begin that Sphinx makes by itself."""
FREE = {"changelog.html", "results.html", "results_tables.html"}
"""Pages whose headings come and go with what they tell of."""
HEADING = re.compile(r'<section id="([^"]+)"')
NUMBERED = re.compile(r"id\d+")
"""An anchor that Sphinx counts through, since the heading gives none, or one that is taken."""
MOVED = re.compile(r'http-equiv="refresh" content="0; url=([^"]+)"')


def read(file: Path) -> dict[str, list[str]]:
    """Return the anchors of each page that is out; "#" at the beginning of a line is a remark."""
    lines = file.read_text(encoding="utf-8").splitlines()
    words = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    return {page: anchors for page, *anchors in words}


def on_site(folder: Path) -> dict[str, list[str]]:
    """Return the anchors of each page of a built site, without pages that only lead on."""
    found = {}
    for file in sorted(folder.rglob("*.html")):
        page, text = file.relative_to(folder).as_posix(), file.read_text(encoding="utf-8")
        if not MADE.match(page) and not MOVED.search(text):
            anchors = [] if page in FREE else HEADING.findall(text)
            found[page] = [anchor for anchor in anchors if not NUMBERED.fullmatch(anchor)]
    return found


def gone(folder: Path, known: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield the addresses that a built site neither has nor leads on from, by `docs/redirects.txt`."""
    for page, anchors in known.items():
        file = folder / page
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        if not text:
            yield page
        elif moved := MOVED.search(text):
            file = file.parent / moved[1]
            text = file.read_text(encoding="utf-8") if file.is_file() else ""
        if text:
            # an anchor that has moved stands in the page as '"#anchor": "where"'
            yield from (
                f"{page}#{each}"
                for each in anchors
                if f'id="{each}"' not in text and f'"#{each}"' not in text
            )


def written(known: Mapping[str, list[str]], found: Mapping[str, list[str]]) -> str:
    """Return the file with what a site has, too; nothing that is out is left out."""
    lines = [
        "# Pages and the anchors of their headings that have been out; written by docs/extensions/addresses.py"
    ]
    for page in sorted({*known, *found}):
        anchors = dict.fromkeys([*known.get(page, []), *found.get(page, [])])
        lines.append(" ".join([page, *anchors]))
    return "\n".join(lines) + "\n"


def warn(app: Sphinx, failure: Exception | None) -> None:
    """Warn of what is gone; after `redirects` has written its pages."""
    from sphinx.util import logging  # whose warnings are errors under -W; the rest does without Sphinx

    if failure is None and app.builder.format == "html":
        for address in gone(Path(app.outdir), read(FILE)):
            logging.getLogger(__name__).warning(
                "%s has been out and is gone: a line of docs/redirects.txt has to say where to", address
            )


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect this to Sphinx."""
    app.connect("build-finished", warn, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    FILE.write_text(
        written(read(FILE) if FILE.exists() else {}, on_site(Path(sys.argv[1]))), encoding="utf-8"
    )
