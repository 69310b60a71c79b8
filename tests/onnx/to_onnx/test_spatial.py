"""Images that are cut, enlarged or read at other places in ONNX, beyond the rows of the tables."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.onnx_runs import exported, our_outputs, runtime_outputs
from helpers.walk import walks

X, Y = mx.sym.Variable("x"), mx.sym.Variable("y")
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
            "from opset 16 on, and 13",
        ),
        (
            mx.sym.contrib.ROIAlign(X, Y, pooled_size=(2, 2), spatial_scale=1.0, aligned=True),
            {"x": (1, 2, 5, 5), "y": (1, 5)},
            False,
            "by half a pixel from opset 16 on, and 13",
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
