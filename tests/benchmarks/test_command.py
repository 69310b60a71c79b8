"""The command line: which parts run, what is written, and the exit status."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.report import Section

ROOT = Path(__file__).parents[2]
SHARED = [
    "workloads.py",
    "corpus.py",
    "networks.py",
    "operator_cases.py",
    "autobatch_tasks.py",
    "treebank.py",
]
SHARED += [f"sides/{name}.py" for name in ("serve", "module", "language", "operators", "autobatch")]


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


def test_the_names_of_the_parts_are_listed(capsys):
    assert command.main(["--list"]) == 0
    assert capsys.readouterr().out.split() == list(command.PARTS)
    assert all(f"\n  {name} " in command.__doc__ for name in command.PARTS)


@pytest.mark.parametrize(
    "line", [["nothing"], ["--against", "mxnet"], ["--against", "mxnet="], ["--against", "keras=python"]]
)
def test_a_wrong_line_is_refused(line, measured, capsys):
    with pytest.raises(SystemExit) as caught:
        command.main(line)
    assert caught.value.code == 2
    assert not measured


def test_named_parts_run_in_their_session(measured, tmp_path):
    line = ["ops", "fit", "--rounds", "3", "--against", "mxnet=a", "--against", "lightning=b=c"]
    assert command.main([*line, "--output", str(tmp_path / "found.md")]) == 1
    assert [name for name, _ in measured] == ["ops", "fit"]
    session = measured[0][1]
    assert (session.rounds, session.quick) == (3, False)
    assert session.against == {"mxnet": "a", "lightning": "b=c"}
    text = (tmp_path / "found.md").read_text(encoding="utf-8")
    assert text.index("## fit") < text.index("## ops")


@pytest.mark.parametrize(
    ("line", "written"), [([], True), (["fit"], False), (["fit", "--write"], True), (["--quick"], False)]
)
def test_results_are_written_by_whole_runs_or_on_request(line, written, measured, monkeypatch, tmp_path):
    monkeypatch.setattr(command, "RESULTS", tmp_path / "RESULTS.md")
    assert command.main(line) == (0 if "--quick" in line else 1)
    assert (tmp_path / "RESULTS.md").exists() == written
    assert [name for name, _ in measured] == (["fit"] if "fit" in line else list(command.PARTS))


@pytest.mark.parametrize("name", SHARED)
def test_what_other_packages_run_is_valid_for_their_python(name):
    text = (ROOT / "benchmarks" / name).read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, 8))
    assert "from __future__ import annotations" in text
    for later in ("strict=", "removeprefix", "removesuffix", "randbytes("):
        assert later not in text


def run(*line, **environment):
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *line, "--quick", "--rounds", "1"],
        cwd=ROOT,
        env=environment or None,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_quick_comparison_under_another_interpreter(tmp_path, monkeypatch):
    """The package named mxnet is ours here, so that all goes its way without MXNet."""
    (tmp_path / "mxnet.py").write_text("import sys, dpmodule\nsys.modules[__name__] = dpmodule\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    output = tmp_path / "found.md"
    done = run("fit", "--against", f"mxnet={sys.executable}", "--output", str(output))
    assert done.returncode == 0, done.stdout + done.stderr
    text = output.read_text(encoding="utf-8")
    assert "ours against mxnet, NCHW/fused/slices" in text
    assert text.count("| MXNet |") == 7
    assert "these figures say nothing" in text
