"""Figures on pages are those of results.json, and none is typed by hand."""

import json

from benchmarks import figures
from benchmarks.machines import columns
from benchmarks.report import data_of, read, render, tables_of
from benchmarks.summary import picture, summary

RESULTS = json.loads(figures.RESULTS.read_text(encoding="utf-8"))


def test_figures_on_pages_are_those_of_the_benchmarks():
    wrong = [each for page in figures.pages(figures.ROOT) for each in figures.check(page, RESULTS)]
    assert not wrong, "\n".join(wrong)


def test_the_report_is_what_the_figures_give():
    report = figures.ROOT / "benchmarks" / "RESULTS.md"
    assert data_of(report) == figures.RESULTS
    sections = read(figures.RESULTS)
    wanted = {report: summary(sections), report.with_name("results.svg"): picture(sections)}
    wanted[tables_of(report)] = render(sections) + columns(report.with_name("machines"))
    for path, whole in wanted.items():
        pairs = zip(path.read_text(encoding="utf-8").splitlines(), whole.splitlines(), strict=True)
        typed = [f"{path.name}:{number}" for number, (found, given) in enumerate(pairs, 1) if found != given]
        assert not typed, f"{typed[0]}: typed by hand; run python -m benchmarks PART --write"
    assert len(summary(sections).splitlines()) <= 60
