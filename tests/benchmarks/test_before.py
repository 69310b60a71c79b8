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
from benchmarks.report import BEFORE

ROOT = Path(__file__).parents[2]
PARTS = {"fit": 7, "bucketing": 1, "startup": 8, "streams": 23, "autobatch": 55}
"""Parts that compare, and how many rows their quick forms have, without uvloop and GPU."""


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
