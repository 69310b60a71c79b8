"""What the documentation shows runs: the README's Python blocks and every example in a docstring."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import dpmodule as mx

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
MODULES = sorted(
    found.name
    for found in pkgutil.walk_packages(mx.__path__, "dpmodule.")
    if not found.name.endswith("__main__")
)
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_readme_block_runs(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS[number], f"README block {number}", "exec"), {})


def test_readme_has_a_python_block():
    assert BLOCKS


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    report = []
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        example.globs.update(mx=mx, np=np, torch=torch)
        runner.run(example, out=report.append)
    assert runner.failures == 0, "".join(report)
