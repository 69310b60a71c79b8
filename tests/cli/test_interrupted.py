"""Commands that Ctrl-C interrupts: what they save, and that the printed command ends in the bits of a whole run."""

import re
import shlex
import signal

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import checkpoint
from dpmodule.callback import TqdmBar
from helpers.programs import Program

FIT = ("fit", "--network", "mlp", "--epochs", "3", "--prefix", "my run/net")
INTERRUPTING = """
import os, signal, sys
import dpmodule as mx
from dpmodule.cli import agents
from dpmodule.cli.__main__ import main
place, count, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sys.argv[1:4] = []
calls = []

def interrupt(original):
    def call(*args, **options):
        calls.append(1)
        if len(calls) == count:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
        return original(*args, **options)
    return call

where, name = {
    "batch": (mx.callback.TqdmBar, "__call__"),
    "first batch": (mx.mod.Module, "forward_backward"),
    "evaluation": (mx.mod.Module, "evaluate"),
    "save": (mx.checkpoint, "save_checkpoint"),
    "parley": (agents, "step"),
}[place]
setattr(where, name, interrupt(getattr(where, name)))
sys.exit(main())
"""


def interrupted(folder, place, count, times, *words):
    """Run a command that is interrupted, and return the words of the command that it prints."""
    with Program("code", INTERRUPTING, place, str(count), str(times), *words, cwd=folder) as program:
        code = program.wait(60)
        error = program.output()[1]
    assert code == 130, error
    assert error.endswith("dpmodule: interrupted\n"), error
    program, *words = shlex.split(re.search(r"to (resume|begin again): (.*)", error)[2])
    return words


def arrays(path):
    return {name: value.asnumpy() for name, value in mx.nd.load(str(path)).items()}


def assert_same(first, second):
    for name, value in arrays(first).items():
        np.testing.assert_array_equal(arrays(second)[name], value)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the parameters' file of a run that was not interrupted."""
    from dpmodule.cli.__main__ import main

    prefix = tmp_path_factory.mktemp("whole") / "net"
    assert main([*FIT[:-1], str(prefix)]) == 0
    return f"{prefix}-0003.params"


@pytest.mark.parametrize(
    ("place", "count", "times"),
    [("first batch", 1, 1), ("batch", 30, 1), ("first batch", 30, 2), ("save", 1, 2), ("evaluation", 1, 1)],
)
def test_an_interrupted_fit_resumes(place, count, times, run, tmp_path, whole):
    words = interrupted(tmp_path, place, count, times, *FIT)
    assert ("--resume" in words) is (times == 1 or place == "save")
    assert "--load-epoch" not in words
    if place == "batch":
        words = interrupted(tmp_path, place, 5, 1, *words)
    assert run(*words).code == 0
    assert_same(whole, tmp_path / "my run/net-0003.params")


AGENT = (
    "train-agent",
    "-t",
    "episodes_of_three:Dialogues",
    "-m",
    "seq2seq",
    "-hs",
    "8",
    "-esz",
    "8",
    "-bs",
    "8",
)
AGENT = (*AGENT, "-opt", "adam", "--num-epochs", "2", "--quiet", "--batch-sort", "false", "-mf")
DIALOGUES = """
from dpmodule.agents.teachers import FixedDialogTeacher

class Dialogues(FixedDialogTeacher):
    '''Has episodes of three examples.'''

    def get(self, episode_idx, entry_idx=0):
        text = " ".join("abcdefgh"[(episode_idx * k + entry_idx) % 8] for k in range(1, 4))
        return {"text": text, "labels": [text[::-1]], "episode_done": entry_idx == 2}

    def num_episodes(self):
        return 24

    def num_examples(self):
        return 72
"""


@pytest.mark.parametrize(
    ("count", "times", "more"), [(11, 1, ("-dt", "train:ordered", "-ve", "0")), (9, 1, ()), (1, 1, ())]
)
def test_an_interrupted_agent_resumes(count, times, more, run, tmp_path, monkeypatch):
    """Within an episode, at the end of an epoch, and at the very beginning."""
    (tmp_path / "episodes_of_three.py").write_text(DIALOGUES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert run(*AGENT, "whole", *more).code == 0
    words = interrupted(tmp_path, "parley", count, times, *AGENT, "part", *more)
    assert words[-1] == "--resume"
    assert (tmp_path / "part.trainstats").exists()
    assert run(*words).code == 0
    assert_same("whole-0000.params", "part-0000.params")
    left = sorted(path.name for path in tmp_path.glob("part*"))
    assert left == ["part-0000.params", "part-symbol.json", "part.dict", "part.opt"]


RESUMED = ("fit", "--network", "mlp", "--epochs", 3, "--resume")


def params(prefix):
    args, aux = checkpoint.load_params(prefix, 3)
    return {name: array.asnumpy().tobytes() for name, array in {**args, **aux}.items()}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_what_a_signal_ends_goes_on(number, run, tmp_path, monkeypatch):
    assert run(*RESUMED, "--prefix", "whole").code == 0
    seen = []

    def ends(bar, param, show=TqdmBar.__call__):
        seen.append(param.nbatch)
        if len(seen) == 30:
            signal.raise_signal(number)
        return show(bar, param)

    monkeypatch.setattr(TqdmBar, "__call__", ends)
    try:
        code = run(*RESUMED, "--prefix", "part").code
    except SystemExit as error:
        code = error.code
    assert code == 128 + number
    assert len(seen) == 31
    assert (tmp_path / "part-last.run").exists()
    again = run(*RESUMED, "--prefix", "part")
    assert again.code == 0
    assert params("part") == params("whole")
    saved = sorted(path.name for path in tmp_path.glob("whole-*.run"))
    assert saved == ["whole-0002.run", "whole-0003.run"]


def test_a_finished_run_stays_as_it_is_and_can_be_removed(run, tmp_path):
    assert run(*RESUMED, "--prefix", "a", "--save-every", 2, "--save-batches", 10).code == 0
    assert sorted(path.name for path in tmp_path.glob("a-0*.params")) == ["a-0002.params", "a-0003.params"]
    before = params("a")
    assert run(*RESUMED, "--prefix", "a", "--save-every", 2).code == 0
    assert params("a") == before
    assert run("fit", "--network", "lenet", "--epochs", 1, "--prefix", "a", "--overwrite").code == 0
    assert [path.name for path in tmp_path.glob("a-*.run")] == ["a-0001.run"]


def test_another_run_is_refused(run):
    assert run(*RESUMED, "--prefix", "a").code == 0
    assert "the batch size was 64, is 32" in run(*RESUMED, "--prefix", "a", "--batch-size", 32).error
    shorter = ("fit", "--network", "mlp", "--epochs", 2, "--resume", "--prefix", "a")
    assert "epoch 3 is saved under the prefix 'a'; give --epochs at least that number" in run(*shorter).error
