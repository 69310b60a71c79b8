"""Windows as rows and as columns; the extension's windows against those of torch."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from dpmodule.ops.nn.unfold import WindowGrid, unfold
from helpers.arrays import randn
from helpers.op_case import gradients_test, rules_test, run, shapes

LAYOUTS = {
    "NCHW": lambda x: x,
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "turned": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "apart": lambda x: torch.stack([x, x], -1)[..., 0],
}
GRID = WindowGrid((3, 3), (1, 2), (1, 1), (1, 1))


def by_torch(images, grid):
    columns = F.unfold(images, grid.kernel, grid.dilate, grid.pad, grid.stride)
    return columns.transpose(1, 2).reshape(-1, columns.shape[1])


def pairs(least, most):
    return st.tuples(st.integers(least, most), st.integers(least, most))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.tuples(*[st.integers(1, 5)] * 2, *[st.integers(1, 9)] * 2),
    st.builds(WindowGrid, kernel=pairs(1, 4), stride=pairs(1, 3), pad=pairs(0, 3), dilate=pairs(1, 3)),
    st.sampled_from(sorted(LAYOUTS)),
)
def test_windows_and_gradients_are_those_of_torch(shape, grid, layout):
    assume(min(grid.counts(shape[2:])) > 0)
    images = LAYOUTS[layout](torch.arange(torch.Size(shape).numel(), dtype=torch.float32).view(shape))
    found = []
    for way in (unfold, by_torch):
        leaf = images.detach().requires_grad_()
        rows = way(leaf, grid)
        weights = torch.linspace(-1, 1, rows.numel()).view_as(rows)
        found += [rows.detach(), torch.autograd.grad((rows * weights).sum(), leaf)[0]]
    assert torch.equal(found[0], found[2])
    torch.testing.assert_close(found[1], found[3], rtol=1e-5, atol=1e-5)


def test_gradients_of_gradients_and_of_each_of_a_batch():
    found = []
    for way in (unfold, by_torch):
        images = torch.linspace(-1, 1, 40).view(1, 2, 4, 5).requires_grad_()
        (first,) = torch.autograd.grad((way(images, GRID) ** 3).sum(), images, create_graph=True)
        found += torch.autograd.grad((first**2).sum(), images)
    torch.testing.assert_close(*found)
    images = torch.randn(3, 2, 3, 4, 5)
    each = torch.vmap(lambda one: unfold(one, GRID))(images)
    assert torch.equal(each, torch.stack([by_torch(one, GRID) for one in images]))


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
FLAT = np.zeros((1, 1, 3, 3))
test_the_slope_at_a_tie_is_one = gradients_test(
    ("Correlation", (FLAT, FLAT), {"max_displacement": 0, "is_multiply": False}, [FLAT + 1, FLAT - 1])
)
