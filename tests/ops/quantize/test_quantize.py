"""Quantization beyond the recorded calls: there and back, bytes, what is quantized already."""

import numpy as np
import pytest

import dpmodule as mx

C = mx.nd.contrib


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


def test_asymmetric_quantization_of_bytes():
    for given, *wanted in ((whole([-128, 0, 127]), [0, 128, 255], 1, 128), (whole([3], "uint8"), [3], 1, 0)):
        data, scale, shift = C.quantize_asym(given)
        assert [data.asnumpy().tolist(), scale.asscalar(), shift.asscalar()] == wanted
