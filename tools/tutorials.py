"""Run the pages of docs/start like a newcomer, each in a fresh environment; exit with 1 if one fails.

Usage: python tools/tutorials.py [PAGE ...]     (default: all of them; "mxnet" is docs/start/mxnet.md)

Blocks of `bash` and `python` are copied from the page and run in order, unchanged: commands that begin with "pip
install" in a copy of the checkout, others in an initially empty folder. A block `output` is the expected output of the
block before it; "..." in it matches anything.
"""

from __future__ import annotations

import argparse
import doctest
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
START = ROOT / "docs" / "start"
BLOCK = re.compile(r"^```(bash|python|output)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SECONDS = 1800
"""Time limit of a block in seconds, including an installation."""


@dataclass
class Step:
    """A block of a page that is run.

    Args:
        line: line of the page.
        language: "bash" or "python".
        code: content of the block.
        shown: expected output; None if the page shows none.
    """

    line: int
    language: str
    code: str
    shown: str | None = None


def steps(text: str) -> list[Step]:
    """Return the blocks of a page that are run.

    Raises:
        ValueError: an output does not follow a block.
    """
    blocks: list[Step] = []
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start()) + 1
        if block[1] != "output":
            blocks.append(Step(line, block[1], block[2]))
        elif blocks and blocks[-1].shown is None:
            blocks[-1].shown = block[2]
        else:
            raise ValueError(f"line {line}: an output must follow the block that prints it")
    return blocks


def agrees(shown: str, printed: str) -> bool:
    """Return True if a block printed the output on the page."""
    return doctest.OutputChecker().check_output(
        shown, printed, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )


def run(step: Step, number: int, folder: Path, tree: Path, environment: Mapping[str, str]) -> str:
    """Run a block; return a problem, "" if there is none."""
    if step.language == "python":
        program = folder / f"step_{number}.py"
        program.write_text(step.code, encoding="utf-8")
        command = ["python", program.name]
    else:
        command = ["bash", "-euo", "pipefail", "-c", step.code]
    place = tree if step.code.startswith("pip install") else folder
    done = subprocess.run(
        command,
        cwd=place,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    if done.returncode:
        return f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
    if step.shown is not None and not agrees(step.shown, done.stdout):
        return f"the page shows\n{step.shown}but it printed\n{done.stdout}"
    return ""


def inside(environment: Path) -> dict[str, str]:
    """Return the variables of a shell in which a virtual environment is active."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    path = f"{environment / 'bin'}{os.pathsep}{kept['PATH']}"
    return {**kept, "PATH": path, "VIRTUAL_ENV": str(environment)}


def follow(page: Path, work: Path, tree: Path) -> bool:
    """Run a page in a new environment and an empty folder; return True if it holds."""
    began = time.monotonic()
    blocks = steps(page.read_text(encoding="utf-8"))
    shown = sum(step.shown is not None for step in blocks)
    if not shown:
        print(f"{page}: shows no output; add a block `output` after the block that prints the figure")
        return False
    environment, folder = work / f"{page.stem}-venv", work / page.stem
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    folder.mkdir()
    for number, step in enumerate(blocks):
        wrong = run(step, number, folder, tree, inside(environment))
        if wrong:
            print(f"{page}:{step.line}: {wrong}")
            return False
    print(
        f"{page}: {len(blocks)} blocks, {shown} outputs as shown, {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return True


def copy_tree(tree: Path) -> None:
    """Copy tracked and untracked files; build products stay in the copy for the next installation."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source = ROOT / name
        if source.is_file():
            target = tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())


def main() -> int:
    """Run the pages; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE")
    chosen = parser.parse_args().pages
    pages = [START / f"{name}.md" for name in chosen] or sorted(START.glob("*.md"))
    with tempfile.TemporaryDirectory() as work:
        tree = Path(work) / "tree"
        copy_tree(tree)
        failed = [page for page in pages if not follow(page, Path(work), tree)]
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
