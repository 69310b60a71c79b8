"""``dpmodule train-agent --save-every-n-secs`` and ``--resume``: what is gone on from after a kill."""

import random
import signal
import time

import numpy as np
import pytest

from dpmodule.checkpoint import run_format
from helpers.programs import Program

EPISODES, ENTRIES = 60, 3
MODULE = f"""
import os, time
import numpy as np, torch
from dpmodule.agents import Agent
from dpmodule.agents.agent import options_file, dump_options
from dpmodule.agents.teachers import FixedDialogTeacher

PAUSE_S = float(os.environ.get("PAUSE_S", 0))


class Numbered(FixedDialogTeacher):
    '''Asks the numbers of its episodes and examples.'''

    def get(self, episode_idx, entry_idx=0):
        text = f"{{episode_idx}} {{entry_idx}}"
        return {{"text": text, "labels": [text], "episode_done": entry_idx == {ENTRIES - 1}}}

    def num_episodes(self):
        return {EPISODES}

    def num_examples(self):
        return {EPISODES * ENTRIES}


class Counting(Agent):
    '''Counts how often it has seen each example.'''

    @staticmethod
    def add_cmdline_args(parser):
        pass

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.id = "Counting"
        if shared:
            self.counts = shared["counts"]
            return
        self.counts = torch.zeros({EPISODES}, {ENTRIES}, dtype=torch.int64).share_memory_()
        path = opt.get("model_file") or ""
        if os.path.exists(path):
            with open(path, "rb") as file:
                self.counts[:] = torch.from_numpy(np.load(file))

    def share(self):
        return {{**super().share(), "counts": self.counts}}

    def act(self):
        seen = self.observation or {{}}
        if "labels" in seen:
            time.sleep(PAUSE_S)
            episode, entry = map(int, seen["text"].splitlines()[-1].split())
            self.counts[episode, entry] += 1
        return {{"id": self.id, "text": "?"}}

    def save(self, path=None):
        with open(path, "wb") as file:
            np.save(file, self.counts.numpy())
        with open(options_file(path), "wb") as file:
            file.write(dump_options({{**self.opt, "model": "numbered:Counting"}}))
"""
TRAIN = (
    "train-agent",
    "-t",
    "numbered:Numbered",
    "-dt",
    "train:ordered",
    "-m",
    "numbered:Counting",
    "-mf",
    "m",
)
TRAIN = (*TRAIN, "-ve", "0", "-eps", "1", "--quiet")


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    """A module with a teacher and an agent, in the folder in which the command runs."""
    (tmp_path / "numbered.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


def killed(folder, seconds, *more):
    """Start a training, and kill it some time after its next checkpoint."""
    path = folder / "m.trainstats"
    before = path.stat().st_mtime_ns if path.exists() else 0
    words = (*TRAIN, "-stim", "0.001", "--resume", *more)
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\nfrom dpmodule.cli.__main__ import main\nsys.exit(main())"
    with Program("code", code, *words, cwd=folder, PAUSE_S="0.004") as program:
        end = time.monotonic() + 20
        while not (path.exists() and path.stat().st_mtime_ns > before):
            assert time.monotonic() < end, program.output()
            time.sleep(0.001)
        time.sleep(seconds)
        program.send_signal(signal.SIGKILL)
        program.send_signal(signal.SIGKILL)
        assert program.wait() == -signal.SIGKILL, program.output()
    return run_format.read(path)


@pytest.mark.parametrize(("workers", "rows", "sort"), [(1, 1, 0), (1, 4, 0), (2, 2, 0), (2, 2, 1)])
def test_a_killed_training_shows_each_example_once(workers, rows, sort, run, tmp_path):
    generator = random.Random(workers * rows)
    more = ("-nt", workers, "-bs", rows, "--batch-sort", ("false", "true")[sort])
    parleys = [killed(tmp_path, generator.random() * 0.1, *more)["parleys"] for _ in range(2)]
    assert 0 < parleys[0] < parleys[1] < EPISODES * ENTRIES / rows
    done = run(*TRAIN, "--resume", "-stim", 30, *more)
    assert (done.code, done.err) == (0, "")
    found = np.load(tmp_path / "m")
    assert found.sum() == EPISODES * ENTRIES
    if workers == 1 or sort:
        assert (found == 1).all(), found
    else:  # an epoch is so many examples: one worker may be in the next round while another ends its episode
        assert (np.diff(found, axis=1) <= 0).all(), found  # no example is passed over or seen again
        assert (np.diff(found[:, 0]) <= 0).all(), found
        assert (found[:, 0] > found[:, -1]).sum() <= 2 * workers * rows, found
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("m")) == ["m", "m.opt"]


def test_a_checkpoint_of_another_training_is_one_error(run, tmp_path):
    killed(tmp_path, 0.0)
    done = run(*TRAIN, "--resume", "-bs", 3, "-dt", "train")
    assert done.code == 2
    assert "--datatype was 'train:ordered', is 'train'; --batchsize was 1, is 3" in done.err
    with (tmp_path / "m.trainstats").open("wb") as file:
        run_format.write(file, {})
    done = run(*TRAIN, "--resume")
    assert done.code == 2
    assert "m.trainstats: not a checkpoint of this version of train-agent" in done.err
    (tmp_path / "m.trainstats").write_text("{")
    done = run(*TRAIN, "--resume")
    assert done.code == 2
    assert "m.trainstats" in done.error
    assert run(*TRAIN, "--overwrite", "--resume").code == 0
    assert (np.load(tmp_path / "m") == 1).all()


def test_what_cannot_be_gone_on_from_is_refused(run):
    for words, expected in [
        (("--resume", "-im", "x"), "give only one of them"),
        (("-stim", "5", "-dt", "train:stream"), "they do not work with --datatype"),
        (("-stim", "-1"), "expected a number of seconds from 0"),
    ]:
        done = run(*TRAIN, *words)
        assert done.code == 2
        assert expected in done.err
    without = run(*TRAIN[:7], "-stim", "5")
    assert without.code == 2
    assert "need a --model-file" in without.err
