"""Targets, tables, and reports that keep what other runs have found."""

import json

import pytest

from benchmarks.report import Section, Target, render, update


@pytest.mark.parametrize(
    ("value", "at_most", "text"),
    [
        (1.2, False, "must ≥ 1.5 MISSED, aim 2 not yet"),
        (1.5, False, "must ≥ 1.5 met, aim 2 not yet"),
        (2.5, False, "must ≥ 1.5 met, aim 2 met"),
        (2.5, True, "must ≤ 1.5 MISSED, aim 2 not yet"),
        (1.5, True, "must ≤ 1.5 met, aim 2 met"),
    ],
)
def test_a_target_says_what_is_met(value, at_most, text):
    assert str(Target("figure", value, 1.5, 2.0, at_most)) == text


def test_comparisons_make_rows_and_hold_the_clock_that_counts(capsys):
    section = Section("Part", "About it.")
    ours = {"cpu": [1.0, 1.0, 1.0], "wall": [1.0, 1.0, 1.0]}
    theirs = {"cpu": [2.0, 2.0, 2.0], "wall": [0.5, 0.5, 0.5]}
    section.compare("net: fit", ours, "MXNet", theirs, (1.5, 3.0))
    section.compare("net: fit", ours, "MXNet", theirs, (1.5, 3.0), clock="wall")
    section.compare("net: fit", ours, "a | b", theirs)
    assert [(each.what, each.value) for each in section.targets] == [
        ("net: fit, against MXNet", 2.0),
        ("net: fit, against MXNet", 0.5),
    ]
    header, rule, first, second, third = section.tables[""]
    assert header.count("|") == rule.count("|") == first.count("|") == third.count("|")
    assert "must ≥ 1.5 met" in first
    assert "MISSED" in second
    assert "a / b" in third
    assert third.endswith("| recorded |")
    assert first in capsys.readouterr().out


def section(title, value):
    found = Section(title, "About it.", where="here")
    found.row("Table", figure=value)
    found.hold(f"figure of {title}", value, (1.0, 2.0))
    found.note(f"note of {title}")
    return found


def test_a_report_has_all_targets_first():
    text = render({"a": section("A", 0.5), "b": section("B", 1.5)})
    targets = text[text.index("## Targets") : text.index("## A")]
    assert "1 of 2 met" in targets
    assert "figure of A" in targets
    assert "figure of B" in targets
    assert text.index("### Table") < text.index("note of A") < text.index("## B")


def test_an_update_keeps_the_other_parts_and_the_order(tmp_path):
    path, order = tmp_path / "RESULTS.md", ["a", "b"]
    update(path, order, {"b": section("B", 1.5)})
    update(path, order, {"a": section("A", 0.5)})
    update(path, order, {"b": section("B", 2.5)})
    text = path.read_text(encoding="utf-8")
    assert text == render({"a": section("A", 0.5), "b": section("B", 2.5)})
    assert list(json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))) == ["a", "b"]
