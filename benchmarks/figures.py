"""Keeps the figures on pages equal to those of results.json.

A mark, which readers do not see, follows a figure, or a statement without one::

    two contexts are 1.8<!-- figure: contexts; ResNet-20*fit, two contexts; ratio wall --> times as fast
    two contexts are faster than one<!-- figure: contexts; LeNet*two contexts; ratio wall from 1.1 -->

It names the part, cells of the row or the table's title (`*` matches any text), and the column; "from 1.1 to 2" must
hold for all matching rows. Numbers that are not measured, such as limits, have another mark::

    files of 16 MB<!-- not measured: a limit --> and more

Run: python -m benchmarks.figures    updates the figures and prints failing statements; so does a run that writes
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

__all__ = ["RESULTS", "ROOT", "check", "pages", "renew", "renewed"]

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results.json"
MADE = (
    "docs/gallery.md",
    "docs/notebooks/",
    "docs/reference/operators/",
    "docs/reference/environment.md",
    "docs/reference/errors.md",
)
"""Pages that are written before the site is built, from checked sources."""
KEPT = ("docs/inside/decisions.md",)
"""Pages with figures of prototypes, which were measured once for a decision."""

MARK = re.compile(
    r"(?P<number>\d[\d,]*(?:\.\d+)?)?<!--\s+(?P<kind>figure|not measured):\s+(?P<what>.*?)\s+-->", re.DOTALL
)
BOUNDS = re.compile(r"(?P<column>.*?)(?: from (?P<low>[\d.]+))?(?: to (?P<high>[\d.]+))?")
CODE = re.compile(r"^( *)```.*?^\1```|`[^`]*`", re.DOTALL | re.MULTILINE)
SENTENCE = re.compile(r"[.!?:](?=\s)|\n\s*\n|\n\s*[-*|] |\|")

COUNT = (
    r"(?:\d[\d,.]*|one|two|three|four|five|six|seven|eight|nine|ten|twelve|fifteen|twenty|thirty|fifty|several|many"
    r"|(?:a |some )?(?:hundred|thousand)s?)"
)
UNIT = r"(?:milli|micro|nano)?seconds?|minutes?|(?:kilo|mega|giga)bytes?"
CLAIM = re.compile(
    rf"""\b{COUNT}(?:(?:\sto\s|\sor\s|-|–){COUNT})?\stimes\s(?:as|the|its|their|faster|slower|less|more|larger|smaller)\b
    |\b(?:twice|half|(?:a|one)\s(?:third|quarter|tenth|hundredth))\s(?:as|the|its|their|of\sits|of\stheir|faster|slower)\b
    |\bfactors?\sof\s{COUNT}
    |\b{COUNT}\s?(?:%|per\s?cent|x|×)\s(?:faster|slower|less|more|as\sfast|of\s(?:the|its)\s(?:time|memory))\b
    |(?<![\w.])\d[\d,.]*(?:\sto\s\d[\d,.]*)?\s(?:ms|µs|us|ns|s|[kKMG]B|{UNIT})\b
    |\b{COUNT}(?:\s(?:hundred|thousand))?\s(?:{UNIT})\b
    |\b(?:faster|slower|quicker|cheaper|less\smemory|more\smemory)\sthan\b
    |\bas\sfast\sas\b""",
    re.IGNORECASE | re.VERBOSE,
)
"""Claims of speed or size."""


def pages(root: Path) -> list[Path]:
    """Return the pages that are written by hand."""
    found = [root / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    found += sorted(root.glob("docs/**/*.md"))
    left_out = MADE + KEPT
    return [
        page for page in found if page.exists() and not page.relative_to(root).as_posix().startswith(left_out)
    ]


def rows(section: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the rows of a part's tables by column name."""
    for title, lines in section["tables"].items():
        if not lines:
            continue
        header, *others = ([cell.strip() for cell in line[1:-1].split("|")] for line in lines)
        yield from (dict(zip(header, cells)) | {"table": title} for cells in others[1:])


@dataclass(frozen=True)
class Figure:
    """A marked figure.

    Attributes:
        number: number on the page; "" for a statement without a number.
        values: values of the matching rows.
        low: lower bound of the values.
        high: upper bound of the values.
    """

    number: str
    values: list[float]
    low: float
    high: float

    @classmethod
    def of(cls, mark: re.Match[str], results: Mapping[str, Any]) -> Figure:
        """Return the figure of a mark.

        Raises:
            ValueError: there is no such figure; the message contains the reason.
        """
        part, *cells, last = re.split(r";\s+", " ".join(mark["what"].split()))
        if part not in results or not cells:
            raise ValueError(f"expected PART; ROW; COLUMN with one of {', '.join(results)} as PART")
        bounds = BOUNDS.fullmatch(last)
        column = bounds["column"]
        fitting = [
            row
            for row in rows(results[part])
            if column in row and all(any(fnmatchcase(each, cell) for each in row.values()) for cell in cells)
        ]
        if not fitting:
            raise ValueError(f"no row of {part!r} matches {'; '.join(cells)!r} and has a column {column!r}")
        values = [float(row[column].partition(" ")[0].replace(",", "")) for row in fitting]
        if mark["number"] and len(set(values)) > 1:
            raise ValueError(f"{len(values)} rows of {part!r} match, which differ; name more cells")
        if not mark["number"] and not (bounds["low"] or bounds["high"]):
            raise ValueError("a mark without a number in front needs bounds: COLUMN from X to Y")
        return cls(
            mark["number"] or "", values, float(bounds["low"] or "-inf"), float(bounds["high"] or "inf")
        )

    @property
    def text(self) -> str:
        """The number that the page should have, rounded like the current one."""
        return f"{self.values[0]:,.{len(self.number.partition('.')[2])}f}"

    def problem(self) -> str:
        """Return a problem, "" if there is none."""
        if self.number and self.number != self.text:
            return f"{self.number} is {self.text} in results.json; run python -m benchmarks.figures"
        out = [value for value in self.values if not self.low <= value <= self.high]
        if out:
            return f"{', '.join(map(str, out))} in results.json: the statement is no longer true, rewrite it"
        return ""


def line_of(text: str, place: int) -> int:
    """Return the line number of a position."""
    return text.count("\n", 0, place) + 1


def without_code(text: str) -> str:
    """Return a text with code replaced by the same number of other characters."""
    return CODE.sub(lambda found: re.sub(r"[^\n]", "_", found[0]), text)


def unmarked(text: str) -> Iterator[re.Match[str]]:
    """Yield unmarked figures; each needs a mark after it in its sentence."""
    prose = without_code(text)
    plain = MARK.sub(lambda mark: re.sub(r"[^\n]", " ", mark[0]), prose)
    marks = list(MARK.finditer(prose))
    free = [mark.start() for mark in marks if not mark["number"]]
    ends = [mark.end() for mark in marks if mark["number"]]
    for claim in CLAIM.finditer(plain):
        if any(plain[end : claim.start()].strip() in ("", "times") for end in ends if end <= claim.start()):
            continue  # such as "1.8 times as fast as": its number is marked
        mark = next((start for start in free if start >= claim.end()), None)
        if mark is None or SENTENCE.search(plain, claim.end(), mark):
            yield claim
        else:
            free.remove(mark)


def check(page: Path, results: Mapping[str, Any], root: Path = ROOT) -> list[str]:
    """Return the problems of a page's figures: position, problem and advice."""
    text, place = page.read_text(encoding="utf-8"), page.relative_to(root).as_posix()
    wrong = []
    for mark in MARK.finditer(without_code(text)):
        if mark["kind"] == "figure":
            try:
                problem = Figure.of(mark, results).problem()
            except ValueError as error:
                problem = f"{mark['what']}: {error}"
            wrong += [f"{place}:{line_of(text, mark.start())}: {problem}"] * bool(problem)
    wrong += [
        f"{place}:{line_of(text, claim.start())}: {claim[0]!r} is typed by hand: add a mark after it (see "
        "benchmarks/figures.py), or write it without a figure"
        for claim in unmarked(text)
    ]
    return wrong


def renewed(text: str, results: Mapping[str, Any]) -> str:
    """Return a page's text with the numbers of results; unknown marks keep theirs."""
    parts, end = [], 0
    for mark in MARK.finditer(without_code(text)):
        if mark["kind"] == "figure" and mark["number"]:
            with contextlib.suppress(ValueError):  # which `check` reports
                figure = Figure.of(mark, results)
                parts += [text[end : mark.start()], figure.text]
                end = mark.start() + len(figure.number)
    return "".join([*parts, text[end:]])


def renew(root: Path, file: Path) -> list[str]:
    """Update the figures of all pages from a file, and return the problems."""
    results = json.loads(file.read_text(encoding="utf-8"))
    for page in pages(root):
        before = page.read_text(encoding="utf-8")
        after = renewed(before, results)
        if after != before:
            page.write_text(after, encoding="utf-8")
    return [problem for page in pages(root) for problem in check(page, results, root)]


def main() -> int:
    """Update the project's pages; return the exit status."""
    problems = renew(ROOT, RESULTS)
    for each in problems:
        print(each)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
