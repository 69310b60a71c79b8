"""Remove outputs, execution counts and metadata of cells from notebooks; exits with 1 if there was something to remove.

Usage: python tools/strip_notebooks.py [--check] [NOTEBOOK ...]     (default: all in notebooks/)
"""

from __future__ import annotations

import argparse
import sys
from itertools import zip_longest
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]


def stripped(path: Path) -> str:
    """Return the notebook's text without outputs."""
    book = nbformat.read(path, as_version=4)
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        cell.metadata = nbformat.NotebookNode()
    return nbformat.writes(book) + "\n"


def first_difference(found: str, wanted: str) -> int:
    """Return the number of the first line in which two texts differ."""
    pairs = zip_longest(found.splitlines(), wanted.splitlines())
    return next((number for number, (one, other) in enumerate(pairs, 1) if one != other), 1)


def main() -> int:
    """Strip or check; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, only report")
    parser.add_argument("notebooks", nargs="*", type=Path)
    args = parser.parse_args()
    changed = False
    for path in args.notebooks or sorted((ROOT / "notebooks").glob("*.ipynb")):
        text, found = stripped(path), path.read_text(encoding="utf-8")
        if text != found:
            changed = True
            what = "run python tools/strip_notebooks.py" if args.check else "removed"
            print(f"{path}:{first_difference(found, text)}: outputs, counts or metadata of a cell; {what}")
            if not args.check:
                path.write_text(text, encoding="utf-8")
    return int(changed)


if __name__ == "__main__":
    sys.exit(main())
