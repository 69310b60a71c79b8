import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import MXNetError
from helpers.numeric import run, shapes

rng = np.random.RandomState(7)
RESIZE, POOL = "_contrib_BilinearResize2D", "_contrib_AdaptiveAvgPooling2D"


@pytest.mark.parametrize(
    ("attrs", "size"),
    [
        ({"height": 3, "width": 4}, (3, 4)),
        ({"scale_height": 1.7, "scale_width": 0.6}, (8, 4)),
        ({"scale_width": 3.0, "height": 2, "width": 9}, (2, 9)),
        ({"mode": "odd_scale", "scale_height": 1.7, "scale_width": 0.6}, (7, 4)),
        ({"mode": "to_even_down"}, (4, 6)),
        ({"mode": "to_even_up"}, (6, 8)),
        ({"mode": "to_odd_down"}, (5, 7)),
        ({"mode": "to_odd_up"}, (5, 7)),
        ({}, (1, 1)),
    ],
)
def test_sizes(attrs, size):
    """The sizes are those that MXNet 1.9.1 gives for images of 5 x 7."""
    image = rng.randn(2, 3, 5, 7)
    out = run(RESIZE, image, **attrs)
    assert out.shape == (2, 3, *size)
    assert shapes(RESIZE, image.shape, **attrs)[1] == [out.shape]


def test_an_unchanged_size_gives_the_image():
    image = rng.randn(1, 2, 4, 6)
    for corners in (True, False):
        np.testing.assert_allclose(run(RESIZE, image, mode="to_even_up", align_corners=corners), image)


def test_like_gets_no_gradient():
    symbol = mx.sym.contrib.BilinearResize2D(mx.sym.Variable("data"), mx.sym.Variable("like"), mode="like")
    bound = symbol.simple_bind(mx.cpu(), data=(1, 1, 3, 3), like=(1, 1, 5, 4))
    assert bound.forward(is_train=True)[0].shape == (1, 1, 5, 4)
    bound.backward(mx.nd.ones((1, 1, 5, 4)))
    assert bound.grad_dict["data"].asnumpy().sum() == pytest.approx(20)
    assert not bound.grad_dict["like"].asnumpy().any()


@pytest.mark.parametrize(
    ("size", "shape"), [((), (1, 1)), (1, (1, 1)), (2, (2, 2)), ((2,), (2, 2)), ((3, 4), (3, 4))]
)
def test_forms_of_output_size(size, shape):
    image = rng.randn(2, 3, 5, 7)
    out = run(POOL, image, output_size=size)
    assert out.shape == (2, 3, *shape)
    assert shapes(POOL, (0, 3, 0, 7), output_size=size)[1] == [(0, 3, *shape)]


def test_one_window_is_the_mean():
    image = rng.randn(2, 3, 5, 7)
    np.testing.assert_allclose(run(POOL, image), image.mean((2, 3), keepdims=True))


@pytest.mark.parametrize("name", [RESIZE, POOL])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_keeps_the_type(name, dtype):
    assert run(name, rng.randn(1, 1, 3, 3).astype(dtype)).dtype == dtype


@pytest.mark.parametrize(
    ("name", "ins", "attrs", "message"),
    [
        (RESIZE, [(1, 1, 4, 4)], {"scale_height": 2.0}, "expected both"),
        (RESIZE, [(1, 1, 4, 4)], {"mode": "odd_scale"}, "expected both"),
        (RESIZE, [(1, 1, 4, 4)], {"scale_height": 0.1, "scale_width": 1.0}, "expected positive sizes"),
        (RESIZE, [(1, 4, 4)], {}, "4 axes"),
        (RESIZE, [(1, 1, 4, 4), (4, 4)], {"mode": "like"}, "4 axes"),
        (RESIZE, [(1, 1, 4, 4)], {"height": 0}, "height"),
        (POOL, [(1, 4, 4)], {}, "4 axes"),
        (POOL, [(1, 1, 4, 4)], {"output_size": (1, 2, 3)}, "one or two positive numbers"),
        (POOL, [(1, 1, 4, 4)], {"output_size": 0}, "one or two positive numbers"),
    ],
)
def test_refusals(name, ins, attrs, message):
    with pytest.raises(MXNetError, match=message):
        shapes(name, *ins, **attrs)
