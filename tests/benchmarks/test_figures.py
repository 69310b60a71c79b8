"""Figures on pages are those of results.json, and none is typed by hand."""

import json

import pytest

from benchmarks import figures
from benchmarks.machines import columns
from benchmarks.report import data_of, read, render, tables_of
from benchmarks.summary import picture, summary

RESULTS = json.loads(figures.RESULTS.read_text(encoding="utf-8"))
TABLE = [
    "| what | against | ratio CPU |",
    "|---|---|---|",
    "| net: fit | MXNet | 1.96 (1.9-2.0) |",
    "| net: fit | PyTorch | 1,234 |",
    "| net: predict | MXNet | 0.5 |",
    "| other | MXNet | never |",
    "| empty | MXNet |  |",
]
FOUND = {"fit": {"tables": {"": TABLE, "Before and now": []}}}


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


def problems(tmp_path, text):
    page = tmp_path / "README.md"
    page.write_text(text, encoding="utf-8")
    return figures.check(page, FOUND, tmp_path)


SAID = {
    # what a page says, its figure: what is wrong
    ("is 1.9", "net: fit; MXNet; ratio CPU"): "1.9 is 2.0 in results.json; run python -m",
    ("faster", "net: *; MXNet; ratio CPU from 1"): "0.5 in results.json: the statement is no longer",
    ("2.0", "net: fit; ratio CPU"): "2 rows of 'fit' match, which differ",
    ("2.0", "none; ratio CPU"): "no row of 'fit' matches 'none'",
    ("2.0", "net: fit; ratio wall"): "has a column 'ratio wall'",
    ("2.0", "other; ratio CPU"): "could not convert",
    ("fast", "net: fit; MXNet; ratio CPU"): "needs bounds",
    ("It is twice as fast.", ""): "'twice as' is typed by hand: add a mark after it",
    ("It is 30 % faster.", ""): "'30 % faster' is typed by hand",
    ("It takes 3 s, or 4 ms<!-- not measured: x -->", ""): "'4 ms' is typed by hand",
}


@pytest.mark.parametrize(("text", "mark"), SAID)
def test_ci_says_where_it_is_and_what_to_do(tmp_path, text, mark):
    (found,) = problems(tmp_path, f"# Title\n\n{text}" + f"<!-- figure: fit; {mark} -->\n" * bool(mark))
    assert found.startswith("README.md:3: ")
    assert SAID[text, mark] in found
