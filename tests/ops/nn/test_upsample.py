import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ShapeError
from helpers.numeric import check_gradients, run, shapes

rng = np.random.RandomState(10)


def repeated(x, factor):
    return np.kron(x, np.ones((1, 1, factor, factor)))


def test_nearest():
    data = rng.randn(2, 3, 2, 3)
    attrs = {"scale": 3, "sample_type": "nearest", "num_args": 1}
    np.testing.assert_array_equal(run("UpSampling", data, **attrs), repeated(data, 3))
    check_gradients("UpSampling", data[:1, :1], **attrs)
    assert shapes("UpSampling", data.shape, **attrs)[1] == [(2, 3, 6, 9)]


def test_several_inputs():
    small, large = rng.randn(2, 3, 2, 2), rng.randn(2, 3, 4, 4)
    attrs = {"scale": 4, "sample_type": "nearest", "num_args": 2}
    both = [repeated(small, 4), repeated(large, 2)]
    out = run("UpSampling", small, large, multi_input_mode="sum", **attrs)
    np.testing.assert_allclose(out, sum(both))
    np.testing.assert_array_equal(run("UpSampling", small, large, **attrs), np.concatenate(both, 1))
    assert shapes("UpSampling", small.shape, large.shape, **attrs)[1] == [(2, 6, 8, 8)]


def test_bilinear_of_a_constant_is_constant_inside():
    scale, size = 2, 4
    centre = scale - 0.5
    line = 1 - np.abs((np.arange(size) - centre) / scale)
    weight = np.broadcast_to(np.outer(line, line), (3, 1, size, size)).copy()
    attrs = {"scale": scale, "sample_type": "bilinear", "num_filter": 3, "num_args": 2}
    out = run("UpSampling", np.ones((1, 3, 4, 4)), weight, **attrs)
    assert out.shape == (1, 3, 8, 8)
    np.testing.assert_allclose(out[:, :, 1:-1, 1:-1], 1.0)
    assert shapes("UpSampling", (1, 3, 4, 4), None, **attrs) == ([(1, 3, 4, 4), (3, 1, 4, 4)], [(1, 3, 8, 8)])


def test_images_only():
    with pytest.raises(ShapeError, match="expected 4 axes"):
        shapes("UpSampling", (2, 3, 4), scale=2, sample_type="nearest", num_args=1)


def test_unknown_dimensions_stay_unknown():
    attrs = {"scale": 3, "sample_type": "nearest", "num_args": 1}
    assert shapes("UpSampling", (0, 2, 4, 0), **attrs)[1] == [(0, 2, 12, 0)]
    two = {**attrs, "num_args": 2}
    assert shapes("UpSampling", (2, 0, 4, 5), (2, 3, 4, 5), **two)[1] == [(2, 0, 12, 15)]
    bilinear = {**attrs, "sample_type": "bilinear", "num_args": 2}
    found = shapes("UpSampling", (0, 2, 4, 0), None, outs=[(5, 2, 12, 0)], **bilinear)
    assert found == ([(5, 2, 4, 0), (2, 1, 5, 5)], [(5, 2, 12, 0)])


def test_bilinear_has_a_weight_that_is_made_when_missing():
    data = mx.sym.var("data")
    for attrs in ({}, {"num_args": 1}, {"num_args": 2}):
        symbol = mx.sym.UpSampling(data, scale=2, sample_type="bilinear", num_filter=3, name="up", **attrs)
        assert symbol.list_arguments() == ["data", "up_weight"]
        assert symbol.infer_shape(data=(1, 3, 4, 4))[0] == [(1, 3, 4, 4), (3, 1, 4, 4)]
        assert mx.sym.load_json(symbol.tojson()).list_arguments() == ["data", "up_weight"]


def test_bilinear_inputs_by_name_and_position():
    x, weight = mx.nd.ones((1, 2, 3, 3)), mx.nd.ones((2, 1, 4, 4))
    attrs = {"scale": 2, "sample_type": "bilinear", "num_filter": 2}
    one = mx.nd.UpSampling(x, weight, **attrs)
    other = mx.nd.UpSampling(data=x, weight=weight, num_args=1, **attrs)
    np.testing.assert_array_equal(one.asnumpy(), other.asnumpy())
    symbol = mx.sym.UpSampling(data=mx.sym.var("x"), weight=mx.sym.var("w"), **attrs)
    assert symbol.list_arguments() == ["x", "w"]
