"""Every statement of what differs from MXNet and DyNet names the tests that hold it, in data/differences.json."""

import json
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "differences"
PAGES = re.findall(r"^differences/(\w+)$", FOLDER.with_suffix(".md").read_text(encoding="utf-8"), re.M)
STATEMENTS = [
    " ".join(found.split())
    for page in PAGES
    for found in re.findall(r"^- (.+(?:\n  .+)*)", (FOLDER / f"{page}.md").read_text(encoding="utf-8"), re.M)
]
ROWS = json.loads((ROOT / "tests" / "data" / "differences.json").read_text(encoding="utf-8"))


@cache
def defined_in(file):
    """Return the tests that a file and its classes define, made ones among them; nothing of a file that is missing."""
    path = ROOT / file
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return set(re.findall(r"^ *(?:(?:async )?def )?(test_\w+)(?:\(| = )", text, re.MULTILINE))


def test_every_statement_has_a_row_in_the_order_of_the_pages():
    found = {statement: [row for row in ROWS if statement.startswith(row)] for statement in STATEMENTS}
    assert {statement: rows for statement, rows in found.items() if len(rows) != 1} == {}
    assert [row for (row,) in found.values()] == list(ROWS)


def test_every_row_names_tests_that_exist():
    missing = {
        row: tests
        for row, named in ROWS.items()
        if (tests := [test for test in named if test.split("::")[1] not in defined_in(test.split("::")[0])])
    }
    assert missing == {}
    assert all(ROWS.values())
