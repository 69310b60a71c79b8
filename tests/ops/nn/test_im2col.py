import numpy as np
import pytest

from dpmodule.base import ShapeError
from helpers.numeric import run, shapes

rng = np.random.RandomState(2)
ATTRS = {"kernel": (3, 2, 2), "stride": (2, 1, 2), "dilate": (1, 2, 1), "pad": (1, 0, 1)}


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolution_is_a_product_with_the_columns(rank):
    attrs = {key: value[:rank] for key, value in ATTRS.items()}
    data, weight = rng.randn(2, 3, *(6, 5, 4)[:rank]), rng.randn(4, 3, *attrs["kernel"])
    want = run("Convolution", data, weight, num_filter=4, no_bias=True, **attrs)
    columns = run("im2col", data, **attrs)
    np.testing.assert_allclose(np.matmul(weight.reshape(4, -1), columns).reshape(want.shape), want, rtol=1e-9)
    assert shapes("im2col", data.shape, **attrs)[1] == [columns.shape]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_col2im_is_the_transpose(rank):
    attrs = {key: value[:rank] for key, value in ATTRS.items()}
    size = (6, 5, 4)[:rank]
    data = rng.randn(2, 3, *size)
    columns = run("im2col", data, **attrs)
    other = rng.randn(*columns.shape)
    image = run("col2im", other, output_size=size, **attrs)
    assert image.shape == data.shape
    assert (columns * other).sum() == pytest.approx((data * image).sum())
    assert shapes("col2im", other.shape, output_size=size, **attrs)[1] == [image.shape]


def test_partial_shapes():
    assert shapes("im2col", (0, 2, 4, 0), kernel=(2, 2)) == ([(0, 2, 4, 0)], [(0, 8, 0)])
    found = shapes("col2im", (0, 8, 0), output_size=(3, 3), kernel=(2, 2))
    assert found == ([(0, 8, 4)], [(0, 2, 3, 3)])


@pytest.mark.parametrize(
    ("name", "data", "attrs", "message"),
    [
        ("im2col", (1, 1, 2, 2), {"kernel": (3, 3)}, "exceeds the input"),
        ("im2col", (1, 1, 4), {"kernel": (2, 2)}, "one per axis"),
        ("col2im", (1, 4, 5), {"kernel": (2, 2), "output_size": (3, 3)}, "expected"),
        ("col2im", (1, 5, 4), {"kernel": (2, 2), "output_size": (3, 3)}, "multiple of 4"),
        ("col2im", (4, 4), {"kernel": (2, 2), "output_size": (3, 3)}, "3 axes"),
    ],
)
def test_refusals(name, data, attrs, message):
    with pytest.raises(ShapeError, match=message):
        shapes(name, data, **attrs)
