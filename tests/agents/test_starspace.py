import argparse
import random

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.agents import (
    DictionaryAgent,
    StarspaceAgent,
    create_agent,
    create_agent_from_shared,
    create_task,
)
from dpmodule.base import ArgumentError
from dpmodule.streams import Supervisor
from helpers.programs import run_program

TIMEOUT_S = 60


def options(**more):
    return {
        "task": "helpers.small_tasks:Keys",
        "datatype": "train",
        "batchsize": 32,
        "batch_sort": True,
        "seed": 1,
    } | more


def trained(parleys, **more):
    random.seed(1)
    mx.random.seed(1)
    opt = options(**more)
    agent = StarspaceAgent(opt)
    world = create_task(opt, agent)
    for _ in range(parleys):
        world.parley()
    return agent


def valid_report(agent, **more):
    world = create_task(options(datatype="valid") | more, agent)
    while not world.epoch_done():
        world.parley()
    return world.report()


@pytest.mark.parametrize(
    "more",
    [{}, {"similarity": "dot"}, {"share_embeddings": False}, {"pool": "mean"}, {"contexts": "cpu(0),cpu(1)"}],
)
def test_it_learns_to_rank(more):
    report = valid_report(trained(60, **more))
    assert report["total"] == 100
    assert report["hits@1"] == report["accuracy"] > 0.95
    assert report["mean_rank"] < 1.1


def test_it_learns_one_by_one():
    report = valid_report(trained(1000, batchsize=1))
    assert report["hits@1"] > 0.95


def test_training_replies_with_the_nearest_of_the_batch_and_the_loss():
    agent = trained(60)
    rows = [{"text": f"key{number} noise1", "labels": [f"answer{number} it is"]} for number in (3, 5, 3)]
    replies = agent.batch_act(rows)
    assert [reply["text"] for reply in replies] == [row["labels"][0] for row in rows]
    assert all(0 <= reply["metrics"]["loss"] < 1 for reply in replies)


def test_all_candidates_are_ranked():
    agent = trained(60)
    few = [f"answer{number} it is" for number in (1, 2)]
    many = [f"answer{number} it is" for number in range(20)]
    first, second = agent.batch_act(
        [{"text": "key2", "label_candidates": few}, {"text": "key7 noise3", "label_candidates": many}]
    )
    assert first == {"id": "Starspace", "text": few[1], "text_candidates": [few[1], few[0]]}
    assert second["text"] == many[7]
    assert sorted(second["text_candidates"]) == sorted(many)


def test_fixed_candidates_serve_where_a_row_has_none(tmp_path):
    path = tmp_path / "answers"
    path.write_text("answer1 it is\nanswer2 it is\n")
    for more in (
        {"candidates": ["answer1 it is", "answer2 it is"]},
        {"fixed_candidates_file": str(path)},
    ):
        agent = trained(60, **more)
        row = create_agent_from_shared({**agent.share(), "batchindex": 0})
        assert row.batch_act([{"text": "key2"}])[0]["text"] == "answer2 it is"


def test_a_ranking_needs_candidates():
    with pytest.raises(ArgumentError, match=r"'Starspace' ranks candidates.*'key1'.*fixed_candidates_file"):
        StarspaceAgent(options()).batch_act([{"text": "key1"}])


@pytest.mark.parametrize(
    "more",
    [
        {"similarity": "cosinus"},
        {"pool": "max"},
        {"negatives": 0},
        {"temperature": 0},
        {"embeddingsize": "x"},
    ],
)
def test_options_that_are_none_are_refused(more):
    with pytest.raises(ArgumentError, match=f"{next(iter(more))} is .*, expected"):
        trained(1, **more)


def test_similarity_is_that_of_the_bags():
    agent = trained(5, share_embeddings=False, temperature=0.5)
    arrays = {name: value.asnumpy() for name, value in agent.network.module.get_params()[0].items()}
    texts, answers = ["key1 noise2", "key3"], ["answer1 it is", "it answer4", "is"]
    found = agent.network.predict(
        agent._inputs([{"text": text} for text in texts], answers, len(answers), None)
    )[0]

    def unit(text, table):
        bag = arrays[table][agent.dict.txt2vec(text)].sum(0)
        return bag / np.linalg.norm(bag)

    near = [[2 * unit(t, "text_weight") @ unit(a, "answer_weight") for a in answers] for t in texts]
    wanted = np.exp(near) / np.exp(near).sum(1, keepdims=True)
    np.testing.assert_allclose(found.asnumpy(), wanted, atol=1e-5)


def test_words_that_nobody_knows_and_none_at_all_are_no_errors():
    agent = trained(2)
    replies = agent.batch_act(
        [{"text": "", "labels": ["unheard of"]}, {"text": "what", "label_candidates": ["", "answer1"]}]
    )
    assert np.isfinite(replies[0]["metrics"]["loss"])
    assert sorted(replies[1]["text_candidates"]) == ["", "answer1"]


def test_a_saved_one_ranks_as_before(tmp_path):
    agent = trained(30, model="starspace", model_file=str(tmp_path / "net"), embeddingsize=16)
    agent.save()
    again = create_agent({"model_file": str(tmp_path / "net")})
    rows = [{"text": f"key{n}", "label_candidates": [f"answer{m}" for m in range(9)]} for n in range(9)]
    assert again.batch_act(rows) == agent.batch_act(rows)


def _train(channel, shared):
    agent = create_agent_from_shared({**shared, "threadindex": channel.index})
    while (rows := channel.recv()) is not None:
        channel.send(agent.batch_act(rows)[0])


def test_workers_train_the_same_tables():
    opt = options(numthreads=2)
    agent = StarspaceAgent(opt)
    teacher = create_task(
        {**options(), "numthreads": 1, "batchsize": 1, "batch_sort": False}, agent
    ).get_agents()[0]
    with Supervisor("workers", start_method="fork") as workers:
        shared = agent.share()
        children = [workers.start(_train, shared) for _ in range(2)]
        for _ in range(30):
            for child in children:
                child.send([teacher.act() for _ in range(32)], TIMEOUT_S)
            for child in children:
                child.recv(TIMEOUT_S)
        for child in children:
            child.send(None, TIMEOUT_S)
        workers.join(TIMEOUT_S)
    assert valid_report(agent)["hits@1"] > 0.95
    assert agent.network.module.optimizer.num_update == 60


MEASURE = """
import gc, os, sys
import numpy as np
from dpmodule.agents import StarspaceAgent, create_agent_from_shared
from dpmodule.streams import Supervisor


def pss_mib():
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Pss:")) / 1024


def train(channel, shared):
    gc.freeze()  # a collection would write to all that is shared with the parent
    agent = create_agent_from_shared({**shared, "threadindex": channel.index})
    draw = np.random.RandomState(channel.index)
    for _ in range(100):
        words = draw.randint(1000, size=(32, 21))
        rows = [{"text": " ".join(f"w{w}" for w in row[:20]), "labels": [f"w{row[20]}"]} for row in words]
        agent.batch_act(rows)
    for _ in range(2):
        channel.send(pss_mib())
        channel.recv()


opt = {"dict_file": sys.argv[1], "embeddingsize": 256, "numthreads": 4, "batchsize": 32}
agent = StarspaceAgent(opt)
with Supervisor("workers", start_method="fork") as workers:
    children = [workers.start(train, agent.share()) for _ in range(int(sys.argv[2]))]
    for _ in range(2):
        sizes = [child.recv(60) for child in children] + [pss_mib()]  # the second time all have trained
        for child in children:
            child.send(None, 60)
    workers.join(60)
print(sum(sizes))
"""


@pytest.mark.slow
def test_four_workers_need_hardly_more_memory_than_one(tmp_path):
    """100 MB of parameters, and as much of states; 372 and 445 MB when this was written."""
    words = DictionaryAgent({})
    words.add_to_dict(f"w{number}" for number in range(100_000))
    path = str(tmp_path / "words")
    words.save(path, sort=False)
    totals = [float(run_program(MEASURE, path, str(count)).stdout) for count in (1, 4)]
    assert totals[1] < 1.25 * totals[0]


def test_flags_are_options():
    parser = argparse.ArgumentParser()
    parser.register("type", "bool", str)
    StarspaceAgent.add_cmdline_args(parser)
    opt = vars(parser.parse_args(["--embeddingsize", "8", "--optimizer", "nag", "-lr", "0.5"]))
    agent = StarspaceAgent(options(**opt))
    agent.batch_act([{"text": "a b", "labels": ["b a"]}])
    assert agent.network.module.get_params()[0]["text_weight"].shape == (len(agent.dict), 8)
    assert agent.network.module.symbol.list_outputs()[0] == "softmax_output"


def test_a_hogwild_world_trains_it():
    opt = options(numthreads=2)
    agent = StarspaceAgent(opt)
    with create_task(opt, agent) as world:
        for _ in range(60):
            world.parley()
        assert world.report()["loss"] > 0
    assert valid_report(agent)["hits@1"] > 0.95
