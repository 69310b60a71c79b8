"""Several workers: they learn as well as one, and their dropout differs."""

import numpy as np
import pytest

import dpmodule as mx
from helpers.both_backends import in_native
from helpers.hogwild import BAGS, bag_net, described, write_bags

WORDS = 300


def held_out_auc(mode, workers, files, held_out, seed, epochs):
    """Train on the files in an order of the seed, and return the AUC over lines that were not trained on."""
    mx.random.seed(seed)
    files = list(np.random.default_rng(seed).permutation(files))
    net, metric, feed = bag_net(WORDS, 8), mx.metric.AUC(), described(16, **BAGS)
    rule = {"optimizer": "adagrad", "optimizer_params": {"learning_rate": 0.1}}
    more = {**rule, "initializer": mx.init.Uniform(0.1)}
    with mx.AsyncExecutor() as run:
        for _ in range(epochs):
            assert run.run_from_files(net, feed, files, workers, mode=mode, **more).workers == workers
        for _, _, (label, output) in run.infer_from_files(net, feed, held_out, 1, ["label", "p"]):
            metric.update([label], [output])
    return metric.get()[1]


@pytest.mark.parametrize(
    ("mode", "workers"), [pytest.param("native", 4, marks=in_native), pytest.param("process", 2)]
)
def test_dropout_of_workers_differs_and_comes_again_under_the_same_seed(mode, workers, tmp_path):
    """A run counts in which every worker had one of some equal files, each of some milliseconds."""
    path = tmp_path / "ones"
    path.write_text(f"400 {'1 ' * 400}1 0\n" * 1500)
    net, feed, draws = dropout_net(400), described(50, x="float dense", y="uint64 dense"), []
    more = {"mode": mode, "optimizer": "sgd", "optimizer_params": {"learning_rate": 1e-6}}
    with mx.AsyncExecutor() as run:
        for seed in (None, 3, 3, 4):  # the first draws the first parameters, too
            for _ in range(20):
                mx.random.seed(seed or 0)
                found = run.run_from_files(net, feed, [str(path)] * workers, workers, "left", **more)
                if all(each.batches == 30 for each in found.by_worker):
                    break
            draws.append([each.fetched[0] for each in found.by_worker])
    assert all(len(set(each)) == workers for each in draws)
    assert draws[1] == draws[2]
    assert draws[1] != draws[3]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("mode", "workers", "seeds", "lines", "epochs"),
    [
        pytest.param("native", (2, 8), 5, 100, 4, marks=in_native),
        ("process", (2,), 5, 80, 4),
        pytest.param("native", range(2, 9), 5, 400, 3, marks=[in_native, pytest.mark.slow]),
        pytest.param("process", range(2, 9), 5, 400, 3, marks=pytest.mark.slow),
    ],
)
def test_several_workers_learn_as_well_as_one(mode, workers, seeds, lines, epochs, tmp_path):
    """Their mean over seeds is no lower, but for the noise of both; labels are of a logistic model."""
    files = write_bags(tmp_path, 12, lines, words=WORDS, noise=1.0)
    held_out = files[8:]
    one = [held_out_auc("serial", 1, files[:8], held_out, seed, epochs) for seed in range(seeds)]
    assert min(one) > 0.7
    for count in workers:
        several = [held_out_auc(mode, count, files[:8], held_out, seed, epochs) for seed in range(seeds)]
        noise = np.sqrt((np.var(one, ddof=1) + np.var(several, ddof=1)) / seeds)
        assert np.mean(one) - np.mean(several) < max(4 * noise, 0.015), (count, one, several)


def dropout_net(width):
    """Return a net that shows how many of some ones dropout has left."""
    left = mx.sym.Dropout(mx.sym.Variable("x", shape=(0, width)), p=0.5, name="drop")
    last = mx.sym.FullyConnected(left, num_hidden=1, name="fc")
    loss = mx.sym.LinearRegressionOutput(last, mx.sym.Variable("y"), name="o")
    return mx.sym.Group([loss, mx.sym.BlockGrad(mx.sym.sum(left, axis=1), name="left")])
