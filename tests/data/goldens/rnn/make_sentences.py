"""Record how real MXNet encodes sentences and puts them into buckets.

Run with Python 3.8, NumPy 1.23 and mxnet 1.9.1: ``python make_sentences.py`` writes sentences.json here.
"""

import json
import os
import random

import mxnet as mx
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))


def batches(sentences, layout):
    random.seed(11)
    np.random.seed(11)
    it = mx.rnn.BucketSentenceIter(sentences, 4, buckets=[4, 8, 10], invalid_label=0, layout=layout)
    epochs = []
    for _ in range(2):
        epochs.append(
            [[b.bucket_key, b.data[0].asnumpy().tolist(), b.label[0].asnumpy().tolist(), b.pad] for b in it]
        )
        it.reset()
    describe = [[d.name, list(d.shape), d.layout] for d in it.provide_data + it.provide_label]
    return {"epochs": epochs, "default_bucket_key": it.default_bucket_key, "describe": describe}


def main():
    source = np.random.RandomState(4)
    sentences = [source.randint(1, 20, source.randint(1, 13)).tolist() for _ in range(60)]
    found = {"sentences": sentences, "NT": batches(sentences, "NT"), "TN": batches(sentences, "TN")}
    it = mx.rnn.BucketSentenceIter(sentences, 4)
    found["buckets_found"] = [list(map(int, it.buckets)), it.default_bucket_key]
    words = [["a", "b", "a"], ["c", "a"], ["b", "d", "d"]]
    found["words"] = words
    found["encoded"] = mx.rnn.encode_sentences(words, invalid_label=0, start_label=1)
    found["encoded_minus_one"] = mx.rnn.encode_sentences(words)
    with open(os.path.join(HERE, "sentences.json"), "w") as file:
        json.dump(found, file, separators=(",", ":"))


if __name__ == "__main__":
    main()
