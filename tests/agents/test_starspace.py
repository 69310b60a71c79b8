import random

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.agents import DictionaryAgent, StarspaceAgent, create_agent_from_shared, create_task
from helpers.programs import TESTS, run_file
from helpers.talks import finish


def options(**more):
    task = {"task": "helpers.small_tasks:Keys", "datatype": "train"}
    return {**task, "batchsize": 32, "batch_sort": True, "seed": 1, **more}


def trained(parleys, **more):
    random.seed(1)
    mx.random.seed(1)
    opt = options(**more)
    agent = StarspaceAgent(opt)
    with create_task(opt, agent) as world:
        for _ in range(parleys):
            world.parley()
        assert world.report().get("loss", 1) > 0
    return agent


def test_it_learns_to_rank():
    for more in (
        *({}, {"similarity": "dot"}, {"share_embeddings": False}, {"pool": "mean"}, {"numthreads": 2}),
        {"contexts": "cpu(0),cpu(1)"},
    ):
        world = create_task(options(datatype="valid"), trained(60, **more))
        finish(world)
        report = world.report()
        assert report["total"] == 100
        assert report["hits@1"] == report["accuracy"] > 0.95
        assert report["mean_rank"] < 1.1


def test_candidates_are_ranked_by_rows_labels_or_fixed_ones(tmp_path):
    few, many = ([f"answer{number} it is" for number in numbers] for numbers in ((1, 2), range(20)))
    (tmp_path / "answers").write_text("\n".join(few) + "\n")
    agent = trained(60, fixed_candidates_file=str(tmp_path / "answers"))
    rows = [{"text": f"key{number} noise1", "labels": [f"answer{number} it is"]} for number in (3, 5, 3)]
    replies = agent.batch_act(rows)  # in training, the labels of the batch
    assert [reply["text"] for reply in replies] == [row["labels"][0] for row in rows]
    assert all(0 <= reply["metrics"]["loss"] < 1 for reply in replies)
    asked = [{"text": "key2", "label_candidates": few}, {"text": "key7 noise3", "label_candidates": many}]
    first, second = agent.batch_act(asked)
    assert first == {"id": "Starspace", "text": few[1], "text_candidates": [few[1], few[0]]}
    assert (second["text"], sorted(second["text_candidates"])) == (many[7], sorted(many))
    for each in (agent, trained(60, candidates=few)):
        row = create_agent_from_shared({**each.share(), "batchindex": 0})
        assert row.batch_act([{"text": "key2"}])[0]["text"] == few[1]


def test_similarity_is_that_of_the_bags():
    agent = trained(5, share_embeddings=False, temperature=0.5)
    arrays = {name: value.asnumpy() for name, value in agent.network.module.get_params()[0].items()}
    texts, answers = ["key1 noise2", "key3"], ["answer1 it is", "it answer4", "is"]
    inputs = agent._inputs([{"text": text} for text in texts], answers, len(answers), None)

    def unit(text, table):
        bag = arrays[table][agent.dict.txt2vec(text)].sum(0)
        return bag / np.linalg.norm(bag)

    near = [[2 * unit(t, "text_weight") @ unit(a, "answer_weight") for a in answers] for t in texts]
    wanted = np.exp(near) / np.exp(near).sum(1, keepdims=True)
    np.testing.assert_allclose(agent.network.predict(inputs)[0].asnumpy(), wanted, atol=1e-5)


@pytest.mark.slow
def test_four_workers_need_hardly_more_memory_than_one(tmp_path):
    """100 MB of parameters, and as much of states; 372 and 445 MB when this was written."""
    words = DictionaryAgent({})
    words.add_to_dict(f"w{number}" for number in range(100_000))
    path = str(tmp_path / "words")
    words.save(path, sort=False)
    file = TESTS / "programs" / "pss_of_workers.py"
    one, four = (float(run_file(file, path, count).stdout) for count in (1, 4))
    assert four < 1.25 * one
