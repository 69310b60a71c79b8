"""Another revision of dpmodule beside ours: which one runs, what is compared, and what must hold."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import dpmodule as mx
from benchmarks.harness import Session, check_before
from benchmarks.report import BEFORE

ROOT = Path(__file__).parents[2]
PARTS = {"fit": 7, "bucketing": 1, "startup": 8, "streams": 23, "autobatch": 55}
"""Parts that compare, and how many rows their quick forms have, without uvloop and GPU."""


@pytest.fixture
def other(tmp_path):
    """A folder with a package of our name."""
    (tmp_path / "dpmodule").mkdir()
    (tmp_path / "dpmodule" / "__init__.py").touch()
    return tmp_path


def home_of(given):
    with Session(against={"before": str(given)}).sides(before_ours=("imports",)) as sides:
        return sides["before_ours"].ask("home")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["folder", "interpreter"])
def test_the_other_revision_runs(other, tmp_path, kind):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{other}" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert home_of(other if kind == "folder" else python) == str(other / "dpmodule" / "__init__.py")
    check_before(str(other))


@pytest.fixture
def copy(tmp_path):
    """A folder with a copy of the package, compiled files and all."""
    folder = tmp_path / "copy"
    shutil.copytree(Path(mx.__file__).parent, folder / "dpmodule")
    return folder


def run(copy, output, *parts):
    line = [sys.executable, "-m", "benchmarks", *parts, "--quick", "--rounds", "1"]
    line += ["--against", f"before={copy}", "--output", str(output)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(output.with_suffix(".json").read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_quick_forms_of_the_parts_that_compare(copy, tmp_path):
    found = run(copy, tmp_path / "found.md", *PARTS)
    rows = {name: len(part["tables"][BEFORE]) - 2 for name, part in found.items()}
    rows["streams"] -= 2 * (importlib.util.find_spec("uvloop") is not None)
    rows["autobatch"] -= 5 * torch.cuda.is_available()
    assert rows == PARTS
    for part in found.values():
        held = [each for each in part["targets"] if "before over now, upper quartile" in each["what"]]
        assert {(each["must"], each["at_most"]) for each in held} == {(1.0, False)}
        assert len(held) == len(part["tables"][BEFORE]) - 2
