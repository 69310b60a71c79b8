import numpy as np
import pytest

from dpmodule.base import ShapeError
from helpers.numeric import check_gradients, gradients, run, shapes

rng = np.random.RandomState(4)


@pytest.mark.parametrize("axis", [-1, 0, 1, 2])
def test_layer_norm(axis):
    data = rng.randn(3, 4, 5)
    gamma, beta = rng.randn(data.shape[axis]), rng.randn(data.shape[axis])
    spread = [1, 1, 1]
    spread[axis] = -1
    mean, std = data.mean(axis, keepdims=True), np.sqrt(data.var(axis, keepdims=True) + 0.1)
    attrs = {"axis": axis, "eps": 0.1}
    out, got_mean, got_std = run("LayerNorm", data, gamma, beta, output_mean_var=True, **attrs)
    np.testing.assert_allclose(out, (data - mean) / std * gamma.reshape(spread) + beta.reshape(spread))
    np.testing.assert_allclose(got_mean, mean)
    np.testing.assert_allclose(got_std, std)
    check_gradients("LayerNorm", data, gamma, beta, wanted=(0, 1, 2), **attrs)
    _, outs = shapes("LayerNorm", data.shape, None, None, outs=[None] * 3, output_mean_var=True, **attrs)
    assert outs == [data.shape, mean.shape, mean.shape]


@pytest.mark.parametrize("axis", [-1, 0])
def test_layer_norm_keeps_the_digits_of_long_sums(axis):
    data, head = (rng.randn(2048, 64).astype("float32") for _ in range(2))
    data, head = (data.T, head.T) if axis == 0 else (data, head)
    gamma, beta = rng.randn(2, 64).astype("float32")
    found = gradients("LayerNorm", data, gamma, beta, head=head, wanted=(1, 2), axis=axis)
    exact = data.astype("float64")
    exact = (exact - exact.mean(axis, keepdims=True)) / np.sqrt(exact.var(axis, keepdims=True) + 1e-5)
    rows = 1 + axis
    for got, want in zip(found, (exact * head, head.astype("float64")), strict=True):
        np.testing.assert_allclose(got, want.sum(rows), rtol=0, atol=3e-5)


def test_instance_norm():
    data, gamma, beta = rng.randn(2, 3, 4, 2), rng.randn(3), rng.randn(3)
    mean, std = data.mean((2, 3), keepdims=True), np.sqrt(data.var((2, 3), keepdims=True) + 1e-3)
    want = (data - mean) / std * gamma.reshape(1, 3, 1, 1) + beta.reshape(1, 3, 1, 1)
    np.testing.assert_allclose(run("InstanceNorm", data, gamma, beta), want)
    check_gradients("InstanceNorm", data, gamma, beta, wanted=(0, 1, 2))


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm(groups):
    data, gamma, beta = rng.randn(2, 6, 3), rng.randn(groups), rng.randn(groups)
    parts = data.reshape(2, groups, -1)
    mean, std = parts.mean(-1), np.sqrt(parts.var(-1) + 0.1)
    want = (parts - mean[..., None]) / std[..., None] * gamma[:, None] + beta[:, None]
    attrs = {"num_groups": groups, "eps": 0.1}
    out, got_mean, got_std = run("GroupNorm", data, gamma, beta, output_mean_var=True, **attrs)
    np.testing.assert_allclose(out, want.reshape(data.shape))
    np.testing.assert_allclose(run("GroupNorm", data, gamma, beta, **attrs), out)
    np.testing.assert_allclose(got_mean, mean, atol=1e-12)
    np.testing.assert_allclose(got_std, std)
    check_gradients("GroupNorm", data, gamma, beta, wanted=(0, 1, 2), **attrs)
    assert shapes("GroupNorm", data.shape, None, None, **attrs)[0] == [data.shape, (groups,), (groups,)]


def test_group_norm_needs_a_divisor():
    with pytest.raises(ShapeError, match="num_groups is 4"):
        shapes("GroupNorm", (2, 6, 3), None, None, num_groups=4)


@pytest.mark.parametrize("nsize", [1, 2, 3, 4, 5])
def test_lrn(nsize):
    data = rng.randn(2, 6, 3, 2)
    half = (nsize - 1) // 2
    total = np.stack([(data[:, max(c - half, 0) : c + half + 1] ** 2).sum(1) for c in range(6)], 1)
    want = data / (1.5 + 0.3 / nsize * total) ** 0.6
    attrs = {"nsize": nsize, "alpha": 0.3, "beta": 0.6, "knorm": 1.5}
    np.testing.assert_allclose(run("LRN", data, **attrs), want)
    check_gradients("LRN", data[:1, :, :1], **attrs)


@pytest.mark.parametrize(("mode", "axes"), [("instance", (1, 2, 3)), ("channel", (1,)), ("spatial", (2, 3))])
def test_l2_normalization(mode, axes):
    data = rng.randn(2, 3, 2, 2)
    want = data / np.sqrt((data**2).sum(axes, keepdims=True) + 0.1)
    np.testing.assert_allclose(run("L2Normalization", data, mode=mode, eps=0.1), want)
    check_gradients("L2Normalization", data, mode=mode, eps=0.1)


def test_l2_normalization_needs_axes():
    with pytest.raises(ShapeError, match="at least 3 axes in mode channel"):
        shapes("L2Normalization", (4, 3), mode="channel")
    with pytest.raises(ShapeError, match="at least 3 axes"):
        shapes("InstanceNorm", (4, 3), None, None)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_lrn_of_half_precision(rank):
    data = 200 * rng.randn(2, 4, *[3] * rank)  # squares beyond float16
    out = run("LRN", data.astype("f2"), nsize=3)
    assert out.dtype == np.float16
    np.testing.assert_allclose(out, run("LRN", data, nsize=3), rtol=1e-2)
