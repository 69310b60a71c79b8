"""Depthwise convolutions of the native extension, forward and backward, against torch in float64."""

import pytest
import torch
from torch.nn import functional as F

from dpmodule.ops.nn import depthwise, linear
from dpmodule.ops.nn.depthwise import can_convolve_depthwise, convolve_depthwise
from dpmodule.ops.nn.unfold import WindowGrid
from helpers.arrays import numbers
from helpers.walk import walks

needs_kernels = pytest.mark.skipif(not hasattr(linear.kernels(), "depthwise"), reason="there is no extension")

GRID = WindowGrid((3, 3), (1, 1), (1, 1), (1, 1))


def given(images, channels, side, grid=GRID, bias=True):
    """Return images in channels_last, a weight, and a bias."""
    x = numbers(images, channels, *side).contiguous(memory_format=torch.channels_last)
    weight = numbers(channels, 1, *grid.kernel, seed=1)
    return x, weight, numbers(channels, seed=2) if bias else None


def by_torch(x, weight, bias, grid):
    return F.conv2d(x, weight, bias, grid.stride, grid.pad, grid.dilate, x.shape[1])


def results(function, tensors, grid, dtype=torch.float32):
    """Return result and gradients."""
    leaves = [None if each is None else each.detach().to(dtype).requires_grad_() for each in tensors]
    out = function(*leaves, grid)
    grad = numbers(*out.shape, seed=3).to(dtype)
    return [out.detach(), *torch.autograd.grad(out, [each for each in leaves if each is not None], grad)]


def agree(tensors, grid):
    assert can_convolve_depthwise(*tensors, grid)
    found = results(convolve_depthwise, tensors, grid)
    for one, other in zip(found, results(by_torch, tensors, grid, torch.float64), strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other.float(), rtol=1e-4, atol=1e-3)


@needs_kernels
@walks(
    # images, channels, sides; kernel, stride, pad, dilate
    (3, 24, (9, 8), (3, 3), (1, 1), (1, 1), (1, 1)),
    (2, 37, (7, 12), (5, 5), (1, 1), (2, 2), (1, 1)),
    (2, 16, (8, 9), (3, 3), (2, 2), (1, 1), (1, 1)),
    (1, 7, (11, 6), (5, 5), (2, 2), (2, 2), (1, 1)),
    (2, 20, (9, 14), (7, 7), (1, 1), (3, 3), (1, 1)),
    (2, 20, (12, 13), (3, 3), (1, 1), (2, 2), (2, 2)),
    (2, 5, (9, 11), (2, 3), (3, 1), (0, 0), (1, 1)),
    (1, 33, (2, 2), (5, 5), (1, 1), (2, 2), (1, 1)),
    (1, 16, (9, 5), (1, 3), (4, 4), (0, 4), (1, 1)),
)  # fmt: skip
def test_results_and_gradients(images, channels, side, *grid):
    for bias in (False, True):
        agree(given(images, channels, side, WindowGrid(*grid), bias), WindowGrid(*grid))


@needs_kernels
def test_other_layouts_and_several_threads():
    grid = WindowGrid((5, 5), (1, 1), (2, 2), (1, 1))
    x, *parameters = given(4, 72, (24, 24), grid)
    agree((x.contiguous(), *parameters), grid)
    one = results(convolve_depthwise, (x, *parameters), grid)
    torch.set_num_threads(2)
    two = results(convolve_depthwise, (x, *parameters), grid)
    assert all(map(torch.equal, one, two))


@needs_kernels
def test_results_by_torch_have_the_same_gradients(monkeypatch):
    monkeypatch.setattr(depthwise, "_MAX_RESULT", 0)
    agree(given(2, 8, (6, 6)), GRID)


@needs_kernels
def test_gradients_of_gradients():
    tensors = given(2, 4, (5, 5))

    def twice(function):
        leaves = [each.detach().requires_grad_() for each in tensors]
        first = torch.autograd.grad((function(*leaves, GRID) ** 3).sum(), leaves[:2], create_graph=True)
        return torch.autograd.grad(sum((each**2).sum() for each in first), leaves)

    for one, other in zip(twice(convolve_depthwise), twice(by_torch)):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3 * float(other.abs().max()))


@needs_kernels
def test_others_are_left_to_torch():
    x, w, b = tensors = given(2, 8, (6, 6))
    assert can_convolve_depthwise(*tensors, GRID)
    others = [
        [each.double() for each in tensors],
        (x[:0], w, b),
        (x, w[:4], b),
        (x, w[:, :, :2], b),
        (x[0], w, b),
    ]
    others += [
        (x, w, b[:4]),
        (x, w, b[:1].expand(8)),
        (x, torch.nn.Parameter(w), b),
        (x, w.transpose(2, 3), b),
    ]
    others.append(given(1, 64, (96, 96)))  # large images
    between, *parameters = given(1, 64, (56, 56))
    assert can_convolve_depthwise(between, *parameters, GRID)
    others.append((between.contiguous(), *parameters))  # whose layout costs more than the kernel gains
    assert [i for i, each in enumerate(others) if can_convolve_depthwise(*each, GRID)] == []
    four = WindowGrid((4, 4), (1, 1), (0, 0), (1, 1))
    assert not can_convolve_depthwise(*given(2, 8, (6, 6), four), four)
