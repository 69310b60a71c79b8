"""Encoding of sentences, and batches by length."""

import json
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule._devices import generators
from helpers import rnn_cases

GOLDENS = json.loads((Path(__file__).parents[1] / "data" / "goldens" / "rnn" / "sentences.json").read_text())


def test_no_word_gets_the_number_of_padding():
    coded, vocab = mx.rnn.encode_sentences([["a", "b", "c"]], invalid_label=1, start_label=0)
    assert coded == [[0, 2, 3]]
    assert vocab == {"\n": 1, "a": 0, "b": 2, "c": 3}


def test_unknown_words_share_one_number():
    vocab = {"a": 1, "b": 2}
    coded, after = mx.rnn.encode_sentences([["a", "x"], ["y", "b"]], vocab=vocab, unknown_token="?")
    assert coded == [[1, 0], [0, 2]]
    assert after is vocab
    assert vocab == {"a": 1, "b": 2, "?": 0}


def test_the_unknown_token_keeps_its_number_and_takes_nobody_elses():
    assert mx.rnn.encode_sentences([["x"]], vocab={"a": 1, "?": 5}, unknown_token="?")[0] == [[5]]
    assert mx.rnn.encode_sentences([["x"]], vocab={"a": 0, "b": 1}, unknown_token="?")[0] == [[2]]


@pytest.fixture
def unseeded(monkeypatch):
    """Let NumPy's own generator shuffle, as it does until somebody calls mx.random.seed."""
    monkeypatch.setattr(generators, "_host", None)


@pytest.mark.usefixtures("unseeded")
def test_batches_and_codes_are_mxnets():
    found = rnn_cases.batches(mx, GOLDENS["sentences"], GOLDENS["words"])
    assert {**GOLDENS, **found} == GOLDENS


def test_a_new_epoch_comes_in_a_new_order_and_a_seed_repeats_it():
    def epochs():
        mx.random.seed(5)
        it = mx.rnn.BucketSentenceIter([[i, i] for i in range(1, 41)], 4, invalid_label=0)
        found = []
        for _ in range(2):
            found.append([tuple(b.data[0].asnumpy()[:, 0]) for b in it])
            it.reset()
        return found

    first, second = epochs()
    assert first != second
    assert [first, second] == epochs()


def test_what_is_left_out_is_logged(caplog):
    mx.rnn.BucketSentenceIter([[1] * 9, [1] * 3, [1], [1]], 2, buckets=[1, 4])
    assert "discarded 1 sentences longer than the largest bucket." in caplog.text
    assert "bucket 4 has 1 sentences, too few for a batch of 2" in caplog.text


@pytest.mark.parametrize(("layout", "shape"), [("NTC", (2, 3)), ("TNC", (3, 2))])
def test_only_the_batch_axis_of_a_longer_layout_counts(layout, shape):
    it = mx.rnn.BucketSentenceIter([[1, 2], [3, 4]], 2, buckets=[3], layout=layout)
    assert it.next().data[0].shape == it.provide_data[0].shape == shape
    assert it.provide_data[0].layout == layout


def test_words_of_any_type_are_described_as_float32():
    """As in MXNet, so that modules compute in float32."""
    it = mx.rnn.BucketSentenceIter([[1, 2]] * 2, 2, dtype="int32")
    batch = it.next()
    described = [*it.provide_data, *it.provide_label, *batch.provide_data, *batch.provide_label]
    assert [desc.dtype for desc in described] == [np.float32] * 4
    assert batch.label[0].dtype == np.int32


def test_buckets_without_a_sentence_are_dropped():
    batches = mx.rnn.BucketSentenceIter([[1, 2, 3], [2, 3]] * 4, 2, buckets=[2, 3, 5, 9])
    assert (batches.buckets, batches.default_bucket_key) == ([2, 3], 3)  # as in MXNet 1.9.1
    assert batches.provide_data[0].shape == (2, 3)
    assert mx.rnn.BucketSentenceIter([[1, 2, 3]], 2, buckets=[2]).buckets == [2]
