"""Damaged files are read or refused with a typed error: never a crash, a hang or a flood of memory."""

import json
from pathlib import Path

import pytest

from helpers.programs import run_file

HERE = Path(__file__).parent
KINDS = ("symbol.json", "params", "safetensors", "states", "rec", "idx", "csv", "libsvm", "mnist", "onnx")


def run(kind, count, seed, folder, timeout):
    done = run_file(HERE / "campaign.py", kind, count, seed, seconds=timeout, cwd=folder)
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
