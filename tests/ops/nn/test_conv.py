import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule.ops import get
from helpers.arrays import randn
from helpers.op_case import rules_test, run, shapes, slopes_test


def convolve(data, weight, bias, stride, pad, dilate, groups):
    """Cross-correlate in float64, one output element at a time."""
    rank = data.ndim - 2
    data = np.pad(data, [(0, 0), (0, 0), *[(p, p) for p in pad]])
    reach = [d * (k - 1) + 1 for d, k in zip(dilate, weight.shape[2:], strict=True)]
    sizes = [(x - r) // s + 1 for x, r, s in zip(data.shape[2:], reach, stride, strict=True)]
    out = np.zeros((data.shape[0], weight.shape[0], *sizes))
    each_in, each_out = weight.shape[1], weight.shape[0] // groups
    for f, at in itertools.product(range(weight.shape[0]), np.ndindex(*sizes)):
        first = f // each_out * each_in
        window = [slice(i * s, i * s + r, d) for i, s, r, d in zip(at, stride, reach, dilate, strict=True)]
        part = data[(slice(None), slice(first, first + each_in), *window)]
        out[(slice(None), f, *at)] = (part * weight[f]).sum(tuple(range(1, rank + 2)))
    return out + (0 if bias is None else bias.reshape(1, -1, *[1] * rank))


@st.composite
def cases(draw):
    rank, groups = draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 2]))
    several = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(rank))  # noqa: E731
    return several(5, 7), groups * draw(st.integers(1, 2)), {
        "kernel": several(1, 3),
        "stride": several(1, 3),
        "pad": several(0, 2),
        "dilate": several(1, 2),
        "num_group": groups,
        "num_filter": groups * draw(st.integers(1, 2)),
        "no_bias": draw(st.booleans()),
    }  # fmt: skip


@settings(max_examples=200, derandomize=True, deadline=None)
@given(cases())
def test_equals_the_formula(case):
    """And deconvolution is the transpose: <conv(x), y> = <x, deconv(y)> when both have the same weight."""
    size, channels, attrs = case
    data = randn(2, channels, *size)
    weight = randn(attrs["num_filter"], channels // attrs["num_group"], *attrs["kernel"])
    inputs = [data, weight] if attrs["no_bias"] else [data, weight, randn(attrs["num_filter"])]
    geometry = [attrs[key] for key in ("stride", "pad", "dilate", "num_group")]
    want = convolve(data, weight, None if attrs["no_bias"] else inputs[2], *geometry)
    np.testing.assert_allclose(run("Convolution", *inputs, **attrs), want, rtol=1e-10, atol=1e-10)
    found = shapes("Convolution", [data.shape, *[None] * (len(inputs) - 1)], **attrs)
    assert found == ([x.shape for x in inputs], [want.shape])
    axes = zip(size, attrs["kernel"], attrs["stride"], attrs["pad"], attrs["dilate"], strict=True)
    rest = tuple((n + 2 * p - d * (k - 1) - 1) % step for n, k, step, p, d in axes)
    attrs.update(no_bias=True, num_filter=channels, adj=rest)
    other = randn(*want.shape)
    back = run("Deconvolution", other, weight, **attrs)
    there = want if len(inputs) == 2 else want - inputs[2].reshape(-1, *[1] * len(size))
    assert (there * other).sum() == pytest.approx((data * back).sum())


test_gradients = slopes_test(
    [
        *[
            (
                "Convolution",
                (randn(1, 2, *(4, 3, 3)[:rank]), randn(2, 2, *[2] * rank), randn(2)),
                {"kernel": (2,) * rank, "num_filter": 2, "stride": (2,) * rank, "pad": (1,) * rank},
            )
            for rank in (1, 2, 3)
        ],
        *[
            (
                "Deconvolution",
                (randn(1, 2, *(3, 2, 2)[:rank]), randn(2, 2, *(2, 3, 2)[:rank]), randn(2)),
                {
                    "kernel": (2, 3, 2)[:rank],
                    "num_filter": 2,
                    "stride": (2, 3, 1)[:rank],
                    "adj": (1, 2, 0)[:rank],
                }
                | {"no_bias": False},
            )
            for rank in (1, 2, 3)
        ],
    ]
)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("name", ["Convolution", "Deconvolution"])
@pytest.mark.parametrize(("rank", "layout"), [(1, "NWC"), (2, "NHWC"), (3, "NDHWC")])
def test_channels_last(rank, layout, name, groups):
    attrs = {"kernel": (2,) * rank, "num_filter": 4, "num_group": groups, "no_bias": False}
    data, weight, bias = randn(2, 4, *[5] * rank), randn(4, 4 // groups, *[2] * rank), randn(4)
    want = np.moveaxis(run(name, data, weight, bias, **attrs), 1, -1)
    moved = np.moveaxis(data, 1, -1), np.moveaxis(weight, 1, -1), bias
    np.testing.assert_allclose(run(name, *moved, layout=layout, **attrs), want, rtol=1e-12)
    found = shapes(name, [moved[0].shape, None, None], layout=layout, **attrs)
    assert found == ([x.shape for x in moved], [want.shape])


CONV = {"kernel": (3, 3), "num_filter": 2, "no_bias": True}
test_shapes = rules_test(
    [
        ("Convolution", [(0, 3, 8, 0), None], CONV, [(0, 3, 8, 0), (2, 3, 3, 3)], [(0, 2, 6, 0)]),
        ("Convolution", [(0, 3, 8, 8), None], CONV, [(5, 3, 8, 8), (2, 3, 3, 3)], None, [(5, 2, 0, 0)]),
        ("Deconvolution", [(0, 3, 0, 5), None], CONV, [(0, 3, 0, 5), (3, 2, 3, 3)], [(0, 2, 0, 7)]),
        ("Deconvolution", [(0, 3, 4, 4), None], CONV, [(5, 3, 4, 4), (3, 2, 3, 3)], None, [(5, 2, 6, 6)]),
    ]
)


def test_old_name_and_ignored_attributes():
    op = get("Convolution_v1")
    assert op is get("Convolution")
    ignored = {"workspace": "512", "cudnn_tune": "None", "cudnn_off": "1"}
    assert op.parse({"kernel": "(3, 3)", "num_filter": "4", **ignored}).kernel == (3, 3)


@pytest.mark.parametrize(
    ("output", "attrs", "data"),
    [
        ((5, 21, 32, 32), {"kernel": (3, 3), "pad": (1, 1)}, (5, 10, 32, 32)),
        ((5, 21, 30, 16), {"kernel": (3, 3), "dilate": (2, 1)}, (5, 10, 34, 18)),
        ((5, 21, 16, 14), {"kernel": (3, 3), "stride": (2, 1)}, (5, 10, 0, 16)),  # 31 or 32 wide
    ],
)
def test_data_is_inferred_from_the_output_as_in_mxnet(output, attrs, data):
    net = mx.sym.Convolution(mx.sym.Variable("data", shape=(0, 10, 0, 0)), num_filter=21, **attrs)
    total = net + mx.sym.Variable("other", shape=output)
    assert total.infer_shape_partial()[0][0] == data


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


def test_deconvolution_in_half_precision():
    data, weight = randn(1, 2, 3, 3), randn(2, 1, 2, 2)
    out = run("Deconvolution", data.astype("f2"), weight.astype("f2"), kernel=(2, 2), num_filter=1)
    assert out.dtype == np.float16
    np.testing.assert_allclose(
        out, run("Deconvolution", data, weight, kernel=(2, 2), num_filter=1), atol=0.05
    )
