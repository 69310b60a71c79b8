"""What the documentation shows runs: the Python blocks of README and docs, and every example in a docstring."""

import asyncio
import doctest
import importlib
import math
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
from helpers.programs import run_file
from helpers.walk import walks

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ELSEWHERE = (DOCS / "notebooks", DOCS / "reference" / "operators")  # run by tests of their own
PAGES = {
    "README": ROOT / "README.md",
    **{
        page.relative_to(DOCS).with_suffix("").as_posix(): page
        for page in sorted(DOCS.rglob("*.md"))
        if not any(page.is_relative_to(folder) for folder in ELSEWHERE)
    },
}
BLOCKS = {
    f"{name}-{number}": block
    for name, page in PAGES.items()
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S))
}
NAMES = sorted(found.name for found in pkgutil.walk_packages(mx.__path__, "dpmodule."))
IN_ITS_OWN = "dpmodule.as_mxnet"
"""The module whose examples change the imports of their process, and with them other tests."""

MODULES = [name for name in NAMES if not name.endswith("__main__") and name != IN_ITS_OWN]
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def run_as_program(code, folder):
    """Run a block that starts processes the way a user does: from a file."""
    program = folder / "program.py"
    program.write_text(f"import warnings; warnings.simplefilter('error')\n{code}", encoding="utf-8")
    done = run_file(program, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr


ALONE = ("__main__", ".regist", "fluid")
"""What a block has in it that begins processes, or leaves behind what other tests would find."""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", BLOCKS)
def test_block_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if any(word in BLOCKS[name] for word in ALONE):
        run_as_program(BLOCKS[name], tmp_path)
    else:
        try:
            exec(compile(BLOCKS[name], name, "exec"), {})
        finally:
            autobatch.configure(autobatch=False)


def test_examples_that_change_the_imports_of_their_process():
    run = f"doctest.testmod({IN_ITS_OWN}, extraglobs={{'mx': mx}})"
    code = f"import doctest, dpmodule as mx, {IN_ITS_OWN}\nprint({run})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"TestResults\(failed=0, attempted=[1-9]\d*\)\n", done.stdout), done.stdout


@walks(MODULES, family=lambda name: name.split(".")[1])
def test_docstring_examples_run(name, tmp_path, monkeypatch):
    folder = tmp_path / name
    folder.mkdir()
    monkeypatch.chdir(folder)
    module = importlib.import_module(name)
    runner, report = doctest.DocTestRunner(optionflags=FLAGS), []
    for docstring in doctest.DocTestFinder().find(module, name):
        if docstring.examples:
            docstring.globs.update(mx=mx, np=np, torch=torch, asyncio=asyncio, math=math)
            runner.run(docstring, out=report.append)
    assert runner.failures == 0, "".join(report)
    # what no dump has written would be written when the tests end, wherever they run
    assert name != "dpmodule.profiler" or (folder / "profile.json").exists()
