import numpy as np
import pytest

from helpers.arrays import randn
from helpers.op_case import gradients_test, rules_test, run, shapes

ATTRS = {"kernel": (3, 2, 2), "stride": (2, 1, 2), "dilate": (1, 2, 1), "pad": (1, 0, 1)}


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolution_is_a_product_with_the_columns(rank):
    attrs, size = {key: value[:rank] for key, value in ATTRS.items()}, (6, 5, 4)[:rank]
    data, weight = randn(2, 3, *size), randn(4, 3, *attrs["kernel"])
    want = run("Convolution", data, weight, num_filter=4, no_bias=True, **attrs)
    columns = run("im2col", data, **attrs)
    np.testing.assert_allclose(np.matmul(weight.reshape(4, -1), columns).reshape(want.shape), want, rtol=1e-9)
    assert shapes("im2col", [data.shape], **attrs)[1] == [columns.shape]
    other = randn(*columns.shape)  # col2im is the transpose
    image = run("col2im", other, output_size=size, **attrs)
    assert (columns * other).sum() == pytest.approx((data * image).sum())
    assert shapes("col2im", [other.shape], output_size=size, **attrs)[1] == [image.shape] == [data.shape]


test_shapes = rules_test(
    ("im2col", [(0, 2, 4, 0)], {"kernel": (2, 2)}, [(0, 2, 4, 0)], [(0, 8, 0)]),
    ("col2im", [(0, 8, 0)], {"output_size": (3, 3), "kernel": (2, 2)}, [(0, 8, 4)], [(0, 2, 3, 3)]),
    ("Correlation", [(0, 3, 4, 0), None], {"max_displacement": 1, "pad_size": 1}, None, [(0, 9, 4, 0)]),
)  # fmt: skip


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_no_columns_give_no_images(rank):
    kernel, size = (2,) * rank, (3,) * rank
    assert run("col2im", np.zeros((0, 3 * 2**rank, 2**rank)), output_size=size, kernel=kernel).shape == (
        0,
        3,
        *size,
    )


def test_a_correlation_of_integers_keeps_their_type():
    data = np.full((1, 2, 3, 3), 3, "i4")
    out = run("Correlation", data, data, max_displacement=0)
    assert out.dtype == "i4"
    np.testing.assert_array_equal(out, np.full((1, 1, 3, 3), 9))


FLAT = np.zeros((1, 1, 3, 3))
test_the_slope_at_a_tie_is_one = gradients_test(
    ("Correlation", (FLAT, FLAT), {"max_displacement": 0, "is_multiply": False}, [FLAT + 1, FLAT - 1])
)
