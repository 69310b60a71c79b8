"""Windows as rows by the native extension against those of torch, which lays them out as columns."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from dpmodule import native
from dpmodule.base import MXNetError, ShapeError
from dpmodule.ops.nn import unfold as unfolding
from dpmodule.ops.nn.unfold import WindowGrid, unfold
from helpers.numeric import gradients, run, shapes

LAYOUTS = {
    "NCHW": lambda x: x,
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "turned": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "apart": lambda x: torch.stack([x, x], -1)[..., 0],
}


def by_torch(images, grid):
    columns = F.unfold(images, grid.kernel, grid.dilate, grid.pad, grid.stride)
    return columns.transpose(1, 2).reshape(-1, columns.shape[1])


def pairs(least, most):
    return st.tuples(st.integers(least, most), st.integers(least, most))


def both(images, grid):
    """Return rows and the gradient of the images by `unfold` and by torch."""
    found = []
    for way in (unfold, by_torch):
        leaf = images.detach().requires_grad_()
        rows = way(leaf, grid)
        weights = torch.linspace(-1, 1, rows.numel()).view_as(rows)
        found.append((rows.detach(), torch.autograd.grad((rows * weights).sum(), leaf)[0]))
    return found


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.tuples(*[st.integers(1, 5)] * 2, *[st.integers(1, 9)] * 2),
    st.builds(WindowGrid, kernel=pairs(1, 4), stride=pairs(1, 3), pad=pairs(0, 3), dilate=pairs(1, 3)),
    st.sampled_from(sorted(LAYOUTS)),
)
def test_windows_and_gradients_are_those_of_torch(shape, grid, layout):
    assume(min(grid.counts(shape[2:])) > 0)
    images = LAYOUTS[layout](torch.arange(torch.Size(shape).numel(), dtype=torch.float32).view(shape))
    (rows, gradient), (expected, its_gradient) = both(images, grid)
    assert torch.equal(rows, expected)
    torch.testing.assert_close(gradient, its_gradient, rtol=1e-5, atol=1e-5)


GRID = WindowGrid((3, 3), (1, 2), (1, 1), (1, 1))


@pytest.mark.skipif(native.core is None, reason="torch does it without the extension")
def test_the_extension_does_it(monkeypatch):
    monkeypatch.setattr(unfolding, "_by_torch", lambda *_: pytest.fail("rows were copied from columns"))
    assert unfold(torch.ones(2, 3, 4, 5), GRID).shape == (24, 27)


def test_without_the_extension_torch_does_it(monkeypatch):
    images = torch.randn(2, 3, 4, 5)
    expected = unfold(images, GRID)
    monkeypatch.setattr(unfolding, "kernels", lambda: None)
    assert torch.equal(unfold(images, GRID), expected)


def test_gradients_of_gradients():
    found = []
    for way in (unfold, by_torch):
        images = torch.linspace(-1, 1, 40).view(1, 2, 4, 5).requires_grad_()
        (first,) = torch.autograd.grad((way(images, GRID) ** 3).sum(), images, create_graph=True)
        found += torch.autograd.grad((first**2).sum(), images)
    torch.testing.assert_close(*found)


def test_each_of_a_batch_of_inputs_has_its_own_windows():
    images = torch.randn(3, 2, 3, 4, 5)
    found = torch.vmap(lambda each: unfold(each, GRID))(images)
    assert torch.equal(found, torch.stack([by_torch(each, GRID) for each in images]))


def test_other_types_are_left_to_torch():
    images = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    assert torch.equal(unfold(images, GRID), by_torch(images, GRID))


def test_gradients_that_lie_in_columns_are_read():
    for _ in range(10):
        images = torch.randn(2, 3, 6, 6, requires_grad=True)
        grid = WindowGrid((3, 3), (1, 1), (1, 1), (1, 1))
        heads = torch.randn(27, 72).t()
        found, expected = (
            torch.autograd.grad(way(images, grid), images, heads)[0] for way in (unfold, by_torch)
        )
        torch.testing.assert_close(found, expected)


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


rng_of_correlation = np.random.RandomState(5)


def test_the_slope_at_a_tie_is_one():
    data = np.zeros((1, 1, 3, 3))
    one, other = gradients("Correlation", data, data, wanted=(0, 1), max_displacement=0, is_multiply=False)
    np.testing.assert_array_equal(one, np.ones_like(data))
    np.testing.assert_array_equal(other, -np.ones_like(data))


def test_equal_images_correlate_best_without_displacement():
    image = rng_of_correlation.randn(1, 8, 9, 9)
    out = run("Correlation", image, image, max_displacement=2, kernel_size=3, pad_size=3)
    assert out.shape == (1, 25, 9, 9)
    assert (out.argmax(1) == 12).mean() > 0.9


def test_partial_shapes_of_correlation():
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
def test_refusals_of_correlation(attrs, error, message):
    with pytest.raises(error, match=message):
        shapes("Correlation", (1, 2, 5, 5), (1, 2, 5, 5), **attrs)
    with pytest.raises(ShapeError):
        shapes("Correlation", (1, 2, 5, 5), (1, 2, 5, 6))
