import json
import sys

import pytest

from dpmodule.agents import Agent, create_agent, create_task
from dpmodule.agents.agent import dump_options, load_options
from dpmodule.agents.baselines import RandomCandidateAgent, RepeatLabelAgent, RepeatQueryAgent
from dpmodule.base import ArgumentError
from helpers.talks import Texts, spec


class Mine(Agent):
    """What a saved file may not have imported."""


def test_an_agent_of_its_own():
    opt = {"list": [1]}
    agent = Agent(opt)
    agent.opt["list"].append(2)
    assert opt == {"list": [1]}
    assert agent.getID() == agent.act()["id"] == "agent"
    assert agent.observe({"text": "hi"}) == agent.observation == {"text": "hi"}
    assert not agent.epoch_done()
    agent.reset()
    assert agent.observation is None
    assert agent.reset_metrics() is agent.save() is agent.shutdown() is None


def test_options_with_another_spelling():
    for name, value, meant in (("batch_size", 2, "batchsize"), ("modelfile", None, "model_file")):
        opt = {"task": spec(Texts, "a-1"), "model": "repeat_label", name: 3}
        for make in (create_agent, lambda opt: create_task(opt, RepeatLabelAgent(opt))):
            with pytest.raises(ArgumentError, match=f"there is no option '{name}'; did you mean '{meant}'"):
                make(opt)
        own = {**opt, meant: value}
        assert create_task(own, create_agent(own)).opt[name] == 3, "a name of the program's own"


def test_options_that_are_nearly_known_give_a_warning():
    opt = {"task": spec(Texts, "a-1"), "context_lenght": 3, "contexts": "cpu", "batches": 1, "file": "x"}
    with pytest.warns(UserWarning, match="unknown option 'context_lenght'; did you mean 'context_length'"):
        create_task(opt, RepeatLabelAgent(opt))


# saved options


def saved(folder, **opt):
    (folder / "m.opt").write_text(json.dumps(opt))
    return str(folder / "m")


def test_saved_options_count_more_and_overrides_most(tmp_path):
    path = saved(tmp_path, model="repeat_label", size=3, depth=2)
    agent = create_agent({"model_file": path, "size": 7, "depth": 9, "extra": 1, "override": {"depth": 5}})
    assert type(agent) is RepeatLabelAgent
    assert [agent.opt[name] for name in ("size", "depth", "extra")] == [3, 5, 1]
    new = {"model_file": str(tmp_path / "none"), "model": "repeat_label"}
    assert type(create_agent(new)) is RepeatLabelAgent


def test_nothing_of_an_untrusted_module_runs(tmp_path, monkeypatch):
    for opt, match in (
        ({"model": "evil:Agent"}, "'evil:Agent'"),
        ({"model": "seq2seq", "task": "evil:T", "override": {"task": "evil:T"}}, "there is no dictionary"),
    ):
        (tmp_path / "evil.py").write_text("raise SystemExit('ran')")
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(ArgumentError, match=match):
            create_agent({"model_file": saved(tmp_path, **opt)})
        assert "evil" not in sys.modules


def test_a_class_named_in_a_file_is_imported_only_if_it_is_trusted(tmp_path):
    path = saved(tmp_path, model=spec(Mine))
    with pytest.raises(ArgumentError, match="modules that only a file names are not imported"):
        create_agent({"model_file": path, "model": "repeat_label"})
    for more in ({"model": spec(Mine)}, {"override": {"model": spec(Mine)}}):
        assert type(create_agent({"model_file": path, **more})) is Mine
    path = saved(tmp_path, model="dpmodule.agents.baselines:RepeatQueryAgent")
    assert type(create_agent({"model_file": path})) is RepeatQueryAgent


def test_agents_that_repeat():
    label, query, both = RepeatLabelAgent, RepeatQueryAgent, {"text": "q", "labels": ("a", "b")}
    for kind, opt, seen, text in (
        (label, {}, {"text": "q", "labels": ["a"]}, "a"),
        (label, {}, {"text": "q", "eval_labels": ["a"]}, "a"),
        *((label, {}, {"text": "q"}, "I don't know."), (label, {}, {"episode_done": True}, None)),
        (label, {"returnOneRandomAnswer": False}, both, "a, b"),
        (label, {"cantAnswerPercent": 1, "cantAnswerMessage": "?"}, both, "?"),
        *((query, {}, {"text": "q"}, "q"), (query, {}, {}, "Nothing to repeat yet.")),
    ):
        agent = kind(opt)
        agent.observe(seen)
        assert agent.act().get("text") == text


def test_options_of_the_run_are_not_saved(tmp_path):
    of_run = {"batchsize": 32, "numthreads": 2, "task": "x", "function": len}
    path = tmp_path / "m.opt"
    path.write_bytes(dump_options({"size": 3, **of_run, "nested": {"a": [1, None, 0.5]}}))
    assert load_options(path) == {"size": 3, "nested": {"a": [1, None, 0.5]}}


# agents that learn nothing


def test_random_candidate():
    agent, offered, firsts = RandomCandidateAgent({}), ("a", "b", "c"), set()
    for _ in range(60):
        agent.observe({"text": "q", "label_candidates": offered})
        reply = agent.act()
        assert sorted(reply["text_candidates"]) == list(offered)
        assert reply["text"] == reply["text_candidates"][0]
        firsts.add(reply["text"])
    assert firsts == set(offered)
    agent.observe({"text": "q"})
    assert agent.act()["text"] == "I don't know."
