"""The operator reference that docs/operators.py writes: whole, described, with examples that run."""

import importlib.util
import re
import sys
from functools import cache
from pathlib import Path

import pytest

from dpmodule import ops

DOCS = Path(__file__).parents[1] / "docs"
RUN_FOREIGN_OBJECTS = {"_NDArray", "_Native"}
"""Old forms of Custom in saved graphs, which hold the number of an object; no example can show them."""


@cache
def script():
    spec = importlib.util.spec_from_file_location("operator_pages", DOCS / "operators.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("operators")
    return {path.stem: path.read_text(encoding="utf-8") for path in script().write(folder)}


def test_every_operator_has_one_entry_and_every_name_a_row(pages):
    text = "\n".join(pages.values())
    anchors = re.findall(r"^\((op-[^)]+)\)=$", text, re.MULTILINE)
    assert len(anchors) == len(set(anchors)) == len(script().operators())
    listed = re.findall(r"^\| `([^`]+)` \| \[.*?\]\((\w+)\.md#([^)]+)\)", pages["index"], re.MULTILINE)
    assert sorted(name for name, _, _ in listed) == sorted(ops.names())
    for _, page, anchor in listed:
        assert f"({anchor})=" in pages[page]


def test_every_entry_has_an_example_that_ran(pages):
    found = script()
    without = {op.name for op in found.operators().values() if not found.example(op)[0]}
    assert without == RUN_FOREIGN_OBJECTS


def test_every_input_has_a_shape():
    every = script().operators().values()
    assert [op.name for op in every if "\nSource: " not in op.doc] == []
    for op in every:
        told = script().sections(op.doc).get("Shape", "")
        for one in () if callable(op.inputs) else op.inputs:
            assert re.search(rf"\b{one.name}\b", told), f"{op.name}: {one.name}"
