"""``dpmodule train-agent --save-every-n-secs`` and ``--resume`` after a kill."""

import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from dpmodule.checkpoint import run_format
from helpers.programs import Program

EPISODES = 60
TASK = ("-t", "helpers.small_tasks:Dialogues", "-m", "helpers.small_tasks:Counting", "--episodes", EPISODES)
TRAIN = ("train-agent", *TASK, "-mf", "m", "-dt", "train:ordered", "-ve", 0, "-eps", 1, "--quiet")
STATS = Path("m.trainstats")


def killed(folder, seconds, *more):
    """Start a training, and kill it some time after its next checkpoint."""
    before = STATS.stat().st_mtime_ns if STATS.exists() else 0
    words = (*TRAIN, "-stim", "0.001", "--resume", *more)
    with Program("module", "dpmodule", *words, cwd=folder, PAUSE_S="0.004") as program:
        end = time.monotonic() + 20
        while not (STATS.exists() and STATS.stat().st_mtime_ns > before):
            assert time.monotonic() < end, program.output()
            time.sleep(0.001)
        time.sleep(seconds)
        program.send_signal(signal.SIGKILL)
        assert program.wait() == -signal.SIGKILL, program.output()
    return run_format.read(STATS)


@pytest.mark.parametrize(("workers", "rows", "sort"), [(1, 1, 0), (1, 4, 0), (2, 2, 0), (2, 2, 1)])
def test_a_killed_training_shows_each_example_once(workers, rows, sort, run, tmp_path):
    generator = random.Random(workers * rows)
    more = ("-nt", workers, "-bs", rows, "--batch-sort", ("false", "true")[sort])
    parleys = [killed(tmp_path, generator.random() * 0.1, *more)["parleys"] for _ in range(2)]
    assert 0 < parleys[0] < parleys[1] < EPISODES * 3 / rows
    done = run(*TRAIN, "--resume", "-stim", 30, *more)
    assert (done.code, done.err) == (0, "")
    found = np.load("m")
    assert found.sum() == EPISODES * 3
    if workers == 1 or sort:
        assert (found == 1).all(), found
    else:  # an epoch is a number of examples: one worker may be in the next round while another ends its episode
        assert (np.diff(found, axis=1) <= 0).all(), found  # no example is passed over or seen again
        assert (np.diff(found[:, 0]) <= 0).all(), found
        assert (found[:, 0] > found[:, -1]).sum() <= 2 * workers * rows, found
    assert sorted(name for name in os.listdir() if name.startswith("m")) == ["m", "m.opt"]


def test_a_checkpoint_of_another_training_is_one_error(run, tmp_path):
    killed(tmp_path, 0.0)
    told = "--datatype was 'train:ordered', is 'train'; --batchsize was 1, is 3"
    assert told in run(*TRAIN, "--resume", "-bs", 3, "-dt", "train").error
    with STATS.open("wb") as file:
        run_format.write(file, {})
    told = "m.trainstats: not a checkpoint of this version of train-agent"
    assert told in run(*TRAIN, "--resume").error
    STATS.write_text("{")
    assert "m.trainstats" in run(*TRAIN, "--resume").error
    assert run(*TRAIN, "--overwrite", "--resume").code == 0
    assert (np.load("m") == 1).all()
