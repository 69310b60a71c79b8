"""Learn to spell with an LSTM whose two layers are on two devices, and compare with one device.

Each layer belongs to a context group, and `group2ctxs` assigns a device to each group. The network and its results do
not change. It reads words letter by letter and predicts the next letter, in buckets of word lengths.

Figure: perplexity, as a share of that of letters alone, at most 0.5; 0.85 with --smoke.
Time: 16 s; 4 s with --smoke.
Run: python examples/model_parallel_lstm.py [--smoke]
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections import Counter
from pydoc_data.topics import topics

import numpy as np

import dpmodule as mx

BUCKETS = [6, 10, 16]
BATCH_SIZE = 32
PADDING = 0
DEVICES = {"embedding and first layer": mx.cpu(0), "second layer and scores": mx.cpu(1)}
FRONT, BACK = DEVICES


def words() -> tuple[list[list[int]], list[list[int]], int]:
    """Return training and validation words as numbers of letters, and the number of letters."""
    text = " ".join(topics[name] for name in sorted(topics)).lower()
    spelled = [f"{word} " for word in sorted(set(re.findall(r"[a-z]{3,15}", text)))]
    numbers, vocabulary = mx.rnn.encode_sentences(spelled, invalid_label=PADDING, start_label=1)
    return [w for i, w in enumerate(numbers) if i % 5], numbers[::5], len(vocabulary)


def unigram_perplexity(train: list[list[int]], validation: list[list[int]]) -> float:
    """Return the perplexity of a unigram model, which knows only the frequencies of letters."""
    counts = Counter(letter for word in train for letter in word[1:])
    letters = [letter for word in validation for letter in word[1:]]
    return math.exp(-sum(math.log(counts[letter] / counts.total()) for letter in letters) / len(letters))


def generator(letters: int, hidden: int) -> mx.mod.bucketing_module.SymGen:
    """Return the function that makes the graph of a bucket."""

    def sym_gen(length: int) -> tuple[mx.sym.Symbol, tuple[str], tuple[str]]:
        data, label = mx.sym.Variable("data"), mx.sym.Variable("softmax_label")
        with mx.AttrScope(ctx_group=FRONT):
            net = mx.sym.Embedding(data, input_dim=letters, output_dim=hidden, name="embed")
            cell = mx.rnn.LSTMCell(hidden, prefix="first_")
            net, _ = cell.unroll(length, net, merge_outputs=True)
        with mx.AttrScope(ctx_group=BACK):
            cell = mx.rnn.LSTMCell(hidden, prefix="second_")
            net, _ = cell.unroll(length, net, merge_outputs=True)
            net = mx.sym.Reshape(net, shape=(-1, hidden))
            net = mx.sym.FullyConnected(net, num_hidden=letters, name="scores")
            label = mx.sym.Reshape(label, shape=(-1,))
            net = mx.sym.SoftmaxOutput(net, label, use_ignore=True, ignore_label=PADDING, name="softmax")
        return net, ("data",), ("softmax_label",)

    return sym_gen


def iterators() -> tuple[mx.rnn.BucketSentenceIter, mx.rnn.BucketSentenceIter, int]:
    """Return training and validation data and the number of letters."""
    *parts, letters = words()
    train, validation = (
        mx.rnn.BucketSentenceIter(part, BATCH_SIZE, buckets=BUCKETS, invalid_label=PADDING) for part in parts
    )
    return train, validation, letters


def first_weights(hidden: int) -> dict[str, mx.nd.NDArray]:
    """Draw weights once for both runs; otherwise each device draws its own."""
    mx.random.seed(1)
    letters = words()[2]
    module = mx.mod.Module(*generator(letters, hidden)(BUCKETS[0]))
    module.bind([("data", (BATCH_SIZE, BUCKETS[0]))], [("softmax_label", (BATCH_SIZE, BUCKETS[0]))])
    module.init_params(mx.init.Xavier())
    return module.get_params()[0]


def train_on(
    devices: dict[str, mx.Context] | None, start: dict[str, mx.nd.NDArray], hidden: int, epochs: int
) -> tuple[mx.mod.BucketingModule, float]:
    """Train with the groups on some devices, or everything on one; return the module and validation perplexity."""
    mx.random.seed(1)
    train, validation, letters = iterators()
    module = mx.mod.BucketingModule(
        generator(letters, hidden), train.default_bucket_key, context=mx.cpu(0), group2ctxs=devices
    )
    module.fit(
        train,
        eval_metric=mx.metric.Perplexity(PADDING),
        num_epoch=epochs,
        optimizer="adam",
        optimizer_params={"learning_rate": 0.005},
        arg_params=start,
    )
    return module, module.score(validation, mx.metric.Perplexity(PADDING))[0][1]


def difference(one: mx.mod.BucketingModule, two: mx.mod.BucketingModule) -> float:
    """Return the largest difference between the parameters of two modules."""
    params, others = (module.get_params()[0] for module in (one, two))
    return max(float(np.abs(params[name].asnumpy() - others[name].asnumpy()).max()) for name in params)


def main() -> int:
    """Train on one and on two devices and compare; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="a short run of a small network")
    hidden, epochs, target = (32, 2, 0.85) if parser.parse_args().smoke else (128, 8, 0.5)

    train, validation, _ = words()
    unigram = unigram_perplexity(train, validation)
    start = first_weights(hidden)
    whole, one = train_on(None, start, hidden, epochs)
    spread, two = train_on(DEVICES, start, hidden, epochs)
    apart = difference(whole, spread)
    print(
        f"perplexity {one:.3f} on one device, {two:.3f} on two, parameters differ by {apart:.1g}; letters {unigram:.2f}"
    )
    print(f"perplexity, as a share of that of letters alone: {one / unigram:.3f}, target at most {target}")
    return 0 if one <= target * unigram and abs(one - two) <= 1e-4 * one and apart <= 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
