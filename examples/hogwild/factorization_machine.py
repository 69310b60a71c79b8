"""A factorization machine: weight all pairs of features without listing them.

The data have a known solution: each feature has a hidden vector, and the target of a line is the sum of the products of
its features' vectors, pair by pair, with some noise. The machine learns a vector for each feature, and computes the sum
over all pairs from two pooled lookups: half of (the square of the sum - the sum of the squares). A linear model cannot
do this. In the end, the products of the learned vectors are compared with those of the hidden vectors.

Source: Rendle, "Factorization Machines", 2010.

Figure: correlation of found and hidden products of pairs, at least 0.99; 0.95 with --smoke.
Time: 3 s; 2 s with --smoke.
Run: python examples/hogwild/factorization_machine.py [--smoke] [--picture FILE]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

import dpmodule as mx

FEATURES, FACTORS, NOISE = 60, 3, 0.1
FEED = """
batch_size: 50
multi_slot_desc {
  slots { name: "features" type: "uint64" is_used: true }
  slots { name: "target" type: "float" is_dense: true is_used: true }
}
"""


def network(has_pairs: bool = True) -> mx.sym.Symbol:
    """Return a weight for each feature, and half of (the square of the sum - the sum of the squares) of vectors."""
    features, target = mx.sym.Variable("features", stype="ragged"), mx.sym.Variable("target", shape=(0, 1))
    options = {"input_dim": FEATURES, "sparse_grad": True}
    weights = mx.sym.Embedding(features, output_dim=1, name="weights", **options)
    score = mx.sym.sequence_pool(weights, pool_type="sum")
    if has_pairs:
        vectors = mx.sym.Embedding(features, output_dim=FACTORS, name="vectors", **options)
        of_sum = mx.sym.square(mx.sym.sequence_pool(vectors, pool_type="sum"))
        of_each = mx.sym.sequence_pool(mx.sym.square(vectors), pool_type="sum")
        score = score + 0.5 * mx.sym.sum(of_sum - of_each, axis=1, keepdims=True)
    score = mx.sym.LinearRegressionOutput(score, target, name="score")
    error = mx.sym.mean(mx.sym.square(mx.sym.BlockGrad(score) - target))
    return mx.sym.Group([score, mx.sym.BlockGrad(error, name="error")])


def hidden() -> np.ndarray:
    """Return the hidden vectors.

    Shape:
        vectors: (FEATURES, FACTORS).
    """
    return np.random.RandomState(0).randn(FEATURES, FACTORS)


def write_file(path: Path, count: int, seed: int) -> float:
    """Write lines in MultiSlot format; return the variance of their targets."""
    vectors, rng = hidden(), np.random.RandomState(seed)
    lines, targets = [], []
    for _ in range(count):
        row = rng.choice(FEATURES, rng.randint(2, 8), replace=False)
        pairs = (vectors[row].sum(0) ** 2 - (vectors[row] ** 2).sum(0)).sum() / 2
        targets.append(pairs + NOISE * rng.randn())
        lines.append(f"{len(row)} {' '.join(map(str, row))} 1 {targets[-1]:.4f}\n")
    path.write_text("".join(lines))
    return float(np.var(targets))


def train(run: mx.AsyncExecutor, net: mx.sym.Symbol, files: list[Path], workers: int, epochs: int) -> float:
    """Train, and return the mean square of the error on the last file, which is not trained on."""
    feed = mx.DataFeedDesc(FEED)
    *files, test = files
    for epoch in range(epochs):
        result = run.run_from_files(
            net,
            feed,
            files,
            workers,
            ["error"],
            optimizer="adagrad",
            optimizer_params={"learning_rate": 0.2},
            initializer=mx.init.Normal(0.1),
        )
        if epoch % 5 == 4:
            print(f"epoch {epoch}: mean square of the error {result[0]:.3f}")
    errors = [error for _, _, [error] in run.infer_from_files(net, feed, [test], 1, ["error"])]
    return float(np.mean([error.asscalar() for error in errors]))


def draw(path: str, hidden: np.ndarray, found: np.ndarray) -> None:
    """Draw the product of every pair as it was found over what it is."""
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(figsize=(4, 4), layout="constrained")
    axes.scatter(hidden, found, s=4)
    axes.set(xlabel="hidden product of a pair", ylabel="found", aspect="equal")
    plt.savefig(path)


def main() -> int:
    """Train with pairs and without, and compare with the hidden vectors; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run with a lower target")
    parser.add_argument("--picture", metavar="FILE", help="draw found and hidden products into a file")
    parser.add_argument("--workers", type=int, default=2, help="number of workers")
    args = parser.parse_args()
    count, epochs, target = (500, 15, 0.95) if args.smoke else (2000, 30, 0.99)

    mx.random.seed(0)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"part-{number}" for number in range(9)]
        variance = [write_file(path, count, seed) for seed, path in enumerate(files, 1)][-1]
        with mx.AsyncExecutor() as run:
            linear = train(run, network(has_pairs=False), files, args.workers, 5)
        with mx.AsyncExecutor() as run:
            net = network()
            both = train(run, net, files, args.workers, epochs)
            learned = run.get_params(net)[0]["vectors_weight"].asnumpy()
    pairs = np.triu_indices(FEATURES, 1)
    alike = np.corrcoef((learned @ learned.T)[pairs], (hidden() @ hidden().T)[pairs])[0, 1]
    print(
        f"error {both:.3f}, without pairs {linear:.2f}, of a variance of {variance:.2f}; noise {NOISE**2:g}"
    )
    if args.picture:
        draw(args.picture, (hidden() @ hidden().T)[pairs], (learned @ learned.T)[pairs])
    print(f"correlation of found and hidden products of pairs: {alike:.4f}, target at least {target}")
    return 0 if alike >= target and both < linear / 5 else 1


if __name__ == "__main__":
    sys.exit(main())
