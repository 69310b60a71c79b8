"""The command line: which parts run, what is written, and the exit status."""

import ast
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import machines, settings
from benchmarks.report import Section, tables_of
from helpers.programs import run_module

ROOT = Path(__file__).parents[2]


@pytest.fixture
def measured(monkeypatch):
    """Replace the parts' measurements; return the names of those that ran, with their sessions."""
    ran = []

    def measure(name, session):
        ran.append((name, session))
        found = Section(name, "About it.")
        found.hold("figure", 0.5, (1.0, 2.0))
        return found

    monkeypatch.setattr(command, "measure", measure)
    return ran


@pytest.fixture
def old_processor(monkeypatch):
    """A processor without AVX-512."""
    flags = frozenset(["sse4_1", "avx2", "fma"])
    monkeypatch.setattr(settings, "processor", lambda: ("Old", flags))
    monkeypatch.setattr(machines, "processor", lambda: ("Old", flags))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("fit --isa mmx", "--isa mmx: expected one of sse41, avx2, avx512"),
        (
            "fit --isa avx512",
            "--isa avx512: this processor, Old, lacks avx512bw, avx512dq, avx512f, avx512vl",
        ),
        ("ops --isa avx2", "with AVX2, 1 thread: expected parts among fit, bucketing, kernels, autobatch"),
        ("nothing", "nothing"),
        ("--against mxnet=", "mxnet="),
        ("--against keras=python", "keras"),
    ],
)
def test_wrong_lines_are_refused(line, said, measured, old_processor, capsys):
    try:
        status = command.main(line.split())
    except SystemExit as error:
        status = error.code
    assert (status, measured) == (2, [])
    assert said in capsys.readouterr().err


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
