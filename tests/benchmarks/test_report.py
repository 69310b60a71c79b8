"""Targets, tables, and reports that keep what other runs have found."""

import json

from benchmarks.report import Section, render, tables_of, update


def section(title, value):
    found = Section(title, "About it.", where="here")
    found.row("Table", figure=value)
    found.hold(f"figure of {title}", value, (1.0, 2.0))
    found.note(f"note of {title}")
    return found


def test_an_update_keeps_the_other_parts_and_the_order(tmp_path):
    path, order = tmp_path / "RESULTS.md", ["a", "b"]
    update(path, order, {"b": section("B", 1.5)})
    update(path, order, {"a": section("A", 0.5)})
    update(path, order, {"b": section("B", 2.5)})
    text = tables_of(path).read_text(encoding="utf-8")
    assert text == render({"a": section("A", 0.5), "b": section("B", 2.5)})
    assert "1 of 2 targets are met" in path.read_text(encoding="utf-8")
    assert list(json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))) == ["a", "b"]
