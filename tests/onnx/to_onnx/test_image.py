"""Images in ONNX: to OpenCV's numbers, cut, enlarged or read at other places."""

import numpy as np

import dpmodule as mx
from helpers.onnx_runs import check_dynamic, check_same
from helpers.walk import walks

rng = np.random.RandomState(5)
S = mx.sym
X, Y = S.Variable("x"), S.Variable("y")
SIZE = {0: "height", 1: "width"}


def pixels(*shape):
    return rng.randint(0, 256, shape).astype("u1")


def floats(*shape):
    return rng.rand(*shape).astype("f4")


def test_pixels():
    for size in ((3, 2), (14, 10), (7, 5), (4, 11), (2, 2)):
        check_same(S.image.resize(X, size=size), {"x": pixels(5, 7, 3)}, rtol=0, atol=0)
    for size in ((3, 2), (14, 11), (4, 3)):
        for interp in range(5):
            if interp != 3 or size[0] < 8:  # area is refused for larger sizes
                check_same(S.image.resize(X, size=size, interp=interp), {"x": floats(2, 6, 8, 3)})
    for kind in range(5):
        attrs = {"top": 2, "bot": 1, "left": 3, "right": 0, "type": kind, "values": (10, 20, 30)}
        check_same(mx.symbol.symbol.op_function("_cvcopyMakeBorder")(X, **attrs), {"x": pixels(5, 7, 3)})
    for flip in (S.image.flip_left_right, S.image.flip_top_bottom):
        check_dynamic(flip(X), {"x": pixels(5, 7, 3)}, {"x": pixels(2, 9, 3)}, {"x": SIZE})
    for data in (pixels(5, 7, 3), pixels(5, 7, 1), floats(5, 7, 3)):
        check_same(S.image.adjust_lighting(X, alpha=(0.5, -0.25, 1)), {"x": data})


FULL = {0: "batch", 2: "height", 3: "width"}


def grid_sample(mode, padding, align):
    grid = S.transpose(Y, axes=(0, 2, 3, 1))
    return S._internal._grid_sample(X, grid, mode=mode, padding_mode=padding, align_corners=align)


RESIZED = S.contrib.BilinearResize2D
LIKE = RESIZED(X, Y, mode="like", align_corners=False)
GRID = S.GridGenerator(Y, transform_type="affine", target_shape=(3, 4))
ANY_SIZE = [
    (S.UpSampling(X, scale=3, sample_type="nearest"), [(2, 3, 4, 5)], [(1, 3, 2, 7)]),
    (S.Crop(X, Y, offset=(1, 2)), [(2, 3, 20, 20), (2, 1, 4, 5)], [(1, 3, 7, 7), (1, 1, 6, 5)]),
    (RESIZED(X, height=5, width=3), [(2, 3, 4, 5)], [(1, 3, 2, 7)]),
    (LIKE, [(2, 3, 4, 5), (2, 1, 8, 9)], [(1, 3, 2, 7), (1, 1, 3, 12)]),
    *[
        (grid_sample(*options), [(2, 3, 4, 5), (2, 2, 3, 2)], [(5, 3, 7, 4), (5, 2, 4, 1)])
        for options in (("nearest", "border", True), ("bicubic", "reflection", False))
    ],
    (S.BilinearSampler(X, GRID), [(2, 3, 4, 5), (2, 6)], [(5, 3, 7, 4), (5, 6)]),
]


@walks(ANY_SIZE)
def test_pictures_of_any_size(symbol, shapes, others):
    first, other = ({k: floats(*shape) for k, shape in zip("xy", each)} for each in (shapes, others))
    names = {k: {a: m for a, m in FULL.items() if a < v.ndim} for k, v in first.items()}
    dynamic = {k: {a: f"{k}_{m}" if a else m for a, m in each.items()} for k, each in names.items()}
    check_dynamic(symbol, first, other, dynamic)
