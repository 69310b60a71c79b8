import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ShapeError
from helpers.numeric import check_gradients, run, shapes

rng = np.random.RandomState(1)


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
def test_gradients(rank):
    attrs = {"kernel": (2, 3, 2)[:rank], "num_filter": 2, "stride": (2, 3, 1)[:rank], "adj": (1, 2, 0)[:rank]}
    inputs = [rng.randn(1, 2, *(3, 2, 2)[:rank]), rng.randn(2, 2, *attrs["kernel"]), rng.randn(2)]
    check_gradients("Deconvolution", *inputs, wanted=(0, 1, 2), no_bias=False, **attrs)


@pytest.mark.parametrize(("rank", "layout"), [(1, "NWC"), (2, "NHWC"), (3, "NDHWC")])
def test_channels_last(rank, layout):
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
        ((1, 2, 3, 3), {"target_shape": (9, 9)}, r"target_shape is \(9, 9\), expected from 1 to \(4, 4\)"),
        ((1, 2, 3, 3), {"target_shape": (0, 3)}, "target_shape"),
        ((1, 2, 3, 3), {"adj": (1, 1)}, "adj is"),
        ((1, 2, 3, 3), {"pad": (2, 2)}, "leaves nothing"),
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
