"""``dpmodule train-agent``, ``eval-agent``, ``display-data`` and ``interactive``: what they do, write, and say."""

import io
import re
import shlex
import signal

import pytest

from dpmodule.agents.batch_world import BatchWorld

AGENT = """
import json, os
from dpmodule.agents import Agent
from dpmodule.agents.agent import options_file, dump_options


class Table(Agent):
    '''Learns which letter an answer begins with, by the last letter of the question.'''

    @staticmethod
    def add_cmdline_args(parser):
        parser.add_argument("--learns", type="bool", default=True)

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.id = "Table"
        self.known = shared["known"] if shared else self._loaded()

    def _loaded(self):
        path = self.opt.get("model_file") or ""
        if not os.path.exists(path):
            return {}
        with open(path) as file:
            return json.load(file)

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
        with open(path, "w") as file:
            json.dump(self.known, file)
        with open(options_file(path), "wb") as file:
            file.write(dump_options({**self.opt, "model": f"{__name__}:Table"}))


class Other(Table):
    pass
"""
COPY = "nocandidate:length=2:tokens=3"
"""A task of nine texts."""


@pytest.fixture(autouse=True)
def table(tmp_path, monkeypatch):
    """A module with agents, in the folder in which the command runs."""
    (tmp_path / "letters.py").write_text(AGENT)
    monkeypatch.syspath_prepend(tmp_path)


def accuracies(done, kind="validation"):
    return [float(found) for found in re.findall(rf"{kind} [^\n]*?accuracy=([\d.]+)", done.out)]


def written(tmp_path):
    return sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("m"))


TRAIN = ("train-agent", "-t", "reverse:length=3:letters=3", "-et", "reverse:train:length=3:letters=3:size=50")


def test_an_agent_is_trained_validated_saved_and_evaluated(run, tmp_path):
    done = run(*TRAIN, "-m", "letters:Table", "-mf", "m", "--num-epochs", 2)
    assert (done.code, done.err) == (0, "")
    assert len(re.findall(r"^epoch \d: total=10,000, ", done.out, re.MULTILINE)) == 2
    assert accuracies(done) == [1.0, 1.0]
    assert done.out.count("(best)") == 1
    assert done.out.endswith("written: m.opt\nbest validation accuracy: 1.0000\n")
    assert written(tmp_path) == ["m", "m.opt"]

    done = run(
        "eval-agent", "-t", "reverse:train:length=3:letters=3:size=50", "-m", "letters:Table", "-mf", "m"
    )
    assert (done.code, done.out) == (0, "total=50, accuracy=1, f1=0.82, loss=1\n")


def test_batches_train_as_well(run):
    done = run(*TRAIN, "-m", "letters:Table", "-bs", 32, "--num-epochs", 1, "--quiet", "--target", 1)
    assert (done.code, done.out, done.err) == (0, "best validation accuracy: 1.0000\n", "")


@pytest.mark.parametrize("command", [("train-agent", "-eps", 1, "-ve", 0), ("eval-agent",)])
def test_a_missed_target_is_exit_code_1(command, run):
    done = run(*command, "-t", COPY, "-m", "repeat_label", "--target", 1.0)
    assert done.code == 0
    done = run(*command, "-t", COPY, "-m", "letters:Table", "--learns", "no", "--target", 0.5)
    assert done.code == 1
    assert done.err == "the target of 0.5000 was missed\n"


def test_without_validation_the_last_state_is_kept(run, tmp_path):
    done = run(*TRAIN, "-m", "letters:Table", "-mf", "m", "-eps", 1, "-ve", 0)
    assert "validation" not in done.out
    assert re.search(r"training accuracy: [\d.]+\n$", done.out)
    assert written(tmp_path) == ["m", "m.opt"]


def test_validation_is_as_rare_as_asked_for(run):
    done = run(*TRAIN, "-m", "letters:Table", "-eps", 5, "-ve", 2)
    assert re.findall(r"epoch (\d): validation", done.out) == ["2", "4", "5"]


def test_the_best_is_kept_by_another_metric(run):
    done = run(*TRAIN, "-m", "letters:Table", "-eps", 2, "-vmt", "loss")
    assert done.out.count("(best)") == 1
    line = run(*TRAIN, "-m", "letters:Table", "-eps", 1, "-vmt", "lost").error
    assert "--validation-metric is 'lost', expected one of total, accuracy, f1, loss" in line


def test_what_is_saved_is_trained_further(run):
    run(*TRAIN, "-m", "letters:Table", "-mf", "m", "-eps", 1)
    done = run(*TRAIN, "-m", "letters:Table", "-mf", "m", "-eps", 1, "--learns", "no")
    assert done.out.startswith("saved before: validation total=50, accuracy=1,")
    assert accuracies(done) == [1.0, 1.0]
    assert done.out.count("(best)") == 1


def test_an_agent_of_another_class_is_not_written_over(run):
    run(*TRAIN, "-m", "letters:Table", "-mf", "m", "-eps", 1)
    line = run(*TRAIN, "-m", "letters:Other", "-mf", "m", "-eps", 1).error
    assert "--model-file is 'm', where another agent is saved: 'letters:Table'" in line
    program, *words = shlex.split(line.rpartition("remove the saved agent: ")[2])
    assert program == "dpmodule"
    assert run(*words).code == 0


def interrupt_at(monkeypatch, parley, number):
    """Let Ctrl-C come in a parley of the batches."""
    calls = []

    def interrupted(self):
        calls.append(1)
        if len(calls) == number:
            signal.raise_signal(signal.SIGINT)
        parley(self)

    monkeypatch.setattr(BatchWorld, "parley", interrupted)


def test_ctrl_c_saves_and_prints_the_command_that_goes_on(run, tmp_path, monkeypatch):
    parley = BatchWorld.parley
    interrupt_at(monkeypatch, parley, 150)
    words = (*TRAIN, "-m", "letters:Table", "-mf", "m", "-bs", 100, "-bsrt", "no")
    done = run(*words, "--num-epochs", 2, "-ve", 0)
    assert done.code == 130
    assert "saved: m.trainstats\n" in done.err
    assert done.err.endswith("dpmodule: interrupted\n")
    assert written(tmp_path) == ["m", "m.checkpoint-0", "m.checkpoint-0.opt", "m.opt", "m.trainstats"]
    monkeypatch.setattr(BatchWorld, "parley", parley)
    program, *again = shlex.split(re.search(r"to resume: (.*)", done.err)[1])
    assert program == "dpmodule"
    assert again == [*map(str, words), "--num-epochs", "2", "-ve", "0", "--resume"]
    done = run(*again)
    assert done.code == 0, done
    assert "epoch 2: total=5,000" in done.out
    assert written(tmp_path) == ["m", "m.opt"]


def test_an_agent_that_fails_is_saved_too(run, tmp_path, monkeypatch):
    parley = BatchWorld.parley

    def fails(self):
        if self.total_parleys == 3:
            raise OSError(28, "no space left")
        parley(self)

    monkeypatch.setattr(BatchWorld, "parley", fails)
    done = run(*TRAIN, "-m", "letters:Table", "-mf", "m", "-bs", 32, "-eps", 1, "-ve", 0)
    assert "no space left" in done.error
    assert "saved: m.checkpoint-0" in done.err
    assert re.search(r"to resume: .* --num-epochs [01].* --init-model m.checkpoint-0", done.err)
    assert written(tmp_path) == ["m.checkpoint-0", "m.checkpoint-0.opt"]


def test_display_data_prints_examples(run):
    done = run("display-data", "-t", COPY, "-ne", 2)
    assert done.out.count("~~\n") == 2
    assert re.match(r"\[nocandidate:length=2:tokens=3\]:\n (\d \d)\n \[labels: \1\]\n", done.out)
    assert done.out.endswith("500 examples in 500 episodes\n")
    assert run("display-data", "-t", f"{COPY}:size=3", "-nt", 2, "-bs", 8).out.count("~~\n") == 3


def test_several_tasks_are_told_apart(run):
    done = run("eval-agent", "-t", f"{COPY},reverse:valid:size=3", "-m", "repeat_label")
    assert done.out == (
        "total=103, accuracy=1, f1=1, loss=0, ppl=0; nocandidate:length=2:tokens=3: total=100, accuracy=1, f1=1; "
        "reverse:valid:size=3: total=3, accuracy=1, f1=1\n"
    )


def test_interactive_answers_lines(run, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n\nthere\n"))
    done = run("interactive", "-m", "repeat_query")
    assert (done.code, done.out) == (0, "[RepeatQueryAgent]: hello\n[RepeatQueryAgent]: there\n")


@pytest.mark.parametrize(("words", "said"), [((), "a\nb"), (("--single-turn",), "b")])
def test_interactive_goes_on_with_a_dialogue_unless_told_not_to(words, said, run, tmp_path, monkeypatch):
    agent = """
from dpmodule.agents import Agent
from dpmodule.agents.examples import DialogHistory

class Echo(Agent):
    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.history = DialogHistory(opt)

    def observe(self, observation):
        self.observation = self.history.extended(observation)

    def act(self):
        return {"text": self.observation["text"]}
"""
    (tmp_path / "echoes.py").write_text(agent)
    monkeypatch.setattr("sys.stdin", io.StringIO("a\nb\n"))
    assert run("interactive", "-m", "echoes:Echo", *words).out == f"[agent]: a\n[agent]: {said}\n"


def test_batches_by_tokens_train_and_evaluate(run):
    done = run(*TRAIN, "-m", "letters:Table", "--max-batch-tokens", 60, "-eps", 1)
    assert accuracies(done) == [1.0]


def test_interactive_ranks_candidates(run, tmp_path, monkeypatch):
    (tmp_path / "answers").write_text("yes\n\nyes\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("well?\n"))
    done = run("interactive", "-m", "random_candidate", "--candidates", "answers")
    assert done.out == "[RandomCandidateAgent]: yes\n"
    (tmp_path / "answers").write_text("\n")
    assert (
        "'answers', which has no lines"
        in run("interactive", "-m", "repeat_query", "--candidates", "answers").error
    )


@pytest.mark.parametrize("command", ["train-agent", "eval-agent", "display-data", "interactive"])
def test_help_lists_the_flags(command, run):
    done = run(command, "--help")
    assert done.code == 0
    assert f"usage: dpmodule {command}" in done.out
    assert ("--candidates" if command == "interactive" else "--datatype") in done.out


@pytest.mark.parametrize(("words", "said"), [
    (("train-agent", "-m", "repeat_label"), "--task is not given"),
    (("train-agent", "-t", "reverse"), "no agent is given"),
    (("train-agent", "-t", "revers", "-m", "repeat_label"), "did you mean 'reverse'"),
    (("train-agent", "-t", "reverse", "-m", "repeat_labl"), "did you mean 'repeat_label'"),
    (("train-agent", "-t", "reverse", "-m", "repeat_label", "--batch-siz", "2"), "no flag --batch-siz"),
    (("train-agent", "-t", "reverse:valid", "-m", "repeat_label"), "agents learn only from train"),
    (("train-agent", "-t", "reverse", "-m", "repeat_label", "-dt", "valid"), "--datatype is 'valid'"),
    (("train-agent", "-t", "reverse", "-m", "repeat_label", "-nt", "0"), "from 1"),
    (("train-agent", "-t", "reverse", "-m", "repeat_label", "-mf", "."), "a folder"),
    (("train-agent", "-t", "reverse", "-m", "repeat_label", "-im", "gone"), "no saved model"),
    (("train-agent", "-t", "reverse", "-m", "letters:Gone"), "has no 'Gone'"),
    (("eval-agent", "-t", "reverse"), "no agent is given"),
    (("eval-agent", "-t", "reverse", "-mf", "gone"), "no saved model"),
    (("eval-agent", "-m", "repeat_label"), "task is not set"),
    (("interactive",), "no agent is given"),
    (("interactive", "--candidates", "gone"), "expected an existing file"),
])  # fmt: skip
def test_a_mistake_is_told_in_one_line(words, said, run):
    assert said in run(*words).error


def test_a_class_of_a_saved_file_is_imported_only_if_it_is_named(run):
    run(*TRAIN, "-m", "letters:Table", "-mf", "m", "-eps", 1, "-ve", 0)
    assert (
        "modules that only a file names are not imported" in run("eval-agent", "-t", COPY, "-mf", "m").error
    )


@pytest.mark.filterwarnings("default")
def test_bad_lines_are_an_error_or_counted(run, tmp_path):
    (tmp_path / "talk").write_text("text:a\tlabels:b\nnothing\ntext:c\tlabels:d\n")
    words = ("eval-agent", "-t", "fromfile:talk", "-m", "repeat_label")
    assert "talk: line 2: " in run(*words).error
    done = run(*words, "--on-bad-line", "skip")
    assert done.out == "total=2, accuracy=1, f1=1\n"
    assert done.err.startswith("note: talk: 1 malformed line skipped, the first: line 2: ")


@pytest.mark.parametrize("workers", [pytest.param((), marks=pytest.mark.slow), ("-nt", 2)])
def test_seq2seq_learns_to_reverse(workers, run, tmp_path):
    train = ("-t", "reverse:size=2000:length=3:letters=4", "-bs", 32, "-mf", "m", "--hiddensize", 32)
    done = run("train-agent", *train, *workers, "-m", "seq2seq", "-eps", 6, "--quiet", "-lr", 0.01)
    assert done.code == 0, done
    assert written(tmp_path) == ["m-0000.params", "m-symbol.json", "m.dict", "m.opt"]
    done = run(
        "eval-agent", "-t", "reverse:valid:length=3:letters=4", "-mf", "m", "-bs", 100, "--target", 0.9
    )
    assert done.code == 0, done
