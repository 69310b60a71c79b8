import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule.base import OpError, ShapeError
from helpers.numeric import check_gradients, gradients, run, shapes

rng = np.random.RandomState(2)


def count(size, kernel, stride, pad, convention):
    if convention == "same":
        return math.ceil(size / stride)
    rounding = math.ceil if convention == "full" else math.floor
    return 1 + rounding((size + 2 * pad - kernel) / stride)


def pool(data, a):
    """Pool window by window; what lies outside the padded data does not exist."""
    spatial = data.shape[2:]
    axes = list(zip(spatial, a["kernel"], a["stride"], a["pad"], strict=True))
    sizes = [count(*each, a["pooling_convention"]) for each in axes]
    out = np.zeros((*data.shape[:2], *sizes))
    for at in np.ndindex(*sizes):
        low = [i * s - p for i, (_, _, s, p) in zip(at, axes, strict=True)]
        inside = tuple(
            slice(max(b, 0), max(min(b + k, x), 0)) for b, (x, k, _, _) in zip(low, axes, strict=True)
        )
        part = data[(slice(None), slice(None), *inside)].reshape(*data.shape[:2], -1)
        if a["count_include_pad"]:
            total = math.prod(min(b + k, x + p) - b for b, (x, k, _, p) in zip(low, axes, strict=True))
        else:
            total = part.shape[-1]
        if a["pool_type"] == "max":
            found = part.max(-1, initial=np.finfo(data.dtype).min)
        elif a["pool_type"] == "lp":
            found = (part ** a["p_value"]).sum(-1) ** (1 / a["p_value"])
        else:
            found = part.sum(-1) / (max(total, 1) if a["pool_type"] == "avg" else 1)
        out[(..., *at)] = found
    return out


@st.composite
def cases(draw):
    rank = draw(st.integers(1, 3))
    kernel = tuple(draw(st.integers(1, 4)) for _ in range(rank))
    convention = draw(st.sampled_from(["valid", "full", "same"]))
    return {
        "size": tuple(draw(st.integers(k, 7)) for k in kernel),
        "kernel": kernel,
        "stride": tuple(draw(st.integers(1, 4)) for _ in range(rank)),
        "pad": tuple(0 if convention == "same" else draw(st.integers(0, k - 1)) for k in kernel),
        "pool_type": draw(st.sampled_from(["max", "avg", "sum", "lp"])),
        "pooling_convention": convention,
        "count_include_pad": draw(st.booleans()),
        "p_value": draw(st.integers(1, 3)),
    }


@settings(max_examples=300, derandomize=True, deadline=None)
@given(cases())
def test_equals_the_formula(case):
    data = rng.rand(2, 2, *case.pop("size")) + 0.1
    want = pool(data, case)
    assert shapes("Pooling", data.shape, **case) == ([data.shape], [want.shape])
    np.testing.assert_allclose(run("Pooling", data, **case), want, rtol=1e-10)


@pytest.mark.parametrize("kind", ["max", "avg", "sum", "lp"])
@pytest.mark.parametrize("convention", ["valid", "full"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_gradients(kind, convention, rank):
    data = rng.permutation(5**rank).reshape(1, 1, *[5] * rank) * 0.1 + 0.1
    attrs = {"kernel": (3,) * rank, "stride": (2,) * rank, "pad": (2,) * rank, "p_value": 2}
    check_gradients("Pooling", data, pool_type=kind, pooling_convention=convention, **attrs)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(
    ("kind", "formula"),
    [
        ("max", lambda x: x.max(-1)),
        ("avg", lambda x: x.mean(-1)),
        ("sum", lambda x: x.sum(-1)),
        ("lp", lambda x: np.sqrt((x**2).sum(-1))),
    ],
)
def test_global(kind, formula, rank):
    data = rng.randn(2, 3, *[4] * rank)
    out = run(
        "Pooling", data, global_pool=True, pool_type=kind, p_value=2, kernel=(2,) * rank, pad=(1,) * rank
    )
    np.testing.assert_allclose(out, formula(data.reshape(2, 3, -1)).reshape(2, 3, *[1] * rank))


def test_one_of_equal_maxima_gets_the_gradient():
    (grad,) = gradients("Pooling", np.ones((1, 1, 2, 2)), kernel=(2, 2))
    assert sorted(grad.ravel()) == [0, 0, 0, 1]
    (grad,) = gradients("Pooling", np.ones((1, 1, 2, 2)), global_pool=True)
    assert sorted(grad.ravel()) == [0, 0, 0, 1]


def test_cube_root_keeps_the_sign():
    out = run("Pooling", -np.ones((1, 1, 2)), kernel=(2,), pool_type="lp", p_value=3)
    np.testing.assert_allclose(out, [[[-(2 ** (1 / 3))]]])


def test_channels_last():
    data = rng.randn(2, 5, 6, 3)
    want = np.moveaxis(run("Pooling", np.moveaxis(data, -1, 1), kernel=(2, 2)), 1, -1)
    np.testing.assert_array_equal(run("Pooling", data, kernel=(2, 2), layout="NHWC"), want)
    assert shapes("Pooling", data.shape, kernel=(2, 2), layout="NHWC")[1] == [want.shape]


def test_mistakes_are_named():
    with pytest.raises(ShapeError, match="kernel size 5 exceeds"):
        shapes("Pooling", (1, 1, 4, 4), kernel=(5, 5))
    with pytest.raises(ShapeError, match="one per spatial axis"):
        shapes("Pooling", (1, 1, 4, 4), kernel=(2,))
    with pytest.raises(ShapeError, match="pad is .*expected none with pooling_convention='same'"):
        shapes("Pooling", (1, 1, 4, 4), kernel=(2, 2), pad=(1, 1), pooling_convention="same")
    with pytest.raises((ShapeError, OpError), match="p_value is None"):
        shapes("Pooling", (1, 1, 4, 4), kernel=(2, 2), pool_type="lp")


def test_unknown_batch_size():
    assert shapes("Pooling", (0, 3, 8, 0), kernel=(3, 3)) == ([(0, 3, 8, 0)], [(0, 3, 6, 0)])
    assert shapes("Pooling", (0, 3, 8, 8), outs=[(4, 3, 6, 6)], kernel=(3, 3))[0] == [(4, 3, 8, 8)]


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("kind", ["avg", "sum", "max", "lp"])
def test_half_precision(rank, kind):
    data = np.abs(rng.randn(2, 3, *[5] * rank)) + 0.1
    attrs = {
        "kernel": (2,) * rank,
        "pool_type": kind,
        "p_value": 2,
        "pooling_convention": "full",
        "stride": (2,) * rank,
    }
    out = run("Pooling", data.astype("f2"), **attrs)
    assert out.dtype == np.float16
    np.testing.assert_allclose(out, run("Pooling", data, **attrs), rtol=1e-2)


def test_values_beyond_the_kernels_are_passed_over():
    data = rng.rand(1, 1, 10)
    found = run("Pooling", data, kernel=2, stride=(2, 7), pad=(0, 0, 0), pooling_convention="same")
    np.testing.assert_allclose(found, data.reshape(1, 1, 5, 2).max(-1))
    with pytest.raises(ShapeError, match="expected none"):
        run("Pooling", data, kernel=2, stride=2, pad=1, pooling_convention="same")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_global_average_of_large_numbers_is_finite(dtype):
    x = mx.nd.ones((2, 3, 64, 64), dtype=dtype) * 1000
    found = mx.nd.Pooling(x, global_pool=True, pool_type="avg").astype("float32").asnumpy()
    np.testing.assert_allclose(found, 1000.0, rtol=1e-2)


rng_of_pool_v1 = np.random.RandomState(11)


def pool_of_pool_v1(data, kind, kernel, stride, pad, full):
    """Pool a padded image window by window; what lies beyond the padding does not exist."""
    data = np.pad(data, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    rounding = math.ceil if full else math.floor
    sizes = [1 + rounding((x - kernel) / stride) for x in data.shape[2:]]
    out = np.zeros((*data.shape[:2], *sizes))
    for i, j in np.ndindex(*sizes):
        top, left = i * stride, j * stride
        part = data[:, :, top : top + kernel, left : left + kernel].reshape(*data.shape[:2], -1)
        if kind == "max":
            out[:, :, i, j] = part.max(-1, initial=-np.inf)
        else:
            out[:, :, i, j] = part.sum(-1) / (kernel**2 if kind == "avg" else 1)
    return out


@pytest.mark.parametrize("kind", ["max", "avg", "sum"])
@pytest.mark.parametrize("full", [True, False])
def test_equals_the_formula_of_pool_v1(kind, full):
    for kernel, stride, size in itertools.product((1, 2, 3), (1, 2, 3), (4, 5)):
        pad = kernel - 1
        data = rng_of_pool_v1.randn(2, 3, size, size + 1)
        attrs = {
            "kernel": (kernel, kernel),
            "stride": (stride, stride),
            "pad": (pad, pad),
            "pool_type": kind,
            "pooling_convention": "full" if full else "valid",
        }
        want = pool_of_pool_v1(data, kind, kernel, stride, pad, full)
        np.testing.assert_allclose(run("Pooling_v1", data, **attrs), want, atol=1e-12)
        assert shapes("Pooling_v1", data.shape, **attrs)[1] == [want.shape]


def test_gradient_and_global():
    data = rng_of_pool_v1.randn(1, 2, 4, 4)
    check_gradients("Pooling_v1", data, kernel=(3, 3), pad=(1, 1), stride=(2, 2))
    np.testing.assert_allclose(run("Pooling_v1", data, global_pool=True)[..., 0, 0], data.max((2, 3)))


def test_mistakes_are_named_of_pool_v1():
    with pytest.raises(ShapeError, match="expected 4 or 5 axes"):
        shapes("Pooling_v1", (2, 3, 4), kernel=(2,))
    with pytest.raises(ShapeError, match="one per spatial axis"):
        shapes("Pooling_v1", (2, 3, 4, 4), kernel=(2,))
