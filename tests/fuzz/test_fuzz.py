"""Damaged files are read or refused with a typed error: never a crash, a hang or a flood of memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KINDS = ("symbol.json", "params", "states", "rec", "idx", "csv", "libsvm", "mnist")


def run(kind, count, seed, folder, timeout):
    path = os.pathsep.join([str(HERE), *sys.path])
    done = subprocess.run(
        [sys.executable, str(HERE / "campaign.py"), kind, str(count), str(seed)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"{kind}: died on {folder / 'last'}\n{done.stderr[-3000:]}"
    return json.loads(done.stdout.splitlines()[-1])


def check(found, count):
    assert found["findings"] == [], found
    assert found["read"] + found["refused"] == count
    assert found["read"], "nothing got through: the seeds are not valid"
    assert found["refused"], "nothing was refused: the damage does not reach the reader"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files(kind, tmp_path):
    check(run(kind, 400, 1, tmp_path, 100), 400)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_at_length(kind, tmp_path):
    check(run(kind, 100_000, 2, tmp_path, 3500), 100_000)
