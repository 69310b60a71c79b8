"""Print lines per package, the biggest files and functions, and the difference to another revision.

Usage: python .ci/sizes.py [--against main] [--top 8]
"""

from __future__ import annotations

import argparse
import ast
import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GROUPS = ("dpmodule", "tests", "examples", "benchmarks")


def group_of(path: str) -> str:
    """Return the package of a file: dpmodule's own packages one by one, everything else by its top folder."""
    parts = Path(path).parts
    return "/".join(parts[:2]) if parts[0] == "dpmodule" and len(parts) > 2 else parts[0]


def lines_now() -> dict[str, int]:
    """Return path -> lines of the Python files in the working tree."""
    files = (p for group in GROUPS for p in sorted((ROOT / group).rglob("*.py")))
    return {str(p.relative_to(ROOT)): p.read_text(encoding="utf-8").count("\n") for p in files}


def git(*words: str) -> str:
    """Return what a git command prints; nothing when it fails."""
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False).stdout


def lines_at(revision: str) -> dict[str, int]:
    """Return path -> lines of the Python files of a revision."""
    paths = git("ls-tree", "-r", "--name-only", revision, *GROUPS).split("\n")
    return {p: git("show", f"{revision}:{p}").count("\n") for p in paths if p.endswith(".py")}


def functions(path: str) -> list[tuple[int, str]]:
    """Return (lines, where) of every function of a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    found = (n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return [(n.end_lineno - n.lineno + 1, f"{path}:{n.lineno} {n.name}") for n in found if n.end_lineno]


def per_group(lines: dict[str, int]) -> Counter[str]:
    """Add up lines per package."""
    total: Counter[str] = Counter()
    for path, count in lines.items():
        total[group_of(path)] += count
    return total


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--against", default="main", help="revision to compare with (default: main)")
    parser.add_argument("--top", type=int, default=8, help="how many of the biggest to print (default: 8)")
    args = parser.parse_args()
    now = lines_now()
    before = per_group(lines_at(args.against))
    print(f"{'package':32}{'lines':>8}{'since ' + args.against:>16}")
    for group, count in sorted(per_group(now).items()):
        print(f"{group:32}{count:8}{count - before[group]:+16}")
    library = [path for path in now if path.startswith("dpmodule/")]
    print("\nbiggest files")
    for path in sorted(library, key=lambda p: -now[p])[: args.top]:
        print(f"{now[path]:8}  {path}")
    print("\nbiggest functions")
    for count, where in sorted((f for path in library for f in functions(path)), reverse=True)[: args.top]:
        print(f"{count:8}  {where}")


if __name__ == "__main__":
    main()
