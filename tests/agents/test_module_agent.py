import errno
import os
import random
import sys
import threading
from unittest import mock

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import agents
from dpmodule.agents import DictionaryAgent, create_agent, create_agent_from_shared, create_task
from dpmodule.agents.module_agent import build_dict
from dpmodule.base import FileError, NonFiniteError
from dpmodule.streams import Supervisor
from helpers.small_tasks import Letters, SmallestAgent, examples, smallest

TIMEOUT_S = 60
SMALL = {"hiddensize": 8, "embeddingsize": 8, "negatives": 2, "examples": 50, "buckets": [8]}
KINDS = {
    "smallest": (SmallestAgent, "Smallest"),
    "seq2seq": (agents.Seq2seqAgent, "Letters"),
    "starspace": (agents.StarspaceAgent, "Letters"),
}


def params(agent):
    found, _ = agent.network.module.get_params()
    return {name: array.asnumpy() for name, array in found.items()}


def rows(count, seed=0, kind="smallest"):
    if kind == "smallest":
        return examples(count, seed)
    draw = random.Random(seed)
    return [{**Letters.example(None, draw), "episode_done": True} for _ in range(count)]


def alike(kind="smallest", **opt):
    """Return an agent that begins as all of its kind do."""
    make, task = KINDS[kind]
    random.seed(1)
    mx.random.seed(1)
    task = {"task": f"helpers.small_tasks:{task}", **SMALL, "learningrate": 0.01, "seed": 1}
    agent = make(smallest(**{**task, **opt}))
    random.seed(1)
    mx.random.seed(1)
    agent.network.bind(agent.vectorize(rows(2, kind=kind)))
    return agent


def assert_same(found, wanted, tolerance=1e-6):
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=tolerance, err_msg=name)


# training and predicting


def test_training_in_a_sorted_batch_world_equals_fit_on_the_same_batches():
    opt = {"batchsize": 32, "batch_sort": True, "examples": 320, "optimizer": "adam", "learningrate": 0.05}
    agent, batches = alike(**opt), []
    first, _ = agent.network.module.get_params()
    first, vectorize = {name: array.copy() for name, array in first.items()}, agent.vectorize
    agent.vectorize = lambda seen: batches.append(vectorize(seen)) or batches[-1]
    world = create_task(agent.opt, agent)
    for _ in range(10):
        world.parley()

    class Batches(list):
        provide_data, provide_label = batches[0].provide_data, batches[0].provide_label

        def reset(self):
            pass

    module = mx.mod.Module(agent.network.module.symbol, data_names=["words"])
    rate = {"optimizer": "adam", "optimizer_params": {"learning_rate": 0.05}}
    module.fit(Batches(batches), arg_params=first, num_epoch=1, **rate)
    assert len(batches) == 10
    assert_same(params(agent), {name: array.asnumpy() for name, array in module.get_params()[0].items()})


ONE, TWO, THREE = examples(3)
ASKED = {"text": TWO["text"]}
EMPTY = {"episode_done": True, "id": "teacher"}


def test_batches_that_train_alike():
    for calls, same_as in (
        ([[ONE, ASKED, THREE]], [[ASKED], [ONE, THREE]]),  # rows with and without labels are apart
        ([[EMPTY, ONE, {}, TWO], [EMPTY, EMPTY]], [[ONE, TWO]]),  # rows without a text are left out
        ([[{"text": "w01 w02"}], [ONE]], [[ONE]]),  # predictions change nothing
        ([[ONE], [{**TWO, "labels": None, "eval_labels": TWO["labels"]}], [ASKED]], [[ONE]]),
    ):
        first, second = alike(), alike()
        for agent, batches in ((first, calls), (second, same_as)):
            for batch in batches:
                batch = [{k: v for k, v in each.items() if v is not None} for each in batch]
                for seen, reply in zip(batch, agent.batch_act(batch)):
                    assert ("text" in reply) is ("text" in seen)
                    assert ("metrics" in reply) is ("labels" in seen or "eval_labels" in seen)
        assert_same(params(first), params(second), 0)


def test_act_is_a_batch_of_one_of_a_whole_episode():
    first, second = alike(), alike()
    for each in examples(5):
        first.observe(each)
        assert first.act() == second.batch_act([each])[0]
    assert_same(params(first), params(second), 0)
    first.observe({"text": "w01", "labels": ["w01"], "episode_done": False})
    assert first.observe({"text": "w02", "episode_done": True})["text"] == "w01\nw01\nw02"


@pytest.mark.parametrize("workers", [1, 2])
def test_an_agent_that_was_asked_first_learns_all_the_same(workers):
    first, second = SmallestAgent(smallest(numthreads=workers)), alike(examples=640, learningrate=0.1)
    mx.random.seed(1)
    first.batch_act([{"text": "w01 w02"}])
    for number in range(3):
        first.batch_act(examples(2, number))
        second.batch_act(examples(2, number))
    assert_same(params(first), params(second), 0)


# sharing


def _train(channel, shared, index):
    agent = create_agent_from_shared({**shared, "threadindex": index})
    while (observations := channel.recv()) is not None:
        channel.send([reply["metrics"]["loss"] for reply in agent.batch_act(observations)])


@pytest.mark.parametrize(
    ("kind", "more", "method"),
    [
        *(("smallest", {"momentum": 0.9}, "fork"), ("smallest", {"contexts": "cpu(0),cpu(1)"}, "fork")),
        ("seq2seq", {"optimizer": "adam"}, "fork"),
        pytest.param("smallest", {"optimizer": "adam"}, "spawn", marks=pytest.mark.slow),
    ],
)
def test_workers_in_turn_train_as_one_process_does(kind, more, method):
    alone, agent = alike(kind, batchsize=8, **more), alike(kind, batchsize=8, numthreads=2, **more)
    shared = agent.share()
    with Supervisor("workers", start_method=method) as workers:
        children = [workers.start(_train, shared, index) for index in range(2)]
        for number in range(6):
            batch = rows(8, number, kind)
            children[number % 2].send(batch, TIMEOUT_S)
            losses = children[number % 2].recv(TIMEOUT_S)
            wanted = [reply["metrics"]["loss"] for reply in alone.batch_act(batch)]
            assert losses == pytest.approx(wanted, abs=1e-4)
        for child in children:
            child.send(None, TIMEOUT_S)
        workers.join(TIMEOUT_S)
    assert_same(params(agent), params(alone), 1e-5)
    if kind != "seq2seq":  # a BucketingModule
        assert agent.network.module.optimizer.num_update == 6


def test_rows_of_a_batch_have_no_module_of_their_own():
    opt = smallest(numthreads=2, batchsize=2)
    agent = SmallestAgent(opt)
    worker = create_agent_from_shared({**agent.share(), "threadindex": 0})
    row = create_agent_from_shared({**worker.share(), "threadindex": 0, "batchindex": 1})
    assert worker.network is not agent.network
    assert (row.network, row.dict) == (worker.network, agent.dict)
    worker.batch_act(examples(2))
    assert_same(params(agent), params(worker), 0)
    world = create_task({**opt, "numthreads": 1}, agent)
    assert all(each.get_agents()[1].network is agent.network for each in world.worlds)


# files


def trained(folder, kind="smallest", **opt):
    agent = alike(kind, model_file=str(folder / "net"), **opt)
    for number in range(5):
        agent.batch_act(rows(8, number, kind))
    return agent


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_agent_is_the_same_again(kind, tmp_path):
    name = "helpers.small_tasks:SmallestAgent" if kind == "smallest" else kind
    agent = trained(tmp_path, kind, optimizer="adam", model=name)
    agent.save()
    assert sorted(os.listdir(tmp_path)) == ["net-0000.params", "net-symbol.json", "net.dict", "net.opt"]
    again = create_agent({"model": name, "model_file": str(tmp_path / "net")})
    assert (type(again), again.dict.tok2ind) == (type(agent), agent.dict.tok2ind)
    assert again.opt["optimizer"] == "adam"
    asked = [{"text": each["text"], "label_candidates": ["a b", "b a", "c"]} for each in rows(20, 9, kind)]
    assert again.batch_act(asked) == agent.batch_act(asked)
    assert_same(params(again), params(agent), 0)


def test_a_checkpoint_is_mxnets(tmp_path, monkeypatch):
    agent = trained(tmp_path)
    agent.save(str(tmp_path / "other"))
    symbol, arg_params, aux_params = mx.model.load_checkpoint(str(tmp_path / "other"), 0)
    assert (symbol.list_outputs(), aux_params) == (["softmax_output"], {})
    assert_same({name: array.asnumpy() for name, array in arg_params.items()}, params(agent), 0)
    lines = (tmp_path / "other.dict").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines] == list(agent.dict.tok2ind)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    SmallestAgent(smallest()).save()
    assert os.listdir() == [], "without a path nothing is saved"


@pytest.mark.parametrize("failing", [1, 4])
def test_a_full_disk_leaves_the_old_files(tmp_path, monkeypatch, failing):
    agent = trained(tmp_path)
    agent.save()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    agent.batch_act(examples(8))
    agent.dict.add_to_dict(["new"])
    agent.opt["note"] = "new"
    results = [None] * (failing - 1) + [OSError(errno.ENOSPC, "No space left on device")]
    monkeypatch.setattr(os, "fsync", mock.Mock(side_effect=results))
    with pytest.raises(FileError, match="No space left"):
        agent.save()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_parameters_stay_as_they_were_when_training_gives_nan():
    agent = alike()
    agent.network.module.store.array("scores_weight", 0)[0, 0] = float("inf")
    before = params(agent)
    with pytest.raises(NonFiniteError, match="the parameters are unchanged"):
        agent.batch_act(examples(4))
    assert_same(params(agent), before, 0)


# dictionaries


def test_a_dictionary_is_that_of_the_file(tmp_path):
    path = str(tmp_path / "words")
    made = build_dict(smallest(dict_file=path))
    assert DictionaryAgent({"dict_file": path}).tok2ind == made.tok2ind
    assert {f"w{number:02}" for number in range(30)} <= set(made.keys())
    assert 4 < len(build_dict(smallest(examples=200, dict_maxexs=2))) < 24
    agent = SmallestAgent(smallest(task=None, dict_file=path))
    assert agent.dict.tok2ind == made.tok2ind
    agent.batch_act(examples(3))


def test_threads_train_the_same_parameters():
    agent = SmallestAgent(smallest(numthreads=3, batchsize=4, learningrate=0.02))
    copies = [create_agent_from_shared({**agent.share(), "threadindex": index}) for index in range(3)]
    before = params(agent)

    def train(copy):
        for number in range(20):
            copy.batch_act(examples(4, number))

    threads = [threading.Thread(target=train, args=(copy,)) for copy in copies]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(usual)
    after = params(agent)
    assert any((after[name] != before[name]).any() for name in after)
    for copy in copies:
        assert_same(params(copy), after, 0)
    assert agent.network.module.optimizer.num_update == 60
