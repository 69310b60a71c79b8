import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.ops.nn.conv import _strided_1x1
from dpmodule.ops.nn.unfold import WindowGrid
from helpers.arrays import randn
from helpers.op_case import rules_test, run, shapes

GEOMETRY = {"kernel": (3, 2, 2), "stride": (2, 1, 1), "pad": (1, 0, 1), "dilate": (1, 2, 2)}


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_deconvolution_is_the_transpose_of_convolution(rank):
    attrs = {key: value[:rank] for key, value in GEOMETRY.items()} | {"num_group": 2, "no_bias": True}
    data, weight = randn(2, 4, *(7, 6, 5)[:rank]), randn(6, 2, *attrs["kernel"])
    out = run("Convolution", data, weight, num_filter=6, **attrs)
    other, adj = randn(*out.shape), (0, 0, 0)[:rank]
    back = run("Deconvolution", other, weight, num_filter=4, adj=adj, **attrs)
    assert (out * other).sum() == pytest.approx((data * back).sum())


@pytest.mark.parametrize("name", ["Convolution", "Deconvolution"])
@pytest.mark.parametrize(("rank", "layout"), [(1, "NWC"), (2, "NHWC"), (3, "NDHWC")])
def test_channels_last(rank, layout, name):
    attrs = {"kernel": (2,) * rank, "num_filter": 4, "num_group": 2, "no_bias": False}
    data, weight, bias = randn(2, 4, *[5] * rank), randn(4, 2, *[2] * rank), randn(4)
    want = np.moveaxis(run(name, data, weight, bias, **attrs), 1, -1)
    moved = np.moveaxis(data, 1, -1), np.moveaxis(weight, 1, -1), bias
    np.testing.assert_allclose(run(name, *moved, layout=layout, **attrs), want, rtol=1e-12)
    found = shapes(name, [moved[0].shape, None, None], layout=layout, **attrs)
    assert found == ([x.shape for x in moved], [want.shape])


CONV = {"kernel": (3, 3), "num_filter": 2, "no_bias": True}
FILTERS = {**CONV, "num_filter": 21}
test_shapes = rules_test(
    ("Convolution", [(0, 3, 8, 0), None], CONV, [(0, 3, 8, 0), (2, 3, 3, 3)], [(0, 2, 6, 0)]),
    ("Convolution", [(0, 3, 8, 8), None], CONV, [(5, 3, 8, 8), (2, 3, 3, 3)], None, [(5, 2, 0, 0)]),
    *[  # data from the output, as MXNet infers it; the last is 31 or 32 wide
        ("Convolution", [(0, 10, 0, 0), None], {**FILTERS, **more}, [data, (21, 10, 3, 3)], None, [out])
        for more, data, out in [
            ({"pad": (1, 1)}, (5, 10, 32, 32), (5, 21, 32, 32)),
            ({"dilate": (2, 1)}, (5, 10, 34, 18), (5, 21, 30, 16)),
            ({"stride": (2, 1)}, (5, 10, 0, 16), (5, 21, 16, 14)),
        ]
    ],
    ("Deconvolution", [(0, 3, 0, 5), None], CONV, [(0, 3, 0, 5), (3, 2, 3, 3)], [(0, 2, 0, 7)]),
    ("Deconvolution", [(0, 3, 4, 4), None], CONV, [(5, 3, 4, 4), (3, 2, 3, 3)], None, [(5, 2, 6, 6)]),
)


def test_none_stands_for_the_bias_that_no_bias_leaves_out():
    x, w = mx.sym.Variable("x"), mx.sym.Variable("w")
    symbol = mx.sym.Convolution(x, w, None, kernel=(3,), num_filter=4, no_bias=True)
    assert symbol.list_arguments() == ["x", "w"]


@pytest.mark.parametrize("target", [(8,), (7,), (6,)])
def test_a_target_shape_sets_padding_and_adjustment(target):
    data, weight = randn(1, 1, 3), randn(1, 1, 4)
    attrs = {"kernel": (4,), "stride": (2,), "num_filter": 1}
    whole = run("Deconvolution", data, weight, **attrs)
    out = run("Deconvolution", data, weight, **attrs, target_shape=target, pad=(99,), adj=(101,))
    first = (8 - target[0] + 1) // 2
    assert out.shape == (1, 1, *target)
    np.testing.assert_allclose(out, whole[..., first : first + target[0]])


@pytest.mark.parametrize("channels", [3, 8, 15, 16])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("images", "groups"), [(1, 1), (1, 2), (2, 1)])
def test_strided_points_are_picked_first_where_onednn_is_slow_or_wrong(channels, layout, images, groups):
    # for fewer than 16 in channels_last, oneDNN's gradient of the weight writes outside of its memory
    strides = []
    channels *= groups

    def call(x, weight, stride=(2, 2)):
        strides.append(stride)
        return torch.conv2d(x, weight, stride=stride, groups=groups)

    x, weight = torch.randn(images, channels, 5, 7), torch.randn(4, channels // groups, 1, 1)
    x = x.contiguous(memory_format=layout)
    grid, expected = (
        WindowGrid((1, 1), (2, 2), (0, 0), (1, 1)),
        torch.conv2d(x, weight, stride=2, groups=groups),
    )
    torch.testing.assert_close(_strided_1x1(call, grid, x, weight), expected)
    is_last = channels >= 16 and layout is torch.channels_last
    without_onednn = (images, groups, torch.get_num_threads()) == (1, 1, 1)
    assert strides == [(2, 2) if is_last or without_onednn else 1]
