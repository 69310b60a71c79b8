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


def test_a_page_may_say_so(tmp_path):
    text = """
It is 2.0<!-- figure: fit; net: fit; MXNet; ratio CPU --> times as fast as MXNet.
| 1,234<!-- figure: fit; net: fit; PyTorch; ratio CPU --> |
It is twice as fast<!-- figure: fit; net: fit; ratio CPU from 1.9 -->.
It is slower<!-- figure: fit; net: pred*; ratio CPU to 1 --> than it was.
Files of 16 MB<!-- not measured: a limit --> are mapped.
```\n3 times as fast\n```\nand `16 MB`; it took two tries, and 3 steps of 4 files.
"""
    assert problems(tmp_path, text) == []


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


def test_figures_are_renewed_and_what_no_longer_holds_is_told(tmp_path):
    page, data = tmp_path / "README.md", tmp_path / "results.json"
    mark = "<!-- figure: fit; net: fit; MXNet; ratio CPU -->"
    lost = "<!-- figure: fit; gone; ratio CPU -->"
    page.write_text(
        f"9.99{mark} and 1,000{mark}: 7{lost}, fast{mark[:-4]} from 3 -->, `1{mark}`", encoding="utf-8"
    )
    data.write_text(json.dumps(FOUND), encoding="utf-8")
    left = figures.renew(tmp_path, data)
    text = f"1.96{mark} and 2{mark}: 7{lost}, fast{mark[:-4]} from 3 -->, `1{mark}`"
    assert page.read_text(encoding="utf-8") == text
    assert [each.split(": ")[0] for each in left] == ["README.md:1"] * 2
