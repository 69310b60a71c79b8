import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule import native
from dpmodule.ops.nn import pool as pooling
from dpmodule.ops.nn.pool import native_max_pool, use_native_max_pool
from helpers.arrays import INF, NAN, randn
from helpers.op_case import OpCase, check_gradient, gradients, rules_test, run, shapes
from helpers.walk import walks


def windows(size, kernel, stride, pad, convention):
    if convention == "same":
        return math.ceil(size / stride)
    rounding = math.ceil if convention == "full" else math.floor
    return 1 + rounding((size + 2 * pad - kernel) / stride)


def pool(data, a):
    """Pool window by window; what lies outside the padded data does not exist."""
    axes = list(zip(data.shape[2:], a["kernel"], a["stride"], a["pad"], strict=True))
    sizes = [windows(*each, a["pooling_convention"]) for each in axes]
    out = np.zeros((*data.shape[:2], *sizes))
    for at in np.ndindex(*sizes):
        low = [i * s - p for i, (_, _, s, p) in zip(at, axes, strict=True)]
        ends = [(b, b + k, x, x + p) for b, (x, k, _, p) in zip(low, axes, strict=True)]
        inside = tuple(slice(max(b, 0), max(min(e, x), 0)) for b, e, x, _ in ends)
        part = data[(slice(None), slice(None), *inside)].reshape(*data.shape[:2], -1)
        total = math.prod(min(e, p) - b for b, e, _, p in ends) if a["count_include_pad"] else part.shape[-1]
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
    kernel = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    convention = draw(st.sampled_from(["valid", "full", "same"]))
    return {
        "size": tuple(draw(st.integers(k, 7)) for k in kernel),
        "kernel": kernel,
        "stride": tuple(draw(st.integers(1, 4)) for _ in kernel),
        "pad": tuple(0 if convention == "same" else draw(st.integers(0, k - 1)) for k in kernel),
        "pool_type": draw(st.sampled_from(["max", "avg", "sum", "lp"])),
        "pooling_convention": convention,
        "count_include_pad": draw(st.booleans()),
        "p_value": draw(st.integers(1, 3)),
    }


@settings(max_examples=300, derandomize=True, deadline=None)
@given(cases())
def test_equals_the_formula(case):
    data = np.random.RandomState(2).rand(2, 2, *case.pop("size")) + 0.1
    want = pool(data, case)
    assert shapes("Pooling", [data.shape], **case) == ([data.shape], [want.shape])
    np.testing.assert_allclose(run("Pooling", data, **case), want, rtol=1e-10)


KINDS = {"max": np.max, "avg": np.mean, "sum": np.sum, "lp": lambda x, axis: np.sqrt((x**2).sum(axis))}


@walks(product(KINDS, ["valid", "full"], [1, 2, 3]))
def test_gradients_halves_and_whole_images(kind, convention, rank):
    data = np.random.RandomState(2).permutation(5**rank).reshape(1, 1, *[5] * rank) * 0.1 + 0.1
    attrs = {"kernel": (3,) * rank, "stride": (2,) * rank, "p_value": 2, "pool_type": kind}
    attrs["pooling_convention"] = convention
    check_gradient(OpCase("Pooling", (data,), {**attrs, "pad": (2,) * rank}), tol=1e-5)
    half = run("Pooling", data.astype("f2"), **attrs)
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, run("Pooling", data, **attrs), rtol=1e-2)
    data = randn(2, 3, *[4] * rank)
    out = run("Pooling", data, **attrs, global_pool=True, pad=(1,) * rank)
    np.testing.assert_allclose(out, KINDS[kind](data.reshape(2, 3, -1), -1).reshape(2, 3, *[1] * rank))


def test_one_of_equal_maxima_gets_the_gradient():
    for attrs in ({"kernel": (2, 2)}, {"global_pool": True}):
        (grad,) = gradients("Pooling", np.ones((1, 1, 2, 2)), **attrs)
        assert sorted(grad.ravel()) == [0, 0, 0, 1]


def test_cube_root_keeps_the_sign():
    out = run("Pooling", -np.ones((1, 1, 2)), kernel=(2,), pool_type="lp", p_value=3)
    np.testing.assert_allclose(out, [[[-(2 ** (1 / 3))]]])


def test_channels_last():
    data = randn(2, 5, 6, 3)
    want = np.moveaxis(run("Pooling", np.moveaxis(data, -1, 1), kernel=(2, 2)), 1, -1)
    np.testing.assert_array_equal(run("Pooling", data, kernel=(2, 2), layout="NHWC"), want)
    assert shapes("Pooling", [data.shape], kernel=(2, 2), layout="NHWC")[1] == [want.shape]


def test_values_beyond_the_kernels_are_passed_over():
    data = randn(1, 1, 10)
    found = run("Pooling", data, kernel=2, stride=(2, 7), pad=(0, 0, 0), pooling_convention="same")
    np.testing.assert_allclose(found, data.reshape(1, 1, 5, 2).max(-1))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_global_average_of_large_numbers_is_finite(dtype):
    x = mx.nd.ones((2, 3, 64, 64), dtype=dtype) * 1000
    found = mx.nd.Pooling(x, global_pool=True, pool_type="avg").astype("float32").asnumpy()
    np.testing.assert_allclose(found, 1000.0, rtol=1e-2)


def first_version(data, kind, kernel, stride, pad, full):
    """Pool a padded image window by window; what lies beyond the padding does not exist."""
    data = np.pad(data, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    sizes = [windows(x, kernel, stride, 0, "full" if full else "valid") for x in data.shape[2:]]
    out = np.zeros((*data.shape[:2], *sizes))
    for i, j in np.ndindex(*sizes):
        part = data[:, :, i * stride : i * stride + kernel, j * stride : j * stride + kernel].reshape(
            *data.shape[:2], -1
        )
        total = kernel**2 if kind == "avg" else 1
        out[:, :, i, j] = part.max(-1, initial=-np.inf) if kind == "max" else part.sum(-1) / total
    return out


@walks(product(["max", "avg", "sum"], [True, False], (1, 2, 3), (1, 2, 3), (4, 5)))
def test_the_first_version_equals_its_formula(kind, full, kernel, stride, size):
    data, attrs = (
        randn(2, 3, size, size + 1),
        {"pool_type": kind, "kernel": (kernel,) * 2, "stride": (stride,) * 2},
    )
    attrs |= {"pad": (kernel - 1,) * 2, "pooling_convention": "full" if full else "valid"}
    want = first_version(data, kind, kernel, stride, kernel - 1, full)
    np.testing.assert_allclose(run("Pooling_v1", data, **attrs), want, atol=1e-12)
    assert shapes("Pooling_v1", [data.shape], **attrs)[1] == [want.shape]


def test_the_first_version_of_whole_images():
    data = randn(1, 2, 4, 4)
    np.testing.assert_allclose(run("Pooling_v1", data, global_pool=True)[..., 0, 0], data.max((2, 3)))


test_shapes = rules_test(
    [
        ("Pooling", [(0, 3, 8, 0)], {"kernel": (3, 3)}, [(0, 3, 8, 0)], [(0, 3, 6, 0)]),
        ("Pooling", [(0, 3, 8, 8)], {"kernel": (3, 3)}, [(4, 3, 8, 8)], None, [(4, 3, 6, 6)]),
    ]
)

# the extension's maxima

needs_kernel = pytest.mark.skipif(not hasattr(native.core, "max_pool"), reason="there is no such kernel")
PAIR = st.tuples(st.integers(1, 4), st.integers(1, 4))


def images(shape, odd=()):
    """Return numbers of both signs, some of them the odd ones given."""
    found = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
    for place, value in enumerate(odd):
        found.view(-1)[place * 7 % found.numel()] = value
    return found


@needs_kernel
@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 9), st.integers(1, 9)),
    *(PAIR, PAIR, st.tuples(st.integers(0, 2), st.integers(0, 2))),
    st.booleans(),
    st.lists(st.sampled_from([NAN, INF, -INF, -0.0]), max_size=5),
    st.sampled_from([lambda x: x, lambda x: x.transpose(2, 3), lambda x: torch.cat([x, x])[::2]]),
)
def test_maxima_are_those_of_torch(shape, kernel, stride, pad, full, odd, turn):
    data = turn(images(shape, odd))
    assume(all(2 * p <= k <= x + 2 * p for p, k, x in zip(pad, kernel, data.shape[2:], strict=True)))
    found, expected = (
        native_max_pool(data, kernel, stride, pad, full),
        torch.max_pool2d(data, kernel, stride, pad, 1, full),
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert found.is_contiguous(memory_format=torch.channels_last)


@needs_kernel
def test_what_is_left_to_torch(monkeypatch):
    data = images((2, 16, 4, 4))
    assert use_native_max_pool(data)
    for other in (images((2, 3, 4, 4)), data.double(), data[:0], data.to("meta")):
        assert not use_native_max_pool(other)
    found = []
    torch.vmap(lambda each: found.append(use_native_max_pool(each)) or each)(images((3, 2, 16, 4, 4)))
    assert found == [False]
    monkeypatch.setattr(pooling, "native_max_pool", lambda *_: pytest.fail("no gradient could follow"))
    array = mx.nd.array(data.numpy())
    array.attach_grad()
    with mx.autograd.record():
        out = mx.nd.Pooling(array, kernel=(2, 2), stride=(2, 2), pool_type="max")
    out.backward()
    assert array.grad.asnumpy().sum() == out.size


@needs_kernel
@pytest.mark.parametrize("shape", [(3, 16, 61, 40), (1, 8, 3, 700)])
def test_threads_share_the_rows(shape):
    window = (3, 3), (2, 2), (1, 1), False
    alone = native_max_pool(images(shape), *window)
    for threads in (2, 3, 8):
        torch.set_num_threads(threads)
        assert torch.equal(native_max_pool(images(shape), *window), alone)
