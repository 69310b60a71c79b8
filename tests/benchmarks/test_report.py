"""Targets, tables, and reports that keep what other runs have found."""

import json
from dataclasses import asdict

import pytest

from benchmarks import machines
from benchmarks.report import Section, Target, render, tables_of, update
from benchmarks.settings import Setting


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


def test_an_update_keeps_the_other_parts_and_the_order(tmp_path):
    path, order = tmp_path / "RESULTS.md", ["a", "b"]
    update(path, order, {"b": section("B", 1.5)})
    update(path, order, {"a": section("A", 0.5)})
    update(path, order, {"b": section("B", 2.5)})
    text = tables_of(path).read_text(encoding="utf-8")
    assert text == render({"a": section("A", 0.5), "b": section("B", 2.5)})
    assert "1 of 2 targets are met" in path.read_text(encoding="utf-8")
    assert list(json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))) == ["a", "b"]


def compared(**others):
    """Return a section in which ours took 1 ms of CPU and 2 ms of wall time."""
    found = Section("Fit", "About it.", where="here")
    for name, (cpu, wall) in others.items():
        ours, theirs = {"cpu": [1.0], "wall": [2.0]}, {"cpu": [cpu], "wall": [wall]}
        found.compare("net: fit", ours, name.replace("_", " "), theirs)
    found.row("All loops", loop="NCHW", CPU="1.0")
    return asdict(found)


def test_every_file_of_a_processor_and_setting_is_a_column(tmp_path, monkeypatch):
    folder = tmp_path / "machines"
    monkeypatch.setattr(machines, "processor", lambda: ("Some (R) CPU", frozenset(["sse4_1", "avx2", "fma"])))
    monkeypatch.setattr(machines.os, "cpu_count", lambda: 3)
    fit = compared(MXNet=(4.0, 5.0), PyTorch_NCHW=(3.0, 8.0))
    machines.keep(folder, Setting("avx2"), {"mxnet": "1.9.1"}, {"fit": fit})
    machines.keep(folder, Setting("avx2", "default"), {}, {"fit": compared(PyTorch_channels_last=(3.0, 8.0))})
    machines.keep(folder, Setting("avx2", "default"), {}, {"bucketing": compared()})
    names = [path.name for path in sorted(folder.iterdir())]
    assert names == [
        "some-r-cpu-3-cores-avx2-1-thread.json",
        "some-r-cpu-3-cores-avx2-default-threads.json",
    ]
    one, more = (json.loads((folder / name).read_text(encoding="utf-8")) for name in names)
    assert one["instructions"] == ["sse41", "avx2"]
    assert one["libraries"]["mxnet"] == "1.9.1"
    assert list(more["parts"]) == ["fit", "bucketing"]
    text = machines.columns(folder)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    cpu = "Some (R) CPU, 3 cores, AVX2"
    assert rows == [
        f"| what | against | {cpu}, 1 thread | {cpu}, default threads |",
        "| net: fit | MXNet | 4.00 |  |",
        "| net: fit | PyTorch | 3.00 | 4.00 |",
    ]
    assert "mxnet 1.9.1" in text
