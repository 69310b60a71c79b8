"""What is saved and loaded."""

import numpy as np
import pytest

import dpmodule as mx
import dpmodule.fluid as fluid
from helpers.fluid_programs import bow_net, programs, text_inputs

BATCH = {"words": [[1, 2], [30], []], "label": [[0], [1], [0]]}


@pytest.fixture
def net():
    found = bow_net(*text_inputs())
    fluid.optimizer.Adam(0.05).minimize(found[0])
    return found


@pytest.fixture
def executor(net):
    found = fluid.Executor()
    found.run(fluid.default_startup_program())
    return found


def train(executor, loss, steps):
    return [float(executor.run(feed=BATCH, fetch_list=[loss])[0][0]) for _ in range(steps)]


def test_training_resumes_from_persistables(net, executor, tmp_path):
    loss = net[0]
    train(executor, loss, 2)
    fluid.io.save_persistables(executor, tmp_path)
    expected = train(executor, loss, 3)
    fluid.io.load_persistables(executor, tmp_path)
    assert train(executor, loss, 3) == expected
    with programs():
        again, _, _ = bow_net(*text_inputs())
        fluid.optimizer.Adam(0.05).minimize(again)
        fluid.io.load_persistables(executor, tmp_path)
        assert train(executor, again, 3) == expected


def test_a_loaded_model_is_pruned_and_runs_beside_the_one_that_trains(net, executor, tmp_path):
    loss, accuracy, prediction = net
    folder, before = tmp_path / "deep" / "model", fluid.default_main_program().symbol.tojson()
    fluid.io.save_inference_model(folder, ["label", "words"], [accuracy, prediction], executor)
    assert fluid.default_main_program().symbol.tojson() == before
    expected = executor.run(fluid.default_main_program().clone(for_test=True), BATCH, [accuracy, prediction])
    executor.run(feed=BATCH, fetch_list=[loss])
    program, feeds, targets = fluid.io.load_inference_model(folder, executor)
    assert (feeds, [each.name for each in targets]) == (["label", "words"], ["accuracy_0", "fc_2"])
    words = program.var("words")
    assert (words.lod_level, words.shape, program.var("label").dtype) == (1, (-1, 1), "int64")
    for one, other in zip(executor.run(program, BATCH, targets), expected):
        np.testing.assert_array_equal(one, other)
    assert fluid.io.save_inference_model(tmp_path, ["words"], [prediction], executor) == ["fc_2"]
    assert "label" not in mx.sym.load(f"{tmp_path}/model-symbol.json").list_arguments()


@pytest.mark.parametrize(
    "rate",
    [
        lambda: fluid.layers.exponential_decay(0.1, 2, 0.5, True),
        lambda: fluid.layers.linear_lr_warmup(
            fluid.layers.piecewise_decay([2, 4], [0.1, 0.05, 0.01]), 2, 0.0, 0.1
        ),
        lambda: fluid.layers.polynomial_decay(0.1, 4, cycle=True),
    ],
)
def test_a_schedule_is_saved_with_its_optimizer(rate, tmp_path):
    loss, _, _ = bow_net(*text_inputs())
    fluid.optimizer.SGD(rate()).minimize(loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    train(executor, loss, 3)
    fluid.save(fluid.default_main_program(), str(tmp_path / "model"))
    expected = train(executor, loss, 3)
    with programs():
        again, _, _ = bow_net(*text_inputs())
        fluid.optimizer.SGD(rate()).minimize(again)
        executor.run(fluid.default_startup_program())
        fluid.load(fluid.default_main_program(), str(tmp_path / "model"), executor)
        assert train(executor, again, 3) == expected
