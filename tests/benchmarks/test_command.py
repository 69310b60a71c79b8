"""The command line: which parts run, what is written, and the exit status."""

import ast
import sys
from pathlib import Path

import pytest

from benchmarks.report import tables_of
from helpers.programs import run_module

ROOT = Path(__file__).parents[2]


SHARED = """
workloads corpus networks operator_cases autobatch_tasks treebank settings sides/serve sides/module sides/language
sides/operators sides/autobatch sides/exported
"""


@pytest.mark.parametrize("name", SHARED.split())
def test_what_other_packages_run_is_valid_for_their_python(name):
    text = (ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, 8))
    assert "from __future__ import annotations" in text
    assert not any(later in text for later in ("strict=", "removeprefix", "removesuffix", "randbytes("))


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_quick_comparison_under_another_interpreter(tmp_path, monkeypatch):
    """The package named mxnet is ours here, so that all goes its way without MXNet."""
    (tmp_path / "mxnet.py").write_text("import sys, dpmodule\nsys.modules[__name__] = dpmodule\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    line = ["fit", "--quick", "--rounds", "1", "--against", f"mxnet={sys.executable}"]
    done = run_module("benchmarks", *line, "--output", tmp_path / "found.md", cwd=ROOT, fresh=True)
    assert done.returncode == 0, done.stdout + done.stderr
    text = tables_of(tmp_path / "found.md").read_text(encoding="utf-8")
    text, _, columns = text.partition("## Processors and settings")
    assert "ours against mxnet, NCHW/fused/slices" in text
    assert text.count("| MXNet |") == columns.count("| MXNet |") == 7
    assert text.count("| torch.compile |") == 2
    assert "these figures are meaningless" in text
