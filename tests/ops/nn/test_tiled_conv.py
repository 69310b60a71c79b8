"""Convolutions by the native extension against torch's in double precision."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from dpmodule.ops.nn import linear
from dpmodule.ops.nn.conv3x3 import TiledConvolution
from helpers.numeric import numbers
from helpers.walk import walks

core = linear.kernels()
pytestmark = pytest.mark.skipif(
    not hasattr(core, "convolve") or core.convolution_block(64) == 0,
    reason="there is no kernel for this compiler or processor",
)


def made(filters, kernel=(3, 3), stride=(1, 1), dilate=(1, 1), pad=(1, 1), rectifies=False):
    return TiledConvolution(filters, kernel, stride, dilate, pad, rectifies)


def run(convolution, data, weight, bias=None, other=None, overwrites=False):
    packed = convolution.pack(weight, bias, data.shape[1])
    return convolution(convolution.sizes(data.shape), data, *packed, other, overwrites)


def exact(data, weight, bias=None, other=None, rectifies=False, **geometry):
    bias = None if bias is None else bias.double()
    found = F.conv2d(data.double(), weight.double(), bias, **geometry)
    found = found if other is None else found + other.double()
    return found.clamp_min(0) if rectifies else found


# blocks of 16, 32 and 64 filters with and without a rest; parts of the weight that are rows, columns and channels
SIZES = [
    (1, 5, 8, (7, 7)),
    (2, 16, 16, (9, 6)),
    (1, 33, 32, (5, 14)),
    (3, 64, 40, (4, 4)),
    (1, 400, 64, (5, 5)),
    (1, 1100, 70, (3, 4)),
    (9, 24, 100, (12, 12)),
]
GEOMETRIES = [
    ((3, 3), (1, 1), (1, 1), (1, 1)),
    ((1, 1), (1, 1), (1, 1), (0, 0)),
    ((1, 1), (2, 2), (1, 1), (0, 0)),
    ((3, 2), (2, 1), (1, 2), (2, 1)),
    ((2, 3), (1, 2), (1, 1), (0, 3)),
]


@walks(product(SIZES, GEOMETRIES))
def test_sizes_and_geometries(sizes, geometry):
    images, channels, filters, sides = sizes
    kernel, stride, dilate, pad = geometry
    data, weight = numbers(images, channels, *sides), numbers(filters, channels, *kernel, seed=1)
    bias, rectifies = numbers(filters, seed=2), channels % 2 == 0
    convolution = made(filters, *geometry, rectifies)
    want = exact(data, weight, bias, rectifies=rectifies, stride=stride, dilation=dilate, padding=pad)
    depth = channels * kernel[0] * kernel[1]
    for other in (None, numbers(*want.shape, seed=3)):
        found = run(convolution, data, weight, bias, other)
        assert found.is_contiguous(memory_format=torch.channels_last)
        summed = exact(data, weight, bias, other, rectifies, stride=stride, dilation=dilate, padding=pad)
        torch.testing.assert_close(found.double(), summed, rtol=1e-5, atol=2e-6 * depth**0.5)


def test_a_sum_may_be_written_over_the_other_summand():
    data, weight, other = numbers(2, 300, 6, 6), numbers(20, 300, 3, 3, seed=1), numbers(2, 20, 6, 6, seed=2)
    kept = other.clone()
    want = exact(data, weight, None, other, padding=1)
    apart = run(made(20), data, weight, other=other)
    torch.testing.assert_close(apart.double(), want, rtol=1e-5, atol=1e-4)
    assert torch.equal(other, kept)
    over = run(made(20), data, weight, other=other, overwrites=True)
    assert over.data_ptr() == other.data_ptr()
    assert torch.equal(over, apart)
    plain = kept.contiguous()  # of another layout: it is copied
    assert torch.equal(run(made(20), data.contiguous(), weight, other=plain, overwrites=True), apart)
    assert torch.equal(plain, kept)


def test_nan_and_infinity_stay_in_their_windows_and_the_rectifier_makes_0_of_nan():
    data, weight = numbers(1, 16, 7, 7), numbers(16, 16, 3, 3, seed=1)
    usual = run(made(16), data, weight)
    data[0, 5, 0, 0] = np.nan
    found = run(made(16), data, weight)
    touched = torch.zeros(7, 7, dtype=torch.bool)
    touched[:2, :2] = True
    assert found[0, :, touched].isnan().all()
    assert torch.equal(found[0, :, ~touched], usual[0, :, ~touched])
    assert (run(made(16, rectifies=True), data, weight)[0, :, touched] == 0).all()
    weight[3, 0, 0, 0] = np.inf  # of the row above, which the first row of windows does not have
    assert not run(made(16), numbers(1, 16, 7, 7), weight)[0, 3, 1:, 1:].isfinite().any()


def test_weights_that_do_not_fit_are_refused():
    assert made(16).pack(numbers(16, 8, 3, 3), None, 8)
    assert made(16).pack(numbers(16, 8, 3, 3), None, 9) == ()
    assert made(16).pack(numbers(16, 8, 3, 2), None, 8) == ()
    assert made(16).pack(numbers(17, 8, 3, 3), None, 8) == ()
    assert made(16).pack(numbers(16, 8, 3, 3), numbers(1), 8) == ()


def pays(filters, channels, side=9, images=1, **geometry):
    convolution = made(filters, **geometry)
    return convolution.is_faster(convolution.sizes((images, channels, side, side)))


def with_vectors_of(numbers, monkeypatch):
    def block(filters):
        return 16 if filters <= 16 or numbers < 16 else 32 if (filters - 1) % 64 < 32 else 64

    core = SimpleNamespace(vector_width=numbers, convolution_block=block)
    monkeypatch.setattr(linear, "_native", core)


def test_sizes_alone_decide(monkeypatch):
    with_vectors_of(16, monkeypatch)
    assert pays(8, 6)
    assert not pays(7, 6)
    assert not pays(8, 5)
    assert pays(16, 16)
    assert not pays(16, 16, 50)
    assert pays(17, 16, 50)
    assert not pays(17, 15, 55)
    assert pays(17, 16, 64)
    assert not pays(17, 16, 65)
    assert pays(32, 16, 128)
    assert not pays(32, 16, 129)
    assert pays(64, 65, 17)
    assert pays(64, 6, 50, kernel=(5, 5), pad=(2, 2))
    assert not pays(32, 6, 50, kernel=(5, 5), pad=(2, 2))
    assert not pays(64, 6, 50, kernel=(5, 4), pad=(2, 2))


def test_narrow_vectors_win_less(monkeypatch):
    with_vectors_of(8, monkeypatch)
    assert pays(64, 64, 16, images=8)
    assert not pays(64, 65, 16, images=8)
    assert not pays(64, 64, 17, images=8)
    assert pays(64, 65, 8)  # a short one
    assert pays(32, 6, 50, kernel=(5, 5), pad=(2, 2))
    assert pays(512, 512, 17, images=8, kernel=(1, 1), pad=(0, 0))


def test_any_number_of_threads_computes_the_same():
    # more pixels than weights and the other way round, blocks that the threads do not divide, and too little work
    for images, channels, filters, side in ((2, 16, 64, 9), (1, 64, 192, 4), (1, 40, 320, 3), (1, 8, 16, 2)):
        data, weight = numbers(images, channels, side, side), numbers(filters, channels, 3, 3, seed=1)
        found = []
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            found.append(run(made(filters), data, weight, numbers(filters, seed=2)))
        want = exact(data, weight, numbers(filters, seed=2), padding=1)
        torch.testing.assert_close(found[0].double(), want, rtol=1e-5, atol=1e-4)
        assert all(torch.equal(each, found[0]) for each in found[1:])


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ((b"",), TypeError, "expected rows, threads and addresses, got 1 argument"),
        ((1, 1, 2), TypeError, "expected bytes"),
        ((b"", "1", 2), TypeError, "int"),
        ((bytes(175), 1, 0), ValueError, "rows has 175 bytes, expected 176 for each"),
        ((bytes(176), 1), IndexError, "a place is 0, expected one among 0 addresses"),
        ((bytes(176), 1, "0"), TypeError, "int"),
    ],
)
def test_what_the_kernel_is_told_is_checked(given, error, text):
    with pytest.raises(error, match=text):
        core.convolve(*given)
    with pytest.raises(TypeError):
        core.convolution_block("many")
