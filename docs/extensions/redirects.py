"""Redirect published addresses: `docs/redirects.txt` lists the new address of moved pages and anchors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["moved_anchors", "read", "setup"]

PAGE = """<!doctype html>
<meta charset="utf-8">
<title>{new}</title>
<link rel="canonical" href="{new}">
<meta http-equiv="refresh" content="0; url={new}">
<script>location.replace("{new}" + location.hash)</script>
<a href="{new}">{new}</a>
"""
"""The script keeps the anchor, which a refresh loses; without scripts the top of the page opens."""

JUMP = "<script>((moved) => moved && location.replace(moved))({anchors}[location.hash])</script>\n"
"""Script in a page whose anchors have moved; without scripts, the top of the page opens, with links to the others."""


def read(file: Path) -> dict[str, str]:
    """Return new addresses by old ones. A line has both, separated by a space; "#" after a space starts a comment.

    Raises:
        ValueError: a line is not such a pair, or an old address is repeated; names file and line.
    """
    addresses: dict[str, str] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        words = re.split(r"(?:^|\s)#", line)[0].split()
        if words and (len(words) != 2 or words[0] in addresses):
            raise ValueError(
                f"{file}:{number}: expected an old and a new page, each old one once; got {line!r}"
            )
        if words:
            addresses[words[0]] = words[1]
    return addresses


def moved_anchors(addresses: dict[str, str], page: str) -> dict[str, str]:
    """Return the new addresses of a page's moved anchors, "#part" -> its address relative to that page."""
    up = "../" * page.count("/")
    return {old.removeprefix(page): up + new for old, new in addresses.items() if old.startswith(f"{page}#")}


def add_script(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Add the script to a page whose anchors have moved."""
    del template, doctree
    if app.builder.format == "html" and "body" in context:
        addresses = read(Path(app.srcdir) / "redirects.txt")
        if anchors := moved_anchors(addresses, app.builder.get_target_uri(page)):
            context["body"] = JUMP.format(anchors=json.dumps(anchors)) + context["body"]


def exists(folder: Path, address: str) -> bool:
    """Return True if the site has a page, and its anchor after "#"."""
    page, _, anchor = address.partition("#")
    file = folder / page
    return file.is_file() and (not anchor or f'id="{anchor}"' in file.read_text(encoding="utf-8"))


def write(app: Sphinx, failure: Exception | None) -> None:
    """Write a page for every old one; warn about old addresses that still exist, and new ones that do not."""
    from sphinx.util import logging  # whose warnings are errors under -W; `read` does not need Sphinx

    logger = logging.getLogger(__name__)
    if failure is not None or app.builder.format != "html":
        return
    known = {app.builder.get_target_uri(name) for name in app.env.found_docs}
    folder = Path(app.outdir)
    for old, new in read(Path(app.srcdir) / "redirects.txt").items():
        page, _, anchor = old.partition("#")
        stays = exists(folder, old) if anchor else old in known
        if stays or (anchor and page not in known) or not exists(folder, new):
            what = f"{old} still exists" if stays else f"{new}, or the page {page}, does not exist"
            logger.warning("redirects.txt: %s", what, location="redirects.txt")
            continue
        if anchor:
            continue  # `add_script` has put it into the page
        file = folder / old
        file.parent.mkdir(parents=True, exist_ok=True)
        up = "../" * old.count("/")
        file.write_text(PAGE.format(new=up + new), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect this to Sphinx."""
    app.connect("html-page-context", add_script)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
