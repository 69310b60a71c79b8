"""``dpmodule train-agent``, ``eval-agent``, ``display-data`` and ``interactive``: what they do, write and print."""

import io
import json
import os
import re
import shlex
import signal
from pathlib import Path
from unittest import mock

import pytest

from dpmodule.agents import Agent
from dpmodule.agents.agent import dump_options, options_file
from dpmodule.agents.batch_world import BatchWorld
from dpmodule.agents.examples import DialogHistory


class Table(Agent):
    """Remembers the answer to each question."""

    @staticmethod
    def add_cmdline_args(parser):
        parser.add_argument("--learns", type="bool", default=True)

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.id, path = "Table", Path(opt.get("model_file") or "none")
        self.known = shared["known"] if shared else json.loads(path.read_text()) if path.exists() else {}

    def share(self):
        return {**super().share(), "known": self.known}

    def act(self):
        seen = self.observation or {}
        if "text" not in seen:
            return {"id": self.id}
        if "labels" in seen and self.opt["learns"]:
            self.known[seen["text"]] = seen["labels"][0]
        return {"id": self.id, "text": self.known.get(seen["text"], "?"), "metrics": {"loss": 1.0}}

    def save(self, path=None):
        Path(path).write_text(json.dumps(self.known))
        opt = {**self.opt, "model": f"{__name__}:{type(self).__name__}"}
        Path(options_file(path)).write_bytes(dump_options(opt))


class Other(Table):
    pass


class Echo(Agent):
    """Says the dialogue so far."""

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.history = DialogHistory(opt)

    def observe(self, observation):
        self.observation = self.history.extended(observation)

    def act(self):
        return {"text": self.observation["text"]}


COPY = "nocandidate:length=2:tokens=3"
"""A task of nine texts."""
EVAL = "reverse:train:length=3:letters=3:size=50"
TRAIN = ("train-agent", "-t", "reverse:length=3:letters=3", "-et", EVAL, "-m", f"{__name__}:Table")


def accuracies(done):
    return [float(found) for found in re.findall(r"validation [^\n]*?accuracy=([\d.]+)", done.out)]


def written():
    return sorted(name for name in os.listdir() if name.startswith("m"))


def test_an_agent_is_trained_validated_saved_and_evaluated(run):
    done = run(*TRAIN, "-mf", "m", "--num-epochs", 2)
    assert (done.code, done.err) == (0, "")
    assert len(re.findall(r"^epoch \d: total=10,000, ", done.out, re.MULTILINE)) == 2
    assert (accuracies(done), done.out.count("(best)")) == ([1.0, 1.0], 1)
    assert done.out.endswith("written: m.opt\nbest validation accuracy: 1.0000\n")
    assert written() == ["m", "m.opt"]
    evaluate = ("eval-agent", "-t", EVAL, "-mf", "m")
    assert run(*evaluate, "-m", f"{__name__}:Table").out == "total=50, accuracy=1, f1=0.82, loss=1\n"
    assert "modules that only a file names are not imported" in run(*evaluate).error
    done = run(*TRAIN, "-mf", "m", "-eps", 1, "--learns", "no")  # trained further
    assert done.out.startswith("saved before: validation total=50, accuracy=1,")
    assert (accuracies(done), done.out.count("(best)")) == ([1.0, 1.0], 1)
    line = run(*TRAIN[:-1], f"{__name__}:Other", "-mf", "m", "-eps", 1).error
    assert f"--model-file is 'm', where another agent is saved: '{__name__}:Table'" in line
    program, *words = shlex.split(line.rpartition("remove the saved agent: ")[2])
    assert (program, run(*words).code) == ("dpmodule", 0)


@pytest.mark.parametrize(
    ("words", "printed", "epochs"),
    [
        (("-bs", 32, "-eps", 1, "--quiet", "--target", 1), "best validation accuracy: 1.0000\n$", []),
        (("--max-batch-tokens", 60, "-eps", 1), r"validation [^\n]*accuracy=1,", ["1"]),
        (("-mf", "m", "-eps", 1, "-ve", 0), r"training accuracy: [\d.]+\n$", []),
        (("-eps", 5, "-ve", 2), "best", ["2", "4", "5"]),
        (("-eps", 2, "-vmt", "loss"), r"^((?!\(best\)).)*\(best\)((?!\(best\)).)*$", ["1", "2"]),
    ],
)
def test_options_of_training(words, printed, epochs, run):
    done = run(*TRAIN, *words)
    assert (done.code, done.err) == (0, "")
    assert re.search(printed, done.out, re.DOTALL)
    assert re.findall(r"epoch (\d): validation", done.out) == epochs
    assert written() == (["m", "m.opt"] if "-mf" in words else [])


def test_a_missed_target_is_exit_code_1_and_an_unknown_metric_is_an_error(run):
    assert run("eval-agent", "-t", COPY, "-m", "repeat_label", "--target", 1.0).code == 0
    done = run("eval-agent", "-t", COPY, "-m", f"{__name__}:Table", "--learns", "no", "--target", 0.5)
    assert (done.code, done.err) == (1, "the target of 0.5000 was missed\n")
    assert run(*TRAIN, "-eps", 1, "--learns", "no", "--target", 0.9).code == 1
    line = run(*TRAIN, "-eps", 1, "-vmt", "lost").error
    assert "--validation-metric is 'lost', expected one of total, accuracy, f1, loss" in line


def test_display_data_prints_examples(run):
    done = run("display-data", "-t", COPY, "-ne", 2)
    assert done.out.count("~~\n") == 2
    assert re.match(r"\[nocandidate:length=2:tokens=3\]:\n (\d \d)\n \[labels: \1\]\n", done.out)
    assert done.out.endswith("500 examples in 500 episodes\n")
    assert run("display-data", "-t", f"{COPY}:size=3", "-nt", 2, "-bs", 8).out.count("~~\n") == 3


def test_several_tasks_have_reports_of_their_own(run):
    done = run("eval-agent", "-t", f"{COPY},reverse:valid:size=3", "-m", "repeat_label")
    assert done.out == (
        "total=103, accuracy=1, f1=1, loss=0, ppl=0; nocandidate:length=2:tokens=3: total=100, accuracy=1, f1=1; "
        "reverse:valid:size=3: total=3, accuracy=1, f1=1\n"
    )


@pytest.mark.parametrize(
    ("words", "typed", "said"),
    [
        (("repeat_query",), "hello\n\nthere\n", ["RepeatQueryAgent", "hello", "RepeatQueryAgent", "there"]),
        (("random_candidate", "--candidates", "answers"), "well?\n", ["RandomCandidateAgent", "yes"]),
        ((f"{__name__}:Echo",), "a\nb\n", ["agent", "a", "agent", "a\nb"]),
        ((f"{__name__}:Echo", "--single-turn"), "a\nb\n", ["agent", "a", "agent", "b"]),
    ],
)
def test_interactive(words, typed, said, run, monkeypatch):
    Path("answers").write_text("yes\n\nyes\n")
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    lines = (f"[{who}]: {what}\n" for who, what in zip(said[::2], said[1::2]))
    assert run("interactive", "-m", *words).out == "".join(lines)
    Path("answers").write_text("\n")
    error = run("interactive", "-m", "repeat_query", "--candidates", "answers").error
    assert "'answers', which has no lines" in error


@pytest.mark.parametrize("command", ["train-agent", "eval-agent", "display-data", "interactive"])
def test_help_lists_the_flags(command, run):
    done = run(command, "--help")
    assert (done.code, f"usage: dpmodule {command}" in done.out) == (0, True)
    assert ("--candidates" if command == "interactive" else "--datatype") in done.out


@pytest.mark.filterwarnings("default")
def test_bad_lines_are_an_error_or_counted(run):
    Path("talk").write_text("text:a\tlabels:b\nnothing\ntext:c\tlabels:d\n")
    words = ("eval-agent", "-t", "fromfile:talk", "-m", "repeat_label")
    assert "talk: line 2: " in run(*words).error
    done = run(*words, "--on-bad-line", "skip")
    assert done.out == "total=2, accuracy=1, f1=1\n"
    assert done.err.startswith("note: talk: 1 malformed line skipped, the first: line 2: ")


def test_a_failed_training_prints_the_command_that_resumes(run, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(BatchWorld, "parley", mock.Mock(side_effect=[None, None, None, OSError(28, "full")]))
        done = run(*TRAIN, "-mf", "m", "-bs", 32, "-eps", 1, "-ve", 0)
    program, *again = shlex.split(re.search(r"to resume: (.*)", done.err)[1])
    assert program == "dpmodule"
    assert "full" in done.error
    assert "saved: m.checkpoint-0" in done.err
    assert re.search(r" --num-epochs [01].* --init-model m.checkpoint-0", " ".join(again))
    assert written() == ["m.checkpoint-0", "m.checkpoint-0.opt"]


def test_an_interrupted_training_resumes(run, monkeypatch):
    parley, calls = BatchWorld.parley, []

    def interrupted(self):
        calls.append(1)
        if len(calls) == 150:
            signal.raise_signal(signal.SIGINT)
        parley(self)

    words = (*TRAIN, "-mf", "m", "-bs", 100, "-bsrt", "no", "-eps", 2, "-ve", 0)
    with monkeypatch.context() as patch:
        patch.setattr(BatchWorld, "parley", interrupted)
        done = run(*words)
    assert (done.code, "saved: m.trainstats\n" in done.err) == (130, True)
    assert written() == ["m", "m.checkpoint-0", "m.checkpoint-0.opt", "m.opt", "m.trainstats"]
    done = run(*words, "--resume")
    assert (done.code, "epoch 2: total=5,000" in done.out) == (0, True)
    assert written() == ["m", "m.opt"]
