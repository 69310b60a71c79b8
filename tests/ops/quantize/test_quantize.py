"""Quantization beyond the recorded calls: there and back, layers without bias, what is refused."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import DTypeError, OpError

C = mx.nd.contrib


def one(value):
    return mx.nd.array([value])


def whole(values, kind="int8"):
    return mx.nd.array(values, dtype=kind)


@pytest.mark.parametrize(("kind", "low"), [("int8", -1.0), ("uint8", 0.0)])
def test_there_and_back_is_within_half_a_step(kind, low):
    x = mx.nd.random.uniform(low, 1, shape=(200,))
    packed, least, greatest = C.quantize_v2(x, out_type=kind)
    assert packed.dtype == np.dtype(kind)
    back = C.dequantize(packed, least, greatest)
    step = 1 / (127.5 if kind == "int8" else 255.5)
    assert np.abs((back - x).asnumpy()).max() <= step / 2 * 1.01


def test_what_is_quantized_already_passes():
    data, low, high = C.quantize_v2(whole([1, -2]))
    assert data.asnumpy().tolist() == [1, -2]
    assert (low.asscalar(), high.asscalar()) == (-127.5, 127.5)


def test_auto_follows_the_calibrated_minimum():
    assert C.quantize_v2(mx.nd.ones((2,)), "auto", 0.0, 1.0)[0].dtype == np.uint8
    assert C.quantize_v2(mx.nd.ones((2,)), "auto", -0.5, 1.0)[0].dtype == np.int8
    assert C.quantize_v2(mx.nd.ones((2,)), "auto")[0].dtype == np.int8


def test_asymmetric_quantization_of_bytes():
    data, scale, shift = C.quantize_asym(whole([-128, 0, 127]))
    assert data.asnumpy().tolist() == [0, 128, 255]
    assert (scale.asscalar(), shift.asscalar()) == (1, 128)
    data, scale, shift = C.quantize_asym(whole([3], "uint8"))
    assert (data.asscalar(), scale.asscalar(), shift.asscalar()) == (3, 1, 0)


def test_a_quantized_layer_computes_what_the_layer_does():
    random = np.random.RandomState(0)
    x, w = random.randint(-127, 128, (3, 8)), random.randint(-127, 128, (2, 8))
    out, low, high = C.quantized_fully_connected(
        data=whole(x),
        weight=whole(w),
        min_data=one(-1),
        max_data=one(2),
        min_weight=one(-0.5),
        max_weight=one(0.6),
        num_hidden=2,
        no_bias=True,
    )
    np.testing.assert_array_equal(out.asnumpy(), x @ w.T)
    stands_for = out.asnumpy() * (high.asscalar() / 2147483647)
    np.testing.assert_allclose(stands_for, (x * 2 / 127) @ (w * 0.6 / 127).T, rtol=1e-5)
    assert low.asscalar() == -high.asscalar()


def test_a_quantized_convolution_of_signed_numbers():
    random = np.random.RandomState(1)
    x, w = random.randint(-127, 128, (1, 2, 4, 4)), random.randint(-127, 128, (3, 2, 3, 3))
    out = C.quantized_conv(
        data=whole(x),
        weight=whole(w),
        min_data=one(-1),
        max_data=one(2),
        min_weight=one(-0.5),
        max_weight=one(0.6),
        kernel=(3, 3),
        num_filter=3,
        no_bias=True,
    )[0]
    plain = mx.nd.Convolution(mx.nd.array(x), mx.nd.array(w), kernel=(3, 3), num_filter=3, no_bias=True)
    np.testing.assert_array_equal(out.asnumpy(), plain.asnumpy())


def test_a_chain_of_quantized_layers_in_a_graph():
    data, weight = mx.sym.var("data"), mx.sym.var("weight", dtype="int8")
    packed = mx.sym.contrib.quantize_v2(data, out_type="int8", min_calib_range=-1.0, max_calib_range=1.0)
    dense = mx.sym.contrib.quantized_fully_connected(
        packed[0],
        weight,
        min_data=packed[1],
        max_data=packed[2],
        min_weight=mx.sym.var("low"),
        max_weight=mx.sym.var("high"),
        num_hidden=2,
        no_bias=True,
    )
    small = mx.sym.contrib.requantize(dense[0], dense[1], dense[2])
    back = mx.sym.contrib.dequantize(small[0], small[1], small[2])
    x, w = np.random.RandomState(2).uniform(-1, 1, (2, 4, 6)).astype("f4")
    w = w[:2]
    args = {"data": mx.nd.array(x), "weight": whole(np.round(w * 127)), "low": one(-1), "high": one(1)}
    executor = mx.sym.load_json(back.tojson()).bind(mx.cpu(), args)
    assert np.abs(executor.forward()[0].asnumpy() - x @ w.T).max() < 0.05


def test_float_products_are_what_the_numbers_stand_for():
    left, right = whole([1, 100, -127]), whole([3, 27, -127])
    out = C.quantized_elemwise_mul(left, right, one(-1), one(1), one(-2), one(0.5), enable_float_output=True)
    np.testing.assert_allclose(out.asnumpy(), np.array([3, 2700, 16129]) * 2 / 127.5**2, rtol=1e-5)


@pytest.mark.parametrize(
    "call",
    [
        lambda: C.quantize(whole([1]), one(0), one(1)),
        lambda: C.dequantize(mx.nd.ones((2,)), one(0), one(1)),
        lambda: C.requantize(mx.nd.ones((2,)), one(0), one(1)),
        lambda: C.quantized_act(mx.nd.ones((2,)), one(0), one(1), act_type="relu"),
        lambda: C.quantized_elemwise_mul(whole([1], "uint8"), whole([1]), *[one(1)] * 4),
    ],
)
def test_types_that_are_not_quantized_are_refused(call):
    with pytest.raises(DTypeError, match="expected"):
        call()


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: C.quantized_act(whole([1]), one(0), one(1), act_type="tanh"), "act_type"),
        (
            lambda: C.quantized_pooling(whole(np.ones((1, 1, 2, 2))), one(0), one(1), pool_type="sum"),
            "pool_type",
        ),
        (
            lambda: C.quantized_elemwise_add(whole([1]), whole([1]), *[one(1)] * 4, min_calib_range=1),
            "only one",
        ),
        (
            lambda: C.quantized_batch_norm(whole(np.ones((1, 2))), *[mx.nd.ones((2,))] * 4, one(0), one(1)),
            "min_calib_range",
        ),
        (lambda: C.calibrate_entropy(mx.nd.ones((5,)), mx.nd.ones((5,))), "hist_edges"),
        (lambda: C.calibrate_entropy(mx.nd.ones((5,)), mx.nd.ones((6,))), "at least 255"),
    ],
)
def test_attributes_that_do_not_fit_are_refused(call, word):
    with pytest.raises(OpError, match=word):
        call()
