"""What is saved and loaded."""

import json

import numpy as np
import pytest

import dpmodule as mx
import dpmodule.fluid as fluid
from helpers.fluid_programs import bow_net, programs, text_inputs, values

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


def names_in(folder):
    return sorted(each.name for each in folder.iterdir())


def test_an_inference_model_is_pruned_and_a_module_reads_it(net, executor, tmp_path):
    folder, before = tmp_path / "deep" / "model", fluid.default_main_program().symbol.tojson()
    assert fluid.io.save_inference_model(str(folder), ["words"], [net[2]], executor) == ["fc_2"]
    assert names_in(folder) == ["model-0000.params", "model-symbol.json"]
    assert fluid.default_main_program().symbol.tojson() == before
    assert "__feed__" in json.dumps(json.loads((folder / "model-symbol.json").read_text()))
    test = fluid.default_main_program().clone(for_test=True)
    expected = executor.run(test, {"words": BATCH["words"]}, [net[2]])[0]
    mod = mx.mod.Module.load(f"{folder}/model", 0, data_names=["words"], label_names=None)
    assert mod.symbol.list_outputs() == ["fc_2_output"]
    assert "label" not in mod.symbol.list_arguments()
    mod.bind([mx.io.DataDesc("words", (3,), "int64", stype="ragged")], for_training=False)
    mod.init_params()
    mod.forward(mx.io.DataBatch([mx.nd.ragged_array(BATCH["words"], dtype="int64")], []))
    np.testing.assert_array_equal(mod.get_outputs()[0].asnumpy(), expected)


def test_a_loaded_model_runs_beside_the_one_that_trains(net, executor, tmp_path):
    loss, accuracy, prediction = net
    fluid.io.save_inference_model(tmp_path, ["label", "words"], [accuracy, prediction], executor)
    test = fluid.default_main_program().clone(for_test=True)
    expected = executor.run(test, BATCH, [accuracy, prediction])
    executor.run(feed=BATCH, fetch_list=[loss])
    program, feeds, targets = fluid.io.load_inference_model(tmp_path, executor)
    assert feeds == ["label", "words"]
    assert [each.name for each in targets] == ["accuracy_0", "fc_2"]
    words = program.var("words")
    assert (words.lod_level, words.shape, program.var("label").dtype) == (1, (-1, 1), "int64")
    for one, other in zip(executor.run(program, BATCH, targets), expected):
        np.testing.assert_array_equal(one, other)
    assert targets[1].shape == (-1, 2)


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


def test_parameters_alone(net, executor, tmp_path):
    names = [each.name for each in fluid.default_main_program().all_parameters()]
    fluid.io.save_params(executor, tmp_path)
    assert names_in(tmp_path) == ["params-0000.params"]
    before = values(*names)
    train(executor, net[0], 2)
    fluid.io.load_params(executor, tmp_path)
    for one, other in zip(values(*names), before):
        np.testing.assert_array_equal(one, other)
