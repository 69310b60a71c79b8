"""What is saved and loaded."""

import json

import numpy as np
import pytest

import dpmodule as mx
import dpmodule.fluid as fluid
from helpers.fluid_programs import bow_net, text_inputs, values

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


def test_an_inference_model_is_pruned_and_a_module_reads_it(net, executor, tmp_path):
    _, _, prediction = net
    folder = str(tmp_path / "deep" / "model")
    names = fluid.io.save_inference_model(folder, ["words"], [prediction], executor)
    assert names == ["fc_2"]
    assert sorted(each.name for each in (tmp_path / "deep" / "model").iterdir()) == [
        "model-0000.params",
        "model-symbol.json",
    ]
    test = fluid.default_main_program().clone(for_test=True)
    expected = executor.run(test, {"words": BATCH["words"]}, [prediction])[0]
    mod = mx.mod.Module.load(folder + "/model", 0, data_names=["words"], label_names=None)
    assert mod.symbol.list_outputs() == ["fc_2_output"]
    assert "label" not in mod.symbol.list_arguments()
    mod.bind([mx.io.DataDesc("words", (3,), "int64", stype="ragged")], for_training=False)
    mod.init_params()
    mod.forward(mx.io.DataBatch([mx.nd.ragged_array(BATCH["words"], dtype="int64")], []))
    np.testing.assert_array_equal(mod.get_outputs()[0].asnumpy(), expected)


def test_a_loaded_model_runs_beside_the_one_that_goes_on(net, executor, tmp_path):
    loss, accuracy, prediction = net
    folder = str(tmp_path / "model")
    fluid.io.save_inference_model(folder, ["label", "words"], [accuracy, prediction], executor)
    test = fluid.default_main_program().clone(for_test=True)
    expected = executor.run(test, BATCH, [accuracy, prediction])
    executor.run(feed=BATCH, fetch_list=[loss])
    program, feeds, targets = fluid.io.load_inference_model(folder, executor)
    assert feeds == ["label", "words"]
    assert [each.name for each in targets] == ["accuracy_0", "fc_2"]
    assert (program.var("words").lod_level, program.var("words").shape, program.var("label").dtype) == (
        1,
        (-1, 1),
        "int64",
    )
    for one, other in zip(executor.run(program, BATCH, targets), expected):
        np.testing.assert_array_equal(one, other)
    assert targets[1].shape == (-1, 2)


def test_saving_leaves_the_program_as_it_is(net, executor, tmp_path):
    symbol = fluid.default_main_program().symbol
    before = symbol.tojson()
    fluid.io.save_inference_model(tmp_path, ["words"], [net[2]], executor)
    assert symbol.tojson() == before
    assert "__feed__" in json.dumps(json.loads((tmp_path / "model-symbol.json").read_text()))


def train(executor, loss, steps):
    return [float(executor.run(feed=BATCH, fetch_list=[loss])[0][0]) for _ in range(steps)]


@pytest.mark.parametrize("fresh", [True, False])
def test_training_goes_on_from_persistables(net, executor, tmp_path, fresh):
    loss = net[0]
    train(executor, loss, 2)
    fluid.io.save_persistables(executor, tmp_path)
    expected = train(executor, loss, 3)
    if not fresh:
        fluid.io.load_persistables(executor, tmp_path)
        assert train(executor, loss, 3) == expected
        return
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        again, _, _ = bow_net(*text_inputs())
        fluid.optimizer.Adam(0.05).minimize(again)
        fluid.io.load_persistables(executor, tmp_path)
        assert train(executor, again, 3) == expected


def test_parameters_alone(net, executor, tmp_path):
    names = [each.name for each in fluid.default_main_program().all_parameters()]
    fluid.io.save_params(executor, tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["params-0000.params"]
    before = values(*names)
    train(executor, net[0], 2)
    fluid.io.load_params(executor, tmp_path)
    for one, other in zip(values(*names), before):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("key", "text"), [("__shape__", "5x"), ("__dtype__", "x"), ("__feed__", "x"), ("__feed__", "1")]
)
def test_folders_that_are_damaged(key, text, tmp_path):
    program, startup, executor = fluid.Program(), fluid.Program(), fluid.Executor()
    with fluid.program_guard(program, startup):
        data = [fluid.layers.data(name, [2]) for name in "ab"]
        out = fluid.layers.fc(data, 1)
    executor.run(startup)
    fluid.io.save_inference_model(tmp_path, ["a", "b"], [out], executor, program)
    path = tmp_path / "model-symbol.json"
    graph = json.loads(path.read_text())
    next(row for row in graph["nodes"] if row["name"] == "a")["attrs"][key] = text
    path.write_text(json.dumps(graph))
    with pytest.raises(mx.base.MXNetError, match=key if key != "__dtype__" else "unknown dtype 'x'"):
        fluid.io.load_inference_model(tmp_path)


def test_mistakes(net, executor, tmp_path):
    save, load = fluid.io.save_inference_model, fluid.io.load_inference_model
    prediction = net[2]
    with pytest.raises(
        ValueError, match=r"feeded_var_names is \['words', 'label'\], but the targets depend on words"
    ):
        save(tmp_path, ["words", "label"], [prediction], executor)
    with pytest.raises(ValueError, match="expected computed variables"):
        save(tmp_path, ["words"], ["words"], executor)
    with pytest.raises(ValueError, match="target_vars is"):
        save(tmp_path, ["words"], [], executor)
    with pytest.raises(ValueError, match="file names are not supported"):
        save(tmp_path, ["words"], [prediction], executor, model_filename="__model__")
    with pytest.raises(ValueError, match="dirname is None"):
        save(None, ["words"], [prediction], executor)
    with pytest.raises(OSError, match="nothing"):
        load(tmp_path / "nothing")
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        other = bow_net(*text_inputs())
        with pytest.raises(mx.base.StateError, match="have no values"):
            save(tmp_path, ["words"], [other[2]], executor)
        fluid.io.save_params(executor, tmp_path, net[0].program)
        fluid.layers.fc(other[2], 3)
        with pytest.raises(ValueError, match="lacks fc_3_weight, fc_3_bias"):
            fluid.io.load_params(executor, tmp_path)
