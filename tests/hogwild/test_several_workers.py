"""Several workers: they learn as well as one, and their dropout differs."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import native
from helpers.hogwild import BAGS, bag_net, described

WORDS = 300
NATIVE = pytest.mark.skipif(not native.available(), reason="there is no extension")


def bag_files(folder, files, lines, seed, first=0):
    """Write bags of words whose label is drawn from a logistic model, so that no AUC of 1 can be reached."""
    rng, weights = np.random.RandomState(seed), np.random.RandomState(0).randn(WORDS)
    paths = []
    for number in range(first, first + files):
        path = folder / f"part-{number}"
        with path.open("w") as file:
            for _ in range(lines):
                words = rng.randint(0, WORDS, rng.randint(3, 13))
                label = int(rng.rand() < 1 / (1 + np.exp(-weights[words].sum())))
                file.write(f"{len(words)} {' '.join(map(str, words))} 1 {label}\n")
        paths.append(str(path))
    return paths


def held_out_auc(mode, workers, files, held_out, seed, epochs):
    """Train, and return the AUC over lines that were not trained on."""
    mx.random.seed(seed)
    net, metric, feed = bag_net(WORDS, 8), mx.metric.AUC(), described(16, **BAGS)
    more = {
        "optimizer": mx.optimizer.create("adagrad", learning_rate=0.1),
        "initializer": mx.init.Uniform(0.1),
    }
    with mx.AsyncExecutor() as run:
        for _ in range(epochs):
            assert run.run_from_files(net, feed, files, workers, mode=mode, **more).workers == workers
        for _, _, (label, output) in run.infer_from_files(net, feed, held_out, 1, ["label", "p"]):
            metric.update([label], [output])
    return metric.get()[1]


@pytest.mark.parametrize(
    ("mode", "workers"), [pytest.param("native", 4, marks=NATIVE), pytest.param("process", 2)]
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
        pytest.param("native", (2, 8), 5, 100, 4, marks=NATIVE),
        ("process", (2,), 3, 80, 4),
        pytest.param("native", range(2, 9), 5, 400, 3, marks=[NATIVE, pytest.mark.slow]),
        pytest.param("process", range(2, 9), 5, 400, 3, marks=pytest.mark.slow),
    ],
)
def test_several_workers_learn_as_well_as_one(mode, workers, seeds, lines, epochs, tmp_path):
    """The difference of the means over seeds is within the noise of both."""
    files = bag_files(tmp_path, 8, lines, 0)
    held_out = bag_files(tmp_path, 1, 4 * lines, 1, first=8)
    one = [held_out_auc("serial", 1, files, held_out, seed, epochs) for seed in range(seeds)]
    assert min(one) > 0.7
    for count in workers:
        several = [held_out_auc(mode, count, files, held_out, seed, epochs) for seed in range(seeds)]
        noise = np.sqrt((np.var(one, ddof=1) + np.var(several, ddof=1)) / seeds)
        assert abs(np.mean(several) - np.mean(one)) < max(4 * noise, 0.01), (count, one, several)


def dropout_net(width):
    """Return a net that shows how many of some ones dropout has left."""
    left = mx.sym.Dropout(mx.sym.Variable("x", shape=(0, width)), p=0.5, name="drop")
    last = mx.sym.FullyConnected(left, num_hidden=1, name="fc")
    loss = mx.sym.LinearRegressionOutput(last, mx.sym.Variable("y"), name="o")
    return mx.sym.Group([loss, mx.sym.BlockGrad(mx.sym.sum(left, axis=1), name="left")])
