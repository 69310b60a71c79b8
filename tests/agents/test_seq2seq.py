import argparse
import itertools
import random

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.agents import Seq2seqAgent, create_agent, create_agent_from_shared, create_task, seq2seq
from dpmodule.base import ArgumentError
from dpmodule.streams import Supervisor
from helpers.seeds import fixed_random_numbers
from helpers.small_tasks import Letters

TIMEOUT_S = 60


def options(**more):
    return {
        "task": "helpers.small_tasks:Letters",
        "datatype": "train",
        "batchsize": 32,
        "batch_sort": True,
        "examples": 5000,
    } | more


def trained(parleys, **more):
    random.seed(1)
    mx.random.seed(1)
    opt = options(**more)
    agent = Seq2seqAgent(opt)
    world = create_task(opt, agent)
    for _ in range(parleys):
        world.parley()
    return agent


def valid_report(agent, **more):
    world = create_task(options(datatype="valid") | more, agent)
    while not world.epoch_done():
        world.parley()
    return world.report()


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """Path of an agent that has learned to reverse letters."""
    path = str(tmp_path_factory.mktemp("seq2seq") / "net")
    with fixed_random_numbers():  # made before the first test's own
        trained(250, model="seq2seq", hiddensize=64, embeddingsize=32, learningrate=0.006).save(path)
    return path


def test_it_learns_to_reverse_letters(learned):
    report = valid_report(create_agent({"model_file": learned}))
    assert report["total"] == 100
    assert report["accuracy"] > 0.95
    assert report["loss"] < 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "accuracy"),
    [({}, 0.99), ({"numlayers": 2, "dropout": 0.1}, 0.99), ({"attention": "none"}, 0.9)],
)
def test_it_learns_to_reverse_letters_almost_always(more, accuracy):
    assert valid_report(trained(400, **more), valid_examples=500)["accuracy"] > accuracy


def test_beam_search_is_as_good_as_greedy_search(learned):
    greedy = valid_report(create_agent({"model_file": learned}))
    beam = valid_report(create_agent({"model_file": learned, "override": {"beam_size": 3}}))
    assert beam["accuracy"] >= greedy["accuracy"] - 0.02
    assert beam["loss"] == pytest.approx(greedy["loss"], abs=1e-4)


def test_candidates_are_ranked_by_how_likely_they_are(learned):
    agent = create_agent({"model_file": learned, "override": {"rank_candidates": True}})
    report = valid_report(agent)
    assert report["hits@1"] == report["accuracy"] > 0.97
    (reply,) = agent.batch_act([{"text": "a b c d", "label_candidates": ["a b c d", "d c b a", "d c a b"]}])
    assert reply["text"] == "d c b a"
    assert sorted(reply["text_candidates"]) == ["a b c d", "d c a b", "d c b a"]


def test_what_it_says_step_by_step_is_as_likely_as_when_it_is_told(learned):
    """The decoder that goes on from itself computes what the one of training does."""
    agent = create_agent({"model_file": learned})
    rows = [{"text": text} for text in ("a b c d", "h g", "a a a a a a")]
    said = [reply["text"] for reply in agent.batch_act(rows)]
    told = [{**row, "labels": [text]} for row, text in zip(rows, said)]
    batch = agent.vectorize(told)
    outputs = agent.network.predict(batch)
    assert [reply["text"] for reply in agent.reply(told, batch, outputs)] == said


def test_rows_do_not_depend_on_their_neighbours(learned):
    agent = create_agent({"model_file": learned})
    texts = ["a b c d e f", "c d", "h", "e f g h a b c d e", ""]
    together = [reply["text"] for reply in agent.batch_act([{"text": text} for text in texts])]
    assert together == [agent.batch_act([{"text": text}])[0]["text"] for text in texts]


def test_padding_counts_for_nothing():
    losses = []
    for buckets in ([8], [16, 32]):
        agent = trained(3, buckets=buckets, hiddensize=16)
        rows = [{"text": "a b c d", "eval_labels": ["d c b a"]}, {"text": "a", "eval_labels": ["a"]}]
        losses.append([reply["metrics"]["loss"] for reply in agent.batch_act(rows)])
    np.testing.assert_allclose(losses[0], losses[1], atol=1e-4)


def test_long_texts_and_answers_are_cut():
    agent = trained(2, truncate=6, hiddensize=8)
    text = "a b c d e f g h"
    batch = agent.vectorize([{"text": text, "labels": [text]}])
    source, length, told = (array.asnumpy().tolist() for array in batch.data)
    assert source == [agent.dict.txt2vec("c d e f g h")]
    assert length == [6]
    assert told == [[1, *agent.dict.txt2vec("a b c d e")]]
    assert batch.label[0].asnumpy().tolist() == [[*agent.dict.txt2vec("a b c d e"), 2]]
    assert len(agent.batch_act([{"text": text}])[0]["text"].split()) <= 6


def test_answers_have_a_greatest_length():
    agent = trained(1, hiddensize=8, longest_answer=3)
    assert all(len(reply["text"].split()) <= 3 for reply in agent.batch_act([{"text": "a b"}] * 4))


def test_several_contexts_train_as_one_does():
    found = []
    for contexts in ("cpu(0)", "cpu(0),cpu(1)"):
        agent = trained(5, contexts=contexts, hiddensize=16)
        arrays, _ = agent.network.module.get_params()
        found.append(({name: array.asnumpy() for name, array in arrays.items()}, valid_report(agent)))
    for name, array in found[0][0].items():
        np.testing.assert_allclose(found[1][0][name], array, atol=1e-4, err_msg=name)
    assert found[1][1] == pytest.approx(found[0][1], abs=1e-2)


def test_a_checkpoint_is_that_of_the_training_network(learned):
    symbol, arrays, _ = mx.model.load_checkpoint(learned, 0)
    assert set(symbol.list_arguments()) == {"source", "length", "said", "target", *arrays}


def test_a_ranking_needs_candidates():
    agent = trained(0, rank_candidates=True, hiddensize=8)
    with pytest.raises(ArgumentError, match="'Seq2seq' ranks candidates, but .*'a b' has no"):
        agent.batch_act([{"text": "a b"}])


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"attention": "cross"}, "attention is 'cross'"),
        ({"buckets": []}, "buckets"),
        ({"buckets": [1]}, "buckets"),
        ({"truncate": 1}, "truncate is 1"),
        ({"dropout": 1.0}, "from 0 and below 1"),
        ({"beam_size": 0}, "beam_size is 0"),
        ({"dict_nulltoken": ""}, "null, start or end"),
        ({"optimizer": "adma"}, "adma"),
    ],
)
def test_options_that_are_none_are_refused(more, what):
    with pytest.raises(ArgumentError, match=what):
        trained(0, **more)


def _train(channel, shared):
    agent = create_agent_from_shared({**shared, "threadindex": channel.index})
    while (rows := channel.recv()) is not None:
        channel.send(agent.batch_act(rows)[0]["metrics"]["loss"])


@pytest.mark.parametrize("parleys", [40, pytest.param(300, marks=pytest.mark.slow)])
def test_workers_train_the_same_networks(parleys):
    opt = options(numthreads=2, hiddensize=64, embeddingsize=32, learningrate=0.01)
    agent = Seq2seqAgent(opt)
    teacher = Letters(options(batchsize=1, batch_sort=False))
    losses = []
    with Supervisor("workers", start_method="fork") as workers:
        shared = agent.share()
        children = [workers.start(_train, shared) for _ in range(2)]
        for _ in range(parleys // 2):
            for child in children:
                child.send([teacher.act() for _ in range(32)], TIMEOUT_S)
            losses += [child.recv(TIMEOUT_S) for child in children]
        for child in children:
            child.send(None, TIMEOUT_S)
        workers.join(TIMEOUT_S)
    assert np.mean(losses[-8:]) < 0.9 * np.mean(losses[:8])
    assert parleys < 300 or valid_report(agent)["accuracy"] > 0.9


def test_flags_are_options():
    parser = argparse.ArgumentParser()
    parser.register("type", "bool", str)
    Seq2seqAgent.add_cmdline_args(parser)
    opt = vars(parser.parse_args(["--embeddingsize", "8", "--optimizer", "nag", "-lr", "0.5"]))
    agent = Seq2seqAgent(options(**opt))
    agent.batch_act([{"text": "a b", "labels": ["b a"]}])
    assert agent.network.module.get_params()[0]["embedding_weight"].shape == (len(agent.dict), 8)
    assert agent.network.module.symbol.list_outputs()[0] == "softmax_output"


END, START = 0, 9


class Chain:
    """A model whose next token depends on the last one, and on the row, which it finds by following origins."""

    def __init__(self, rows, width, tokens, seed=1):
        draw = np.random.RandomState(seed)
        self.tables = np.log(draw.dirichlet(np.full(tokens, 0.5), (rows, 10)))
        self.rows = np.repeat(np.arange(rows), width)

    def __call__(self, origins, tokens):
        self.rows = self.rows[origins]
        return self.tables[self.rows, tokens]

    def likelihood(self, row, sequence):
        steps = itertools.pairwise([START, *sequence])
        return sum(self.tables[row, last, token] for last, token in steps)


def best(chain, row, tokens, longest):
    every = [
        (*middle, END) for n in range(longest) for middle in itertools.product(range(1, tokens), repeat=n)
    ]
    every += itertools.product(range(1, tokens), repeat=longest)
    found = max(every, key=lambda sequence: chain.likelihood(row, sequence))
    return [token for token in found if token != END]


def test_greedy_search_takes_the_likeliest_token_at_each_step():
    chain = Chain(3, 1, 4)
    found = seq2seq.beam_search(chain, 3, 1, 5, START, END)
    for row, sequence in enumerate(found):
        last = START
        for token in [*sequence, *([END] if len(sequence) < 5 else [])]:
            assert token == chain.tables[row, last].argmax()
            last = token


@pytest.mark.parametrize("seed", range(5))
def test_a_beam_that_takes_everything_finds_the_likeliest_sequence(seed):
    width = 3**4
    chain = Chain(2, width, 3, seed)
    wanted = [best(chain, row, 3, 4) for row in range(2)]
    assert seq2seq.beam_search(chain, 2, width, 4, START, END) == wanted


def test_a_wider_beam_is_never_less_likely_than_none():
    for seed in range(10):
        likely = []
        for width in (1, 200):
            chain = Chain(1, width, 5, seed)
            (found,) = seq2seq.beam_search(chain, 1, width, 3, START, END)
            likely.append(chain.likelihood(0, [*found, *([END] if len(found) < 3 else [])]))
        assert likely[1] >= likely[0] - 1e-9


def test_what_ends_at_once_is_empty():
    def ends(origins, tokens):
        return np.log(np.tile([0.9, 0.1], (len(tokens), 1)))

    assert seq2seq.beam_search(ends, 2, 2, 10, START, END) == [[], []]
