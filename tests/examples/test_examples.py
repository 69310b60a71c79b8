"""Every example runs in its short form, ends with one line of result, and exits with 0."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_reaches_its_short_target(path, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path), "--smoke"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "target" in done.stdout.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 150
