"""Modules write themselves as ONNX files; that these compute the same is looked at in tests/test_equivalence.py."""

import numpy as np
import onnx
import pytest

import dpmodule as mx
from helpers.onnx_runs import runtime_outputs
from helpers.small_fits import ready

PREDICTS = {"for_training": False, "init": mx.init.Uniform(0.5)}
rng = np.random.RandomState(9)


def inputs_of(path):
    values = (onnx.load(path) if not isinstance(path, onnx.ModelProto) else path).graph.input
    return {v.name: [dim.dim_param or dim.dim_value for dim in v.type.tensor_type.shape.dim] for v in values}


def test_dynamic_lengths_are_those_asked_for(tmp_path):
    module = ready()
    assert inputs_of(module.to_onnx(tmp_path / "fixed.onnx", dynamic=False)) == {"data": [8, 6]}
    found = inputs_of(module.to_onnx(tmp_path / "n.onnx", dynamic={"data": {0: "rows"}}))
    assert found == {"data": ["rows", 6]}
    with pytest.raises(mx.base.ArgumentError, match="dynamic names 'date'; the inputs are"):
        module.to_onnx(tmp_path / "wrong.onnx", dynamic={"date": {0: "rows"}})
    with pytest.raises(mx.base.ArgumentError, match="opset is 12, expected one from 13 to 21"):
        module.to_onnx(tmp_path / "wrong.onnx", opset=12)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fixed.onnx", "n.onnx"]


def recurrent(length):
    """Return a language model over a length that its graph does not know."""
    words = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=20, output_dim=6, name="emb")
    weight = mx.sym.Variable("rnn_parameters", init=mx.init.Uniform(0.3))
    given = weight, mx.sym.Variable("h"), mx.sym.Variable("c")
    steps = mx.sym.RNN(words, *given, state_size=5, num_layers=1, mode="lstm", name="rnn")
    return mx.sym.softmax(mx.sym.FullyConnected(steps, num_hidden=20, flatten=False, name="fc"), name="words")


def unrolled(length):
    steps, _ = mx.rnn.RNNCell(5).unroll(length, mx.sym.Variable("data"), layout="TNC", merge_outputs=True)
    return mx.sym.softmax(steps, name="words")


def impossible(key):
    x = mx.sym.Variable("data")
    return mx.sym.Correlation(x, x, name=f"corr{key}") if key == 6 else x * 2


def described(length, batch=4):
    words = mx.io.DataDesc("data", (length, batch), layout="TN")
    return [words, *(mx.io.DataDesc(name, (1, batch, 5), layout="LNC") for name in "hc")]


def buckets(generate=recurrent, names=("data", "h", "c"), states=None, shapes=described, keys=(9, 6)):
    module = mx.mod.BucketingModule(lambda key: (generate(key), names, None), keys[0], state_names=states)
    ready(module, shapes=[shapes(keys[0])], **PREDICTS)
    for key in keys[1:]:
        module.switch_bucket(key, shapes(key))
    return module


def test_buckets_become_one_file_with_a_dynamic_time_axis(tmp_path):
    module = buckets()
    (path,) = module.to_onnx(tmp_path / "lm.onnx", one_file=True)
    assert inputs_of(path)["data"] == ["time", "batch"]
    x, state = rng.randint(0, 20, (11, 3)).astype("f4"), np.zeros((1, 3, 5), "f4")
    given = [mx.nd.array(each) for each in (x, state, state)]
    module.forward(mx.io.DataBatch(given, bucket_key=11, provide_data=described(11, 3)), is_train=False)
    found = runtime_outputs(onnx.load(path), {"data": x, "h": state, "c": state})[0]
    np.testing.assert_allclose(found, module.get_outputs()[0].asnumpy(), rtol=1e-5, atol=1e-6)


def test_states_are_inputs_whose_batch_is_found(tmp_path):
    module = buckets(names=("data",), states=("h", "c"), shapes=lambda key: described(key)[:1], keys=(9,))
    (path,) = module.to_onnx(tmp_path / "lm.onnx")
    assert inputs_of(path) == {"data": [9, "batch"], "h": [1, "batch", 5], "c": [1, "batch", 5]}


def test_graphs_that_differ_from_bucket_to_bucket_need_files_of_their_own(tmp_path):
    module = buckets(unrolled, ("data",), shapes=lambda key: [("data", (key, 2, 6))], keys=(4,))
    with pytest.raises(mx.base.ArgumentError, match="only bucket 4 is bound"):
        module.to_onnx(tmp_path / "lm.onnx", one_file=True)
    module.switch_bucket(3, [("data", (3, 2, 6))])
    with pytest.raises(mx.base.ArgumentError, match="the graph of bucket 3 is another than that of 4"):
        module.to_onnx(tmp_path / "lm.onnx", one_file=True)
    assert (list(tmp_path.iterdir()), len(module.to_onnx(tmp_path / "lm.onnx", dynamic=False))) == ([], 2)


def test_what_is_wrong_with_any_bucket_is_told_before_a_file_is_written(tmp_path):
    module = buckets(impossible, ("data",), shapes=lambda key: [("data", (1, 1, key, key))])
    with pytest.raises(mx.base.ArgumentError, match="bucket 6: Correlation 'corr6'"):
        module.to_onnx(tmp_path / "net.onnx")
    assert list(tmp_path.iterdir()) == []


def test_supported_operators_are_listed():
    found = mx.onnx.get_operator_support(17)
    assert {"Convolution", "_foreach", "_contrib_box_nms"} <= set(found)
    assert "sgd_update" not in found
    with pytest.raises(mx.base.ArgumentError, match="opset_version is 7"):
        mx.onnx.get_operator_support(7)


def test_export_model_as_it_differs_from_mxnets(tmp_path):
    net, path = mx.sym.Dropout(mx.sym.Variable("data"), p=0.5), tmp_path / "net.onnx"
    model = onnx.load(mx.onnx.export_model(net + 1, {}, [(2, 3, 4)], np.float32, path, dynamic=True))
    assert (model.opset_import[0].version, inputs_of(model)) == (17, {"data": ["batch", 3, 4]})
    assert "Dropout" not in {node.op_type for node in model.graph.node}
    params = {"scale": mx.nd.ones((2, 3, 4))}
    mx.onnx.export_model(net * mx.sym.Variable("scale"), params, [(2, 3, 4)], np.float32, str(path), opset=13)
    assert onnx.load(path).opset_import[0].version == 13
