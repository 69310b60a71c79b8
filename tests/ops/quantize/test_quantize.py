"""Quantization beyond the recorded calls: there and back, layers without bias, a chain in a graph."""

import numpy as np
import pytest

import dpmodule as mx

C = mx.nd.contrib
RANGES = {"min_data": -1, "max_data": 2, "min_weight": -0.5, "max_weight": 0.6}


def one(value):
    return mx.nd.array([value])


def whole(values, kind="int8"):
    return mx.nd.array(values, dtype=kind)


@pytest.mark.parametrize(("kind", "low", "steps"), [("int8", -1.0, 127.5), ("uint8", 0.0, 255.5)])
def test_there_and_back_is_within_half_a_step(kind, low, steps):
    x = mx.nd.random.uniform(low, 1, shape=(200,))
    packed, least, greatest = C.quantize_v2(x, out_type=kind)
    assert packed.dtype == np.dtype(kind)
    assert np.abs((C.dequantize(packed, least, greatest) - x).asnumpy()).max() <= 1.01 / steps / 2


def test_what_is_quantized_already_passes_and_auto_follows_the_minimum():
    data, low, high = C.quantize_v2(whole([1, -2]))
    assert data.asnumpy().tolist() == [1, -2]
    assert (low.asscalar(), high.asscalar()) == (-127.5, 127.5)
    for limits, kind in (((0.0, 1.0), np.uint8), ((-0.5, 1.0), np.int8), ((), np.int8)):
        assert C.quantize_v2(mx.nd.ones((2,)), "auto", *limits)[0].dtype == kind


@pytest.mark.parametrize(
    ("given", "wanted"),
    [(whole([-128, 0, 127]), ([0, 128, 255], 1, 128)), (whole([3], "uint8"), ([3], 1, 0))],
)
def test_asymmetric_quantization_of_bytes(given, wanted):
    data, scale, shift = C.quantize_asym(given)
    assert (data.asnumpy().tolist(), scale.asscalar(), shift.asscalar()) == wanted


def test_quantized_layers_compute_what_the_layers_do():
    random, ranges = np.random.RandomState(0), {name: one(value) for name, value in RANGES.items()}
    x, w = random.randint(-127, 128, (3, 8)), random.randint(-127, 128, (2, 8))
    out, low, high = C.quantized_fully_connected(
        data=whole(x), weight=whole(w), num_hidden=2, no_bias=True, **ranges
    )
    np.testing.assert_array_equal(out.asnumpy(), x @ w.T)
    stands_for = out.asnumpy() * (high.asscalar() / 2147483647)
    np.testing.assert_allclose(stands_for, (x * 2 / 127) @ (w * 0.6 / 127).T, rtol=1e-5)
    assert low.asscalar() == -high.asscalar()
    x, w = random.randint(-127, 128, (1, 2, 4, 4)), random.randint(-127, 128, (3, 2, 3, 3))
    attrs = {"kernel": (3, 3), "num_filter": 3, "no_bias": True}
    out = C.quantized_conv(data=whole(x), weight=whole(w), **ranges, **attrs)[0]
    plain = mx.nd.Convolution(mx.nd.array(x), mx.nd.array(w), **attrs)
    np.testing.assert_array_equal(out.asnumpy(), plain.asnumpy())


def test_a_chain_of_quantized_layers_in_a_graph():
    data, weight = mx.sym.var("data"), mx.sym.var("weight", dtype="int8")
    packed = mx.sym.contrib.quantize_v2(data, out_type="int8", min_calib_range=-1.0, max_calib_range=1.0)
    limits = {"min_data": packed[1], "max_data": packed[2], "min_weight": mx.sym.var("low")}
    limits["max_weight"] = mx.sym.var("high")
    attrs = {"num_hidden": 2, "no_bias": True}
    dense = mx.sym.contrib.quantized_fully_connected(packed[0], weight, **limits, **attrs)
    back = mx.sym.contrib.dequantize(*mx.sym.contrib.requantize(*dense))
    x, w = np.random.RandomState(2).uniform(-1, 1, (2, 4, 6)).astype("f4")
    args = {"data": mx.nd.array(x), "weight": whole(np.round(w[:2] * 127)), "low": one(-1), "high": one(1)}
    executor = mx.sym.load_json(back.tojson()).bind(mx.cpu(), args)
    assert np.abs(executor.forward()[0].asnumpy() - x @ w[:2].T).max() < 0.05
