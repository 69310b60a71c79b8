"""Addresses that were out once stay: `docs/redirects.txt` says where a page has gone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["read", "setup"]

PAGE = """<!doctype html>
<meta charset="utf-8">
<title>{new}</title>
<link rel="canonical" href="{new}">
<meta http-equiv="refresh" content="0; url={new}">
<script>location.replace("{new}" + location.hash)</script>
<a href="{new}">{new}</a>
"""
"""The script keeps the anchor, which a refresh loses; without scripts the top of the page opens."""


def read(file: Path) -> dict[str, str]:
    """Return new addresses by old ones. A line has both, and a blank between; "#" begins a remark.

    Raises:
        ValueError: a line is no such pair, or an old address comes twice; names file and line.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        words = line.partition("#")[0].split()
        if words and (len(words) != 2 or words[0] in found):
            raise ValueError(
                f"{file}:{number}: expected an old and a new page, each old one once; got {line!r}"
            )
        if words:
            found[words[0]] = words[1]
    return found


def write(app: Sphinx, failure: Exception | None) -> None:
    """Write a page for every old address; warn of those that are pages still, and of targets that are none."""
    from sphinx.util import logging  # whose warnings are errors under -W; `read` does without Sphinx

    logger = logging.getLogger(__name__)
    if failure is not None or app.builder.format != "html":
        return
    known = {app.builder.get_target_uri(name) for name in app.env.found_docs}
    for old, new in read(Path(app.srcdir) / "redirects.txt").items():
        if old in known or new not in known:
            what = f"{old} is a page still" if old in known else f"there is no page {new}"
            logger.warning("redirects.txt: %s", what, location="redirects.txt")
            continue
        file = Path(app.outdir) / old
        file.parent.mkdir(parents=True, exist_ok=True)
        up = "../" * old.count("/")
        file.write_text(PAGE.format(new=up + new), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect this to Sphinx."""
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
