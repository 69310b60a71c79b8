"""Image operators: random choices, gradients, types, and what they refuse."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import OpError, ShapeError

IMAGE = np.random.RandomState(4).randint(0, 256, (5, 7, 3)).astype("u1")


def image(dtype="uint8"):
    return mx.nd.array(IMAGE, dtype=dtype)


@pytest.mark.parametrize("axis", [0, 1])
def test_random_flips_flip_about_half_of_the_time(axis):
    mx.random.seed(3)
    name = ("random_flip_top_bottom", "random_flip_left_right")[axis]
    flipped = np.flip(IMAGE, axis)
    count = 0
    for _ in range(100):
        found = getattr(mx.nd.image, name)(image()).asnumpy()
        assert np.array_equal(found, IMAGE) or np.array_equal(found, flipped)
        count += np.array_equal(found, flipped)
    assert 30 < count < 70


def test_factors_are_drawn_between_the_limits():
    mx.random.seed(1)
    white = mx.nd.full((2, 2, 3), 100.0)
    drawn = [
        mx.nd.image.random_brightness(white, min_factor=0.5, max_factor=1.5).asnumpy()[0, 0, 0]
        for _ in range(50)
    ]
    assert 50 <= min(drawn) < 70
    assert 130 < max(drawn) <= 150


def test_jitter_stays_within_its_limits_and_varies():
    mx.random.seed(1)
    white = mx.nd.full((2, 2, 3), 100.0)
    found = [mx.nd.image.random_color_jitter(white, 0.25, 0, 0, 0).asnumpy() for _ in range(20)]
    assert len({x[0, 0, 0] for x in found}) > 10
    assert all(75 <= x.min() <= x.max() <= 125 for x in found)
    turned = mx.nd.image.random_color_jitter(image(), 0, 0.25, 0.25, 0.25).asnumpy()
    assert turned.shape == IMAGE.shape
    assert (turned != IMAGE).mean() > 0.5


def test_random_lighting_adds_one_color():
    mx.random.seed(1)
    black = mx.nd.zeros((2, 2, 3))
    found = mx.nd.image.random_lighting(black, alpha_std=1.0).asnumpy()
    assert found.std() > 0
    np.testing.assert_array_equal(found, np.broadcast_to(found[0, 0], found.shape))


def test_seeds_repeat():
    def drawn():
        mx.random.seed(8)
        return mx.nd.image.random_color_jitter(image(), 0.5, 0.5, 0.5, 0.5).asnumpy()

    np.testing.assert_array_equal(drawn(), drawn())


@pytest.mark.parametrize("name", ["random_hue", "random_saturation"])
def test_one_channel_has_no_color(name):
    grey = mx.nd.array(IMAGE[:, :, :1], dtype="uint8")
    found = getattr(mx.nd.image, name)(grey, min_factor=0.5, max_factor=0.5)
    np.testing.assert_array_equal(found.asnumpy(), IMAGE[:, :, :1])


def test_lighting_leaves_one_channel_as_it_is():
    grey = mx.nd.array(IMAGE[:, :, :1])
    for found in (mx.nd.image.adjust_lighting(grey, alpha=(1, 2, 3)), mx.nd.image.random_lighting(grey)):
        np.testing.assert_array_equal(found.asnumpy(), grey.asnumpy())


def test_normalize_takes_its_own_default():
    given = mx.nd.array(IMAGE.transpose(2, 0, 1))
    np.testing.assert_array_equal(mx.nd.image.normalize(given).asnumpy(), given.asnumpy())
    np.testing.assert_array_equal(mx.nd.image.normalize(given, std=(2, 2, 2)).asnumpy(), given.asnumpy() / 2)


def test_gradients_pass_straight_through():
    for name, attrs in [("flip_left_right", {}), ("random_contrast", {"min_factor": 0.5, "max_factor": 0.5})]:
        symbol = getattr(mx.sym.image, name)(mx.sym.var("data"), **attrs)
        grad = mx.nd.zeros(IMAGE.shape)
        bound = symbol.bind(mx.cpu(), {"data": image("float32")}, {"data": grad})
        bound.forward(is_train=True)
        head = np.arange(IMAGE.size, dtype="f4").reshape(IMAGE.shape)
        bound.backward([mx.nd.array(head)])
        np.testing.assert_array_equal(grad.asnumpy(), head)


def test_keep_ratio_brings_the_shorter_side():
    assert mx.nd.image.resize(image(), size=10, keep_ratio=True).shape == (10, 14, 3)
    assert mx.nd.image.resize(mx.nd.stack(image(), image()), size=3).shape == (2, 3, 3, 3)
    _, (shape,), _ = mx.sym.image.resize(mx.sym.var("x"), size=(4, 6)).infer_shape(x=(5, 7, 3))
    assert shape == (6, 4, 3)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32"])
def test_types_are_kept(dtype):
    found = mx.nd.image.random_brightness(image(dtype), min_factor=0.5, max_factor=0.5)
    assert found.dtype == np.dtype(dtype)
    want = IMAGE * 0.5
    np.testing.assert_allclose(found.asnumpy(), want if dtype != "int32" else np.trunc(want))
    assert mx.nd.image.to_tensor(image(dtype)).dtype == np.float32


def test_infers_tensors_of_bytes():
    symbol = mx.sym.image.normalize(mx.sym.image.to_tensor(mx.sym.var("x")), mean=(0.5,), std=(0.25,))
    assert symbol.infer_type(x="uint8")[1] == [np.float32]
    assert symbol.infer_shape(x=(2, 5, 7, 3))[1] == [(2, 3, 5, 7)]


@pytest.mark.parametrize(
    ("name", "shape", "attrs"),
    [
        ("flip_left_right", (2, 5, 7, 3), {}),
        ("flip_top_bottom", (5, 7, 4), {}),
        ("to_tensor", (5, 7), {}),
        ("crop", (5, 7, 3), {"x": 5, "y": 0, "width": 3, "height": 2}),
        ("normalize", (5, 7, 4), {"mean": (0.5,), "std": (1.0,)}),
    ],
)
def test_wrong_shapes_are_refused(name, shape, attrs):
    with pytest.raises(ShapeError, match=name):
        getattr(mx.nd.image, name)(mx.nd.zeros(shape), **attrs)


@pytest.mark.parametrize(
    ("name", "attrs", "word"),
    [
        ("resize", {"size": (1, 2, 3)}, "size"),
        ("crop", {"x": -1, "y": 0, "width": 3, "height": 2}, "x is -1"),
        ("adjust_lighting", {"alpha": (1.0,)}, "alpha"),
    ],
)
def test_wrong_attributes_are_refused(name, attrs, word):
    with pytest.raises(OpError, match=word):
        getattr(mx.nd.image, name)(image(), **attrs)
