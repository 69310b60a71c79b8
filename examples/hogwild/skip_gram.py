"""Skip-gram with negative sampling: words with the same neighbours get similar vectors.

The language is artificial: its words belong to topics, a sentence has one topic, and a few words occur everywhere. A
line of a file is a word, a word near it and 1, or a word drawn from all text and 0, for a plain logistic regression of
the product of two vectors. The network does not know the topics; in the end, nearly every word's nearest neighbour must
be of its own topic.

Source: Mikolov et al., "Distributed Representations of Words and Phrases and their Compositionality", 2013.

Figure: words whose nearest neighbour is of their own topic, at least 0.98; 0.9 with --smoke.
Time: 4 s; 3 s with --smoke.
Run: python examples/hogwild/skip_gram.py [--smoke] [--picture FILE]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

import dpmodule as mx

TOPICS, WORDS, COMMON = 8, 25, 20
VOCABULARY = TOPICS * WORDS + COMMON
NEGATIVES, WINDOW = 4, 2
FEED = """
batch_size: 100
multi_slot_desc {
  slots { name: "word" type: "uint64" is_dense: true is_used: true }
  slots { name: "other" type: "uint64" is_dense: true is_used: true }
  slots { name: "is_near" type: "uint64" is_dense: true is_used: true }
}
"""


def network() -> mx.sym.Symbol:
    """Return the probability that two words are near each other: their vectors' product, each word having two."""
    vectors = [
        mx.sym.Embedding(
            mx.sym.Variable(slot, shape=(0,)),
            input_dim=VOCABULARY,
            output_dim=16,
            sparse_grad=True,
            name=f"{slot}_vectors",
        )
        for slot in ("word", "other")
    ]
    product = mx.sym.sum(vectors[0] * vectors[1], axis=1, keepdims=True)
    return mx.sym.LogisticRegressionOutput(product, mx.sym.Variable("is_near"), name="p")


def sentences(count: int, rng: np.random.RandomState) -> np.ndarray:
    """Return sentences of ten words; words of topic t are t * WORDS to (t + 1) * WORDS - 1, common ones come last.

    Shape:
        sentences: (count, 10), int64.
    """
    topics = rng.randint(0, TOPICS, (count, 1))
    words = topics * WORDS + rng.randint(0, WORDS, (count, 10))
    common = TOPICS * WORDS + rng.randint(0, COMMON, words.shape)
    return np.where(rng.rand(*words.shape) < 0.3, common, words)


def write_file(path: Path, count: int, seed: int) -> None:
    """Write pairs of near words, and of random words, in MultiSlot format."""
    rng = np.random.RandomState(seed)
    text = sentences(count, rng)
    near = np.concatenate(
        [np.stack([text[:, :-d], text[:, d:]], -1).reshape(-1, 2) for d in range(1, WINDOW + 1)]
    )
    chance = np.stack([np.repeat(near[:, 0], NEGATIVES), rng.choice(text.ravel(), len(near) * NEGATIVES)], -1)
    pairs = np.concatenate([near, chance])
    labels = np.repeat([1, 0], [len(near), len(chance)])
    order = rng.permutation(len(pairs))
    path.write_text("".join(f"1 {a} 1 {b} 1 {y}\n" for (a, b), y in zip(pairs[order], labels[order])))


def neighbours(vectors: np.ndarray) -> np.ndarray:
    """Return for each word of a topic the word whose vector has the smallest angle with its own."""
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = units @ units.T
    np.fill_diagonal(cosines, -1)
    return cosines[: TOPICS * WORDS].argmax(1)


def draw(path: str, vectors: np.ndarray, topics: np.ndarray) -> None:
    """Draw vectors, (N, size), by their two directions of most variance, coloured by topic."""
    import matplotlib.pyplot as plt

    centred = vectors - vectors.mean(0)
    x, y = (centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T).T
    _, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    points = axes.scatter(x, y, c=topics, s=12, cmap="tab10")
    axes.legend(*points.legend_elements(), title="topic", loc="center left", bbox_to_anchor=(1, 0.5))
    plt.savefig(path)


def main() -> int:
    """Train, and check nearest neighbours; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run with a lower target")
    parser.add_argument("--picture", metavar="FILE", help="draw the vectors into a file")
    parser.add_argument("--workers", type=int, default=2, help="number of workers")
    args = parser.parse_args()
    count, epochs, target = (200, 4, 0.9) if args.smoke else (800, 5, 0.98)

    mx.random.seed(0)
    net, feed = network(), mx.DataFeedDesc(FEED)
    with tempfile.TemporaryDirectory() as folder, mx.AsyncExecutor() as run:
        files = [Path(folder) / f"part-{number}" for number in range(4)]
        for seed, path in enumerate(files):
            write_file(path, count, seed)
        for epoch in range(epochs):
            result = run.run_from_files(
                net,
                feed,
                files,
                args.workers,
                eval_metric="logloss",
                optimizer="adagrad",
                optimizer_params={"learning_rate": 0.3},
                initializer=mx.init.Normal(0.3),
            )
            print(f"epoch {epoch}: {result.examples / result.seconds:.0f} pairs a second, {result.metric}")
        print(run.explain(net))
        vectors = run.get_params(net)[0]["word_vectors_weight"].asnumpy()
    own = np.arange(TOPICS * WORDS) // WORDS
    share = float((neighbours(vectors) // WORDS == own).mean())
    if args.picture:
        draw(args.picture, vectors[: TOPICS * WORDS], own)
    print(f"words whose nearest neighbour is of their own topic: {share:.3f}, target at least {target}")
    return 0 if share >= target else 1


if __name__ == "__main__":
    sys.exit(main())
