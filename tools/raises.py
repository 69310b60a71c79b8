"""List the `raise` statements of the package that no test reaches.

    python tools/raises.py [.coverage] [--write]

Reads the data of `pytest --cov`. Every statement that is not reached has a line in tools/unreached_raises.txt: the
file, the function, the statement and, after a tab, the reason. The list may only become shorter: a statement that is
new, or that is reached now, fails. `--write` removes what is reached, and adds nothing.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from coverage import CoverageData

ROOT = Path(__file__).resolve().parents[1]
LISTED = ROOT / "tools" / "unreached_raises.txt"
WIDTH = 90
"""Characters of a statement that the list holds."""


class Raises(ast.NodeVisitor):
    """Collects the raise statements of a file, with the functions around them."""

    def __init__(self, path: Path) -> None:
        self.found: list[tuple[str, int, int]] = []
        self._names: list[str] = []
        self._path = path.relative_to(ROOT).as_posix()
        self.visit(ast.parse(path.read_text(encoding="utf-8")))

    def _inside(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._names.append(node.name)
        self.generic_visit(node)
        self._names.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _inside

    def visit_Raise(self, node: ast.Raise) -> None:
        """Note a statement by its place and its text."""
        text = f"{self._path} {'.'.join(self._names)}: {ast.unparse(node)[:WIDTH]}"
        self.found.append((text, node.lineno, node.end_lineno or node.lineno))


def unreached(data: CoverageData) -> Iterator[str]:
    """Yield the statements that no test has reached."""
    lines = {
        name.rpartition("dpmodule/")[2]: set(data.lines(name) or ())
        for name in data.measured_files()
        if "dpmodule/" in name
    }
    for path in sorted((ROOT / "dpmodule").rglob("*.py")):
        known = lines.get(path.relative_to(ROOT / "dpmodule").as_posix(), set())
        for text, begin, end in Raises(path).found:
            if not known & set(range(begin, end + 1)):
                yield text


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", default=".coverage", help="data of coverage (default: .coverage)")
    parser.add_argument("--write", action="store_true", help="remove statements that are reached")
    args = parser.parse_args()
    data = CoverageData(args.data)
    data.read()
    found = set(unreached(data))
    rows = [line.split("\t") for line in LISTED.read_text(encoding="utf-8").splitlines()]
    kept = [row for row in rows if row[0] in found]
    if args.write:
        LISTED.write_text("".join("\t".join(row) + "\n" for row in kept), encoding="utf-8")
        rows = kept
    new = sorted(found - {row[0] for row in rows})
    gone = [row[0] for row in rows if row[0] not in found]
    for title, names in (
        ("not reached by any test:", new),
        ("reached; remove the line from the list:", gone),
    ):
        if names:
            print(title, *names, sep="\n  ")
    print(f"{len(found)} raise statements are not reached, {len(rows)} are listed")
    sys.exit(bool(new or gone))


if __name__ == "__main__":
    main()
