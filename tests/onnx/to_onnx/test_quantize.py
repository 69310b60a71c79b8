"""Networks of 8-bit numbers give the very same numbers."""

import numpy as np
import pytest

import dpmodule as mx
from helpers.onnx_runs import check_dynamic, check_same

rng = np.random.RandomState(6)
contrib = mx.sym.contrib
X = mx.sym.Variable("x")


def floats(*shape):
    return rng.standard_normal(shape).astype("f4")


def quantized(symbol, kind, reach):
    low = 0.0 if kind == "uint8" else -reach
    return contrib.quantize_v2(symbol, out_type=kind, min_calib_range=low, max_calib_range=reach)


def layer(make, data, weight, **attrs):
    """Apply a quantized layer without bias to numbers with their ranges."""
    return make(data[0], weight[0], data[1], data[2], weight[1], weight[2], no_bias=True, **attrs)


def network(kind):
    """Return convolution, requantization, pooling, a dense layer, and what these stand for."""
    first, second = (quantized(mx.sym.Variable(f"w{i}"), "int8", 2.0) for i in (1, 2))
    data = quantized(X, kind, 3.0)
    found = layer(contrib.quantized_conv, data, first, kernel=(3, 3), num_filter=4, pad=(1, 1), stride=(2, 1))
    found = contrib.requantize(*(found[i] for i in range(3)), min_calib_range=-8.0, max_calib_range=8.0)
    found = contrib.quantized_pooling(*(found[i] for i in range(3)), kernel=(2, 2), pool_type="avg")
    found = contrib.quantized_act(*(found[i] for i in range(3)), act_type="relu")
    found = layer(contrib.quantized_fully_connected, found, second, num_hidden=5)
    return contrib.dequantize(found[0], found[1], found[2])


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_a_network_of_8_bits(kind, opset):
    weights = {"w1": floats(4, 3, 3, 3), "w2": floats(5, 40)}
    first, other = {"x": floats(2, 3, 6, 6), **weights}, {"x": floats(5, 3, 6, 6)}
    options = {"rtol": 1e-6, "opset": opset}
    model = check_dynamic(network(kind), first, other, {"x": {0: "batch"}}, list(weights), **options)
    made = {node.op_type for node in model.graph.node}
    assert {"QuantizeLinear", "ConvInteger", "MatMulInteger", "DequantizeLinear"} <= made


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_every_number_of_a_range_is_rounded_the_same(kind):
    x = np.linspace(-3.5, 3.5, 4001, dtype="f4")
    x = np.concatenate([x, np.float32(3) * (np.arange(-255, 256) / np.float32(127.5)).astype("f4") / 2])
    check_same(mx.sym.Group(list(quantized(X, kind, 3.0))), {"x": x}, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_whole_numbers_are_shifted_and_keep_their_unit(kind):
    numbers = np.arange(-5, 5).astype(kind)
    found = mx.sym.Group(list(contrib.quantize_asym(mx.sym.Variable("x", dtype=kind))))
    check_same(found, {"x": numbers}, rtol=0, atol=0)
