"""What Hogwild training is measured on: data that is what it is said to be, and networks that are what they should."""

import numpy as np

import dpmodule as mx
from benchmarks.hogwild_data import lines, write
from benchmarks.hogwild_tasks import TASKS, feed, first_weight, predict, shapes
from benchmarks.sides.hogwild import network


def test_scores_are_those_of_the_network(tmp_path):
    task = TASKS["bow-adagrad"]
    held_out = lines(task, 20, 3)
    (path,) = write(tmp_path, task, 20, 1, seed=3)
    weights = {name: first_weight(name, shape) for name, shape in shapes(task).items()}
    module, text = mx.mod.Module(network(task), ["words"], ["label"]), mx.DataFeedDesc(feed(task))
    first = {"arg_params": {name: mx.nd.array(value) for name, value in weights.items()}}
    with mx.AsyncExecutor() as run:
        run.run_from_files(module, text, [path], 1, optimizer_params={"learning_rate": 0.0}, **first)
        ((_, _, [p]),) = run.infer_from_files(module, text, [path], 1, ["p"])
    found = p.asnumpy()
    np.testing.assert_allclose(
        predict(task, weights, held_out), np.log(found[:, 1] / found[:, 0]), rtol=1e-3, atol=1e-4
    )
