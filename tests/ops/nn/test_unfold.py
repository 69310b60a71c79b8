"""Windows as rows and as columns; the extension's windows against those of torch."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from dpmodule import native
from dpmodule.ops.nn.unfold import WindowGrid, can_convolve_rows, convolve_rows
from helpers.arrays import randn
from helpers.op_case import gradients_test, rules_test, run, shapes

LAYOUTS = {
    "NCHW": lambda x: x,
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "turned": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "apart": lambda x: torch.stack([x, x], -1)[..., 0],
}
GRID = WindowGrid((3, 3), (1, 2), (1, 1), (1, 1))
needs_kernels = pytest.mark.skipif(not hasattr(native.core, "unfold"), reason="there is no extension")


def by_torch(images, weight, bias, grid):
    return F.conv2d(images, weight, bias, grid.stride, grid.pad, grid.dilate)


def pairs(least, most):
    return st.tuples(st.integers(least, most), st.integers(least, most))


def numbers(*shape):
    return torch.linspace(-1, 1, torch.Size(shape).numel(), dtype=torch.float32).view(shape)


@needs_kernels
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.tuples(*[st.integers(1, 5), st.integers(1, 20)], *[st.integers(1, 9)] * 2),
    st.integers(1, 9),
    st.booleans(),
    st.builds(WindowGrid, kernel=pairs(1, 4), stride=pairs(1, 3), pad=pairs(0, 3), dilate=pairs(1, 3)),
    st.sampled_from(sorted(LAYOUTS)),
)
def test_convolutions_of_rows_are_those_of_torch(shape, filters, has_bias, grid, layout):
    assume(min(grid.counts(shape[2:])) > 0)
    tensors = [LAYOUTS[layout](numbers(*shape)), numbers(filters, shape[1], *grid.kernel)]
    tensors += [numbers(filters)] if has_bias else []
    found = []
    for way in (convolve_rows, by_torch):
        images, weight, *bias = leaves = [each.detach().requires_grad_() for each in tensors]
        out = way(images, weight, bias[0] if bias else None, grid)
        found.append([out.detach(), *torch.autograd.grad(out, leaves, numbers(*out.shape).cos())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5 * float(other.abs().max()))
    assert found[0][2].is_contiguous()


@needs_kernels
def test_gradients_of_gradients_and_of_each_of_a_batch():
    found = []
    for way in (convolve_rows, by_torch):
        leaves = [numbers(1, 2, 4, 5).requires_grad_(), numbers(3, 2, 3, 3).requires_grad_()]
        first = torch.autograd.grad((way(*leaves, None, GRID) ** 3).sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum((each**2).sum() for each in first), leaves))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
    seen, weight = [], numbers(3, 2, 3, 3)
    torch.vmap(lambda one: seen.append(can_convolve_rows(one, weight, None)) or one)(numbers(3, 2, 2, 4, 5))
    assert seen == [False]


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
