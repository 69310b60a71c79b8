"""Every statement of what differs from MXNet and DyNet names the tests that hold it, in data/differences.json."""

import ast
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
    """Return what a file and its classes define, made tests among it; nothing of a file that is not there."""
    path = ROOT / file
    body = ast.parse(path.read_text(encoding="utf-8")).body if path.is_file() else []
    every = [*body, *(node for each in body if isinstance(each, ast.ClassDef) for node in each.body)]
    targets = [name for node in body if isinstance(node, ast.Assign) for name in node.targets]
    made = {name.id for name in targets if hasattr(name, "id")}
    return made | {node.name for node in every if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


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
    assert all(test.split("::")[1].startswith("test_") for tests in ROWS.values() for test in tests)
