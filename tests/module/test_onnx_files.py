"""Modules write themselves as ONNX files."""

import numpy as np
import onnx
import pytest

import dpmodule as mx
from helpers.onnx_runs import runtime_outputs

rng = np.random.RandomState(9)


def network(units=3):
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="fc1")
    net = mx.sym.BatchNorm(net, fix_gamma=False, name="bn")
    net = mx.sym.FullyConnected(mx.sym.Activation(net, act_type="tanh"), num_hidden=units, name="fc2")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def ready(module, data, labels=None):
    module.bind(data, labels, for_training=labels is not None)
    module.init_params(mx.init.Uniform(0.5))
    return module


def names_and_shapes(values):
    return {
        each.name: [dim.dim_param or dim.dim_value for dim in each.type.tensor_type.shape.dim]
        for each in values
    }


def outputs_of(module, arrays, shapes):
    module.reshape(shapes)
    module.forward(mx.io.DataBatch([mx.nd.array(x) for x in arrays]), is_train=False)
    return [out.asnumpy() for out in module.get_outputs()]


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_a_module_keeps_names_and_takes_any_batch(tmp_path, opset):
    module = ready(mx.mod.Module(network()), [("data", (4, 5))], [("softmax_label", (4,))])
    path = module.to_onnx(tmp_path / "net.onnx", opset=opset)
    assert path == str(tmp_path / "net.onnx")
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert names_and_shapes(model.graph.input) == {"data": ["batch", 5]}
    assert names_and_shapes(model.graph.output) == {"softmax_output": ["batch", 3]}
    assert {each.name for each in model.graph.initializer} >= {"fc1_weight", "fc2_bias", "bn_moving_mean"}
    x = rng.rand(7, 5).astype("f4")
    (ours,) = outputs_of(module, [x], [("data", x.shape)])
    np.testing.assert_allclose(runtime_outputs(model, {"data": x})[0], ours, rtol=1e-5, atol=1e-6)


def test_dynamic_lengths_are_those_asked_for(tmp_path):
    module = ready(mx.mod.Module(network()), [("data", (4, 5))])
    fixed = onnx.load(module.to_onnx(tmp_path / "fixed.onnx", dynamic=False))
    assert names_and_shapes(fixed.graph.input) == {"data": [4, 5]}
    named = onnx.load(module.to_onnx(tmp_path / "named.onnx", dynamic={"data": {0: "rows"}}))
    assert names_and_shapes(named.graph.input) == {"data": ["rows", 5]}
    with pytest.raises(mx.base.ArgumentError, match="dynamic names 'date'; the inputs are"):
        module.to_onnx(tmp_path / "wrong.onnx", dynamic={"date": {0: "rows"}})
    with pytest.raises(mx.base.ArgumentError, match="opset is 12, expected one from 13 to 21"):
        module.to_onnx(tmp_path / "wrong.onnx", opset=12)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fixed.onnx", "named.onnx"]


def test_batchnorm_is_folded_on_request(tmp_path):
    net = mx.sym.BatchNorm(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="fc"), name="bn")
    module = ready(mx.mod.Module(net, label_names=None), [("data", (4, 5))])
    model = onnx.load(module.to_onnx(tmp_path / "net.onnx", fold_batchnorm=True))
    assert "BatchNormalization" not in {node.op_type for node in model.graph.node}
    x = rng.rand(4, 5).astype("f4")
    (ours,) = outputs_of(module, [x], [("data", x.shape)])
    np.testing.assert_allclose(runtime_outputs(model, {"data": x})[0], ours, rtol=1e-4, atol=1e-5)


def recurrent(length=None):
    """Return a language model over a length that its graph does not know."""
    del length
    words = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=20, output_dim=6, name="emb")
    weights = mx.sym.Variable("rnn_parameters", init=mx.init.Uniform(0.3))
    states = [mx.sym.Variable("h"), mx.sym.Variable("c")]
    steps = mx.sym.RNN(words, weights, *states, state_size=5, num_layers=1, mode="lstm", name="rnn")
    found = mx.sym.FullyConnected(steps, num_hidden=20, flatten=False, name="fc")
    return mx.sym.softmax(found, name="words")


def described(length, batch):
    words = mx.io.DataDesc("data", (length, batch), layout="TN")
    return [words, *(mx.io.DataDesc(name, (1, batch, 5), layout="LNC") for name in "hc")]


def bucketing(generate=recurrent, states=()):
    names = ("data",) if states else ("data", "h", "c")
    return mx.mod.BucketingModule(lambda key: (generate(key), names, None), 9, state_names=states or None)


def check_recurrent(path):
    model = onnx.load(path)
    assert names_and_shapes(model.graph.input)["data"] == ["time", "batch"]
    return model


def test_buckets_become_one_file_with_a_dynamic_time_axis(tmp_path):
    module = ready(bucketing(), described(9, 4))
    module.switch_bucket(6, described(6, 4))
    (path,) = module.to_onnx(tmp_path / "lm.onnx", one_file=True)
    model = check_recurrent(path)
    x, state = rng.randint(0, 20, (11, 3)).astype("f4"), np.zeros((1, 3, 5), "f4")
    module.switch_bucket(11, described(11, 3))
    batch = mx.io.DataBatch(
        [mx.nd.array(each) for each in (x, state, state)], bucket_key=11, provide_data=described(11, 3)
    )
    module.forward(batch, is_train=False)
    found = runtime_outputs(model, {"data": x, "h": state, "c": state})[0]
    np.testing.assert_allclose(found, module.get_outputs()[0].asnumpy(), rtol=1e-5, atol=1e-6)


def test_states_are_inputs_whose_batch_is_found(tmp_path):
    module = ready(bucketing(states=("h", "c")), described(9, 4)[:1])
    (path,) = module.to_onnx(tmp_path / "lm.onnx")
    model = onnx.load(path)
    assert names_and_shapes(model.graph.input) == {
        "data": [9, "batch"],
        "h": [1, "batch", 5],
        "c": [1, "batch", 5],
    }


def test_every_bucket_gets_a_file_named_by_its_key(tmp_path):
    module = ready(bucketing(), described(9, 4))
    module.switch_bucket(6, described(6, 4))
    paths = module.to_onnx(tmp_path / "lm.onnx")
    assert sorted(paths) == [str(tmp_path / "lm-6.onnx"), str(tmp_path / "lm-9.onnx")]
    shapes = names_and_shapes(onnx.load(tmp_path / "lm-6.onnx").graph.input)
    assert shapes["data"] == [6, "batch"]


def unrolled(length):
    cell = mx.rnn.LSTMCell(5, prefix="lstm_")
    words = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=20, output_dim=6, name="emb")
    steps, _ = cell.unroll(length, words, layout="TNC", merge_outputs=True)
    return mx.sym.softmax(steps, name="words")


def test_graphs_that_differ_from_bucket_to_bucket_need_files_of_their_own(tmp_path):
    module = mx.mod.BucketingModule(lambda key: (unrolled(key), ("data",), None), 4)
    ready(module, [("data", (4, 2))])
    with pytest.raises(mx.base.ArgumentError, match="only bucket 4 is bound"):
        module.to_onnx(tmp_path / "lm.onnx", one_file=True)
    module.switch_bucket(3, [("data", (3, 2))])
    with pytest.raises(mx.base.ArgumentError, match="the graph of bucket 3 is another than that of 4"):
        module.to_onnx(tmp_path / "lm.onnx", one_file=True)
    assert list(tmp_path.iterdir()) == []
    paths = module.to_onnx(tmp_path / "lm.onnx", dynamic=False)
    assert len(paths) == 2


def test_what_is_wrong_with_any_bucket_is_told_before_a_file_is_written(tmp_path):
    def generate(key):
        x = mx.sym.Variable("data")
        return mx.sym.Correlation(x, x, name=f"corr{key}") if key == 6 else x * 2

    module = mx.mod.BucketingModule(lambda key: (generate(key), ("data",), None), 9)
    ready(module, [("data", (1, 1, 9, 9))])
    module.switch_bucket(6, [("data", (1, 1, 6, 6))])
    with pytest.raises(mx.base.ArgumentError, match="bucket 6: Correlation 'corr6'"):
        module.to_onnx(tmp_path / "net.onnx")
    assert list(tmp_path.iterdir()) == []


def test_modules_of_several_graphs_refuse(tmp_path):
    chain = mx.mod.SequentialModule().add(mx.mod.Module(network(), label_names=None))
    with pytest.raises(mx.base.ArgumentError, match="write each of `modules` by its own to_onnx"):
        chain.to_onnx(tmp_path / "net.onnx")
    with pytest.raises(
        mx.base.ArgumentError, match="PythonLossModule.to_onnx: only Module and BucketingModule"
    ):
        mx.mod.PythonLossModule().to_onnx(tmp_path / "net.onnx")


def test_before_parameters_there_is_nothing_to_write(tmp_path):
    module = mx.mod.Module(network())
    module.bind([("data", (4, 5))], for_training=False)
    with pytest.raises(mx.base.StateError, match="init_params"):
        module.to_onnx(tmp_path / "net.onnx")


def test_the_names_of_mxnet_write_the_same_file(tmp_path):
    module = ready(mx.mod.Module(network()), [("data", (4, 5))])
    module.save_checkpoint(str(tmp_path / "net"), 3)
    files = [str(tmp_path / name) for name in ("net-symbol.json", "net-0003.params")]
    written = []
    for number, export in enumerate(
        (mx.onnx.export_model, mx.onnx.mx2onnx.export_model, mx.contrib.onnx.export_model)
    ):
        path = export(*files, [(4, 5)], np.float32, str(tmp_path / f"{number}.onnx"))
        written.append((tmp_path / path).read_bytes())
    assert len(set(written)) == 1
    assert mx.contrib.onnx.mx2onnx.export_model is mx.onnx.export_model


def test_supported_operators_are_listed():
    found = mx.onnx.get_operator_support(17)
    assert {"Convolution", "_foreach", "_contrib_box_nms"} <= set(found)
    assert "sgd_update" not in found
    with pytest.raises(mx.base.ArgumentError, match="opset_version is 7"):
        mx.onnx.get_operator_support(7)


def test_export_model_as_it_differs_from_mxnets(tmp_path):
    net = mx.sym.Dropout(mx.sym.Variable("data"), p=0.5) * mx.sym.Variable("scale")
    params = {"scale": mx.nd.ones((2, 3, 4))}
    path = mx.onnx.export_model(
        mx.sym.Dropout(mx.sym.Variable("data"), p=0.5) + 1,
        {},
        [(2, 3, 4)],
        np.float32,
        tmp_path / "net.onnx",
        dynamic=True,
    )
    model = onnx.load(path)
    assert model.opset_import[0].version == 17
    assert names_and_shapes(model.graph.input) == {"data": ["batch", 3, 4]}
    assert "Dropout" not in {node.op_type for node in model.graph.node}
    mx.onnx.export_model(net, params, [(2, 3, 4)], np.float32, path, opset=13)
    assert onnx.load(path).opset_import[0].version == 13
