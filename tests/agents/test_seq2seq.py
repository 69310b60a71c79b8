import itertools
import random

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.agents import Seq2seqAgent, create_agent, create_task, seq2seq
from helpers.seeds import fixed_random_numbers
from helpers.talks import finish


def options(**more):
    task = {"task": "helpers.small_tasks:Letters", "datatype": "train", "examples": 5000}
    return {**task, "batchsize": 32, "batch_sort": True, **more}


def trained(parleys, **more):
    random.seed(1)
    mx.random.seed(1)
    opt = options(**more)
    agent = Seq2seqAgent(opt)
    with create_task(opt, agent) as world:
        for _ in range(parleys):
            world.parley()
    return agent


def valid_report(agent, **more):
    world = create_task(options(datatype="valid") | more, agent)
    finish(world)
    return world.report()


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """Path of an agent that has learned to reverse letters."""
    path = str(tmp_path_factory.mktemp("seq2seq") / "net")
    with fixed_random_numbers():  # made before the first test's own
        trained(250, model="seq2seq", hiddensize=64, embeddingsize=32, learningrate=0.006).save(path)
    return path


def test_it_learns_to_reverse_letters(learned):
    greedy = valid_report(create_agent({"model_file": learned}))
    assert greedy["total"] == 100
    assert greedy["accuracy"] > 0.95
    assert greedy["loss"] < 0.1
    beam = valid_report(create_agent({"model_file": learned, "override": {"beam_size": 3}}))
    assert beam["accuracy"] >= greedy["accuracy"] - 0.02
    assert beam["loss"] == pytest.approx(greedy["loss"], abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "parleys", "accuracy"),
    [
        *(({}, 400, 0.99), ({"numlayers": 2, "dropout": 0.1}, 400, 0.99), ({"attention": "none"}, 400, 0.9)),
        ({"numthreads": 2, "hiddensize": 64, "embeddingsize": 32, "learningrate": 0.01}, 600, 0.9),
    ],
)
def test_it_learns_to_reverse_letters_almost_always(more, parleys, accuracy):
    assert valid_report(trained(parleys, **more), valid_examples=500)["accuracy"] > accuracy


def test_candidates_are_ranked_by_how_likely_they_are(learned):
    agent = create_agent({"model_file": learned, "override": {"rank_candidates": True}})
    report = valid_report(agent)
    assert report["hits@1"] == report["accuracy"] > 0.97
    (reply,) = agent.batch_act([{"text": "a b c d", "label_candidates": ["a b c d", "d c b a", "d c a b"]}])
    assert (reply["text"], sorted(reply["text_candidates"])) == ("d c b a", ["a b c d", "d c a b", "d c b a"])


def test_an_answer_step_by_step_is_as_likely_as_in_training(learned):
    """The decoder that continues its own answer computes the same as that of training."""
    agent = create_agent({"model_file": learned})
    rows = [{"text": text} for text in ("a b c d", "h g", "a a a a a a")]
    said = [reply["text"] for reply in agent.batch_act(rows)]
    told = [{**row, "labels": [text]} for row, text in zip(rows, said)]
    batch = agent.vectorize(told)
    assert [reply["text"] for reply in agent.reply(told, batch, agent.network.predict(batch))] == said


def test_rows_do_not_depend_on_their_neighbours_nor_on_padding(learned):
    agent = create_agent({"model_file": learned})
    texts = ["a b c d e f", "c d", "h", "e f g h a b c d e", ""]
    together = [reply["text"] for reply in agent.batch_act([{"text": text} for text in texts])]
    assert together == [agent.batch_act([{"text": text}])[0]["text"] for text in texts]
    losses = []
    for buckets in ([8], [16, 32]):
        agent = trained(3, buckets=buckets, hiddensize=16)
        rows = [{"text": "a b c d", "eval_labels": ["d c b a"]}, {"text": "a", "eval_labels": ["a"]}]
        losses.append([reply["metrics"]["loss"] for reply in agent.batch_act(rows)])
    np.testing.assert_allclose(losses[0], losses[1], atol=1e-4)


def test_long_texts_and_answers_are_cut():
    agent, text = trained(2, truncate=6, hiddensize=8, longest_answer=3), "a b c d e f g h"
    batch = agent.vectorize([{"text": text, "labels": [text]}])
    end, begin = agent.dict.txt2vec("c d e f g h"), agent.dict.txt2vec("a b c d e")
    assert [array.asnumpy().tolist() for array in batch.data] == [[end], [6], [[1, *begin]]]
    assert batch.label[0].asnumpy().tolist() == [[*begin, 2]]
    assert all(len(reply["text"].split()) <= 3 for reply in agent.batch_act([{"text": text}] * 4))


END, START = 0, 9


class Chain:
    """A model whose next token depends on the last one, and on the row, which it finds by following origins."""

    def __init__(self, rows, width, tokens, seed=1):
        self.tables = np.log(np.random.RandomState(seed).dirichlet(np.full(tokens, 0.5), (rows, 10)))
        self.rows = np.repeat(np.arange(rows), width)

    def __call__(self, origins, tokens):
        self.rows = self.rows[origins]
        return self.tables[self.rows, tokens]

    def likelihood(self, row, sequence):
        steps = itertools.pairwise([START, *sequence])
        return sum(self.tables[row, last, token] for last, token in steps)


def test_greedy_search_takes_the_likeliest_token_at_each_step():
    chain = Chain(3, 1, 4)
    for row, sequence in enumerate(seq2seq.beam_search(chain, 3, 1, 5, START, END)):
        last = START
        for token in [*sequence, *([END] if len(sequence) < 5 else [])]:
            assert token == chain.tables[row, last].argmax()
            last = token


@pytest.mark.parametrize("seed", range(5))
def test_a_beam_that_takes_everything_finds_the_likeliest_sequence(seed):
    chain, longest = Chain(2, 3**4, 3, seed), 4
    every = [(*s, END) for n in range(longest) for s in itertools.product((1, 2), repeat=n)]
    every += itertools.product((1, 2), repeat=longest)
    best = [max(every, key=lambda sequence: chain.likelihood(row, sequence)) for row in range(2)]
    wanted = [[token for token in sequence if token != END] for sequence in best]
    assert seq2seq.beam_search(chain, 2, 3**4, longest, START, END) == wanted
