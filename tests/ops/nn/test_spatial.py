import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ShapeError
from helpers.numeric import check_gradients, gradients, run, shapes

rng = np.random.RandomState(6)
AFFINE = {"transform_type": "affine", "target_shape": (4, 5)}
TRANSFORMER = {**AFFINE, "sampler_type": "bilinear"}
IDENTITY = np.array([[1.0, 0, 0, 0, 1, 0]] * 2)


@pytest.mark.parametrize(("dtype", "tolerance"), [("f2", 1e-2), ("f4", 1e-5), ("f8", 1e-12)])
def test_the_identity_gives_the_image(dtype, tolerance):
    image = rng.randn(2, 3, 4, 5).astype(dtype)
    out = run("SpatialTransformer", image, IDENTITY.astype(dtype), **TRANSFORMER)
    assert out.dtype == dtype
    np.testing.assert_allclose(out, image, rtol=tolerance, atol=tolerance)
    grid = run("GridGenerator", np.zeros((2, 2, 4, 5), dtype), transform_type="warp")
    np.testing.assert_allclose(run("BilinearSampler", image, grid), image, rtol=tolerance, atol=tolerance)


def test_a_grid_one_pixel_high_lies_at_the_upper_border():
    flow = run("GridGenerator", np.ones((1, 2, 1, 3)), transform_type="warp")
    np.testing.assert_array_equal(flow, [[[[0, 1, 2]], [[-1, -1, -1]]]])
    affine = run("GridGenerator", IDENTITY[:1], **{**AFFINE, "target_shape": (1, 3)})
    np.testing.assert_array_equal(affine, [[[[-1, 0, 1]], [[-1, -1, -1]]]])
    (grad,) = gradients("GridGenerator", np.ones((1, 2, 1, 3)), transform_type="warp")
    np.testing.assert_array_equal(grad, [[[[1, 1, 1]], [[0, 0, 0]]]])


def test_a_flow_of_whole_pixels_shifts_the_image():
    image = rng.randn(1, 1, 3, 4)
    flow = np.zeros((1, 2, 3, 4))
    flow[:, 0] = 1
    out = run("BilinearSampler", image, run("GridGenerator", flow, transform_type="warp"))
    np.testing.assert_allclose(out[..., :-1], image[..., 1:], atol=1e-12)
    np.testing.assert_allclose(out[..., -1], 0, atol=1e-12)


def test_beyond_the_image_lie_zeros():
    out = run("BilinearSampler", np.ones((1, 1, 3, 3)), np.full((1, 2, 1, 1), 3.0))
    assert out.item() == 0


def test_partial_shapes():
    assert shapes("GridGenerator", (0, 6), **AFFINE)[1] == [(0, 2, 4, 5)]
    assert shapes("GridGenerator", None, **AFFINE)[0] == [(0, 6)]
    assert shapes("GridGenerator", (3, 2, 0, 4), transform_type="warp")[1] == [(3, 2, 0, 4)]
    assert shapes("BilinearSampler", (2, 3, 4, 5), (0, 2, 7, 0)) == (
        [(2, 3, 4, 5), (2, 2, 7, 0)],
        [(2, 3, 7, 0)],
    )
    assert shapes("SpatialTransformer", (2, 3, 4, 5), None, **TRANSFORMER) == (
        [(2, 3, 4, 5), (2, 6)],
        [(2, 3, 4, 5)],
    )


@pytest.mark.parametrize(
    ("name", "ins", "attrs", "message"),
    [
        ("GridGenerator", [(1, 6)], {"transform_type": "affine"}, "target_shape is"),
        ("GridGenerator", [(1, 5)], AFFINE, "data has shape"),
        ("GridGenerator", [(1, 3, 4, 4)], {"transform_type": "warp"}, "data has shape"),
        ("BilinearSampler", [(1, 2, 3, 3), (2, 2, 3, 3)], {}, "grid has shape"),
        ("SpatialTransformer", [(1, 2, 3, 3), (1, 5)], TRANSFORMER, "loc has shape"),
        (
            "SpatialTransformer",
            [(1, 2, 3, 3), (1, 6)],
            {**TRANSFORMER, "target_shape": (0, 3)},
            "target_shape is",
        ),
    ],
)
def test_refusals(name, ins, attrs, message):
    with pytest.raises(ShapeError, match=message):
        shapes(name, *ins, **attrs)


IMAGE = np.arange(2 * 5 * 6, dtype="f4").reshape(1, 2, 5, 6)


def test_all_forms():
    data = mx.nd.array(IMAGE)
    like = mx.nd.zeros((4, 1, 2, 3))
    np.testing.assert_array_equal(mx.nd.Crop(data, like).asnumpy(), IMAGE[:, :, :2, :3])
    np.testing.assert_array_equal(mx.nd.Crop(data, like, offset=(3, 2)).asnumpy(), IMAGE[:, :, 3:, 2:5])
    np.testing.assert_array_equal(mx.nd.Crop(data, like, center_crop=True).asnumpy(), IMAGE[:, :, 1:3, 1:4])
    np.testing.assert_array_equal(mx.nd.Crop(data, num_args=1, h_w=(5, 1)).asnumpy(), IMAGE[:, :, :, :1])


def test_only_the_first_input_gets_a_gradient():
    symbol = mx.sym.Crop(mx.sym.Variable("data"), mx.sym.Variable("like"), offset=(1, 1))
    bound = symbol.simple_bind(mx.cpu(), data=(1, 1, 3, 3), like=(1, 2, 2, 1))
    bound.grad_dict["like"][:] = 5
    bound.forward(is_train=True)
    bound.backward(mx.nd.ones((1, 1, 2, 1)))
    want = np.zeros((3, 3))
    want[1:, 1] = 1
    np.testing.assert_array_equal(bound.grad_dict["data"].asnumpy()[0, 0], want)
    assert not bound.grad_dict["like"].asnumpy().any()


def test_partial_shapes_of_crop():
    assert shapes("Crop", (0, 3, 5, 0), num_args=1, h_w=(2, 2))[1] == [(0, 3, 2, 2)]
    assert shapes("Crop", (0, 3, 5, 6), None, num_args=2)[1] == [(0, 3, 0, 0)]
    assert shapes("Crop", (2, 3, 5, 6), (0, 0, 2, 0), num_args=2)[1] == [(2, 3, 2, 0)]


@pytest.mark.parametrize(
    ("ins", "attrs", "message"),
    [
        ([(1, 1, 5, 5)], {"h_w": (6, 1)}, r"size \(6, 1\), .* within \(5, 5\)"),
        ([(1, 1, 5, 5)], {}, "h_w is"),
        ([(1, 1, 5, 5)], {"h_w": (2, 2), "offset": (4, 0)}, r"offset is \(4, 0\)"),
        ([(1, 1, 5, 5), (1, 1, 2, 2)], {"offset": (0, -1)}, r"offset is \(0, -1\)"),
        ([(1, 1, 5, 5), (1, 2, 2)], {}, "the second input has shape"),
        ([(1, 5, 5)], {"h_w": (1, 1)}, "data has shape"),
    ],
)
def test_refusals_of_crop(ins, attrs, message):
    with pytest.raises(ShapeError, match=message):
        shapes("Crop", *ins, num_args=len(ins), **attrs)


rng_of_upsample = np.random.RandomState(10)


def repeated(x, factor):
    return np.kron(x, np.ones((1, 1, factor, factor)))


def test_nearest():
    data = rng_of_upsample.randn(2, 3, 2, 3)
    attrs = {"scale": 3, "sample_type": "nearest", "num_args": 1}
    np.testing.assert_array_equal(run("UpSampling", data, **attrs), repeated(data, 3))
    check_gradients("UpSampling", data[:1, :1], **attrs)
    assert shapes("UpSampling", data.shape, **attrs)[1] == [(2, 3, 6, 9)]


def test_several_inputs():
    small, large = rng_of_upsample.randn(2, 3, 2, 2), rng_of_upsample.randn(2, 3, 4, 4)
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
