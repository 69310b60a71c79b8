"""Remove outputs and execution counts from notebooks; exits 1 when there was something to remove.

Usage: python .ci/strip_notebooks.py [--check] [NOTEBOOK ...]     (default: all in notebooks/)
"""

from __future__ import annotations

import argparse
import os
import sys
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


def main() -> int:
    """Strip or check; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, only tell")
    parser.add_argument("notebooks", nargs="*", type=Path)
    args = parser.parse_args()
    changed = False
    for path in args.notebooks or sorted((ROOT / "notebooks").glob("*.ipynb")):
        text, before = stripped(path), path.read_text(encoding="utf-8")
        if text != before:
            changed = True
            same = os.path.commonprefix([text, before])
            todo = "run python .ci/strip_notebooks.py" if args.check else "removed"
            print(f"{path}:{same.count(chr(10)) + 1}: outputs or cell metadata; {todo}")
            if not args.check:
                path.write_text(text, encoding="utf-8")
    return int(changed)


if __name__ == "__main__":
    sys.exit(main())
