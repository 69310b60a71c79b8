import numpy as np
import pytest

import dpmodule as mx
from helpers.arrays import f8, randn
from helpers.op_case import gradients_test, rules_test, run, slopes_test, values_test

AFFINE = {"transform_type": "affine", "target_shape": (4, 5)}
TRANSFORMER, WARP = {**AFFINE, "sampler_type": "bilinear"}, {"transform_type": "warp"}
IDENTITY = np.array([[1.0, 0, 0, 0, 1, 0]] * 2)
SMALL, LARGE = randn(2, 3, 2, 2), randn(2, 3, 4, 4)
NEAREST = {"scale": 4, "sample_type": "nearest"}
BILINEAR = {"scale": 3, "sample_type": "bilinear", "num_args": 2}


def repeated(x, factor):
    return np.kron(x, np.ones((1, 1, factor, factor)))


@pytest.mark.parametrize(("dtype", "tolerance"), [("f2", 1e-2), ("f4", 1e-5), ("f8", 1e-12)])
def test_the_identity_gives_the_image(dtype, tolerance):
    image = randn(2, 3, 4, 5).astype(dtype)
    out = run("SpatialTransformer", image, IDENTITY.astype(dtype), **TRANSFORMER)
    assert out.dtype == dtype
    np.testing.assert_allclose(out, image, rtol=tolerance, atol=tolerance)
    grid = run("GridGenerator", np.zeros((2, 2, 4, 5), dtype), **WARP)
    np.testing.assert_allclose(run("BilinearSampler", image, grid), image, rtol=tolerance, atol=tolerance)


test_values = values_test(
    # a grid one pixel high lies at the upper border
    ("GridGenerator", (np.ones((1, 2, 1, 3)),), WARP, f8([[[[0, 1, 2]], [[-1, -1, -1]]]])),
    ("GridGenerator", (IDENTITY[:1],), {**AFFINE, "target_shape": (1, 3)}, f8([[[[-1, 0, 1]], [[-1, -1, -1]]]])),
    ("BilinearSampler", (np.ones((1, 1, 3, 3)), np.full((1, 2, 1, 1), 3.0)), {}, np.zeros((1, 1, 1, 1))),
    ("UpSampling", (SMALL, LARGE), NEAREST, np.concatenate([repeated(SMALL, 4), repeated(LARGE, 2)], 1)),
    ("UpSampling", (SMALL, LARGE), {**NEAREST, "multi_input_mode": "sum"}, repeated(SMALL, 4) + repeated(LARGE, 2)),
)  # fmt: skip
test_gradients = gradients_test(
    ("GridGenerator", (np.ones((1, 2, 1, 3)),), WARP, [[[[[1, 1, 1]], [[0, 0, 0]]]]])
)
test_slopes = slopes_test(("UpSampling", (SMALL[:1, :1],), NEAREST))
test_shapes = rules_test(
    ("GridGenerator", [(0, 6)], AFFINE, None, [(0, 2, 4, 5)]),
    ("GridGenerator", [(3, 2, 0, 4)], WARP, None, [(3, 2, 0, 4)]),
    ("BilinearSampler", [(2, 3, 4, 5), (0, 2, 7, 0)], {}, [(2, 3, 4, 5), (2, 2, 7, 0)], [(2, 3, 7, 0)]),
    ("SpatialTransformer", [(2, 3, 4, 5), None], TRANSFORMER, [(2, 3, 4, 5), (2, 6)], [(2, 3, 4, 5)]),
    ("Crop", [(0, 3, 5, 0)], {"h_w": (2, 2)}, None, [(0, 3, 2, 2)]),
    ("Crop", [(2, 3, 5, 6), (0, 0, 2, 0)], {}, None, [(2, 3, 2, 0)]),
    ("UpSampling", [(0, 2, 4, 0)], NEAREST, None, [(0, 2, 16, 0)]),
    ("UpSampling", [(2, 0, 4, 5), (2, 3, 4, 5)], NEAREST, None, [(2, 0, 16, 20)]),
    ("UpSampling", [(0, 2, 4, 0), None], BILINEAR, [(5, 2, 4, 0), (2, 1, 5, 5)], [(5, 2, 12, 0)], [(5, 2, 12, 0)]),
)  # fmt: skip


def test_upsampling_keeps_types_and_empty_axes():
    whole = [x.astype("i4") for x in (8 * SMALL, 8 * LARGE)]
    out = run("UpSampling", *whole, **NEAREST, multi_input_mode="sum")
    assert out.dtype == "i4"
    np.testing.assert_array_equal(out, repeated(whole[0], 4) + repeated(whole[1], 2))
    assert run("UpSampling", SMALL[:, :, :0], **NEAREST).shape == (2, 3, 0, 8)


def test_bilinear_has_a_weight_that_is_made_when_missing():
    for attrs in ({}, {"num_args": 1}, {"num_args": 2}):
        attrs |= {"scale": 2, "sample_type": "bilinear", "num_filter": 3, "name": "up"}
        symbol = mx.sym.UpSampling(mx.sym.var("data"), **attrs)
        for each in (symbol, mx.sym.load_json(symbol.tojson())):
            assert each.list_arguments() == ["data", "up_weight"]
            assert each.infer_shape(data=(1, 3, 4, 4))[0] == [(1, 3, 4, 4), (3, 1, 4, 4)]
