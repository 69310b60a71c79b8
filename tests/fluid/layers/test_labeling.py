"""Losses of label sequences, against all paths and torch."""

import itertools

import numpy as np
import pytest
import torch

import dpmodule.fluid as fluid
from helpers.fluid_programs import run, values

layers = fluid.layers


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


ROWS = [3, 1, 2]


def tagging():
    scores = layers.data("scores", [3], lod_level=1)
    return scores, layers.data("label", [1], dtype="int64", lod_level=1)


def test_crf_counts_all_paths_and_finds_the_best_one():
    scores, label = tagging()
    loss = layers.linear_chain_crf(scores, label, fluid.ParamAttr("crfw", fluid.initializer.Normal()))
    path = layers.crf_decoding(scores, fluid.ParamAttr(name="crfw"))
    right = layers.crf_decoding(scores, fluid.ParamAttr(name="crfw"), label)
    given = [numbers(n, 3, seed=n) for n in ROWS]
    labels = [np.arange(n) % 3 for n in ROWS]
    losses, paths, hits = run({"scores": given, "label": labels}, [loss, path, right], return_numpy=False)
    (transition,) = values("crfw")
    for i, (row, wanted) in enumerate(zip(given, labels)):
        totals = {}
        for one in itertools.product(range(3), repeat=len(row)):
            totals[one] = transition[0, one[0]] + transition[1, one[-1]] + row[range(len(row)), one].sum()
            totals[one] += sum(transition[2 + a, b] for a, b in itertools.pairwise(one))
        all_paths = np.log(np.exp(list(totals.values())).sum())
        assert losses.asnumpy()[i, 0] == pytest.approx(all_paths - totals[tuple(wanted)], rel=1e-4)
        best = max(totals, key=totals.get)
        assert np.ravel(paths[i].asnumpy()).tolist() == list(best)
        assert np.ravel(hits[i].asnumpy()).tolist() == (np.array(best) == wanted).astype(int).tolist()


def test_a_tagger_trains():
    words = layers.data("words", [1], dtype="int64", lod_level=1)
    label = layers.data("label", [1], dtype="int64", lod_level=1)
    scores = layers.fc(layers.embedding(words, [9, 6]), 3)
    loss = layers.mean(layers.linear_chain_crf(scores, label, "crfw"))
    right = layers.crf_decoding(scores, "crfw", label)
    share = layers.mean(layers.cast(right, "float32"))
    fluid.optimizer.Adam(0.05).minimize(loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    draw = np.random.default_rng(0)
    for _ in range(40):
        rows = [draw.integers(0, 9, n) for n in draw.integers(1, 6, 16)]
        feed = {"words": rows, "label": [row % 3 for row in rows]}
        _, hits = executor.run(feed=feed, fetch_list=[loss, share])
    assert hits == [1.0]


@pytest.mark.parametrize("blank", [0, 3])
def test_ctc_of_sequences_and_of_padded_rows(blank):
    scores, label = (
        layers.data("scores", [4], lod_level=1),
        layers.data("label", [1], dtype="int64", lod_level=1),
    )
    padded, labeled = layers.data("padded", [5, 4]), layers.data("labeled", [2], dtype="int64")
    sizes = [layers.data(name, [1], dtype="int64") for name in ("steps", "counts")]
    dense = layers.warpctc(layers.transpose(padded, [1, 0, 2]), labeled, blank, False, *sizes)
    steps, counts = [5, 4, 3], [2, 1, 2]
    rows = [numbers(n, 4, seed=n) for n in steps]
    labels = np.array([[1, 2], [2, 0], [2, 1]])
    loss = layers.warpctc(scores, label, blank)
    whole = np.zeros((3, 5, 4), "float32")
    for i, row in enumerate(rows):
        whole[i, : len(row)] = row
    feed = {"scores": rows, "label": [row[:n] for row, n in zip(labels, counts)], "padded": whole}
    feed |= {"labeled": labels, "steps": np.array(steps)[:, None], "counts": np.array(counts)[:, None]}
    logs = torch.tensor(whole).log_softmax(2).transpose(0, 1)
    wanted = torch.nn.functional.ctc_loss(
        logs, torch.tensor(labels), torch.tensor(steps), torch.tensor(counts), blank, "none"
    )
    for variable, found in zip((loss, dense), run(feed, [loss, dense])):
        np.testing.assert_allclose(found[:, 0], wanted, rtol=1e-4)
        assert variable.shape[1:] == (1,)
