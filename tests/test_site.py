"""The parts of the site that Sphinx itself does not check; they are imported without it."""

import importlib
import re
import sys
import types
from pathlib import Path

import pytest

import dpmodule as mx
from helpers.walk import walks

DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS / "extensions"))
import docstrings  # noqa: E402 (found by the line above)
import public  # noqa: E402
import redirects  # noqa: E402

sys.path.remove(str(DOCS / "extensions"))

BESIDE = ("dpmodule.agents", "dpmodule.autobatch", "dpmodule.params", "dpmodule.types")
"""Public modules that are not attributes of the package until they are imported."""

WITHOUT_NAMES = {"dpmodule.contrib", "dpmodule.mode"}
"""Modules of the package that have no public name of their own: a page of another has what is in them."""


def test_every_public_module_has_a_place_in_the_reference():
    listed = {importlib.import_module(name).__name__ for name in public.listed_modules()}
    shown = (getattr(mx, name) for name in mx.__all__)
    wanted = {each.__name__ for each in shown if isinstance(each, types.ModuleType)}
    assert {*wanted, *BESIDE} - listed == WITHOUT_NAMES


def test_no_module_is_listed_twice():
    listed = public.listed_modules()
    assert sorted(set(listed)) == sorted(listed)


@walks(public.listed_modules(), family=lambda name: name[len("dpmodule.")])
def test_every_public_name_has_one_entry(module):
    lines = list(public.entries(module))
    entries = [line.split()[2] for line in lines if line.startswith((".. auto", ".. py:data"))]
    names = public.public_names(importlib.import_module(module))
    assert sorted(entries) == sorted([module, *(f"{module}.{name}" for name in names)])


def test_what_two_modules_show_is_described_where_it_is_made():
    assert ".. autoclass:: dpmodule.base.MXNetError" in public.entries("dpmodule.base")
    assert "   The same as :py:obj:`dpmodule.base.MXNetError`." in public.entries("dpmodule.error")


def test_a_class_has_what_its_bases_without_an_entry_define():
    assert public.described_elsewhere(mx.mod.BaseModule) == ["object"]
    lines = list(public.entries("dpmodule.module"))
    at = lines.index(".. autoclass:: dpmodule.module.Module")
    assert "   :inherited-members: BaseModule, object" in lines[at : lines.index("", at)]


def test_operators_have_pages_of_their_own():
    assert not {"FullyConnected", "dot"} & {*public.public_names(mx.nd), *public.public_names(mx.sym)}
    assert {"NDArray", "zeros", "load"} <= {*public.public_names(mx.nd)}
    assert any("argmax(*inputs, **attributes)" in line for line in public.entries("dpmodule.ndarray"))


def test_stars_and_bars_are_text_but_in_code():
    lines = ["(*d), |x|, `*args`", ">>> 2 * 3", "6 * 1", "", "(*d)"]
    assert [*docstrings.escaped(lines)] == ["(\\*d), \\|x\\|, `*args`", ">>> 2 * 3", "6 * 1", "", "(\\*d)"]


def test_redirects_are_read():
    redirects.read(DOCS / "redirects.txt")


@pytest.mark.parametrize("line", ["a.html", "a.html b.html c.html", "old.html b.html"])
def test_a_bad_redirect_is_an_error_with_its_line(tmp_path, line):
    file = tmp_path / "redirects.txt"
    file.write_text(f"# moved\nold.html new.html  # why\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"redirects\.txt:3: expected an old and a new page"):
        redirects.read(file)


def test_redirects_are_pairs(tmp_path):
    file = tmp_path / "redirects.txt"
    file.write_text("# moved\n\nold.html new.html  # why\n", encoding="utf-8")
    assert redirects.read(file) == {"old.html": "new.html"}


INSTALLED = {"dpmodule/functor.h"}
"""What pages name as a compiler finds it."""

TERMS = re.findall(r"^## (.*)$", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("page", ["agents", "feeding", "files", "mxnet", "sequences"])
def test_start_pages_link_each_term_where_they_first_use_it(page):
    text = (DOCS / "start" / f"{page}.md").read_text(encoding="utf-8")
    text = re.sub(r"```.*?```|`[^`]*`|^#[^\n]*$", "", text, flags=re.DOTALL | re.MULTILINE)
    unlinked = []
    for term in TERMS:
        link = f"](../glossary.md#{term.lower().replace(' ', '-')})"
        prose = re.sub(
            r"\[[^\]]*\]\([^)]*\)", lambda found, link=link: found[0] if found[0].endswith(link) else "", text
        )
        first = re.search(rf"\b{term}(?:s|es)?\b", prose, re.IGNORECASE)
        if first and not prose[first.end() :].startswith(link):
            unlinked.append(term)
    assert unlinked == []


def test_files_that_pages_name_exist():
    root = DOCS.parent
    pages = [root / "README.md", root / "CONTRIBUTING.md", *DOCS.glob("*.md"), *DOCS.glob("[gims]*/*.md")]
    start = r"(?:\.ci|benchmarks|docs|dpmodule|examples|notebooks|tests)/"
    missing = [
        f"{page.relative_to(root)}: {name}"
        for page in pages
        for name in re.findall(rf"`({start}[\w./-]+)`", page.read_text(encoding="utf-8"))
        if name not in INSTALLED and not (root / name).exists()
    ]
    assert missing == []


def test_files_that_the_architecture_names_exist():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/]+\.(?:py|cfg|cpp|hpp))`", text))
    places = (DOCS.parent, DOCS.parent / "dpmodule")
    assert {name for name in named if not any((place / name).exists() for place in places)} == set()
