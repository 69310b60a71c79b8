import pytest

from dpmodule.agents import FbDialogTeacher, IrBaselineAgent, create_agent, create_task
from dpmodule.base import ArgumentError, FileError, FileFormatError
from helpers.talks import spec

CANDS = ("the cat is red", "the dog is here", "the end", "a a a")


def ask(agent, text, candidates=CANDS, **more):
    agent.observe({"text": text, "label_candidates": candidates, "episode_done": True, **more})
    return agent.act()


def test_candidates_are_ranked_by_what_they_share_with_the_question():
    reply = ask(IrBaselineAgent({"datatype": "valid"}), "where is the dog?")
    assert reply["text"] == "the dog is here"
    assert reply["text_candidates"] == ["the dog is here", "the cat is red", "the end", "a a a"]


def test_words_in_many_candidates_count_less():
    agent = IrBaselineAgent({"datatype": "valid"})
    assert ask(agent, "b a", ["b x", "b y", "a z"])["text_candidates"] == ["a z", "b x", "b y"]
    assert ask(agent, "b a", ["b x", "a y", "a z"])["text_candidates"] == ["b x", "a y", "a z"]


def test_rare_words_of_the_dictionary_count_more(tmp_path):
    path = tmp_path / "words.dict"
    path.write_text("often\t1000\nrare\t1\n")
    question, candidates = "often rare", ["often x", "rare x"]
    assert (
        ask(IrBaselineAgent({"datatype": "test", "dict_file": str(path)}), question, candidates)["text"]
        == "rare x"
    )
    path.write_text("often\t1\nrare\t1000\n")
    assert (
        ask(IrBaselineAgent({"datatype": "test", "dict_file": str(path)}), question, candidates)["text"]
        == "often x"
    )


def test_training_counts_words():
    agent = IrBaselineAgent({"datatype": "train"})
    for _ in range(20):
        ask(agent, "often", labels=["often often"])
    assert agent.dictionary.freqs()["often"] == 60
    copy = IrBaselineAgent({"datatype": "train"}, agent.share())
    assert ask(copy, "often rare", ["often x", "rare x"])["text"] == "rare x"


def test_a_file_of_candidates(tmp_path):
    path = tmp_path / "cands.txt"
    path.write_text("yes it is\n\nno it is not\n", encoding="utf-8")
    agent = IrBaselineAgent({"datatype": "valid", "label_candidates_file": str(path)})
    assert ask(agent, "is it not", None)["text_candidates"] == ["no it is not", "yes it is"]
    path.write_bytes(b"\xff\n")
    with pytest.raises(FileFormatError, match=r"cands\.txt: not UTF-8 at byte 0"):
        IrBaselineAgent({"label_candidates_file": str(path)})
    with pytest.raises(FileError, match=r"none\.txt"):
        IrBaselineAgent({"label_candidates_file": str(tmp_path / "none.txt")})


def test_without_candidates_it_does_not_know():
    agent = IrBaselineAgent({"datatype": "valid"})
    assert ask(agent, "why?", None) == {"id": "IrBaselineAgent", "text": "I don't know."}
    agent.observe({"episode_done": True})
    assert agent.act() == {"id": "IrBaselineAgent"}


def test_history():
    agent = IrBaselineAgent({"datatype": "valid", "history_size": 2})
    assert ask(agent, "dog", episode_done=False)["text"] == "the dog is here"
    assert ask(agent, "so?")["text"] == "the dog is here"
    assert ask(agent, "so?")["text"] == CANDS[0], "the episode was over"
    with pytest.raises(ArgumentError, match="history_size is 0"):
        IrBaselineAgent({"history_size": 0})


def test_in_a_world_and_saved(tmp_path):
    path = tmp_path / "talk.txt"
    path.write_text(
        "".join(f"1 where is w{n}\tw{n} is here\t\tw{n} is here|w0 is there|no\n" for n in range(1, 9))
    )
    opt = {
        "task": spec(FbDialogTeacher, path), "datatype": "train:ordered", "model": "ir_baseline",
        "model_file": str(tmp_path / "m"), "batchsize": 3,
    }  # fmt: skip
    agent = create_agent(opt)
    with create_task(opt, agent) as world:
        for _ in range(8):
            world.parley()
        assert world.report()["hits@1"] == 1.0
        world.save_agents()
    again = create_agent({"model_file": opt["model_file"], "datatype": "valid"}, requireModelExists=True)
    assert again.dictionary.freqs() == agent.dictionary.freqs()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["m.dict", "m.opt", "talk.txt"]
