import errno
import os
import random
import sys
import threading

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.agents import DictionaryAgent, create_agent, create_agent_from_shared, create_task, vectors
from dpmodule.agents.agent import dictionary_file
from dpmodule.agents.module_agent import build_dict, training_examples
from dpmodule.base import ArgumentError, FileError, NonFiniteError, StateError
from dpmodule.streams import Supervisor
from helpers.small_tasks import SmallestAgent, examples, smallest

TIMEOUT_S = 60


def params(agent):
    found, _ = agent.network.module.get_params()
    return {name: array.asnumpy() for name, array in found.items()}


def alike(**opt):
    """Return an agent that begins as all of them do."""
    agent = SmallestAgent(smallest(**opt))
    random.seed(1)
    mx.random.seed(1)
    agent.network.bind(agent.vectorize(examples(2)))
    return agent


def assert_same(found, wanted, tolerance=1e-6):
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=tolerance, err_msg=name)


class Recording(SmallestAgent):
    """Keeps the batches that it is trained on, and the parameters before the first."""

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.batches, self.first = [], None

    def learn(self, observations):
        batch = self.vectorize(observations)
        if self.first is None:
            self.first = {k: v.copy() for k, v in self.network.bind(batch).get_params()[0].items()}
        self.batches.append(batch)
        return super().learn(observations)


# training and predicting


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_training_in_a_sorted_batch_world_equals_fit_on_the_same_batches(optimizer):
    opt = smallest(batchsize=32, batch_sort=True, examples=320, optimizer=optimizer, learningrate=0.05)
    agent = Recording(opt)
    world = create_task(opt, agent)
    for _ in range(10):
        world.parley()
    module = mx.mod.Module(agent.network.module.symbol, data_names=["words"])

    class Batches(list):
        provide_data = agent.batches[0].provide_data
        provide_label = agent.batches[0].provide_label

        def reset(self):
            pass

    module.fit(
        Batches(agent.batches),
        arg_params=agent.first,
        num_epoch=1,
        optimizer=optimizer,
        optimizer_params={"learning_rate": 0.05},
    )
    assert len(agent.batches) == 10
    assert_same(params(agent), {name: array.asnumpy() for name, array in module.get_params()[0].items()})


def test_a_module_agent_learns():
    opt = smallest(batchsize=32, batch_sort=True, datatype="train", optimizer="adam", learningrate=0.03)
    agent = SmallestAgent(opt)
    world = create_task(opt, agent)
    for _ in range(150):
        world.parley()
    test = create_task({**opt, "datatype": "valid"}, agent)
    while not test.epoch_done():
        test.parley()
    assert test.report()["total"] == 100
    assert test.report()["accuracy"] > 0.6
    assert 0 < test.report()["loss"] < 1.5


def test_act_is_a_batch_of_one():
    first, second = alike(), alike()
    for each in examples(5):
        first.observe(each)
        assert first.act() == second.batch_act([each])[0]
    assert_same(params(first), params(second), 0)


def test_rows_without_text_are_left_out():
    first, second = alike(batchsize=4), alike(batchsize=4)
    one, two = examples(2)
    padding = {"episode_done": True, "id": "teacher"}
    found = first.batch_act([padding, one, {}, two])
    wanted = second.batch_act([one, two])
    assert found == [{"id": "SmallestAgent"}, wanted[0], {"id": "SmallestAgent"}, wanted[1]]
    assert_same(params(first), params(second), 0)
    assert first.batch_act([padding, padding]) == [{"id": "SmallestAgent"}] * 2


def test_observations_without_labels_change_nothing():
    agent = SmallestAgent(smallest())
    agent.batch_act(examples(4))
    before = params(agent)
    rows = examples(4, seed=1)
    asked = [{"text": each["text"], "eval_labels": each["labels"]} for each in rows]
    replies = agent.batch_act(asked)
    assert all(reply["metrics"]["loss"] > 0 for reply in replies)
    assert [each["text"] for each in agent.batch_act([{"text": e["text"]} for e in rows])] == [
        reply["text"] for reply in replies
    ]
    assert_same(params(agent), before, 0)


def test_rows_with_and_without_labels_are_trained_and_answered_apart():
    first, second = alike(), alike()
    one, two, three = examples(3)
    asked = {"text": two["text"]}
    replies = first.batch_act([one, asked, three])
    assert "metrics" not in replies[1]
    second.batch_act([asked])
    second.batch_act([one, three])
    assert_same(params(first), params(second), 0)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_agent_that_was_asked_first_learns_all_the_same(workers):
    first, second = SmallestAgent(smallest(numthreads=workers)), alike()
    mx.random.seed(1)
    first.batch_act([{"text": "w01 w02"}])
    for number in range(3):
        first.batch_act(examples(2, number))
        second.batch_act(examples(2, number))
    assert_same(params(first), params(second), 0)


def test_a_batch_is_shared_out_over_contexts():
    found = []
    for contexts in (None, "cpu(0),cpu(1)", [mx.cpu(0), mx.cpu(1)]):
        agent = alike(contexts=contexts, batchsize=8)
        for number in range(3):
            agent.batch_act(examples(8, number))
        found.append(params(agent))
    assert_same(found[1], found[0])
    assert_same(found[2], found[0])


def test_an_episode_is_one_text():
    opt = smallest()
    agent = SmallestAgent(opt)
    agent.observe({"text": "w01", "labels": ["w01"], "episode_done": False})
    assert agent.observe({"text": "w02", "episode_done": True})["text"] == "w01\nw01\nw02"
    agent.observe({"text": "w03", "episode_done": False})
    agent.reset()
    assert agent.observe({"text": "w04", "episode_done": True})["text"] == "w04"


# sharing


def test_rows_of_a_batch_have_no_module_of_their_own():
    opt = smallest(batchsize=3)
    agent = SmallestAgent(opt)
    world = create_task(opt, agent)
    assert all(row.get_agents()[1].network is agent.network for row in world.worlds)
    assert all(row.get_agents()[1].dict is agent.dict for row in world.worlds)


def _train(channel, shared, index):
    agent = create_agent_from_shared({**shared, "threadindex": index})
    while (observations := channel.recv()) is not None:
        channel.send([reply["metrics"]["loss"] for reply in agent.batch_act(observations)])


@pytest.mark.parametrize(
    ("more", "method"),
    [
        ({"optimizer": "adam"}, "fork"),
        ({"momentum": 0.9}, "fork"),
        ({"contexts": "cpu(0),cpu(1)"}, "fork"),
        pytest.param({"optimizer": "adam"}, "spawn", marks=pytest.mark.slow),
    ],
)
def test_workers_in_turn_train_as_one_process_does(more, method):
    alone, agent = alike(batchsize=8, **more), alike(batchsize=8, numthreads=2, **more)
    shared = agent.share()
    with Supervisor("workers", start_method=method) as workers:
        children = [workers.start(_train, shared, index) for index in range(2)]
        for number in range(6):
            batch = examples(8, number)
            children[number % 2].send(batch, TIMEOUT_S)
            losses = children[number % 2].recv(TIMEOUT_S)
            wanted = [reply["metrics"]["loss"] for reply in alone.batch_act(batch)]
            assert losses == pytest.approx(wanted, abs=1e-5)
        for child in children:
            child.send(None, TIMEOUT_S)
        workers.join(TIMEOUT_S)
    assert_same(params(agent), params(alone))
    assert agent.network.module.optimizer.num_update == 6


def test_rows_of_a_workers_batch_use_the_workers_module():
    agent = SmallestAgent(smallest(numthreads=2, batchsize=2))
    worker = create_agent_from_shared({**agent.share(), "threadindex": 0})
    row = create_agent_from_shared({**worker.share(), "threadindex": 0, "batchindex": 1})
    assert worker.network is not agent.network
    assert row.network is worker.network
    worker.batch_act(examples(2))
    assert_same(params(agent), params(worker), 0)


def test_threads_train_the_same_parameters():
    agent = SmallestAgent(smallest(numthreads=3, batchsize=4, learningrate=0.02))
    copies = [create_agent_from_shared({**agent.share(), "threadindex": index}) for index in range(3)]
    before = params(agent)
    threads = [
        threading.Thread(target=lambda c=copy: [c.batch_act(examples(4, n)) for n in range(20)])
        for copy in copies
    ]
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


def test_a_rehearsal_before_workers_start_changes_no_parameter():
    agent = alike(numthreads=2)
    before = params(agent)
    agent.network.warm_up(agent.vectorize(agent.sample()))
    assert_same(params(agent), before, 0)
    assert agent.network.module.optimizer.num_update == 0


def test_workers_need_a_task_to_know_the_shapes(tmp_path):
    words = tmp_path / "words"
    words.write_text("w01\t1\n")
    agent = SmallestAgent(smallest(task=None, dict_file=str(words), numthreads=2))
    with pytest.raises(StateError, match=r"set opt\[\"task\"\], or define sample\(\)"):
        agent.share()


# files


def trained(tmp_path, **opt):
    agent = SmallestAgent(smallest(model_file=str(tmp_path / "net"), **opt))
    for number in range(5):
        agent.batch_act(examples(8, number))
    return agent


def test_a_saved_agent_is_the_same_again(tmp_path):
    agent = trained(tmp_path, optimizer="adam")
    agent.save()
    assert sorted(os.listdir(tmp_path)) == ["net-0000.params", "net-symbol.json", "net.dict", "net.opt"]
    asked = [{"text": each["text"]} for each in examples(20, 9)]
    model = "helpers.small_tasks:SmallestAgent"
    again = create_agent({"model": model, "model_file": str(tmp_path / "net")})
    assert type(again) is SmallestAgent
    assert again.dict.tok2ind == agent.dict.tok2ind
    assert again.opt["optimizer"] == "adam"
    assert again.batch_act(asked) == agent.batch_act(asked)
    assert_same(params(again), params(agent), 0)


def test_a_checkpoint_is_mxnets(tmp_path):
    agent = trained(tmp_path)
    agent.save(str(tmp_path / "other"))
    symbol, arg_params, aux_params = mx.model.load_checkpoint(str(tmp_path / "other"), 0)
    assert symbol.list_outputs() == ["softmax_output"]
    assert_same({name: array.asnumpy() for name, array in arg_params.items()}, params(agent), 0)
    assert aux_params == {}
    lines = (tmp_path / "other.dict").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines] == list(agent.dict.tok2ind)


def test_an_agent_of_an_unknown_module_is_not_loaded_because_a_file_says_so(tmp_path):
    trained(tmp_path).save()
    with pytest.raises(ArgumentError, match="modules that only a file names are not imported"):
        create_agent({"model_file": str(tmp_path / "net")})


@pytest.mark.parametrize("failing", [1, 2, 3, 4])
def test_a_full_disk_leaves_the_old_files(tmp_path, monkeypatch, failing):
    agent = trained(tmp_path)
    agent.save()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    agent.batch_act(examples(8))
    agent.dict.add_to_dict(["new"])
    agent.opt["note"] = "new"
    count, sync = [0], os.fsync

    def full(number):
        count[0] += 1
        if count[0] == failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(number)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match="No space left"):
        agent.save()
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_without_a_path_nothing_is_saved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    SmallestAgent(smallest()).save()
    assert os.listdir(tmp_path) == []


def test_what_has_no_parameters_yet_cannot_be_saved(tmp_path):
    with pytest.raises(StateError, match="train or predict first"):
        SmallestAgent(smallest(model_file=str(tmp_path / "net"))).save()


# what does not fit


def test_data_of_another_name_than_the_networks_are_refused():
    class Other(SmallestAgent):
        def vectorize(self, observations):
            return vectors.batch_of({"wrods": vectors.ragged([[1]])})

    with pytest.raises(ArgumentError, match="'wrods'.* has no argument 'wrods'; it has words"):
        Other(smallest()).batch_act(examples(1))


def test_a_batch_has_to_describe_its_arrays():
    class Other(SmallestAgent):
        def vectorize(self, observations):
            return mx.io.DataBatch([mx.nd.zeros((1, 2))])

    with pytest.raises(ArgumentError, match=r"provide_data=\[\.\.\.\]"):
        Other(smallest()).batch_act(examples(1))


def test_a_network_is_a_symbol_or_a_function():
    class Other(SmallestAgent):
        def sym_gen(self, opt, dict):
            return "net"

    with pytest.raises(ArgumentError, match="sym_gen returned something of type str"):
        Other(smallest()).batch_act(examples(1))


def test_buckets_need_a_key():
    class Other(SmallestAgent):
        def sym_gen(self, opt, dict):
            net = super().sym_gen(opt, dict)
            return lambda key: (net, ["words"], ["softmax_label"])

    with pytest.raises(ArgumentError, match="without bucket_key"):
        Other(smallest()).batch_act(examples(1))


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"optimizer": "sdg"}, "sdg"),
        ({"optimizer_params": {"no_such": 1}}, "no_such"),
        ({"contexts": "tpu"}, "tpu"),
        ({"contexts": 3}, "ctx is 3"),
        ({"on_nonfinite": "sing"}, "sing"),
        (
            {"grad_clip": 1, "gradientClip": 1},
            "there is no option 'gradientClip'; did you mean 'gradient_clip'",
        ),
    ],
)
def test_options_that_are_none_are_refused_at_once(more, what):
    with pytest.raises(ArgumentError, match=what):
        SmallestAgent(smallest(**more))


def test_a_subclass_has_to_say_what_its_network_is():
    class Empty(mx.agents.ModuleAgent):
        pass

    agent = Empty(smallest())
    with pytest.raises(NotImplementedError, match=r"Empty must define vectorize"):
        agent.batch_act(examples(1))
    with pytest.raises(NotImplementedError, match=r"Empty must define sym_gen"):
        agent.sym_gen({}, None)


def test_parameters_stay_as_they_were_when_training_gives_nan():
    agent = SmallestAgent(smallest())
    agent.batch_act(examples(4))
    weight = agent.network.module.store.array("scores_weight", 0)
    weight[0, 0] = float("inf")
    before = params(agent)
    with pytest.raises(NonFiniteError, match="the parameters are unchanged"):
        agent.batch_act(examples(4))
    assert_same(params(agent), before, 0)


def test_a_label_in_no_vocabulary_is_refused():
    agent = SmallestAgent(smallest())
    with pytest.raises(ArgumentError, match="row 1 has the label 'w99'"):
        agent.batch_act([*examples(1), {"text": "w01", "labels": ["w99"]}])


def test_a_dictionary_is_that_of_the_file(tmp_path):
    path = str(tmp_path / "words")
    made = DictionaryAgent({})
    made.add_to_dict(f"w{number:02}" for number in range(30))
    made.save(path)
    agent = SmallestAgent(smallest(task=None, dict_file=path))
    assert agent.dict.tok2ind == made.tok2ind
    agent.batch_act(examples(3))


def test_every_training_example_comes_once():
    opt = smallest(examples=50, datatype="valid", batchsize=8, batch_sort=True, numthreads=4)
    found = [example["text"] for example in training_examples(opt)]
    assert len(found) == 50
    assert found == [example["text"] for example in training_examples(opt)]


def test_several_tasks_follow_each_other():
    both = smallest(examples=5, task="helpers.small_tasks:Smallest,helpers.small_tasks:Letters")
    assert len(list(training_examples(both))) == 10
    assert list(training_examples({})) == []


def test_a_dictionary_has_the_words_of_texts_and_labels():
    found = build_dict(smallest(examples=200))
    assert {f"w{number:02}" for number in range(30)} <= set(found.keys())
    assert found["__NULL__"] == 0
    counts = [count for _, count in list(found.freqs().items())[4:]]
    assert counts == sorted(counts, reverse=True)


def test_fewer_examples_can_be_read():
    few = build_dict(smallest(examples=200, dict_maxexs=2))
    assert 4 < len(few) < 24


def test_a_dictionary_is_written_where_a_file_is_named(tmp_path):
    path = str(tmp_path / "words")
    made = build_dict(smallest(dict_file=path))
    assert DictionaryAgent({"dict_file": path}).tok2ind == made.tok2ind
    assert dictionary_file("net") == "net.dict"


def test_there_is_no_dictionary_without_a_task():
    with pytest.raises(ArgumentError, match=r'opt\["dict_file"\].*opt\["task"\]'):
        build_dict({})
