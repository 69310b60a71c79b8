"""Losses of label sequences, against all paths and torch."""

import itertools

import numpy as np
import pytest
import torch

import dpmodule as mx
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


def test_padded_rows_are_as_their_sequences():
    scores, label = tagging()
    wide, marks = layers.data("wide", [4, 3]), layers.data("marks", [4, 1], dtype="int64")
    length = layers.data("length", [1], dtype="int64")
    results = []
    for rows, right, more in ((scores, label, {}), (wide, marks, {"length": length})):
        loss = layers.linear_chain_crf(
            rows, right, fluid.ParamAttr("crfw", fluid.initializer.Normal(seed=1)), **more
        )
        results += [loss, *(layers.crf_decoding(rows, "crfw", each, **more) for each in (None, right))]
    given, labels = [numbers(n, 3, seed=n) for n in ROWS], [np.arange(n) % 3 for n in ROWS]
    feed = {"scores": given, "label": labels, "length": np.reshape(ROWS, (-1, 1))}
    feed["wide"] = np.stack([np.pad(each, ((0, 4 - len(each)), (0, 0)), constant_values=9) for each in given])
    feed["marks"] = np.stack([np.pad(each, (0, 4 - len(each)))[:, None] for each in labels])
    found = run(feed, results, return_numpy=False)
    np.testing.assert_allclose(found[3].asnumpy(), found[0].asnumpy(), rtol=1e-6)
    for sequences, padded in zip(found[1:3], found[4:]):
        assert padded.asnumpy().shape == (3, 4)
        for i, n in enumerate(ROWS):
            assert padded.asnumpy()[i].tolist() == [*np.ravel(sequences[i].asnumpy()), *[0] * (4 - n)]


LETTERS = {"IOB": "BI", "IOE": "IE", "IOBES": "BIES", "plain": "I"}


def chunks(labels, scheme, other, excluded):
    """Return the kinds, first and last places of the chunks of a row."""
    found, before = [], None
    for place, label in enumerate(labels):
        kind, tag = divmod(int(label), len(LETTERS[scheme]))
        now = None if kind == other else (kind, LETTERS[scheme][tag])
        if now and before and now[0] == before[0] and now[1] not in "BS" and before[1] not in "ES":
            found[-1][2] = place
        elif now:
            found.append([kind, place, place])
        before = now
    return {tuple(one) for one in found if one[0] not in excluded}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("excluded", [None, [1]])
@pytest.mark.parametrize("scheme", LETTERS)
def test_chunks_are_counted(scheme, excluded, padded):
    lengths, draw = [7, 1, 30, 4, 18], np.random.default_rng(3)
    high = 3 * len(LETTERS[scheme]) + 1
    right = [draw.integers(0, high, n) for n in lengths]
    found = [np.where(draw.random(n) < 0.3, draw.integers(0, high, n), row) for n, row in zip(lengths, right)]
    names, given = ("found", "right"), {"found": found, "right": right}
    if padded:
        given = {
            name: np.stack([np.pad(row, (0, 30 - len(row))) for row in given[name]])[..., None]
            for name in names
        }
        given["lengths"] = np.array(lengths)
    shape = [30, 1] if padded else [1]
    pair = [layers.data(name, shape, dtype="int64", lod_level=0 if padded else 1) for name in names]
    lengths = layers.data("lengths", [], dtype="int64") if padded else None
    results = run(given, list(layers.chunk_eval(*pair, scheme, 3, excluded, lengths)))
    ours, theirs = ([chunks(row, scheme, 3, excluded or []) for row in rows] for rows in (found, right))
    counts = [sum(map(len, some)) for some in (ours, theirs, [a & b for a, b in zip(ours, theirs)])]
    assert [int(each[0]) for each in results[3:]] == counts
    assert all(counts)
    shares = [counts[2] / counts[0], counts[2] / counts[1], 2 * counts[2] / (counts[0] + counts[1])]
    np.testing.assert_allclose(np.ravel(results[:3]), shares, rtol=1e-6)
    assert [each.dtype.name for each in results] == ["float32"] * 3 + ["int64"] * 3


def test_chunks_of_wrong_labels():
    pair = [layers.data(name, [1], dtype="int64", lod_level=1) for name in ("found", "right")]
    counts = layers.chunk_eval(*pair, "IOB", 2)
    row, empty = [np.array([0, 5])], [np.zeros(0, "int64")]
    with pytest.raises(mx.base.NodeError, match="labels are from 0 to 5, expected 0 to 4"):
        run({"found": row, "right": row}, list(counts))
    assert [float(each[0]) for each in run({"found": empty, "right": empty}, list(counts))] == [0.0] * 6
    with pytest.raises(mx.base.OpError, match="one of IOB, IOE, IOBES, plain"):
        layers.chunk_eval(*pair, "BIO", 2)


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
