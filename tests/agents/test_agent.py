import json
import sys

import pytest

from dpmodule.agents import (
    Agent,
    RandomCandidateAgent,
    RepeatLabelAgent,
    RepeatQueryAgent,
    create_agent,
    create_agent_from_shared,
    create_agents_from_shared,
    create_task,
)
from dpmodule.agents.agent import dump_options, load_options
from dpmodule.base import ArgumentError, FileError, FileFormatError
from helpers.talks import Noting, Texts, spec


class Sharing(Agent):
    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.given = shared
        self.model = shared["model"] if shared else ["weights"]

    def share(self):
        return {**super().share(), "model": self.model}


class Mine(Agent):
    """What a saved file may not have imported."""


def test_share_is_the_only_contract():
    original = Sharing({"nested": {"list": [1]}})
    shared = original.share()
    assert shared["class"] is Sharing
    assert shared["opt"] == original.opt
    copy = create_agent_from_shared(shared)
    assert type(copy) is Sharing
    assert copy.given is shared
    assert copy.model is original.model
    assert copy.opt == original.opt
    assert copy.opt is not original.opt
    assert copy.opt["nested"]["list"] is not original.opt["nested"]["list"], "a deep copy"
    assert [type(each) for each in create_agents_from_shared([shared, shared])] == [Sharing, Sharing]


def test_an_agent_of_its_own():
    agent = Agent({})
    assert agent.getID() == "agent"
    assert agent.observe({"text": "hi"}) == agent.observation == {"text": "hi"}
    assert agent.act()["id"] == "agent"
    assert not agent.epoch_done()
    agent.reset()
    assert agent.observation is None
    assert agent.reset_metrics() is agent.save() is agent.shutdown() is None


def test_options_are_copied():
    opt = {"list": [1]}
    agent = Agent(opt)
    agent.opt["list"].append(2)
    assert opt == {"list": [1]}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("repeat_label", RepeatLabelAgent),
        ("repeat_query", RepeatQueryAgent),
        ("random_candidate", RandomCandidateAgent),
    ],
)
def test_ready_agents_by_name(name, kind):
    assert type(create_agent({"model": name})) is kind


def test_agents_by_module_class_and_arguments():
    agent = create_agent({"model": spec(Noting, "some:more")})
    assert type(agent) is Noting
    assert agent.opt["model_arguments"] == "some:more"


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (None, "model is not set"),
        ("repeat_lable", "did you mean 'repeat_label'"),
        ("no.such:Agent", "there is no module 'no.such'"),
        ("helpers.talks:Nothing", "the module 'helpers.talks' has no 'Nothing'"),
        ("helpers.talks:epoch", "expected a class"),
        (7, "model is 7, expected a name"),
        ("helpers.talks", "expected one of"),
    ],
)
def test_agents_that_there_are_not(model, told):
    with pytest.raises(ArgumentError, match=told):
        create_agent({"model": model})


def test_a_model_file_that_is_missing_is_told_by_its_path(tmp_path):
    path = str(tmp_path / "none")
    with pytest.raises(
        FileError, match=r"there is no saved model; correct model_file, or set model.*none\.opt"
    ):
        create_agent({"model_file": path})
    with pytest.raises(FileError, match=r"there is no saved model.*none\.opt"):
        create_agent({"model_file": path, "model": "repeat_label"}, requireModelExists=True)
    assert type(create_agent({"model_file": path, "model": "repeat_label"})) is RepeatLabelAgent


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("batch_size", "batchsize"),
        ("num-threads", "numthreads"),
        ("dataType", "datatype"),
        ("modelfile", "model_file"),
    ],
)
def test_options_spelt_another_way_are_told(name, meant):
    opt = {"task": spec(Texts, "a-1"), "model": "repeat_label", name: 3}
    for make in (create_agent, lambda opt: create_task(opt, RepeatLabelAgent(opt))):
        with pytest.raises(ArgumentError, match=f"there is no option '{name}'; did you mean '{meant}'"):
            make(opt)
    own = {**opt, meant: {"batchsize": 2, "datatype": "valid"}.get(meant)}
    assert create_task(own, create_agent(own)).opt[name] == 3, "a name of the program's own"


def test_options_that_are_nearly_known_are_warned_of():
    opt = {"task": spec(Texts, "a-1"), "context_lenght": 3, "contexts": "cpu", "batches": 1, "file": "x"}
    with pytest.warns(
        UserWarning, match="opt has the unknown option 'context_lenght'; did you mean 'context_length'"
    ):
        create_task(opt, RepeatLabelAgent(opt))


# saved options


def saved(tmp_path, **opt):
    path = tmp_path / "m"
    (tmp_path / "m.opt").write_text(json.dumps(opt))
    return str(path)


def test_saved_options_count_more_and_overrides_most(tmp_path):
    path = saved(tmp_path, model="repeat_label", size=3, depth=2)
    agent = create_agent({"model_file": path, "size": 7, "depth": 9, "extra": 1, "override": {"depth": 5}})
    assert type(agent) is RepeatLabelAgent
    assert [agent.opt[name] for name in ("size", "depth", "extra")] == [3, 5, 1]


def test_a_task_named_in_a_file_is_not_imported(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "task_of_a_file.py").write_text("class Teacher: pass")
    path = saved(
        tmp_path, model="seq2seq", task="task_of_a_file:Teacher", override={"task": "task_of_a_file:Teacher"}
    )
    with pytest.raises(ArgumentError, match="there is no dictionary"):
        create_agent({"model_file": path})
    assert "task_of_a_file" not in sys.modules


def test_a_class_named_in_a_file_is_not_imported_unless_trusted(tmp_path):
    path = saved(tmp_path, model=spec(Mine))
    with pytest.raises(ArgumentError, match="modules that only a file names are not imported"):
        create_agent({"model_file": path})
    with pytest.raises(ArgumentError, match="are not imported"):
        create_agent({"model_file": path, "model": "repeat_label"})
    assert type(create_agent({"model_file": path, "model": spec(Mine)})) is Mine
    assert type(create_agent({"model_file": path, "override": {"model": spec(Mine)}})) is Mine


def test_nothing_of_an_untrusted_module_runs(tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("raise SystemExit('ran')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ArgumentError, match="'evil:Agent'"):
        create_agent({"model_file": saved(tmp_path, model="evil:Agent")})


def test_own_classes_are_trusted(tmp_path):
    path = saved(tmp_path, model="dpmodule.agents.baselines:RepeatQueryAgent")
    assert type(create_agent({"model_file": path})) is RepeatQueryAgent
    with pytest.raises(ArgumentError, match="not imported"):
        create_agent({"model_file": saved(tmp_path, model="dpmodule.agents_of_others:Agent")})


def test_a_model_that_has_to_exist(tmp_path):
    opt = {"model": "repeat_label", "model_file": str(tmp_path / "none")}
    assert type(create_agent(opt)) is RepeatLabelAgent
    with pytest.raises(FileError, match="there is no saved model"):
        create_agent(opt, requireModelExists=True)


@pytest.mark.parametrize("text", ["", "{", "[1]", "7", "[" * 100_000, b"\xff\xfe", "NaN"])
def test_damaged_options(tmp_path, text):
    path = tmp_path / "m.opt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FileFormatError, match=r"m\.opt"):
        create_agent({"model_file": str(tmp_path / "m")})


def test_options_of_the_run_are_not_saved(tmp_path):
    opt = {
        "size": 3,
        "batchsize": 32,
        "numthreads": 2,
        "task": "x",
        "function": len,
        "nested": {"a": [1, None, 0.5]},
    }
    path = tmp_path / "m.opt"
    path.write_bytes(dump_options(opt))
    assert load_options(path) == {"size": 3, "nested": {"a": [1, None, 0.5]}}
    with pytest.raises(FileError):
        load_options(tmp_path / "none")


# agents that learn nothing


def test_repeat_label():
    agent = RepeatLabelAgent({})
    for name in ("labels", "eval_labels"):
        agent.observe({"text": "q", name: ["a"]})
        assert agent.act()["text"] == "a"
    agent.observe({"text": "q"})
    assert agent.act()["text"] == "I don't know."
    agent.observe({"episode_done": True})
    assert "text" not in agent.act()
    agent = RepeatLabelAgent({"returnOneRandomAnswer": False})
    agent.observe({"text": "q", "labels": ("a", "b")})
    assert agent.act()["text"] == "a, b"
    agent = RepeatLabelAgent({"cantAnswerPercent": 1, "cantAnswerMessage": "?"})
    agent.observe({"text": "q", "labels": ("a", "b")})
    assert agent.act()["text"] == "?"


def test_repeat_query():
    agent = RepeatQueryAgent({})
    assert agent.act()["text"] == "Nothing to repeat yet."
    agent.observe({"text": "q"})
    assert agent.act()["text"] == "q"


def test_random_candidate():
    agent = RandomCandidateAgent({})
    offered = ("a", "b", "c")
    firsts = set()
    for _ in range(60):
        agent.observe({"text": "q", "label_candidates": offered})
        reply = agent.act()
        assert sorted(reply["text_candidates"]) == list(offered)
        assert reply["text"] == reply["text_candidates"][0]
        firsts.add(reply["text"])
    assert firsts == set(offered)
    agent.observe({"text": "q"})
    assert agent.act()["text"] == "I don't know."
