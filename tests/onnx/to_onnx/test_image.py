"""What is done to images before a network sees them, to OpenCV's numbers."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.onnx.to_onnx.call import Untranslatable
from helpers.onnx_runs import check_dynamic, check_same, exported

rng = np.random.RandomState(5)
X = mx.sym.Variable("x")
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
    check_same(mx.symbol.symbol.face("_cvcopyMakeBorder")(X, **attrs), {"x": pixels(5, 7, 3)})


@pytest.mark.parametrize("flip", ["flip_left_right", "flip_top_bottom"])
def test_flips_of_any_size(flip):
    symbol = getattr(mx.sym.image, flip)(X)
    check_dynamic(symbol, {"x": pixels(5, 7, 3)}, {"x": pixels(2, 9, 3)}, {"x": {0: "height", 1: "width"}})


def test_lighting():
    symbol = mx.sym.image.adjust_lighting(X, alpha=(0.5, -0.25, 1))
    check_same(symbol, {"x": pixels(5, 7, 3)})
    check_same(symbol, {"x": pixels(5, 7, 1)})
    check_same(symbol, {"x": rng.rand(5, 7, 3).astype("f4")})
