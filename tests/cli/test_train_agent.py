"""``dpmodule train-agent --save-every-n-secs`` and ``--resume`` after a kill."""

import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.agents import BatchWorld, HogwildWorld, ModuleAgent, vectors
from dpmodule.checkpoint import run_format
from dpmodule.cli.train_agent import AgentCheckpoint
from dpmodule.optimizer.states import load_states
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


LEARNING = {
    "seq2seq": ("-t", "reverse:size=200:length=3", "-m", "seq2seq", "-opt", "adam", "-esz", 8, "-hs", 8),
    "starspace": ("-t", "docs:candidates=3", "-m", "starspace", "-esz", 8),
    "module": ("-t", "nocandidate:size=200", "-m", f"{__name__}:Momentum", "--momentum", 0.9),
}


class Momentum(ModuleAgent):
    """Replies with the first number of a text."""

    default_learningrate = 0.3

    def sym_gen(self, opt, dict):
        words = mx.sym.Variable("words", shape=(0, 4))
        rows = mx.sym.Embedding(words, input_dim=len(dict), output_dim=8, name="table")
        return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(rows, num_hidden=len(dict)), name="softmax")

    def vectorize(self, observations):
        texts = [self.dict.txt2vec(each["text"]) for each in observations]
        first = vectors.dense([text[0] for text in texts])
        return vectors.batch_of({"words": vectors.padded(texts, 4)}, {"softmax_label": first})


def stop(patch, kind, number):
    """Interrupt the training before a parley."""
    parley, calls = kind.parley, []

    def interrupted(self):
        calls.append(1)
        if len(calls) == number:
            signal.raise_signal(signal.SIGINT)
        parley(self)

    patch.setattr(kind, "parley", interrupted)


@pytest.mark.parametrize(
    ("name", "number"), [("module", 1), ("module", 25), ("seq2seq", 13), ("starspace", 13)]
)
def test_a_resumed_agent_ends_with_the_same_parameters(name, number, run, monkeypatch):
    words = ("train-agent", *LEARNING[name], "-bs", 10, "-eps", 0.2 if name == "starspace" else 2, "-ve", 0)
    run(*words, "-mf", "whole")
    with monkeypatch.context() as patch:
        stop(patch, BatchWorld, number)
        assert run(*words, "-mf", "m").code == 130
    assert number == 1 or run_format.read(STATS)["optimizer"].size > 1000
    assert run(*words, "-mf", "m", "--resume").code == 0
    assert Path("m-0000.params").read_bytes() == Path("whole-0000.params").read_bytes()


def test_the_optimizer_of_several_workers_continues(run, monkeypatch):
    words = ("train-agent", *LEARNING["module"], "-mf", "m", "-nt", 2, "-bs", 5, "-eps", 3, "-ve", 0)
    with monkeypatch.context() as patch:
        stop(patch, HogwildWorld, 20)
        assert run(*words).code == 130
    found = [run_format.read(STATS)["optimizer"].tobytes()]
    load = AgentCheckpoint.load_states

    def load_states_and_note(self, agent, world):
        load(self, agent, world)
        found.append(agent.network.optimizer_states())

    monkeypatch.setattr(AgentCheckpoint, "load_states", load_states_and_note)
    assert run(*words, "--resume").code == 0
    (states, optimizer), (loaded, same) = map(load_states, found)
    for key, state in states.items():
        assert abs(state.asnumpy()).max() > 0
        np.testing.assert_array_equal(loaded[key].asnumpy(), state.asnumpy())
    counts = [{key: each.count_of(key) for key in states} for each in (optimizer, same)]
    assert counts[0] == counts[1]
    assert min(counts[0].values()) == 20
