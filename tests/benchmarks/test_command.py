"""The command line: which parts run, what is written, and the exit status."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import machines, settings
from benchmarks.parts import fit
from benchmarks.report import Section, tables_of

ROOT = Path(__file__).parents[2]
SHARED = [
    "workloads.py",
    "corpus.py",
    "networks.py",
    "operator_cases.py",
    "autobatch_tasks.py",
    "treebank.py",
]
SHARED += ["settings.py"]
SHARED += [
    f"sides/{name}.py" for name in ("serve", "module", "language", "operators", "autobatch", "exported")
]


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
    text = (tmp_path / "found_tables.md").read_text(encoding="utf-8")
    assert text.index("## fit") < text.index("## ops")


@pytest.mark.parametrize(
    ("line", "written"), [([], True), (["fit"], False), (["fit", "--write"], True), (["--quick"], False)]
)
def test_results_are_written_by_whole_runs_or_on_request(line, written, measured, monkeypatch, tmp_path):
    monkeypatch.setattr(command, "RESULTS", tmp_path / "RESULTS.md")
    assert command.main(line) == (0 if "--quick" in line else 1)
    assert (tmp_path / "RESULTS.md").exists() == written
    assert [name for name, _ in measured] == (["fit"] if "fit" in line else list(command.PARTS))


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
        (
            "ops --isa avx2",
            "ops with AVX2, 1 thread: expected parts among fit, bucketing, kernels, autobatch",
        ),
        (
            "autobatch fit --threads default",
            "autobatch with all instructions, default threads: expected parts among fit, bucketing, kernels",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused_in_a_line(line, said, measured, old_processor, capsys):
    assert command.main(line.split()) == 2
    assert capsys.readouterr().err == f"python -m benchmarks: {said}\n"
    assert not measured


def test_a_setting_makes_a_column_alone(measured, old_processor, tmp_path):
    output = tmp_path / "RESULTS.md"
    assert command.main(["fit", "--output", str(output)]) == 1
    before = (tmp_path / "results.json").read_bytes()
    line = ["--isa", "avx2", "--threads", "default", "--output", str(output)]
    assert command.main(line) == 1
    assert [name for name, _ in measured] == ["fit", "fit", "bucketing", "kernels"]
    assert [session.clock for _, session in measured] == ["cpu", "wall", "wall", "wall"]
    assert (tmp_path / "results.json").read_bytes() == before
    text = tables_of(output).read_text(encoding="utf-8")
    cores = os.cpu_count()
    columns = (
        f"Old, {cores} cores, all instructions, 1 thread",
        f"Old, {cores} cores, AVX2, default threads",
    )
    assert f"| {' | '.join(columns)} |" in text


def test_files_of_another_form_end_the_run_before_it_begins(measured, tmp_path, capsys):
    output, other = tmp_path / "RESULTS.md", tmp_path / "machines" / "x.json"
    assert command.main(["fit", "--output", str(output)]) == 1
    before = output.read_bytes()
    for text, found in (
        ('{"version": 2}', "found 2"),
        ("[]", "found None"),
        ("{", "expected JSON of version 1"),
    ):
        other.write_text(text, encoding="utf-8")
        capsys.readouterr()
        assert command.main(["fit", "--output", str(output)]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert str(other) in said
        assert found in said
    assert len(measured) == 1
    assert output.read_bytes() == before


def test_an_interpreter_without_the_package_ends_with_2_and_leaves_the_others_in(
    monkeypatch, tmp_path, capsys
):
    """What it would have measured is left out; the rest is measured and written."""

    def run(session):
        found = Section("Fit", "About it.")
        for each in ("mxnet_one", "mxnet_two", "onnxruntime", "ours"):
            if session.has(each):
                found.row("", what=each)
        return found

    monkeypatch.setattr(fit, "run", run)
    output = tmp_path / "found.md"
    line = ["fit", "--quick", "--output", str(output), "--against"]
    assert command.main([*line, f"mxnet={tmp_path}/python", "--against", f"onnxruntime={tmp_path}"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"--against mxnet={tmp_path}/python: there is no Python with mxnet; its rows are left out",
        f"--against onnxruntime={tmp_path}: there is no Python with onnxruntime; its rows are left out",
    ]
    assert "| ours |" in tables_of(output).read_text(encoding="utf-8")
    assert "mxnet" not in tables_of(output).read_text(encoding="utf-8")


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
    text, _, columns = tables_of(output).read_text(encoding="utf-8").partition("## Processors and settings")
    assert "ours against mxnet, NCHW/fused/slices" in text
    assert text.count("| MXNet |") == 7
    assert text.count("| torch.compile |") == 2
    assert columns.count("| MXNet |") == 7
    assert "these figures are meaningless" in text
