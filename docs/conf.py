"""Configuration of the site: build it by `python -m sphinx -W --keep-going docs build/docs`, without the network.

The build runs the notebooks and shows their outputs. It keeps the outputs in `build/.jupyter_cache` and runs a notebook
again only after its code has changed; `-D nb_execution_mode=force` runs all, `-D nb_execution_mode=off` runs none.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "docs" / "extensions"), str(ROOT / "docs")]

project = "dpmodule"
release = re.search(r"^version = (.+)$", (ROOT / "setup.cfg").read_text(encoding="utf-8"), re.MULTILINE)[1]
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "addresses",
    "docstrings",
    "generated",
    "difference_tests",
    "links",
    "public",
    "redirects",
    "searches",
    "since",
]
exclude_patterns = ["notebooks/models"]
html_theme = "furo"
html_title = "dpmodule"
html_static_path = ["_static"]
html_css_files = ["cards.css"]
html_copy_source = False
html_show_copyright = False

default_role = "public"
nitpicky = True
add_module_names = False
# with entries of objects a page takes a second: the theme copies the tree of all pages into each
toc_object_entries = False
maximum_signature_line_length = 90

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_custom_sections = [("Shape", "params_style")]

myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_timeout = 180
nb_execution_raise_on_error = True
os.environ.pop("MPLBACKEND", None)  # another backend than that of notebooks would omit pictures


PLAIN = re.compile(r'<span class="(?:n|w|p)">([^<]*)</span>')
"""Names, spaces and punctuation of highlighted code, which have the colour of the text."""


def make_smaller(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Halve the size of pages of sources: remove the tree of all pages, and markup without effect."""
    del app, template, doctree
    if page.startswith("_modules/"):
        context.pop("toctree", None)
        context["body"] = PLAIN.sub(r"\1", context["body"])


def setup(app: Sphinx) -> None:
    """Connect the functions of this file, before the theme does."""
    app.connect("html-page-context", make_smaller, priority=100)
