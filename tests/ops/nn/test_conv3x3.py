"""Convolutions by windows of 3x3 of the native extension against torch's in double precision."""

from itertools import product

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from dpmodule.ops.nn import conv3x3, linear
from dpmodule.ops.nn.conv3x3 import can_convolve3x3, convolve3x3
from helpers.numeric import numbers
from helpers.walk import walks

core = linear.kernels()
pytestmark = pytest.mark.skipif(
    not hasattr(core, "conv3x3") or core.conv3x3_lanes() == 0,
    reason="there are no kernels for this compiler or processor",
)
LANES = core.conv3x3_lanes() if hasattr(core, "conv3x3_lanes") else 0


def given(images, channels, filters, height, width, step, bias=True):
    """Return images of which the result has these sides, a weight, and a bias."""
    x = numbers(images, channels, step * height, step * width)
    weight = numbers(filters, channels, 3, 3, seed=1).contiguous()
    return x, weight, numbers(filters, seed=2) if bias else None


def results(function, tensors, grad):
    """Return result and gradients; the gradient of the result is of the given shape."""
    leaves = [each.detach().requires_grad_() for each in tensors if each is not None]
    out = function(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad.to(out.dtype))]


def agree(x, weight, bias, step):
    """Compare result and gradients with torch's in double precision."""
    filters, places = weight.shape[0], x[:, 0].numel() // step**2
    grad = numbers(x.shape[0], filters, x.shape[2] // step, x.shape[3] // step, seed=3)
    found = results(lambda x, w, b=None: convolve3x3(x, w, b, step), (x, weight, bias), grad)
    doubles = [None if each is None else each.double() for each in (x, weight, bias)]
    wanted = results(lambda x, w, b=None: F.conv2d(x, w, b, step, 1), doubles, grad)
    for depth, one, other in zip((9 * x.shape[1], 9 * filters, places, places), found, wanted):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=2e-6 * depth**0.5)
    return found


# all tiles of both instruction sets, with and without a rest of rows, columns and channels
SIZES = [(4, 16, 16, 8), (3, 32, 7, 16), (16, 48, 2, 28), (3, 16, 9, 32), (36, 16, 5, 8), (80, 64, 4, 24)]


@walks(product(SIZES, (1, 2), (False, True)))
def test_results_and_gradients(sizes, step, bias):
    channels, filters, height, width = sizes
    tensors = given(3, channels, filters, height, width, step, bias)
    assert can_convolve3x3(*tensors, step)
    found = agree(*tensors, step)
    assert all(each.is_contiguous(memory_format=torch.channels_last) for each in found[:2])
    assert found[2].is_contiguous() or channels == 3  # as the weight is; torch's own are not


def test_kernels_compute_all_three():
    """With torch out of reach; small sizes, so that other tests can run it within fewer instructions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "conv2d", None)
        patch.setattr(torch.ops.aten, "convolution_backward", None)
        for step in (1, 2):
            agree(*given(2, 16, 16, 3, 16, step), step)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_share_the_images(threads, step):
    tensors = given(4, 16, 32, 6, 16, step)
    grad = numbers(4, 32, 6, 16, seed=3)

    def found():
        return results(lambda x, w, b: convolve3x3(x, w, b, step), tensors, grad)

    alone = found()
    torch.set_num_threads(threads)
    assert can_convolve3x3(*tensors, step)
    assert not can_convolve3x3(tensors[0][:1], *tensors[1:], step)
    together = found()
    assert torch.equal(together[0], alone[0])
    assert torch.equal(together[1], alone[1])
    for one, other in zip(together[2:], alone[2:]):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)
    for one, other in zip(found(), together):
        assert torch.equal(one, other)


def test_each_gradient_that_is_not_wanted_is_left_out():
    tensors = given(2, 16, 16, 4, 16, 1)
    grad = numbers(2, 16, 4, 16, seed=3)
    _, *all_of_them = results(lambda x, w, b: convolve3x3(x, w, b, 1), tensors, grad)
    for wanted in product((False, True), repeat=3):
        leaves = [each.detach().requires_grad_(want) for each, want in zip(tensors, wanted)]
        if any(wanted):
            convolve3x3(*leaves, 1).backward(grad)
        for leaf, want, one in zip(leaves, wanted, all_of_them):
            if want:
                torch.testing.assert_close(leaf.grad, one, rtol=1e-5, atol=1e-4)
            else:
                assert leaf.grad is None


def test_what_is_no_faster_is_left_to_torch(monkeypatch):
    tensors = given(2, 16, 16, 4, 16, 1)
    wanted = agree(*tensors, 1)
    monkeypatch.setattr(conv3x3, "_lanes", lambda: 0)
    assert not can_convolve3x3(*tensors, 1)
    for one, other in zip(agree(*tensors, 1), wanted):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)


def test_weights_and_gradients_of_other_strides():
    x, weight, _ = given(2, 16, 16, 4, 16, 1)
    grad = numbers(2, 16, 4, 16, seed=3)
    wanted = results(lambda x, w: convolve3x3(x, w, None, 1), (x, weight), grad)
    turned = weight.transpose(2, 3).contiguous().transpose(2, 3)
    for layout in (weight.contiguous(memory_format=torch.channels_last), turned):
        found = results(lambda x, w: convolve3x3(x, w, None, 1), (x, layout), grad.contiguous())
        assert found[2].stride() == layout.stride()
        assert all(torch.equal(one, other) for one, other in zip(found, wanted))
    spread = torch.ones(()).expand(grad.shape)
    out = convolve3x3(x.requires_grad_(), weight, None, 1)
    (one,) = torch.autograd.grad(out, x, spread)
    torch.testing.assert_close(one, torch.autograd.grad(F.conv2d(x, weight, padding=1), x, spread)[0])


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_stay_where_they_are_multiplied(value, step):
    """The border is not multiplied, not even with infinity."""
    tensors = [*given(1, 16, 16, 6, 16, step, bias=False)[:2], numbers(1, 16, 6, 16, seed=3)]
    places = [[(0, 5, 0, 0)], [(3, 0, 0, 0), (4, 1, 2, 2)], [(0, 7, 5, 15)]]
    for bad, its_places in enumerate(places):
        changed = [each.clone(memory_format=torch.preserve_format) for each in tensors]
        touched = [torch.ones(each.shape, dtype=torch.float64) for each in tensors]
        touched[bad].zero_()
        for place in its_places:
            changed[bad][place], touched[bad][place] = value, 1
        x, weight, grad = changed
        found = results(lambda x, w: convolve3x3(x, w, None, step), (x, weight), grad)
        wanted = results(lambda x, w: F.conv2d(x, w, None, step, 1), touched[:2], touched[2])
        for number, (one, other) in enumerate(zip(found, wanted)):
            if number != (1, 2, 0)[bad]:  # which the changed tensor is no factor of
                assert torch.equal(one.isfinite(), other == 0)
            else:
                assert one.isfinite().all()


def test_gradients_of_gradients():
    tensors = given(2, 16, 16, 3, 16, 1)

    def twice(function):
        leaves = [each.detach().requires_grad_() for each in tensors]
        first = torch.autograd.grad((function(*leaves) ** 3).sum(), leaves[:2], create_graph=True)
        return torch.autograd.grad(sum((each**2).sum() for each in first), leaves)

    assert can_convolve3x3(*tensors, 1)
    for one, other in zip(twice(lambda *all: convolve3x3(*all, 1)), twice(lambda *all: F.conv2d(*all, 1, 1))):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3 * float(other.abs().max()))


def test_sizes_decide():
    def pays(images, channels, filters, height, width, step=1):
        return can_convolve3x3(*given(images, channels, filters, height, width, step), step)

    assert pays(2, 3, 16, 4, 32)
    assert not pays(
        2, 3, 16, 4, 20
    )  # a third would be computed twice, and three channels are too few for products
    assert pays(2, 4, 16, 4, 20)
    assert not pays(2, 4, 17, 4, 32)
    assert not pays(1, 4, 16, 2, 8)  # as many places as filters
    assert pays(1, 4, 16, 3, 8)
    assert not pays(2, 3, 16, 1, 32)
    assert pays(1, 256, 256, 17, 17)
    assert not pays(1, 272, 256, 17, 17)
    odd = numbers(2, 16, 9, 32), numbers(16, 16, 3, 3), None
    assert can_convolve3x3(*odd, 1)
    assert not can_convolve3x3(*odd, 2)


@pytest.mark.parametrize(
    ("lanes", "sizes", "wanted"),
    [
        (16, (64, 16, 16, 32, 32, 1), True),
        (16, (64, 128, 128, 8, 8, 1), True),
        (16, (64, 128, 144, 8, 8, 1), False),  # too many filters
        (16, (64, 64, 64, 32, 32, 1), True),
        (16, (64, 64, 64, 33, 32, 1), False),  # too large an image
        (16, (64, 32, 32, 28, 28, 1), True),
        (16, (64, 32, 32, 24, 24, 1), False),  # a quarter would be computed twice
        (16, (64, 16, 24, 8, 8, 1), False),  # half a vector
        (8, (64, 32, 32, 16, 16, 1), True),
        (8, (64, 32, 32, 28, 28, 1), False),
        (8, (64, 64, 64, 16, 16, 1), False),
        (8, (64, 64, 64, 8, 8, 1), True),
        (8, (64, 32, 64, 8, 8, 2), True),
        (8, (64, 32, 72, 8, 8, 2), False),
        (0, (64, 16, 16, 32, 32, 1), False),
    ],
)
def test_processors_and_sizes_decide_on_the_result(lanes, sizes, wanted, monkeypatch):
    monkeypatch.setattr(conv3x3, "_lanes", lambda: lanes)
    assert conv3x3._use_result_kernel(conv3x3._Conv3x3Sizes(*sizes), sizes[2]) == wanted


REFUSED = {
    "type": lambda x, w, b: (x.double(), w.double(), b.double()),
    "layout": lambda x, w, b: (x.contiguous(), w, b),
    "window": lambda x, w, b: (x, w[:, :, :2], b),
    "channels": lambda x, w, b: (x, w[:, :8], b),
    "bias": lambda x, w, b: (x, w, b[:8]),
    "strides of the bias": lambda x, w, b: (x, w, b[:1].expand(16)),
    "class": lambda x, w, b: (x, torch.nn.Parameter(w), b),
    "rank": lambda x, w, b: (x[0], w, b),
}


@pytest.mark.parametrize("case", REFUSED)
def test_others_are_refused(case):
    tensors = given(2, 16, 16, 4, 16, 1)
    assert can_convolve3x3(*tensors, 1)
    assert not can_convolve3x3(*REFUSED[case](*tensors), 1)


def test_each_of_a_batch_of_inputs_is_refused():
    x, weight, _ = given(2, 16, 16, 4, 16, 1)
    seen = []

    def look(each):
        seen.append(can_convolve3x3(each, weight, None, 1))
        return each

    torch.vmap(look)(torch.stack([x, x]))
    assert seen == [False]


def test_the_number_of_arguments_is_checked():
    with pytest.raises(TypeError, match="expected 17 arguments"):
        core.conv3x3(1, 2)
    with pytest.raises(TypeError, match="expected 15 arguments"):
        core.conv3x3_gradients(1, 2)
