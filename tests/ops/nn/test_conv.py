import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule.base import ShapeError
from dpmodule.ops import get
from helpers.numeric import check_gradients, run, shapes

rng = np.random.RandomState(1)


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
        window = tuple(
            slice(i * s, i * s + r, d) for i, s, r, d in zip(at, stride, reach, dilate, strict=True)
        )
        part = data[(slice(None), slice(first, first + each_in), *window)]
        out[(slice(None), f, *at)] = (part * weight[f]).sum(tuple(range(1, rank + 2)))
    return out + (0 if bias is None else bias.reshape(1, -1, *[1] * rank))


@st.composite
def cases(draw):
    rank = draw(st.integers(1, 3))
    several = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(rank))  # noqa: E731
    groups = draw(st.sampled_from([1, 1, 2]))
    return {
        "size": several(5, 7),
        "kernel": several(1, 3),
        "stride": several(1, 3),
        "pad": several(0, 2),
        "dilate": several(1, 2),
        "num_group": groups,
        "num_filter": groups * draw(st.integers(1, 2)),
        "channels": groups * draw(st.integers(1, 2)),
        "no_bias": draw(st.booleans()),
    }


@settings(max_examples=200, derandomize=True, deadline=None)
@given(cases())
def test_equals_the_formula(case):
    size, channels = case.pop("size"), case.pop("channels")
    data = rng.randn(2, channels, *size)
    weight = rng.randn(case["num_filter"], channels // case["num_group"], *case["kernel"])
    bias = None if case["no_bias"] else rng.randn(case["num_filter"])
    want = convolve(data, weight, bias, case["stride"], case["pad"], case["dilate"], case["num_group"])
    inputs = [data, weight] if bias is None else [data, weight, bias]
    out = run("Convolution", *inputs, **case)
    np.testing.assert_allclose(out, want, rtol=1e-10, atol=1e-10)
    ins, outs = shapes("Convolution", data.shape, *[None] * (len(inputs) - 1), **case)
    assert (ins, outs) == ([x.shape for x in inputs], [want.shape])


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_gradients(rank):
    attrs = {"kernel": (2,) * rank, "num_filter": 2, "stride": (2,) * rank, "pad": (1,) * rank}
    inputs = [rng.randn(1, 2, *(4, 3, 3)[:rank]), rng.randn(2, 2, *[2] * rank), rng.randn(2)]
    check_gradients("Convolution", *inputs, wanted=(0, 1, 2), **attrs)


@pytest.mark.parametrize(("rank", "layout"), [(1, "NWC"), (2, "NHWC"), (3, "NDHWC")])
def test_channels_last(rank, layout):
    attrs = {"kernel": (2,) * rank, "num_filter": 3}
    data, weight, bias = rng.randn(2, 4, *[5] * rank), rng.randn(3, 4, *[2] * rank), rng.randn(3)
    want = np.moveaxis(run("Convolution", data, weight, bias, **attrs), 1, -1)
    moved = np.moveaxis(data, 1, -1), np.moveaxis(weight, 1, -1), bias
    np.testing.assert_allclose(run("Convolution", *moved, layout=layout, **attrs), want, rtol=1e-12)
    ins, outs = shapes("Convolution", moved[0].shape, None, None, layout=layout, **attrs)
    assert (ins, outs) == ([x.shape for x in moved], [want.shape])


def test_batch_size_may_come_later():
    attrs = {"kernel": (3, 3), "num_filter": 2, "no_bias": True}
    assert shapes("Convolution", (0, 3, 8, 0), None, **attrs) == (
        [(0, 3, 8, 0), (2, 3, 3, 3)],
        [(0, 2, 6, 0)],
    )
    assert shapes("Convolution", (0, 3, 8, 8), None, outs=[(5, 2, 0, 0)], **attrs)[0][0] == (5, 3, 8, 8)


@pytest.mark.parametrize(
    ("data", "attrs", "text"),
    [
        ((1, 2, 4, 4), {"kernel": (5, 5)}, "kernel size 5 exceeds the input"),
        ((1, 2, 4), {"kernel": (3, 3)}, "expected 4 axes"),
        ((1, 2, 4, 4), {"kernel": (3, 3), "stride": (1,)}, "stride is"),
        ((1, 3, 4, 4), {"kernel": (3, 3), "num_group": 2}, "num_group is 2"),
    ],
)
def test_mistakes_are_named(data, attrs, text):
    with pytest.raises(ShapeError, match=text):
        shapes("Convolution", data, None, None, num_filter=4, **attrs)


def test_old_name_and_ignored_attributes():
    op = get("Convolution_v1")
    assert op is get("Convolution")
    ignored = {"workspace": "512", "cudnn_tune": "None", "cudnn_off": "1"}
    assert op.parse({"kernel": "(3, 3)", "num_filter": "4", **ignored}).kernel == (3, 3)


def inferred(output, **attrs):
    """Return the data's shape that follows from an output's, by way of a sum with a variable of that shape."""
    data = mx.sym.Variable("data", shape=(0, 10, 0, 0))
    total = mx.sym.Convolution(data, num_filter=21, **attrs) + mx.sym.Variable("other", shape=output)
    return total.infer_shape_partial()[0][0]


def test_data_is_inferred_from_the_output():
    # as MXNet 1.9.1 has it for stride 1; with stride 2 the data may be 31 or 32 wide
    assert inferred((5, 21, 32, 32), kernel=(3, 3), pad=(1, 1)) == (5, 10, 32, 32)
    assert inferred((5, 21, 30, 16), kernel=(3, 3), dilate=(2, 1)) == (5, 10, 34, 18)
    assert inferred((5, 21, 16, 14), kernel=(3, 3), stride=(2, 1)) == (5, 10, 0, 16)


def test_none_stands_for_the_bias_that_no_bias_leaves_out():
    x, w = mx.sym.Variable("x"), mx.sym.Variable("w")
    symbol = mx.sym.Convolution(x, w, None, kernel=(3,), num_filter=4, no_bias=True)
    assert symbol.list_arguments() == ["x", "w"]
    with pytest.raises(mx.base.MXNetError, match="got 3 inputs"):
        mx.sym.Convolution(x, w, mx.sym.Variable("b"), kernel=(3,), num_filter=4, no_bias=True)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_is_the_transpose_of_convolution(rank, groups):
    """<conv(x), y> = <x, deconv(y)> when both have the same weight."""
    attrs = {
        "kernel": (3, 2, 2)[:rank],
        "stride": (2, 1, 3)[:rank],
        "dilate": (1, 2, 1)[:rank],
        "pad": (1, 0, 1)[:rank],
        "num_group": groups,
        "no_bias": True,
    }
    x = rng.randn(2, 4, *(7, 5, 6)[:rank])
    weight = rng.randn(6, 4 // groups, *attrs["kernel"])
    there = run("Convolution", x, weight, num_filter=6, **attrs)
    y = rng.randn(*there.shape)
    back = run("Deconvolution", y, weight, num_filter=4, **attrs)
    assert back.shape == x.shape
    assert (there * y).sum() == pytest.approx((x * back).sum())


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_gradients_of_deconv(rank):
    attrs = {"kernel": (2, 3, 2)[:rank], "num_filter": 2, "stride": (2, 3, 1)[:rank], "adj": (1, 2, 0)[:rank]}
    inputs = [rng.randn(1, 2, *(3, 2, 2)[:rank]), rng.randn(2, 2, *attrs["kernel"]), rng.randn(2)]
    check_gradients("Deconvolution", *inputs, wanted=(0, 1, 2), no_bias=False, **attrs)


@pytest.mark.parametrize(("rank", "layout"), [(1, "NWC"), (2, "NHWC"), (3, "NDHWC")])
def test_channels_last_of_deconv(rank, layout):
    attrs = {"kernel": (2,) * rank, "num_filter": 4, "num_group": 2}
    data, weight = rng.randn(2, 4, *[3] * rank), rng.randn(4, 2, *[2] * rank)
    want = np.moveaxis(run("Deconvolution", data, weight, **attrs), 1, -1)
    moved = np.moveaxis(data, 1, -1), np.moveaxis(weight, 1, -1)
    np.testing.assert_allclose(run("Deconvolution", *moved, layout=layout, **attrs), want, rtol=1e-12)
    ins, outs = shapes("Deconvolution", moved[0].shape, None, layout=layout, **attrs)
    assert (ins[1], outs[0]) == (moved[1].shape, want.shape)


@pytest.mark.parametrize("target", [(8,), (7,), (6,)])
def test_a_target_shape_sets_padding_and_adjustment(target):
    data, weight = rng.randn(1, 1, 3), rng.randn(1, 1, 4)
    whole = run("Deconvolution", data, weight, kernel=(4,), stride=(2,), num_filter=1)
    out = run(
        "Deconvolution",
        data,
        weight,
        kernel=(4,),
        stride=(2,),
        num_filter=1,
        target_shape=target,
        pad=(99,),
        adj=(101,),
    )
    first = (8 - target[0] + 1) // 2
    assert out.shape == (1, 1, *target)
    np.testing.assert_allclose(out, whole[..., first : first + target[0]])


def test_unknown_dimensions_stay_unknown_and_the_batch_comes_from_the_output():
    attrs = {"kernel": (3, 3), "num_filter": 2}
    assert shapes("Deconvolution", (0, 3, 0, 5), None, **attrs) == (
        [(0, 3, 0, 5), (3, 2, 3, 3)],
        [(0, 2, 0, 7)],
    )
    out = mx.sym.Deconvolution(mx.sym.Variable("data", shape=(0, 3, 4, 4)), **attrs) + mx.sym.Variable(
        "other"
    )
    assert out.infer_shape(other=(5, 2, 6, 6))[0][0] == (5, 3, 4, 4)


@pytest.mark.parametrize(
    ("data", "attrs", "message"),
    [
        ((1, 2, 3, 3), {"target_shape": (9, 9)}, r"target_shape is \(9, 9\), expected 1 to \(4, 4\)"),
        ((1, 2, 3, 3), {"target_shape": (0, 3)}, "target_shape"),
        ((1, 2, 3, 3), {"adj": (1, 1)}, "adj is"),
        ((1, 2, 3, 3), {"pad": (2, 2)}, "which makes the output .* empty"),
        ((1, 2, 3, 3), {"stride": (2,)}, "stride is"),
        ((1, 2, 3), {}, "expected 4 axes"),
        ((1, 3, 3, 3), {"num_group": 2}, "num_group is 2"),
    ],
)
def test_refusals(data, attrs, message):
    with pytest.raises(ShapeError, match=message):
        shapes("Deconvolution", data, None, kernel=(2, 2), num_filter=2, **attrs)


def test_half_precision():
    data, weight = rng.rand(1, 2, 3, 3).astype("f2"), rng.rand(2, 1, 2, 2).astype("f2")
    out = run("Deconvolution", data, weight, kernel=(2, 2), num_filter=1)
    assert out.dtype == np.float16
