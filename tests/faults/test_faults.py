"""Trainings that are killed, or ended by a signal, at random places, and go on: nothing is lost, nothing is left."""

import json
import random
import signal
import time

import pytest

from helpers.processes import until
from helpers.programs import TESTS, Program, run_file
from helpers.resumable import KINDS

FILE = TESTS / "helpers" / "faults.py"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", ["kill", "signal"])
@pytest.mark.parametrize(
    ("count", "kinds"),
    [(10, ["buckets", "contexts"]), pytest.param(200, [*KINDS, "fresh"], marks=pytest.mark.slow)],
)
def test_what_happens_to_a_training_is_not_seen_in_its_end(tmp_path, mode, count, kinds):
    done = run_file(FILE, mode, tmp_path, count, 1, *kinds, seconds=110 if count == 10 else 1700)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["wrong"], found["faults"]) == ([], count)
    assert found["trainings"] >= len(set(kinds) - {"fresh"})
    assert max(found["back"]) > 3 or (mode, count) != ("kill", 200)


def saved(folder, name):
    return [path.read_bytes() for path in sorted(folder.glob(f"{name}-*.params"))]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_language_model_goes_on_where_it_was_killed(tmp_path):
    example, draw = TESTS.parent / "examples" / "bucketing_lm.py", random.Random(3)
    whole = run_file(example, "--smoke", "--resume", tmp_path / "whole", seconds=110)
    for _ in range(3):
        newest = newest_save(tmp_path)
        with Program("file", example, "--smoke", "--resume", tmp_path / "part") as program:
            until(lambda newest=newest: newest_save(tmp_path) > newest, 100)
            time.sleep(draw.uniform(0, 0.2))
            program.send_signal(signal.SIGKILL)
            assert program.wait() == -signal.SIGKILL
    again = run_file(example, "--smoke", "--resume", tmp_path / "part", seconds=110)
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines()[-1] == whole.stdout.splitlines()[-1]
    assert saved(tmp_path, "part") == saved(tmp_path, "whole")
    assert len(saved(tmp_path, "part")) == 4  # of two devices, at the end and within the last epoch


def newest_save(folder):
    return max((path.stat().st_mtime_ns for path in folder.glob("part-*.run")), default=0)
