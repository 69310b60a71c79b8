import numpy as np
import pytest

from dpmodule.base import MXNetError, ShapeError
from helpers.numeric import gradients, run, shapes

rng = np.random.RandomState(5)


def test_the_slope_at_a_tie_is_one():
    data = np.zeros((1, 1, 3, 3))
    one, other = gradients("Correlation", data, data, wanted=(0, 1), max_displacement=0, is_multiply=False)
    np.testing.assert_array_equal(one, np.ones_like(data))
    np.testing.assert_array_equal(other, -np.ones_like(data))


def test_equal_images_correlate_best_without_displacement():
    image = rng.randn(1, 8, 9, 9)
    out = run("Correlation", image, image, max_displacement=2, kernel_size=3, pad_size=3)
    assert out.shape == (1, 25, 9, 9)
    assert (out.argmax(1) == 12).mean() > 0.9


def test_partial_shapes():
    attrs = {"max_displacement": 1, "pad_size": 1}
    assert shapes("Correlation", (0, 3, 4, 0), None, **attrs) == (
        [(0, 3, 4, 0), (0, 3, 4, 0)],
        [(0, 9, 4, 0)],
    )


@pytest.mark.parametrize(
    ("attrs", "error", "message"),
    [
        ({"max_displacement": 3}, ShapeError, "raise pad_size"),
        ({"kernel_size": 2}, MXNetError, "odd number"),
        ({"stride1": 0}, MXNetError, "stride1"),
    ],
)
def test_refusals(attrs, error, message):
    with pytest.raises(error, match=message):
        shapes("Correlation", (1, 2, 5, 5), (1, 2, 5, 5), **attrs)
    with pytest.raises(ShapeError):
        shapes("Correlation", (1, 2, 5, 5), (1, 2, 5, 6))
