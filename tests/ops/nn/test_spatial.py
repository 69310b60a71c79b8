import numpy as np
import pytest

from dpmodule.base import ShapeError
from helpers.numeric import gradients, run, shapes

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
