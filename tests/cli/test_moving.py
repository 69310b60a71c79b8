"""The pages under docs/moving: tables are those that the script makes, and no name of the old systems is forgotten."""

import functools
import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest
import torch

import dpmodule as mx
from dpmodule.cli import moving
from helpers.moving_errors import ERRORS
from helpers.walk import walks

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "moving"


def data(name):
    return json.loads((ROOT / "tests" / "data" / name).read_text(encoding="utf-8"))


def page(name):
    return (PAGES / name).read_text(encoding="utf-8")


def shown(*names):
    """Return what stands in backticks on some pages."""
    return {each for name in names for each in re.findall(r"`([^`\n]+)`", page(name))}


def test_tables_are_those_that_the_script_makes():
    spec = importlib.util.spec_from_file_location("moving_tables", ROOT / "docs" / "moving_tables.py")
    script = importlib.util.module_from_spec(spec)
    sys.modules["moving_tables"] = script
    spec.loader.exec_module(script)
    stale = [path.name for path, text in script.written().items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run: python docs/moving_tables.py"


def test_every_name_of_mxnets_is_accounted_for():
    kept, left = data("public_names.json"), data("public_names_left_out.json")
    names = shown("mxnet-names.md")
    members = shown("mxnet-members.md")
    for module, found in kept.items():
        classes = found.get("classes", {})
        assert {*found.get("names", "").split(), *classes} <= names, module
        assert {*classes, *" ".join(classes.values()).split()} <= members, module
    lasts = {name.split(".")[-1] for name in shown("mxnet-left-out.md")}
    for module, found in left.items():
        for name in found:
            assert (name if name != "*" else module).split(".")[-1] in lasts, (module, name)
    assert {*data("operators_left_out.json")} <= shown("mxnet-left-out.md")


def test_every_name_of_dynets_is_accounted_for():
    recorded = data("dynet_names.json")
    names = shown("dynet-names.md")
    assert {*recorded["names"].split(), *recorded["classes"]} <= names
    for name in (*recorded["names"].split(), *recorded["classes"]):
        place = moving.find(f"dynet.{name}")
        assert place.path == f"dpmodule.autobatch.{name}" or place.lacks, name


def test_counts_are_those_of_the_tables():
    for name, told in (("mxnet-names", "[{} names]"), ("mxnet-members", "[{} members]")):
        count = re.search(r"^([\d,]+) ", page(f"{name}.md"), re.MULTILINE)[1]
        assert told.format(count) in page("mxnet.md")
    assert re.search(r"All (\d+) public names", page("dynet-names.md"))[1] in page("dynet.md")


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.md")), ids=lambda path: path.stem)
def test_no_page_is_longer_than_300_lines(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300


def test_what_is_told_to_use_instead_is_there():
    texts = [
        *moving.known()["instead"].values(),
        *(t for p in PAGES.glob("*.md") for t in re.findall("`([^`\n]+)`", p.read_text())),
    ]
    names = {name for text in texts for name in re.findall(r"\bmx\.[\w.]*\w", text)}
    left = shown("mxnet-left-out.md")
    gone = [
        name
        for name in sorted(names - left)
        if not name.endswith(".X")
        and not name.startswith(("mx.np", "mx.gluon", "mx.rtc", "mx.library", "mx.th"))
        and functools.reduce(lambda owner, part: getattr(owner, part, None), name.split(".")[1:], mx) is None
    ]
    assert gone == []


def test_places_moved_to_are_there():
    for old in moving.known()["moved"]:
        place = moving.find(old)
        assert place.is_module, old


ROWS = {
    (name, number): text
    for name in ERRORS
    for number, text in enumerate(
        re.findall(r"^\| `([^`]*)` \|", page(f"{name}.md").split("## Ten errors")[1], re.MULTILINE)
    )
}


@pytest.mark.filterwarnings("ignore")
@walks(ROWS, family=lambda name, number: name)
def test_errors_are_those_that_the_page_tells(name, number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = ROWS[name, number]
    if "gpu(0)" in told and torch.cuda.is_available():
        return
    with pytest.raises(Exception) as raised:  # noqa: PT011  (which one it is, the page says)
        ERRORS[name][number]()
    assert f"{raised.type.__name__}: {raised.value}".startswith(told)


def test_pages_tell_of_ten_errors_each():
    assert {name: sum(row[0] == name for row in ROWS) for name in ERRORS} == dict.fromkeys(ERRORS, 10)
    assert {name: len(calls) for name, calls in ERRORS.items()} == dict.fromkeys(ERRORS, 10)
