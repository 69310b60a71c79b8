"""The training loop, the evaluation and the dialogue of `parlai.scripts`, called from Python."""

import ast
from pathlib import Path

import pytest

from dpmodule.agents import Agent, DialogTeacher
from dpmodule.agents.parlai import build_dict, display_data, eval_model, interactive, train_model
from dpmodule.base import ArgumentError, FileFormatError


class Digits(DialogTeacher):
    """Digits and their names; "test" has those of "valid"."""

    names = ["zero", "one", "two", "three", "four", "five"]

    def setup_data(self, path):
        for number, name in enumerate(self.names):
            yield (str(number), [name]), True


class Learner(Agent):
    """Knows other numbers of answers after each six examples of training; notes the reports of validations."""

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.id, self.heard, self.left = "Learner", [], list(opt.get("known", [1] * 9))
        self.seen, self.known = 0, 0
        path = opt.get("model_file")
        if path and Path(path).exists():
            self.known = int(Path(path).read_text())

    def receive_metrics(self, report):
        self.heard.append(report["accuracy"])

    def act(self):
        seen = self.observation
        if "text" not in seen:
            return {"id": self.id}
        self.seen += "labels" in seen
        if "labels" in seen and self.seen % 6 == 0:
            self.known = self.left.pop(0)
        text = Digits.names[int(seen["text"])] if int(seen["text"]) < self.known else "?"
        return {"id": self.id, "text": text, "metrics": {"loss": 6.0 - self.known}}

    def save(self, path=None):
        Path(path).write_text(str(self.known))


BASE = {
    "task": f"{__name__}:Digits",
    "model": f"{__name__}:Learner",
    "datatype": "train:ordered",
    "validation_every_n_epochs": 1,
}


def loop(tmp_path, **options):
    parser = train_model.setup_args()
    parser.set_defaults(**BASE, **options)
    opt = parser.parse_args(["-mf", str(tmp_path / "m" / "file")], print_args=False)
    return train_model.TrainLoop({**opt, **options})


def test_best_agent_is_saved_and_evaluated(tmp_path, capsys):
    run = loop(tmp_path, num_epochs=4, known=[2, 5, 1, 6])
    learner = run.agent
    valid, test = run.train()
    assert (valid["exs"], valid["accuracy"], test["accuracy"]) == (6, 0.8333, 0.8333)
    assert run.best_valid == 0.8333
    assert run.agent.known == 5
    assert learner.heard == [0.3333, 0.8333, 0.1667]  # the end comes before a last validation
    out = capsys.readouterr().out
    assert "[ new best accuracy: 0.8333 (previous best was 0.3333) ]" in out
    assert "[ did not beat best accuracy: 0.8333 impatience: 1 ]" in out
    assert "[ num_epochs completed:4.0" in out
    folder = tmp_path / "m"
    assert (folder / "file.best_valid").read_text() == "0.8333"
    assert (folder / "file.dict").exists()
    line = (folder / "file.test").read_text()
    assert line.startswith("test:")
    assert ast.literal_eval(line[5:]) == test


@pytest.mark.parametrize(
    ("options", "told", "epochs"),
    [
        ({"validation_patience": 2, "known": [1, 1, 0, 1]}, "ran out of patience", 3),
        ({"validation_cutoff": 0.5, "known": [1, 3, 3]}, "task solved", 2),
        (
            {"validation_metric": "loss", "validation_patience": 1, "known": [1, 2, 1]},
            "ran out of patience",
            3,
        ),
        ({"max_train_time": 1e-9}, "max_train_time elapsed", 1 / 6),
    ],
)
def test_training_ends(options, told, epochs, tmp_path, capsys):
    run = loop(tmp_path, **options)
    run.train()
    assert told in capsys.readouterr().out
    assert run.world.get_total_epochs() == pytest.approx(epochs)


def test_checkpoints_lines_and_partial_validations(tmp_path, capsys):
    run = loop(
        tmp_path,
        num_epochs=1,
        save_after_valid=True,
        save_every_n_secs=1e-9,
        log_every_n_secs=1e-9,
        validation_max_exs=2,
        display_examples=True,
        validation_every_n_secs=1e-9,
    )
    run.train()
    out = capsys.readouterr().out
    assert "valid:{'exs': 2," in out
    assert "total_exs:1 epochs:0.17 ]" in out
    assert "[labels: zero]" in out
    assert (tmp_path / "m" / "file.checkpoint").exists()


def test_earlier_form_of_run_eval(tmp_path):
    run = loop(tmp_path)
    report, world = train_model.run_eval(run.agent, run.opt, "valid")
    again, same = train_model.run_eval(run.agent, run.opt, "valid", valid_world=world)
    assert report == again
    assert same is world
    assert report["exs"] == 6
    assert train_model.run_eval(world, run.opt, "valid", max_exs=2)["exs"] == 2
    run.world.shutdown()


def test_evaluation_prints_and_returns_the_metrics(capsys):
    parser = eval_model.setup_args()
    parser.set_defaults(task=BASE["task"], model="repeat_label", display_examples=True, log_every_n_secs=1e-9)
    report = eval_model.eval_model(parser.parse_args(["-ne", "4"], print_args=False), print_parser=parser)
    assert report == {"exs": 4, "total": 4, "accuracy": 1.0, "f1": 1.0}
    out = capsys.readouterr().out
    assert out.count("\n~~\n") == 4
    assert "using datatype valid\n{'exs': 4," in out
    assert "[ returnOneRandomAnswer" not in out
    assert "[ num_examples: 4 ]" in out
    assert "'%done': 25.0" in out
    assert "EPOCH DONE" in eval_and_read(capsys, ["-ne", "-1"])


def eval_and_read(capsys, words):
    parser = eval_model.setup_args()
    parser.set_defaults(task=BASE["task"], model="repeat_label")
    assert eval_model.eval_model(parser.parse_args(words, print_args=False))["exs"] == 6
    return capsys.readouterr().out


def test_display_leaves_out_fields(capsys):
    opt = {"task": "docs", "datatype": "valid", "num_examples": 1}
    display_data.display_data({**opt, "display_ignore_fields": "label_candidates", "max_display_len": 9})
    out = capsys.readouterr().out
    assert "label_candidates" not in out
    assert "\n which fun...\n" in out
    display_data.display_data({**opt, "batchsize": 2})
    assert "label_candidates" in capsys.readouterr().out


def test_a_person_talks_to_an_agent(capsys, monkeypatch):
    lines = iter(["3", "4[DONE]", "[EXIT]"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    parser = interactive.setup_args()
    opt = parser.parse_args(["-m", "repeat_query", "-d", "yes"], print_args=False)
    interactive.interactive(opt)
    out = capsys.readouterr().out
    assert out.startswith("[RepeatQueryAgent]:\n 3\n---\n[localHuman]:\n 3\n[RepeatQueryAgent]:\n 3\n~~\n")
    assert out.count("[localHuman]:\n 4\n") == 1
    with pytest.raises(ArgumentError, match="display_prettify"):
        interactive.interactive({**opt, "display_prettify": True})


def test_a_person_offers_candidates(tmp_path, capsys, monkeypatch):
    (tmp_path / "answers").write_text("the boat\nthe car\n")
    lines = iter(["which car"])

    def typed(prompt):
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", typed)
    words = ["-m", "ir_baseline", "-fixedCands", str(tmp_path / "answers"), "--single_turn", "yes"]
    interactive.interactive(interactive.setup_args().parse_args(words, print_args=False))
    assert capsys.readouterr().out == "[IrBaselineAgent]:\n the car\n"


def test_dictionary_is_built_once(tmp_path, capsys):
    opt = {"task": BASE["task"], "dict_file": str(tmp_path / "new" / "words"), "dict_include_valid": True}
    words = build_dict.build_dict({**opt, "dict_class": "dpmodule.agents:DictionaryAgent"})
    assert words.freqs()["0"] == 2
    assert words.freqs()["zero"] == 1
    assert build_dict.build_dict(opt, skip_if_built=True) is None
    assert len(build_dict.build_dict(opt)) == len(words)
    assert build_dict.build_dict({**opt, "dict_file": None}) is None
    assert "--dict-file is not set" in capsys.readouterr().out


def test_only_plain_values_are_read_from_pickled_options(tmp_path):
    import pickle

    from dpmodule.agents import create_agent

    path = tmp_path / "m"
    Path(f"{path}.opt").write_bytes(pickle.dumps({"model": "repeat_query", "size": (1, 2.5, None)}))
    assert create_agent({"model_file": str(path)}).opt["size"] == (1, 2.5, None)
    Path(f"{path}.opt").write_bytes(pickle.dumps({"model": Path("x")}))
    with pytest.raises(FileFormatError, match="contains a pathlib"):
        create_agent({"model_file": str(path)})


def scalars(folder):
    """Return the values of the event files below a folder by name."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = {}
    for file in folder.rglob("events*"):
        events = EventAccumulator(str(file)).Reload()
        for name in events.Tags()["scalars"]:
            found[name] = [(each.step, round(each.value, 4)) for each in events.Scalars(name)]
    return found


def test_metrics_are_written_for_tensorboard(tmp_path):
    board = {
        "tensorboard_log": True,
        "tensorboard_tag": "num_epochs",
        "tensorboard_metrics": "accuracy,total",
    }
    options = {"datapath": str(tmp_path / "data"), "num_epochs": 3, "known": [2, 5, 6]}
    loop(tmp_path, **options, **board, tensorboard_comment="first").train()
    found = scalars(tmp_path / "data" / "tensorboard" / "num_epochs-3_first")
    assert found["valid/accuracy"] == [(6, 0.3333), (12, 0.8333)]
    assert sorted(found) == ["train/accuracy", "train/total", "valid/accuracy", "valid/total"]
    parser = eval_model.setup_args()
    parser.set_defaults(**options, task=BASE["task"], model="repeat_label", tensorboard_log=True)
    eval_model.eval_model(parser.parse_args(["-ne", "4"], print_args=False))
    assert scalars(tmp_path / "data" / "tensorboard" / f"model-repeat_label_task-{BASE['task']}")[
        "valid/exs"
    ] == [(4, 4)]
