"""What the documentation shows runs: the Python blocks of README and docs, and every example in a docstring."""

import asyncio
import doctest
import importlib
import math
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import autobatch

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = {
    f"{page.stem}-{number}": block
    for page in PAGES
    for number, block in enumerate(
        re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    )
}
MODULES = sorted(
    found.name
    for found in pkgutil.walk_packages(mx.__path__, "dpmodule.")
    if not found.name.endswith("__main__")
)
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def run_as_program(code, folder):
    """Run a block that starts processes the way a user does: from a file."""
    program = folder / "program.py"
    program.write_text(code, encoding="utf-8")
    paths = os.pathsep.join([str(Path(mx.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", BLOCKS)
def test_block_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "__main__" in BLOCKS[name]:
        run_as_program(BLOCKS[name], tmp_path)
    else:
        try:
            exec(compile(BLOCKS[name], name, "exec"), {})
        finally:
            autobatch.configure(autobatch=False)


@pytest.mark.parametrize("page", ["README", "autobatch", "streams"])
def test_page_has_a_python_block(page):
    assert f"{page}-0" in BLOCKS


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    report = []
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        example.globs.update(mx=mx, np=np, torch=torch, asyncio=asyncio, math=math)
        runner.run(example, out=report.append)
    assert runner.failures == 0, "".join(report)
