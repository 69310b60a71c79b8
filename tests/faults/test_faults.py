"""Trainings that are killed, or ended by a signal, at random places, and go on: nothing is lost, nothing is left."""

import json

import pytest

from helpers.programs import TESTS, run_file
from helpers.resumable import KINDS

FILE = TESTS / "helpers" / "faults.py"


def drive(mode, folder, count, seed, *more, seconds=110):
    done = run_file(FILE, mode, folder, count, seed, *more, seconds=seconds)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert found["faults"] == count
    return found


@pytest.mark.parametrize("mode", ["kill", "signal"])
def test_what_happens_to_a_training_is_not_seen_in_its_end(tmp_path, mode):
    found = drive(mode, tmp_path, 10, 1, "plain", "buckets", "contexts")
    assert found["trainings"] > 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", ["kill", "signal"])
def test_two_hundred_faults(tmp_path, mode):
    found = drive(mode, tmp_path, 200, 7, *KINDS, "fresh", seconds=1700)
    assert found["trainings"] >= len(KINDS)
    assert max(found["back"]) > 3 or mode == "signal"
