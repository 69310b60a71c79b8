"""Images in ONNX: to OpenCV's numbers, cut, enlarged or read at other places."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError
from dpmodule.onnx.to_onnx.call import Untranslatable
from helpers.onnx_runs import check_dynamic, check_same, exported, our_outputs, runtime_outputs
from helpers.walk import walks

rng = np.random.RandomState(5)
X, Y = mx.sym.Variable("x"), mx.sym.Variable("y")
BATCH = {"x": {0: "batch"}}


def pixels(*shape):
    return rng.randint(0, 256, shape).astype("u1")


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_bytes_become_a_network_input(opset):
    symbol = mx.sym.image.resize(X, size=(9, 4))
    symbol = mx.sym.image.to_tensor(mx.sym.image.crop(symbol, x=2, y=1, width=6, height=3))
    symbol = mx.sym.image.normalize(symbol, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    check_dynamic(symbol, {"x": pixels(2, 5, 7, 3)}, {"x": pixels(5, 5, 7, 3)}, BATCH, opset=opset)


@pytest.mark.parametrize("size", [(3, 2), (14, 10), (7, 5), (4, 11), (2, 2)])
def test_bytes_are_resized_to_the_same_numbers(size):
    check_same(mx.sym.image.resize(X, size=size), {"x": pixels(5, 7, 3)}, rtol=0, atol=0)


SIZES = [(3, 2), (14, 11), (4, 3)]
METHODS = [(size, interp) for size in SIZES for interp in range(5) if interp != 3 or size[0] < 8]
"""Area is refused for what grows, see below."""


@pytest.mark.parametrize(("size", "interp"), METHODS)
def test_floating_pixels_by_every_method(size, interp):
    data = rng.rand(2, 6, 8, 3).astype("f4")
    check_same(mx.sym.image.resize(X, size=size, interp=interp), {"x": data})


def test_what_cannot_be_resized_exactly_says_why():
    with pytest.raises(Untranslatable, match="rounds 8-bit pixels as OpenCV does; use interp 0 or 1"):
        exported(mx.sym.image.resize(X, size=(3, 3), interp=2), {"x": pixels(5, 7, 3)})
    with pytest.raises(Untranslatable, match="area"):
        exported(mx.sym.image.resize(X, size=(9, 3), interp=3), {"x": rng.rand(5, 7, 3).astype("f4")})
    with pytest.raises(Untranslatable, match=r"dynamic \(height\)"):
        exported(mx.sym.image.resize(X, size=(3, 3)), {"x": pixels(5, 7, 3)}, dynamic={"x": {0: "height"}})


@pytest.mark.parametrize("kind", range(5))
def test_borders_of_every_kind(kind):
    attrs = {"top": 2, "bot": 1, "left": 3, "right": 0, "type": kind, "values": (10, 20, 30)}
    check_same(mx.symbol.symbol.op_function("_cvcopyMakeBorder")(X, **attrs), {"x": pixels(5, 7, 3)})


@pytest.mark.parametrize("flip", ["flip_left_right", "flip_top_bottom"])
def test_flips_of_any_size(flip):
    symbol = getattr(mx.sym.image, flip)(X)
    check_dynamic(symbol, {"x": pixels(5, 7, 3)}, {"x": pixels(2, 9, 3)}, {"x": {0: "height", 1: "width"}})


def test_lighting():
    symbol = mx.sym.image.adjust_lighting(X, alpha=(0.5, -0.25, 1))
    check_same(symbol, {"x": pixels(5, 7, 3)})
    check_same(symbol, {"x": pixels(5, 7, 1)})
    check_same(symbol, {"x": rng.rand(5, 7, 3).astype("f4")})


# cut, enlarged or read at other places

FULL = {0: "batch", 2: "height", 3: "width"}


def picture(*shape):
    return np.random.RandomState(0).rand(*shape).astype("float32")


ANY_SIZE = [
    (mx.sym.UpSampling(X, scale=3, sample_type="nearest"), {"x": (2, 3, 4, 5)}, {"x": (1, 3, 2, 7)}),
    (
        mx.sym.UpSampling(X, mx.sym.Variable("w"), scale=2, sample_type="bilinear", num_filter=3),
        {"x": (2, 3, 4, 5), "w": (3, 1, 4, 4)},
        {"x": (1, 3, 2, 7), "w": (3, 1, 4, 4)},
    ),
    (
        mx.sym.Crop(X, Y, offset=(1, 2)),
        {"x": (2, 3, 20, 20), "y": (2, 1, 4, 5)},
        {"x": (1, 3, 7, 7), "y": (1, 1, 6, 5)},
    ),
    (mx.sym.contrib.BilinearResize2D(X, height=5, width=3), {"x": (2, 3, 4, 5)}, {"x": (1, 3, 2, 7)}),
    (
        mx.sym.contrib.BilinearResize2D(X, Y, mode="like", align_corners=False),
        {"x": (2, 3, 4, 5), "y": (2, 1, 8, 9)},
        {"x": (1, 3, 2, 7), "y": (1, 1, 3, 12)},
    ),
    *(
        (
            mx.sym._internal._grid_sample(
                X,
                mx.sym.transpose(Y, axes=(0, 2, 3, 1)),
                mode=mode,
                padding_mode=padding,
                align_corners=align,
            ),
            {"x": (2, 3, 4, 5), "y": (2, 2, 3, 2)},
            {"x": (5, 3, 7, 4), "y": (5, 2, 4, 1)},
        )
        for mode, padding, align in (
            ("bilinear", "zeros", False),
            ("nearest", "border", True),
            ("bicubic", "reflection", False),
        )
    ),
    (
        mx.sym.BilinearSampler(X, mx.sym.GridGenerator(Y, transform_type="affine", target_shape=(3, 4))),
        {"x": (2, 3, 4, 5), "y": (2, 6)},
        {"x": (5, 3, 7, 4), "y": (5, 6)},
    ),
]


@walks(ANY_SIZE)
def test_pictures_of_any_size(symbol, shapes, others):
    dynamic = {
        name: {axis: f"{name}_{mark}" if axis else mark for axis, mark in FULL.items()} for name in ("x", "y")
    }
    dynamic = {
        name: {a: m for a, m in dynamic[name].items() if a < len(shapes[name])}
        for name in shapes
        if name != "w"
    }
    arrays = {name: picture(*shape) for name, shape in shapes.items()}
    model = exported(symbol, arrays, ["w"] if "w" in shapes else [], dynamic=dynamic)
    arrays = {name: picture(*shape) for name, shape in others.items()}
    (ours,), (theirs,) = our_outputs(symbol, arrays), runtime_outputs(model, arrays)
    np.testing.assert_allclose(theirs, ours, 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("symbol", "shapes", "dynamic", "reason"),
    [
        (
            mx.sym.BilinearSampler(X, Y),
            {"x": (1, 2, 3, 4), "y": (1, 2, 3, 4)},
            False,
            "from opset 16 on; the requested opset is 13",
        ),
        (
            mx.sym.contrib.ROIAlign(X, Y, pooled_size=(2, 2), spatial_scale=1.0, aligned=True),
            {"x": (1, 2, 5, 5), "y": (1, 5)},
            False,
            "by half a pixel from opset 16 on; the requested opset is 13",
        ),
        (mx.sym.Crop(X, center_crop=True, h_w=(2, 2)), {"x": (1, 2, 5, 5)}, {"x": FULL}, "dynamic"),
        (
            mx.sym.contrib.AdaptiveAvgPooling2D(X, output_size=(2, 2)),
            {"x": (1, 2, 5, 5)},
            {"x": FULL},
            "dynamic",
        ),
    ],
)
def test_what_is_refused(symbol, shapes, dynamic, reason):
    arrays = {name: picture(*shape) for name, shape in shapes.items()}
    with pytest.raises(ArgumentError, match=reason):
        exported(symbol, arrays, opset=13, dynamic=dynamic)


def test_regions_without_a_picture_are_zeros():
    symbol = mx.sym.contrib.ROIAlign(X, Y, pooled_size=(2, 3), spatial_scale=0.5, sample_ratio=2)
    rois = np.array([[0, 1, 1, 8, 7], [-1, 0, 0, 4, 4], [1, 2, 0, 9, 9]], "float32")
    arrays = {"x": picture(2, 3, 5, 6), "y": rois}
    model = exported(symbol, arrays, dynamic={"x": {0: "batch"}, "y": {0: "regions"}})
    (ours,), (theirs,) = our_outputs(symbol, arrays), runtime_outputs(model, arrays)
    np.testing.assert_allclose(theirs, ours, 1e-4, 1e-5)
    assert not theirs[1].any()
    assert theirs[0].any()
