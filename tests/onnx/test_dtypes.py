"""Networks in other types than float32 go out, and compute the same there."""

import numpy as np
import onnx
import pytest

import dpmodule as mx
from helpers.onnx_runs import check_same

S = mx.sym
X = S.Variable("data")
CLOSE = {"float16": {"rtol": 2e-3, "atol": 2e-3}, "float64": {"rtol": 1e-6, "atol": 1e-7}}
CODES = {"float16": onnx.TensorProto.FLOAT16, "float64": onnx.TensorProto.DOUBLE}


def convolutional():
    x = S.Convolution(X, kernel=(3, 3), num_filter=6, pad=(1, 1), name="conv1")
    x = S.Activation(S.BatchNorm(x, fix_gamma=False, name="bn"), act_type="tanh")
    x = S.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max")
    x = S.LeakyReLU(S.Convolution(x, kernel=(3, 3), num_filter=8, name="conv2"), act_type="elu")
    x = S.Flatten(S.Pooling(x, global_pool=True, pool_type="avg", kernel=(2, 2)))
    return S.SoftmaxOutput(S.FullyConnected(x, num_hidden=5, name="fc"), name="softmax"), (2, 3, 8, 8)


def drawn(dtype):
    """Return a network, the shape of its data, values of all variables, and the names of parameters."""
    net, shape = convolutional()
    draw = np.random.RandomState(0)
    args, _, states = net.infer_shape(data=shape)
    arrays = {n: draw.uniform(-0.5, 0.5, s).astype(dtype) for n, s in zip(net.list_arguments(), args)}
    arrays |= {n: draw.uniform(0.5, 1, s).astype(dtype) for n, s in zip(net.list_auxiliary_states(), states)}
    return net, shape, arrays, [name for name in arrays if name not in ("data", "softmax_label")]


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_a_network(dtype):
    net, _, arrays, params = drawn(dtype)
    found = check_same(net, arrays, params, dynamic=True, **CLOSE[dtype])
    assert {each.data_type for each in found.graph.initializer if each.name in params} == {CODES[dtype]}


@pytest.mark.parametrize("opset", [13, 21])
def test_bfloat16_is_a_valid_model(opset, tmp_path):
    net, shape, arrays, params = drawn("float32")
    known = {name: mx.nd.array(arrays[name]).astype("bfloat16") for name in params}
    path = str(tmp_path / "net.onnx")
    mx.onnx.export_model(net, known, [shape], "bfloat16", path, dynamic=True, opset=opset)
    onnx.checker.check_model(path, full_check=True)
    held = {each.name: each for each in onnx.load(path).graph.initializer}
    for name in params:
        assert held[name].data_type == onnx.TensorProto.BFLOAT16
        bits = np.frombuffer(held[name].raw_data, np.uint16).astype(np.uint32) << 16
        assert np.array_equal(bits.view(np.float32), known[name].astype("float32").asnumpy().ravel())
