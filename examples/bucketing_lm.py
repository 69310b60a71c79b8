"""Train an LSTM language model in buckets of sentence lengths, on the text of Python's own documentation.

Each bucket has its own graph over the same parameters. Results on one and two devices, and after loading, are equal.

Figure: perplexity, as a share of a unigram model's, at most 0.5; 1 with --smoke.
Time: 18 s; 4 s with --smoke.
Run: python examples/bucketing_lm.py [--smoke] [--resume PREFIX]
"""

import argparse
import math
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from pydoc_data.topics import topics

import dpmodule as mx

BUCKETS = [10, 20, 30, 40, 50, 60]
BATCH_SIZE = 32
PADDING, UNKNOWN, END = 0, 1, 2


def sentences() -> list[list[str]]:
    """Return the words of every sentence of at most 59 words."""
    kept = []
    for paragraph in re.split(r"\n\s*\n", "\n\n".join(topics[name] for name in sorted(topics))):
        for sentence in re.split(r"(?<=[.:;])\s+", " ".join(paragraph.split())):
            words = re.findall(r"[a-z]+(?:'[a-z]+)?|[0-9]+|[^\sa-z0-9]", sentence.lower())
            if 3 <= len(words) < BUCKETS[-1]:
                kept.append(words)
    return kept


def encode(texts: list[list[str]]) -> tuple[list[list[int]], list[list[int]], int]:
    """Return training and validation sentences as numbers, and the size of the vocabulary."""
    train, validation = [t for i, t in enumerate(texts) if i % 10], texts[::10]
    counts = Counter(word for text in train for word in text)
    number = {word: i for i, word in enumerate((w for w, n in counts.most_common() if n > 1), END + 1)}

    def numbers(part: list[list[str]]) -> list[list[int]]:
        return [[*(number.get(word, UNKNOWN) for word in text), END] for text in part]

    return numbers(train), numbers(validation), END + 1 + len(number)


def unigram_perplexity(train: list[list[int]], validation: list[list[int]], size: int) -> float:
    """Return the perplexity of a unigram model, which knows only the frequencies of words."""
    counts = Counter(word for text in train for word in text[1:])
    total = sum(counts.values()) + size
    words = [word for text in validation for word in text[1:]]
    return math.exp(-sum(math.log((counts[word] + 1) / total) for word in words) / len(words))


def generator(vocabulary: int, hidden: int) -> mx.mod.bucketing_module.SymGen:
    """Return the function that makes the graph of a bucket."""

    def sym_gen(length: int) -> tuple[mx.sym.Symbol, tuple[str], tuple[str]]:
        cell = mx.rnn.FusedRNNCell(hidden, mode="lstm", prefix="lstm_")
        data, label = mx.sym.Variable("data"), mx.sym.Variable("softmax_label")
        embedded = mx.sym.Embedding(data, input_dim=vocabulary, output_dim=hidden, name="embed")
        output, _ = cell.unroll(length, embedded, merge_outputs=True, layout="NTC")
        scores = mx.sym.FullyConnected(
            mx.sym.Reshape(output, shape=(-1, hidden)), num_hidden=vocabulary, name="scores"
        )
        net = mx.sym.SoftmaxOutput(
            scores,
            mx.sym.Reshape(label, shape=(-1,)),
            use_ignore=True,
            ignore_label=PADDING,
            name="softmax",
        )
        return net, ("data",), ("softmax_label",)

    return sym_gen


def perplexity(module: mx.mod.BucketingModule, data: mx.rnn.BucketSentenceIter) -> float:
    """Return the perplexity over all words except padding."""
    return module.score(data, mx.metric.Perplexity(PADDING))[0][1]


def train_on(
    contexts: list[mx.Context], texts: tuple, vocabulary: int, hidden: int, epochs: int, prefix: str | None
) -> tuple:
    """Train on some devices; return the module, the validation data and its perplexity.

    With a prefix, the state is saved every 20 batches, and training resumes from a saved state.
    """
    mx.random.seed(1)
    train, validation = (
        mx.rnn.BucketSentenceIter(part, size, buckets=BUCKETS, invalid_label=PADDING)
        for part, size in zip(texts, (BATCH_SIZE, 1))
    )
    module = mx.mod.BucketingModule(generator(vocabulary, hidden), train.default_bucket_key, context=contexts)
    module.fit(
        train,
        eval_metric=mx.metric.Perplexity(PADDING),
        num_epoch=epochs,
        optimizer="adagrad",
        optimizer_params={"learning_rate": 0.02},
        initializer=mx.init.Xavier(),
        checkpoint=None
        if prefix is None
        else mx.callback.Checkpoint(prefix, every_n_batches=20, keep_last=1),
        resume=None if prefix is None else "auto",
    )
    return module, validation, perplexity(module, validation)


def main() -> int:
    """Train on one and two devices, save, load and check; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run on a part of the text")
    parser.add_argument("--resume", metavar="PREFIX", help="prefix of the run to save and to resume")
    args = parser.parse_args()
    hidden, epochs, share, target = (64, 2, 3, 1) if args.smoke else (128, 2, 1, 0.5)

    train, validation, vocabulary = encode(sentences()[::share])
    unigram = unigram_perplexity(train, validation, vocabulary)
    runs = [
        train_on(
            contexts,
            (train, validation),
            vocabulary,
            hidden,
            epochs,
            args.resume and f"{args.resume}-{len(contexts)}",
        )  # fmt: skip
        for contexts in ([mx.cpu(0)], [mx.cpu(0), mx.cpu(1)])
    ]
    (module, data, one), (_, _, two) = runs
    with tempfile.TemporaryDirectory() as folder:
        prefix = str(Path(folder) / "lm")
        module.save_checkpoint(prefix, epochs)
        again = mx.mod.BucketingModule.load(prefix, epochs)
        again.bind(data.provide_data, data.provide_label, for_training=False)
        loaded = perplexity(again, data)
    print(
        f"validation perplexity {one:.3f} (two devices {two:.3f}, loaded {loaded:.3f}), unigram model {unigram:.1f}"
    )
    print(f"perplexity, as a share of a unigram model's: {one / unigram:.3f}, target at most {target}")
    same = abs(one - two) <= 1e-4 * one and abs(one - loaded) <= 1e-5 * one
    return 0 if one <= target * unigram and same else 1


if __name__ == "__main__":
    sys.exit(main())
