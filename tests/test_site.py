"""The parts of the site that Sphinx itself does not check; they are imported without it."""

import importlib
import re
import sys
import types
from pathlib import Path

import dpmodule as mx
from helpers.walk import walks

DOCS = Path(__file__).parents[1] / "docs"
sys.path[:0] = [str(DOCS / "extensions"), str(DOCS)]
import pictures  # noqa: E402 (found by the line above)
import public  # noqa: E402

del sys.path[:2]

BESIDE = ("dpmodule.agents", "dpmodule.autobatch", "dpmodule.params", "dpmodule.types")
"""Public modules that are not attributes of the package until they are imported."""

WITHOUT_NAMES = {"dpmodule.contrib"}
"""Modules of the package that have no public name of their own: a page of another has what is in them."""


def test_every_public_module_has_a_place_in_the_reference():
    modules = public.listed_modules()
    assert sorted(set(modules)) == sorted(modules)
    listed = {importlib.import_module(name).__name__ for name in modules}
    shown = (getattr(mx, name) for name in mx.__all__)
    wanted = {each.__name__ for each in shown if isinstance(each, types.ModuleType)}
    assert {*wanted, *BESIDE} - listed == WITHOUT_NAMES


@walks(public.listed_modules(), family=lambda name: name[len("dpmodule.")])
def test_every_public_name_has_one_entry(module):
    lines = list(public.entries(module))
    entries = [line.split()[2] for line in lines if line.startswith(".. auto")]
    entries += [f"{module}.{line.split()[2]}" for line in lines if line.startswith(".. py:data")]
    names = public.public_names(importlib.import_module(module))
    assert sorted(entries) == sorted([module, *(f"{module}.{name}" for name in names)])


INSTALLED = {"dpmodule/functor.h"}
"""What pages name as a compiler finds it."""

TERMS = re.findall(r"^## (.*)$", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
START = sorted((DOCS / "start").glob("*.md"))


def test_the_glossary_has_what_start_pages_use_and_nothing_else():
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    entries = dict(re.findall(r"^## (.*)\n\n((?:(?!## ).*\n?)+)", text, re.MULTILINE))
    links = set(
        re.findall(
            r"\]\((?:\.\./glossary\.md)?#([\w-]+)\)",
            text + "".join(page.read_text(encoding="utf-8") for page in START),
        )
    )
    assert sorted(entries, key=str.lower) == [*entries] == TERMS
    assert {term.lower().replace(" ", "-") for term in entries} == links
    assert [term for term, text in entries.items() if len(text.split()) < 5] == []


MADE = (DOCS / "gallery.md", DOCS / "notebooks", DOCS / "reference" / "operators")
"""Pages that a build makes, and folders of such."""

PAGES = [
    *(DOCS.parent / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")),
    *(page for page in sorted(DOCS.rglob("*.md")) if not any(page.is_relative_to(each) for each in MADE)),
]


NAVIGATION = re.compile(r"^```\{toctree\}\n(.*?)^```", re.DOTALL | re.MULTILINE)


def pages_in_navigation(page):
    """Yield the pages that the lists of contents of a page name."""
    for block in NAVIGATION.findall(page.read_text(encoding="utf-8")):
        for line in filter(None, block.splitlines()):
            if not line.startswith(":"):
                yield from (found.resolve() for found in page.parent.glob(f"{line}.md"))


def test_every_page_is_in_the_navigation():
    pages = [page for page in PAGES if page.is_relative_to(DOCS)]
    listed = {DOCS / "index.md"}.union(*map(pages_in_navigation, pages))
    assert len(listed) > 50
    lost = [f"{page.relative_to(DOCS.parent)}:1" for page in pages if page not in listed]
    assert not lost, "put these into a toctree, such as those of docs/index.md: " + ", ".join(lost)


def test_files_that_pages_name_exist():
    root, start = DOCS.parent, r"(?:\.ci|benchmarks|docs|dpmodule|examples|notebooks|tests|tools)/"
    missing = [
        f"{page.relative_to(root)}: {name}"
        for page in (*PAGES, *(root / "notebooks").glob("*.ipynb"))
        for name in re.findall(rf"`({start}[\w./-]+)`", page.read_text(encoding="utf-8"))
        if name not in INSTALLED and not (root / name).exists()
    ]
    assert missing == []


def test_pictures_are_what_the_script_draws():
    kept = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "inside").glob("*.svg")}
    assert kept == pictures.pictures(), "run python docs/pictures.py docs/inside"
