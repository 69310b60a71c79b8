"""Networks in other types than float32 go out, and compute the same there."""

import numpy as np
import onnx
import pytest

import dpmodule as mx
from helpers.onnx_runs import check_same

S = mx.sym
CLOSE = {"float16": {"rtol": 2e-3, "atol": 2e-3}, "float64": {"rtol": 1e-6, "atol": 1e-7}}


def mlp():
    x = S.Activation(S.FullyConnected(S.Variable("data"), num_hidden=16, name="fc1"), act_type="relu")
    x = S.Dropout(S.LayerNorm(x, name="norm"))
    return S.SoftmaxOutput(S.FullyConnected(x, num_hidden=5, name="fc2"), name="softmax"), (3, 7)


def cnn():
    x = S.Convolution(S.Variable("data"), kernel=(3, 3), num_filter=6, pad=(1, 1), name="conv1")
    x = S.Activation(S.BatchNorm(x, fix_gamma=False, name="bn"), act_type="tanh")
    x = S.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max")
    x = S.LeakyReLU(S.Convolution(x, kernel=(3, 3), num_filter=8, name="conv2"), act_type="elu")
    x = S.Flatten(S.Pooling(x, global_pool=True, pool_type="avg", kernel=(2, 2)))
    return S.SoftmaxOutput(S.FullyConnected(x, num_hidden=5, name="fc"), name="softmax"), (2, 3, 8, 8)


def drawn(net, shape, dtype):
    """Return values of all variables, and the names of parameters."""
    draw = np.random.RandomState(0)
    args, _, states = net.infer_shape(data=shape)
    arrays = {n: draw.uniform(-0.5, 0.5, s).astype(dtype) for n, s in zip(net.list_arguments(), args)}
    arrays |= {n: draw.uniform(0.5, 1, s).astype(dtype) for n, s in zip(net.list_auxiliary_states(), states)}
    return arrays, [name for name in arrays if name not in ("data", "softmax_label")]


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("make", [mlp, cnn])
def test_networks(make, dtype):
    net, shape = make()
    arrays, params = drawn(net, shape, dtype)
    found = check_same(net, arrays, params, dynamic=True, **CLOSE[dtype])
    code = {"float16": onnx.TensorProto.FLOAT16, "float64": onnx.TensorProto.DOUBLE}[dtype]
    kept = {each.data_type for each in found.graph.initializer if each.name in params}
    assert kept == {code}


@pytest.mark.parametrize("make", [mlp, cnn])
@pytest.mark.parametrize("opset", [13, 17, 21])
def test_bfloat16_is_a_valid_model(make, opset, tmp_path):
    net, shape = make()
    arrays, params = drawn(net, shape, "float32")
    known = {name: mx.nd.array(arrays[name]).astype("bfloat16") for name in params}
    path = str(tmp_path / "net.onnx")
    mx.onnx.export_model(net, known, [shape], "bfloat16", path, dynamic=True, opset=opset)
    onnx.checker.check_model(path, full_check=True)
    found = onnx.load(path)
    held = {each.name: each for each in found.graph.initializer}
    for name in params:
        assert held[name].data_type == onnx.TensorProto.BFLOAT16
        bits = np.frombuffer(held[name].raw_data, np.uint16).astype(np.uint32) << 16
        assert np.array_equal(bits.view(np.float32), known[name].astype("float32").asnumpy().ravel())


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_parameters_of_whole_numbers(dtype):
    x, w = S.Variable("data"), S.Variable("weight")
    whole = {"data": np.array([[1, 2], [3, 4]], dtype), "weight": np.array([[2, 0], [1, 5]], dtype)}
    check_same(S.broadcast_add(x * 2, w), whole, ["weight"])
    check_same(S.sum(x, axis=1) + S.sum(w, axis=1), whole, ["weight"])
    scaled = S.FullyConnected(
        S.Cast(x, dtype="float32"), S.Cast(w, dtype="float32") * 0.1, num_hidden=2, no_bias=True
    )
    check_same(scaled, whole, ["weight"])


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "uint8"])
def test_words_by_number(dtype):
    net = S.Embedding(S.Variable("data"), input_dim=6, output_dim=3, name="words")
    arrays = {
        "data": np.array([[0, 5], [2, 9]], dtype),
        "words_weight": np.random.rand(6, 3).astype("float32"),
    }
    check_same(net, arrays, ["words_weight"], dynamic=True)


def test_pictures_of_bytes():
    x = S.Cast(S.Variable("data"), dtype="float32") / 255 - 0.5
    net = S.Convolution(x, kernel=(3, 3), num_filter=2, name="conv")
    draw = np.random.RandomState(0)
    arrays = {"data": draw.randint(0, 256, (2, 3, 6, 6)).astype("uint8")}
    arrays |= {"conv_weight": draw.rand(2, 3, 3, 3).astype("float32"), "conv_bias": np.zeros(2, "float32")}
    check_same(net, arrays, ["conv_weight", "conv_bias"], dynamic=True)
