"""Several workers: they learn as well as one, and what they drop differs."""

import random

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import native
from helpers.hogwild import described

WORDS = 300
BAGS = {"words": "uint64", "label": "uint64 dense"}
NATIVE = pytest.mark.skipif(not native.available(), reason="there is no extension")


def bag_files(folder, files, lines, seed, first=0):
    """Write bags of words whose label is drawn from a logistic model, so that no AUC of 1 can be reached."""
    generator = random.Random(seed)
    weights = [random.Random(f"weight {i}").gauss(0, 1) for i in range(WORDS)]
    paths = []
    for number in range(first, first + files):
        path = folder / f"part-{number}"
        with path.open("w") as file:
            for _ in range(lines):
                words = [generator.randrange(WORDS) for _ in range(generator.randint(3, 12))]
                score = sum(weights[word] for word in words)
                label = int(generator.random() < 1 / (1 + np.exp(-score)))
                file.write(f"{len(words)} {' '.join(map(str, words))} 1 {label}\n")
        paths.append(str(path))
    return paths


def bag_net(width=8):
    rows = mx.sym.Embedding(
        mx.sym.Variable("words", stype="ragged"),
        input_dim=WORDS,
        output_dim=width,
        sparse_grad=True,
        name="table",
    )
    pooled = mx.sym.Activation(mx.sym.sequence_pool(rows, pool_type="sum"), act_type="tanh")
    scores = mx.sym.FullyConnected(pooled, num_hidden=2, name="fc")
    return mx.sym.SoftmaxOutput(scores, mx.sym.Variable("label"), name="p")


def held_out_auc(mode, workers, files, held_out, seed, epochs):
    """Train, and return the AUC over lines that were not trained on."""
    mx.random.seed(seed)
    net, metric = bag_net(), mx.metric.AUC()
    feed = described(16, **BAGS)
    with mx.AsyncExecutor() as run:
        for _ in range(epochs):
            result = run.run_from_files(
                net,
                feed,
                files,
                workers,
                mode=mode,
                initializer=mx.init.Uniform(0.1),
                optimizer="adagrad",
                optimizer_params={"learning_rate": 0.1},
            )
            assert result.workers == workers
        for _, _, (label, output) in run.infer_from_files(net, feed, held_out, 1, ["label", "p"]):
            metric.update([label], [output])
    return metric.get()[1]


def check_as_good_as_one(mode, workers, folder, seeds, lines, epochs):
    """Compare the mean over seeds with that of one worker: its difference is within the noise of both."""
    files = bag_files(folder, 8, lines, 0)
    held_out = bag_files(folder, 1, 4 * lines, 1, first=8)
    one = [held_out_auc("serial", 1, files, held_out, seed, epochs) for seed in range(seeds)]
    assert min(one) > 0.7
    for count in workers:
        several = [held_out_auc(mode, count, files, held_out, seed, epochs) for seed in range(seeds)]
        noise = np.sqrt((np.var(one, ddof=1) + np.var(several, ddof=1)) / seeds)
        assert abs(np.mean(several) - np.mean(one)) < max(4 * noise, 0.01), (count, one, several)


@NATIVE
def test_two_to_eight_native_workers_learn_as_well_as_one(tmp_path):
    check_as_good_as_one("native", (2, 4, 8), tmp_path, seeds=5, lines=100, epochs=4)


def test_two_processes_learn_as_well_as_one(tmp_path):
    check_as_good_as_one("process", (2,), tmp_path, seeds=3, lines=80, epochs=4)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", [pytest.param("native", marks=NATIVE), "process"])
def test_two_to_eight_workers_learn_as_well_as_one(mode, tmp_path):
    check_as_good_as_one(mode, range(2, 9), tmp_path, seeds=5, lines=400, epochs=3)


def dropout_net():
    """Return a net that shows how many of 400 ones dropout has left."""
    left = mx.sym.Dropout(mx.sym.Variable("x", shape=(0, 400)), p=0.5, name="drop")
    last = mx.sym.FullyConnected(left, num_hidden=1, name="fc")
    loss = mx.sym.LinearRegressionOutput(last, mx.sym.Variable("y"), name="o")
    return mx.sym.Group([loss, mx.sym.BlockGrad(mx.sym.sum(left, axis=1), name="left")])


@NATIVE
def test_dropout_of_native_workers_differs_and_comes_again_under_the_same_seed(tmp_path):
    """What counts is a run in which every worker had one of four equal files, each of some milliseconds."""
    path = tmp_path / "ones"
    path.write_text(f"400 {'1 ' * 400}1 0\n" * 1500)
    net, feed, draws = dropout_net(), described(50, x="float dense", y="uint64 dense"), []
    with mx.AsyncExecutor() as run:
        for seed in (None, 3, 3, 4):  # the first draws the first parameters, too
            for _ in range(20):
                mx.random.seed(seed or 0)
                found = run.run_from_files(
                    net,
                    feed,
                    [str(path)] * 4,
                    4,
                    "left",
                    mode="native",
                    optimizer="sgd",
                    optimizer_params={"learning_rate": 1e-6},
                )
                if all(each.batches == 30 for each in found.by_worker):
                    break
            draws.append([each.fetched[0] for each in found.by_worker])
    assert all(len(set(each)) == 4 for each in draws)
    assert draws[1] == draws[2]
    assert draws[1] != draws[3]
