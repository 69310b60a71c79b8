"""Image operators: random choices and gradients; values: cases/image.py."""

import numpy as np
import pytest

import dpmodule as mx

IMAGE = np.random.RandomState(4).randint(0, 256, (5, 7, 3)).astype("u1")
GREY = IMAGE[:, :, :1]
HALF = {"min_factor": 0.5, "max_factor": 0.5}
nd = mx.nd.image


def image(dtype="uint8"):
    return mx.nd.array(IMAGE, dtype=dtype)


@pytest.mark.parametrize(("axis", "name"), [(0, "random_flip_top_bottom"), (1, "random_flip_left_right")])
def test_random_flips_flip_about_half_of_the_time(axis, name):
    mx.random.seed(3)
    found = [getattr(nd, name)(image()).asnumpy() for _ in range(100)]
    flips = sum(np.array_equal(each, np.flip(IMAGE, axis)) for each in found)
    assert flips + sum(np.array_equal(each, IMAGE) for each in found) == 100
    assert 30 < flips < 70


def test_factors_are_drawn_between_the_limits():
    mx.random.seed(1)
    white = mx.nd.full((2, 2, 3), 100.0)
    limits = {"min_factor": 0.5, "max_factor": 1.5}
    drawn = [nd.random_brightness(white, **limits).asnumpy()[0, 0, 0] for _ in range(50)]
    assert 50 <= min(drawn) < 70
    assert 130 < max(drawn) <= 150
    found = [nd.random_color_jitter(white, 0.25, 0, 0, 0).asnumpy() for _ in range(20)]
    assert len({x[0, 0, 0] for x in found}) > 10
    assert all(75 <= x.min() <= x.max() <= 125 for x in found)
    turned = nd.random_color_jitter(image(), 0, 0.25, 0.25, 0.25).asnumpy()
    assert turned.shape == IMAGE.shape
    assert (turned != IMAGE).mean() > 0.5


def test_one_channel_has_no_color():
    calls = {"random_hue": HALF, "random_saturation": HALF, "adjust_lighting": {"alpha": (1, 2, 3)}}
    for name, attrs in {**calls, "random_lighting": {}}.items():
        found = getattr(nd, name)(mx.nd.array(GREY, dtype="u1"), **attrs).asnumpy()
        np.testing.assert_array_equal(found, GREY, name)


@pytest.mark.parametrize(("name", "attrs"), [("flip_left_right", {}), ("random_contrast", HALF)])
def test_gradients_pass_straight_through(name, attrs):
    symbol, grad = getattr(mx.sym.image, name)(mx.sym.var("data"), **attrs), mx.nd.zeros(IMAGE.shape)
    bound = symbol.bind(mx.cpu(), {"data": image("float32")}, {"data": grad})
    bound.forward(is_train=True)
    head = np.arange(IMAGE.size, dtype="f4").reshape(IMAGE.shape)
    bound.backward([mx.nd.array(head)])
    np.testing.assert_array_equal(grad.asnumpy(), head)


def test_keep_ratio_brings_the_shorter_side():
    assert nd.resize(image(), size=10, keep_ratio=True).shape == (10, 14, 3)
    assert nd.resize(mx.nd.stack(image(), image()), size=3).shape == (2, 3, 3, 3)
    _, (shape,), _ = mx.sym.image.resize(mx.sym.var("x"), size=(4, 6)).infer_shape(x=(5, 7, 3))
    assert shape == (6, 4, 3)
