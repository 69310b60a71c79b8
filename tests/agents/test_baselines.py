import pytest

from dpmodule.agents import FbDialogTeacher, IrBaselineAgent, create_agent, create_task
from dpmodule.base import FileFormatError
from helpers.talks import spec

CANDS = ("the cat is red", "the dog is here", "the end", "a a a")


def ask(agent, text, candidates=CANDS, **more):
    agent.observe({"text": text, "label_candidates": candidates, "episode_done": True, **more})
    return agent.act()


def test_candidates_are_ranked_by_what_they_share_with_the_question():
    for text, candidates, ranked in (
        ("where is the dog?", CANDS, ["the dog is here", "the cat is red", "the end", "a a a"]),
        ("b a", ["b x", "b y", "a z"], ["a z", "b x", "b y"]),  # words in many candidates count less
        ("b a", ["b x", "a y", "a z"], ["b x", "a y", "a z"]),
    ):
        reply = ask(IrBaselineAgent({"datatype": "valid"}), text, candidates)
        assert (reply["text"], reply["text_candidates"]) == (ranked[0], ranked)


@pytest.mark.parametrize(("counts", "best"), [((1000, 1), "rare x"), ((1, 1000), "often x")])
def test_rare_words_of_the_dictionary_count_more(counts, best, tmp_path):
    path = tmp_path / "words.dict"
    path.write_text("often\t{}\nrare\t{}\n".format(*counts))
    agent = IrBaselineAgent({"datatype": "test", "dict_file": str(path)})
    assert ask(agent, "often rare", ["often x", "rare x"])["text"] == best


def test_a_file_of_candidates(tmp_path):
    path = tmp_path / "cands.txt"
    path.write_text("yes it is\n\nno it is not\n", encoding="utf-8")
    agent = IrBaselineAgent({"datatype": "valid", "label_candidates_file": str(path)})
    assert ask(agent, "is it not", None)["text_candidates"] == ["no it is not", "yes it is"]
    path.write_bytes(b"\xff\n")
    with pytest.raises(FileFormatError, match=r"cands\.txt: not UTF-8 at byte 0"):
        IrBaselineAgent({"label_candidates_file": str(path)})


def test_without_candidates_it_does_not_know():
    agent = IrBaselineAgent({"datatype": "valid"})
    assert ask(agent, "why?", None) == {"id": "IrBaselineAgent", "text": "I don't know."}
    agent.observe({"episode_done": True})
    assert agent.act() == {"id": "IrBaselineAgent"}


def test_history():
    agent = IrBaselineAgent({"datatype": "valid", "history_size": 2})
    assert ask(agent, "dog", episode_done=False)["text"] == ask(agent, "so?")["text"] == "the dog is here"
    assert ask(agent, "so?")["text"] == CANDS[0], "the episode was over"


def test_in_a_world_and_saved(tmp_path):
    path = tmp_path / "talk.txt"
    lines = (f"1 where is w{n}\tw{n} is here\t\tw{n} is here|w0 is there|no\n" for n in range(1, 9))
    path.write_text("".join(lines))
    model = {"model": "ir_baseline", "model_file": str(tmp_path / "m"), "batchsize": 3}
    opt = {"task": spec(FbDialogTeacher, path), "datatype": "train:ordered", **model}
    agent = create_agent(opt)
    with create_task(opt, agent) as world:
        for _ in range(8):
            world.parley()
        assert world.report()["hits@1"] == 1.0
        world.save_agents()
    again = create_agent({"model_file": opt["model_file"], "datatype": "valid"}, requireModelExists=True)
    assert again.dictionary.freqs() == agent.dictionary.freqs()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["m.dict", "m.opt", "talk.txt"]
